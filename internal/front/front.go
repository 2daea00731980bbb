// Package front is the HTTP surface of a serving process without its answers: it takes calls in, reads what they send within bounds,
// and sends what their handlers make. A role, which is a node or the coordinator of a cluster, gives it routes and says what its errors
// mean.
//
// Goals: whatever a peer can make the process hold is bounded and charged before it is there; whoever is slow is cut off and keeps nothing
// of others; every failure is a problem document; and the end is in good order.
//
// A Server also keeps the listeners of other protocols, so that all of a process begin and end together. Its life is New, Listen, Serve,
// Shutdown, Wait, called in that order by one goroutine; Listen and Serve may be left out. All else is safe for concurrent use.
package front

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/weft-search/weft/internal/admit"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/obs"
)

// Route is one call of the HTTP surface.
type Route struct {
	Name    string   // in metrics and logs
	Method  string   // GET serves HEAD, too
	Path    string   // as in the OpenAPI document
	Params  []string // of the URL's query part; nil: the handler reads them itself
	Always  bool     // answered also while the server is closing
	Handler func(c *Call) *api.Problem

	// Bodyless calls are refused when they bring a body: what they are to do stands in the URL, and a caller that says it elsewhere means
	// something else than would be done.
	Bodyless bool
}

// Config is what a role gives its server. All but LameDuck and Problem has to be set.
type Config struct {
	Routes  []Route
	Log     *slog.Logger
	Metrics *obs.Metrics
	Limits  Limits
	// LameDuck is how long Shutdown goes on as before, with Closing true, so that whoever sends traffic here learns of the end while nothing
	// fails yet. Zero: not at all.
	LameDuck time.Duration
	// Problem turns an error of the role into what its caller is told; ctx is that of the work that failed. It is asked for ErrClosing and
	// refusals of gates as well. Nil: the function Problem.
	Problem func(ctx context.Context, err error) *api.Problem
}

// Limits bound what calls may take.
type Limits struct {
	URLBytes     int           // request target
	HeaderBytes  int           // all headers of a request; above twice this and URLBytes the connection ends without a problem document
	RequestBytes int64         // memory for the bodies of all requests under way
	RequestQueue int           // of them, those that wait for it
	QueueWait    time.Duration // longest wait for it
	ReplyRoom    int64         // memory of the long replies that are being sent
	BodyStall    time.Duration // longest wait for the next bytes of a body
	ReplyTime    time.Duration // longest time to take a reply off the socket; a caller that takes nothing for ReplyStall is cut off earlier
	IdleTime     time.Duration // longest time a connection is kept between requests
}

// Server takes the calls of one role.
type Server struct {
	cfg     Config
	log     *slog.Logger
	handler http.Handler

	memory  *admit.Gate // bytes of request bodies
	replies *admit.Gate // bytes of long replies that are being sent
	late    *admit.Gate // of those that found no room there; see Call.LeaveRead
	drain   *Drain

	refused  map[api.Code]obs.Counter
	failures obs.LineLimit
	away     sparse // failures that a state of others makes of every call

	list []*Listening // in the order of their bindings
	end  sync.Once
	done chan struct{} // closed when a listener has ended
	err  error         // why it ended by itself; set before done is closed
	wg   sync.WaitGroup
}

// New returns a server that does not listen yet.
func New(cfg Config) *Server {
	l := cfg.Limits
	s := &Server{
		cfg: cfg, log: cfg.Log,
		memory:  admit.New(GateMemory, l.RequestBytes, l.RequestQueue, l.QueueWait),
		replies: admit.New(GateReplies, l.ReplyRoom, 0, 0), // never waited for
		late:    admit.New(GateReplies, l.ReplyRoom, 0, 0),
		drain:   newDrain(),
		refused: make(map[api.Code]obs.Counter),
		done:    make(chan struct{}),
	}
	if cfg.Problem == nil {
		s.cfg.Problem = Problem
	}
	for code, info := range api.Codes {
		if info.Status == http.StatusTooManyRequests || info.Status == http.StatusServiceUnavailable {
			s.refused[code] = cfg.Metrics.Refused(string(code))
		}
	}
	WatchGate(cfg.Metrics, "request_bytes", s.memory)
	s.handler = s.newHandler()
	return s
}

// WatchGate makes metrics of what a gate has given out and of who waits for it.
func WatchGate(m *obs.Metrics, name string, gate *admit.Gate) {
	m.GaugeFunc("weft_admitted_"+name, "What the gate has given out.", func() float64 { return float64(gate.Used()) })
	m.GaugeFunc("weft_waiting_for_"+name, "Requests that wait for the gate.", func() float64 { return float64(gate.Waiting()) })
}

// Handler answers calls, for callers in the same process.
func (s *Server) Handler() http.Handler { return s.handler }

// Memory gives out the bytes of request bodies, and of what else belongs to requests.
func (s *Server) Memory() *admit.Gate { return s.memory }

// Replies gives out the bytes of long replies that are being sent. It is never waited for.
func (s *Server) Replies() *admit.Gate { return s.replies }

// Drain counts the calls under way. Those that come another way than over HTTP are to be counted there, too.
func (s *Server) Drain() *Drain { return s.drain }

// Closing tells whether Shutdown was called; calls may still be answered for Config.LameDuck.
func (s *Server) Closing() bool { return s.drain.announced() }

// Problem is what the caller is told of an error of work that was done with ctx.
func (s *Server) Problem(ctx context.Context, err error) *api.Problem { return s.cfg.Problem(ctx, err) }

// CountFailure counts a refusal, and logs why a call failed that should not have. Where others are to blame, such as members of a cluster
// that are away, every call fails alike while that lasts: it is logged once, and once a minute from then on.
func (s *Server) CountFailure(p *api.Problem) {
	status := p.HTTPStatus()
	if status >= http.StatusInternalServerError && p.Cause != nil {
		level, allow := slog.LevelError, s.failures.Allow
		if ofOthers(p.Code) {
			level, allow = slog.LevelWarn, func() (uint64, bool) { return s.away.allow(p.Code) }
		}
		if dropped, ok := allow(); ok {
			s.log.Log(context.Background(), level, "request failed", "request_id", p.RequestID, "code", string(p.Code), "error", p.Cause, "dropped_lines", dropped)
		}
	}
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		s.refused[p.Code].Inc()
	}
}
