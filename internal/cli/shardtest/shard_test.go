package shardtest

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/leaf/framed"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/wire/frame"
)

// patience is how long a test waits for what should come at once. It is far above any time-out of the node.
const patience = 60 * time.Second

// socket is a connection that a test speaks frames over by hand.
type socket struct {
	t *testing.T
	*net.TCPConn
}

func connect(t *testing.T, addr string) socket {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return socket{t, c.(*net.TCPConn)}
}

func framed4(body string) []byte {
	return append(binary.LittleEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// send writes bytes; a peer that has closed already is no failure, since what it said is read next.
func (s socket) send(b []byte) {
	s.t.Helper()
	if _, err := s.Write(b); err != nil && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
		s.t.Fatal(err)
	}
}

// receive reads a reply; nil at the end of the connection.
func (s socket) receive() map[string]any {
	s.t.Helper()
	var head [4]byte
	if _, err := io.ReadFull(s, head[:]); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
			return nil
		}
		s.t.Fatal(err)
	}
	body := make([]byte, binary.LittleEndian.Uint32(head[:]))
	if _, err := io.ReadFull(s, body); err != nil {
		s.t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(body, &m); err != nil {
		s.t.Fatalf("%s: %v", body, err)
	}
	return m
}

// ask sends one request and reads the reply.
func (s socket) ask(request string) map[string]any {
	s.t.Helper()
	s.send(framed4(request))
	return s.receive()
}

func documents(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"id":"d%03d","title":"document %d about %s","year":%d}`+"\n", i, i, []string{"wool", "silk", "wool and silk"}[i%3], 1900+i)
	}
	return b.String()
}

// A script that knows nothing but the framing and a coordinator over gRPC get the same answers from one node.
func TestANodeAnswersBothProtocolsAlike(t *testing.T) {
	p := start(t, t.TempDir(), "127.0.0.1:0", "127.0.0.1:0")
	s := connect(t, p.shard())
	bulk, err := json.Marshal(documents(300))
	if err != nil {
		t.Fatal(err)
	}
	if m := s.ask(`{"op":"bulk","body":` + string(bulk) + `}`); m["ok"] != true || m["indexed"] != 300.0 {
		t.Fatalf("bulk: %v", m)
	}
	if m := s.ask(`{"op":"docs"}`); m["docs"] != 300.0 {
		t.Fatalf("docs: %v", m)
	}
	byHand := s.ask(`{"op":"search","query":"wool silk","limit":20}`)
	if byHand["ok"] != true || byHand["total"] != 300.0 {
		t.Fatalf("search: %v", byHand)
	}
	q, err := query.Parse("wool silk", query.ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx := within(t, patience)
	fc := framed.NewClient(&frame.Client{Addr: p.shard()})
	defer fc.Close()
	var replies []*leaf.SearchReply
	for _, l := range []leaf.Leaf{p.dial(t), fc} {
		r, err := l.Search(ctx, &leaf.SearchRequest{Query: q, Limit: 20})
		if err != nil {
			t.Fatal(err)
		}
		replies = append(replies, r)
	}
	if diff := cmp.Diff(replies[0].Hits, replies[1].Hits); diff != "" {
		t.Errorf("hits over gRPC (-) and frames (+):\n%s", diff)
	}
	if replies[0].Snapshot != replies[1].Snapshot {
		t.Errorf("snapshots %v and %v", replies[0].Snapshot, replies[1].Snapshot)
	}
	hits := byHand["hits"].([]any)
	if len(hits) != len(replies[0].Hits) {
		t.Fatalf("%d hits by hand, %d over gRPC", len(hits), len(replies[0].Hits))
	}
	for i, h := range replies[0].Hits {
		got := hits[i].([]any)
		if got[0] != h.ID || float32(got[1].(float64)) != h.Score {
			t.Errorf("hit %d is %v by hand and %v over gRPC", i, got, h)
		}
	}
	p.stop()
}

// Whatever bytes come to the shard port, the peer that sent them gets an answer or an end, and everyone else is served.
func TestANodeOutlivesWhatComesToItsShardPort(t *testing.T) {
	p := start(t, t.TempDir(), "127.0.0.1:0", "127.0.0.1:0", "--max-frame-mb", "1")
	if m := connect(t, p.shard()).ask(`{"op":"index","body":"{\"id\":\"a\",\"t\":\"kept\"}"}`); m["ok"] != true {
		t.Fatalf("index: %v", m)
	}
	alive := func(t *testing.T) {
		t.Helper()
		if m := connect(t, p.shard()).ask(`{"op":"search","query":"kept","limit":1}`); m["total"] != 1.0 {
			t.Errorf("another caller got %v", m)
		}
	}
	// In a group, so that what follows waits for it.
	t.Run("attacks", func(t *testing.T) {
		for _, c := range []struct {
			name string
			send []byte
			code string // of the reply; empty: the connection ends without one
			open bool   // the connection can be used afterwards
		}{
			{"NotJSON", framed4(`{"op":`), "invalid_json", false},
			{"NotAnObject", framed4(`[1]`), "invalid_json", true},
			{"Empty", framed4(``), "invalid_json", false},
			{"NotUTF8", framed4("{\"op\":\"\xff\"}"), "invalid_utf8", false},
			{"TooLong", binary.LittleEndian.AppendUint32(nil, 1<<20+1), "body_too_large", false},
			{"LongestThereIs", []byte("\xff\xff\xff\xff and then some"), "body_too_large", false},
			{"LooksLikeHTTP", []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), "body_too_large", false},
			{"UnknownOp", framed4(`{"op":"drop"}`), "invalid_parameter", true},
			{"NoOp", framed4(`{}`), "missing_parameter", true},
			{"UnknownMember", framed4(`{"op":"ping","x":1}`), "unknown_parameter", true},
			{"RepeatedMember", framed4(`{"op":"ping","op":"ping"}`), "repeated_parameter", true},
			{"BadQuery", framed4(`{"op":"search","query":"(","limit":1}`), "invalid_query", true},
			{"NoIndex", framed4(`{"op":"docs","index":"none"}`), "index_not_found", true},
			{"TooManyHits", framed4(`{"op":"search","query":"x","limit":1000000000}`), "invalid_parameter", true},
			{"DeepJSON", framed4(`{"op":` + strings.Repeat("[", 100_000)), "invalid_json", false},
		} {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				s := connect(t, p.shard())
				s.send(c.send)
				m := s.receive()
				if m["ok"] != false || m["code"] != c.code || m["error"] == "" {
					t.Errorf("reply %v, want code %q", m, c.code)
				}
				if c.open {
					if m := s.ask(`{"op":"ping"}`); m["ok"] != true {
						t.Errorf("the connection answers %v afterwards", m)
					}
				} else if m := s.receive(); m != nil {
					t.Errorf("the connection goes on with %v", m)
				}
			})
		}
		t.Run("Truncated", func(t *testing.T) {
			t.Parallel()
			whole := framed4(`{"op":"ping"}`)
			for n := range whole {
				s := connect(t, p.shard())
				s.send(whole[:n])
				if err := s.CloseWrite(); err != nil {
					t.Fatal(err)
				}
				if m := s.receive(); m != nil {
					t.Errorf("%d bytes of a request are answered with %v", n, m)
				}
			}
		})
		t.Run("HalfClosed", func(t *testing.T) {
			t.Parallel()
			s := connect(t, p.shard())
			s.send(framed4(`{"op":"search","query":"kept","limit":1}`))
			if err := s.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if m := s.receive(); m["total"] != 1.0 {
				t.Errorf("a caller that has closed its half got %v", m)
			}
			if m := s.receive(); m != nil {
				t.Errorf("then %v", m)
			}
		})
		t.Run("InPieces", func(t *testing.T) {
			t.Parallel()
			s := connect(t, p.shard())
			for _, b := range framed4(`{"op":"ping"}`) {
				s.send([]byte{b})
			}
			if m := s.receive(); m["ok"] != true {
				t.Errorf("got %v", m)
			}
		})
		t.Run("Pipelined", func(t *testing.T) {
			t.Parallel()
			s := connect(t, p.shard())
			var b []byte
			for range 50 {
				b = append(append(b, framed4(`{"op":"docs"}`)...), framed4(`{"op":"ping"}`)...)
			}
			s.send(b)
			for i := range 100 {
				m := s.receive()
				if _, docs := m["docs"]; m["ok"] != true || docs != (i%2 == 0) {
					t.Fatalf("reply %d is %v", i, m)
				}
			}
		})
		t.Run("SlowLoris", func(t *testing.T) {
			t.Parallel()
			conns := make([]socket, 200)
			for i := range conns {
				conns[i] = connect(t, p.shard())
				conns[i].send(framed4(`{"op":"ping"}`)[:1+i%8])
			}
			alive(t)
			for i, s := range conns {
				if m := s.receive(); m != nil && m["ok"] != false {
					t.Errorf("connection %d got %v", i, m)
				}
			}
		})
		t.Run("Noise", func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(5, 5))
			for range 200 {
				b := make([]byte, 1+rng.IntN(200))
				for i := range b {
					b[i] = byte(rng.Uint32())
				}
				if len(b) > 4 && rng.IntN(2) == 0 {
					binary.LittleEndian.PutUint32(b, uint32(len(b)-4))
				}
				s := connect(t, p.shard())
				s.send(b)
				if err := s.CloseWrite(); err != nil && !errors.Is(err, syscall.ENOTCONN) {
					t.Fatal(err)
				}
				for m := s.receive(); m != nil; m = s.receive() {
					if m["ok"] != false {
						t.Errorf("%q is answered with %v", b, m)
					}
				}
			}
		})
		t.Run("Reset", func(t *testing.T) {
			t.Parallel()
			for range 100 {
				s := connect(t, p.shard())
				s.send(framed4(`{"op":"search","query":"kept","limit":1}`))
				if err := s.SetLinger(0); err != nil {
					t.Fatal(err)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
		t.Run("OthersAreServed", func(t *testing.T) {
			t.Parallel()
			for range 20 {
				alive(t)
			}
		})
	})
	alive(t)
	p.stop()
}

// A node that was killed and came back is asked over sockets and connections that died with it; callers do not notice.
func TestARestartUnderAWarmPoolIsInvisible(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir, "127.0.0.1:0", "127.0.0.1:0")
	fc := &frame.Client{Addr: p.shard()}
	l := framed.NewClient(fc)
	defer l.Close()
	ctx := within(t, 2*patience)
	index := func(id string) error {
		_, err := l.Index(ctx, &leaf.IndexRequest{Body: fmt.Appendf(nil, `{"id":%q,"t":"kept"}`, id)})
		return err
	}
	if err := index("first"); err != nil {
		t.Fatal(err)
	}
	warm := func() {
		t.Helper()
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 5 {
					if _, err := l.Docs(ctx, &leaf.DocsRequest{}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
	}
	for round := range 3 {
		warm()
		p.kill()
		p = start(t, dir, p.grpc(), p.shard())
		// A write first: it is only sent again where the node cannot have had it, so a dead socket has to be noticed before.
		if err := index(fmt.Sprintf("after %d", round)); err != nil {
			t.Fatalf("a write after restart %d: %v", round, err)
		}
		r, err := l.Docs(ctx, &leaf.DocsRequest{})
		if err != nil {
			t.Fatalf("a read after restart %d: %v", round, err)
		}
		if want := uint64(round + 2); r.Docs != want {
			t.Errorf("%d documents after restart %d, want %d", r.Docs, round, want)
		}
	}
	p.stop()
	if err := index("nobody"); err == nil {
		t.Error("a write was acknowledged by nobody")
	} else if e, ok := errors.AsType[*leaf.TransportError](err); !ok || e.MaybeApplied {
		t.Errorf("a write that nobody heard: %v", err)
	}
}
