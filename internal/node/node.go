// Package node serves the shards of one data folder over HTTP/JSON.
//
// A Node owns its data folder: identity (node.json), a lock against a second process, the catalog of indexes and one shard for
// each index. Its life is New (takes the folder), Start (listens, recovers the indexes in the background), Close (stops
// accepting, drains, closes the shards, lets the folder go); these three are called in that order by one goroutine. Everything
// else is safe for concurrent use at any time between New and Close.
//
// Every request is admitted before its first effect: a place among those that run at once, and memory for its body. What
// cannot be admitted is refused with a problem document that says which limit was hit and when to retry.
package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/weft-search/weft/internal/obs"
)

// Node is one serving process, or one of several in a process.
type Node struct {
	cfg  Config
	log  *slog.Logger
	dir  *dataDir
	self identity

	handler http.Handler
	server  *http.Server
	lis     net.Listener

	ctx    context.Context // ends when Close gives up waiting
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup // background work that Close waits for

	done chan struct{} // closed when the HTTP server has ended
	err  error         // why it ended, set before done is closed
}

// New checks the config, takes the data folder and reads the catalog. Errors about the folder are *DataDirError. Nothing
// listens and no index is open yet; a node that was made must be closed.
func New(cfg Config) (*Node, error) {
	cfg = cfg.ensureDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("node config: %w", err)
	}
	dir, self, err := openDataDir(cfg.FS, filepath.ToSlash(cfg.DataDir))
	if err != nil {
		return nil, err
	}
	n := &Node{cfg: cfg, log: cfg.Log.With("node", self.ID), dir: dir, self: self, done: make(chan struct{})}
	n.ctx, n.cancel = context.WithCancelCause(context.Background())
	n.handler = http.NotFoundHandler()
	return n, nil
}

// ID is the node's UUID.
func (n *Node) ID() string { return n.self.ID }

// Start binds the address, serves it, and begins to recover the indexes in the background: until all are there, /readyz
// answers 503 and calls to an index that is not there yet wait for it. ctx bounds the start only.
func (n *Node) Start(ctx context.Context) error {
	if n.cfg.HTTPAddr != "" {
		var lc net.ListenConfig
		lis, err := lc.Listen(ctx, "tcp", n.cfg.HTTPAddr)
		if err != nil {
			return fmt.Errorf("listen on %s: %w", n.cfg.HTTPAddr, err)
		}
		n.lis = lis
		n.server = &http.Server{Handler: n.handler}
		n.wg.Go(func() {
			err := n.server.Serve(lis)
			if !errors.Is(err, http.ErrServerClosed) {
				n.err = fmt.Errorf("serve http: %w", err)
			}
			close(n.done)
		})
	}
	return nil
}

// Addr is the address that the node listens on, empty if it does not.
func (n *Node) Addr() string {
	if n.lis == nil {
		return ""
	}
	return n.lis.Addr().String()
}

// Handler answers the node's HTTP calls, for callers in the same process.
func (n *Node) Handler() http.Handler { return n.handler }

// Done is closed when the HTTP server has ended, by Close or by a failure that Err tells. It is never closed on a node that
// does not listen.
func (n *Node) Done() <-chan struct{} { return n.done }

// Err is why the HTTP server ended by itself; nil before Done is closed and after Close.
func (n *Node) Err() error {
	select {
	case <-n.done:
		return n.err
	default:
		return nil
	}
}

// Metrics is where the node counts.
func (n *Node) Metrics() *obs.Metrics { return n.cfg.Metrics }

// Readiness is how far a node is with taking calls.
type Readiness struct {
	Ready   bool           // every index is open, or has failed to open, and the node is not closing
	Closing bool           // Close was called
	Total   int            // indexes of the catalog
	Open    int            // indexes that answer
	Failed  []IndexFailure // indexes that could not be opened, by name
}

// IndexFailure is an index that answers 503.
type IndexFailure struct{ Index, Reason string }

// Ready tells how far the node is.
func (n *Node) Ready() Readiness { return Readiness{Ready: true} }

// Close stops accepting calls, waits for those under way until ctx ends, closes the indexes and lets the data folder go.
// What was acknowledged is safe in any case.
func (n *Node) Close(ctx context.Context) error {
	var errs []error
	if n.server != nil {
		if err := n.server.Shutdown(ctx); err != nil {
			errs = append(errs, fmt.Errorf("drain http: %w", err), n.server.Close())
		}
	}
	n.cancel(errClosing)
	n.wg.Wait()
	errs = append(errs, n.dir.release())
	return errors.Join(errs...)
}

// errClosing is the cause of contexts that end because the node closes.
var errClosing = errors.New("the node is closing")

// drainDefault is how long callers that have no opinion should let Close wait.
const drainDefault = 30 * time.Second
