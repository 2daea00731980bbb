package service_test

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/broker/service"
)

// path is the way to a node, on which faults happen.
type path struct {
	addr, to string
	mu       sync.Mutex
	how      fault
	conns    map[net.Conn]bool // of the broker
	turn     chan struct{}     // closed when how has changed
	ended    bool
}

type fault int

const (
	fine    fault = iota
	silent        // bytes are taken, or not even that, and none come
	garbage       // bytes come that mean nothing
	cut           // connections end as soon as they are there
)

// through puts a path before a node, which then has the path's address.
func through(t testing.TB, n *fake) *path {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &path{addr: lis.Addr().String(), to: n.addr, conns: map[net.Conn]bool{}, turn: make(chan struct{})}
	n.addr = p.addr
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			all.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() {
		if err := lis.Close(); err != nil {
			t.Error(err)
		}
		p.mu.Lock()
		p.ended = true
		p.mu.Unlock()
		p.set(cut)
		all.Wait()
	})
	return p
}

// set changes what happens, also on connections that are there.
func (p *path) set(how fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.how = how
	close(p.turn)
	p.turn = make(chan struct{})
	for c := range p.conns {
		switch how {
		case garbage:
			io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\nthis is no frame, and neither is that") //nolint:errcheck // whoever is gone is gone
		case cut:
			c.Close()
		}
	}
}

func (p *path) is() (fault, chan struct{}, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.how, p.turn, p.ended
}

func (p *path) serve(c net.Conn) {
	defer c.Close()
	p.mu.Lock()
	how := p.how
	p.conns[c] = true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, c)
	}()
	switch how {
	case cut:
		return
	case garbage:
		if _, err := io.WriteString(c, "SSH-2.0-OpenSSH_9.6\r\n"); err != nil {
			return
		}
	}
	up, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer up.Close()
	var both sync.WaitGroup
	carry := func(from, to net.Conn) {
		defer from.Close()
		defer to.Close()
		b := make([]byte, 32<<10)
		for {
			n, err := from.Read(b)
			for {
				how, turn, ended := p.is()
				if how == fine || ended {
					break
				}
				if how == cut || how == garbage && err != nil {
					return
				}
				<-turn
			}
			if _, werr := to.Write(b[:n]); err != nil || werr != nil {
				return
			}
		}
	}
	both.Go(func() { carry(c, up) })
	both.Go(func() { carry(up, c) })
	both.Wait()
}

func searchOf(t testing.TB, index string) [][]byte {
	t.Helper()
	return [][]byte{encoded(t, &summapb.SearchRequest{IndexName: index, Query: &summapb.Query{Query: &summapb.Query_All{All: &summapb.AllQuery{}}}})}
}

// TestFaultyNodesLeaveOthersAlone has four nodes that fall silent, hang, speak nonsense, and come and go. Calls of an index elsewhere are
// answered all the while, although as many as may be wait for the faulty nodes; these get their deadlines and refusals, and come back.
func TestFaultyNodesLeaveOthersAlone(t *testing.T) {
	good := &fake{id: "good", shard: "good", indexes: []string{"good"}}
	bad := map[string]*fake{}
	all := []*fake{good}
	for _, name := range []string{"silent", "hanging", "garbage", "flapping"} {
		bad[name] = &fake{id: name, shard: name, indexes: []string{name}}
		all = append(all, bad[name])
	}
	hanging := make(chan struct{})
	waits := make(chan struct{}, 1000)
	reply := encoded(t, &summapb.SearchResponse{TotalHits: 7})
	nodes(t, func(a *asked) ([]byte, error) {
		if a.node == "hanging" {
			waits <- struct{}{}
			select {
			case <-hanging:
			case <-a.ctx.Done():
				return nil, status.FromContextError(a.ctx.Err()).Err()
			}
		}
		return reply, nil
	}, all...)
	paths := map[string]*path{}
	for name, n := range bad {
		paths[name] = through(t, n)
	}
	b := start(t, service.Config{
		Source: source(all), Placement: placement(t, "single"), PollInterval: 20 * time.Millisecond, ProbeInterval: 20 * time.Millisecond,
		ListTimeout: 2 * time.Second, Grace: time.Hour,
	}, len(all))
	for _, n := range all[1:] {
		if n.id != "hanging" {
			if _, err := b.call(t.Context(), "Search", searchOf(t, n.id)); err != nil {
				t.Fatalf("%s before anything: %v", n.id, err)
			}
		}
	}

	paths["silent"].set(silent)
	paths["garbage"].set(garbage)
	waiting, leave := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	flapping, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		every := time.NewTicker(5 * time.Millisecond)
		defer every.Stop()
		for how := cut; ; how = cut - how {
			paths["flapping"].set(how)
			select {
			case <-every.C:
			case <-flapping:
				return
			}
		}
	}()
	// As many calls as a node may have, which end when they are given up.
	for _, name := range []string{"silent", "hanging"} {
		for range 16 {
			calls.Go(func() {
				err := status.Error(codes.ResourceExhausted, "")
				for status.Code(err) == codes.ResourceExhausted { // while the place is taken by who looks whether there is one
					_, err = b.call(waiting, "Search", searchOf(t, name))
				}
				if status.Code(err) != codes.Canceled {
					t.Errorf("a call of %s that its client gave up: %v", name, err)
				}
			})
		}
	}
	for range 16 {
		<-waits
	}
	soon(t, "the silent node is full", func() bool {
		short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := b.call(short, "Search", searchOf(t, "silent"))
		return status.Code(err) == codes.ResourceExhausted
	})
	soon(t, "the silent node and that of nonsense are suspect", func() bool {
		suspect := 0
		for _, n := range b.backends(t) {
			if (n.BackendId == "silent" || n.BackendId == "garbage") && n.Health == "suspect" {
				suspect++
			}
		}
		return suspect == 2
	})
	var others sync.WaitGroup
	for range 8 {
		others.Go(func() {
			for range 100 {
				if got, err := b.call(t.Context(), "Search", searchOf(t, "good")); err != nil || string(got) != string(reply) {
					t.Errorf("a call elsewhere: %x, %v", got, err)
					return
				}
			}
		})
	}
	for range 2 {
		others.Go(func() {
			for range 50 {
				if _, err := b.call(t.Context(), "Search", searchOf(t, "flapping")); err != nil && status.Code(err) != codes.Unavailable {
					t.Errorf("a call of the node that comes and goes: %v", err)
				}
			}
		})
		others.Go(func() {
			for range 10 {
				if _, err := b.call(t.Context(), "Search", searchOf(t, "garbage")); status.Code(err) != codes.Unavailable {
					t.Errorf("a call of the node that speaks nonsense: %v", err)
				}
			}
		})
		others.Go(func() {
			short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			if _, err := b.call(short, "GetIndexInfo", searchOf(t, "silent")); status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("a call of the silent node with a deadline: %v", err)
			}
		})
	}
	others.Wait()
	leave()
	calls.Wait()
	close(flapping)
	<-stopped
	close(hanging)
	for _, p := range paths {
		p.set(cut) // what was said amiss on a connection stays amiss
		p.set(fine)
	}
	soon(t, "all are healthy again", func() bool { return b.healthy(t) == len(all) })
	for _, n := range all {
		soon(t, n.id+" answers again", func() bool {
			_, err := b.call(t.Context(), "Search", searchOf(t, n.id))
			return err == nil
		})
	}
}
