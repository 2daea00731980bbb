package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/weft-search/weft/internal/client"
)

// index is the name of the index of every corpus.
const index = "bench"

// system is one way to serve a corpus: a node, or a broker before shards.
type system struct {
	name  string
	url   string // of POST /search
	parts []*process
	http  *http.Client
	api   *client.Client
}

// system names.
const (
	oneNode   = "node"
	framed    = "framed"
	overGRPC  = "grpc"
	framedDFS = "framed, dfs"
	grpcDFS   = "grpc, dfs"
)

// Flags of nodes and brokers. What is said in logs costs time and is read by no one here.
var quiet = []string{"--log-level", "error"}

// node starts one node that serves HTTP.
func (b *bench) node(flags ...string) (*system, error) {
	s := b.system(oneNode)
	args := append([]string{"node", "--http", "127.0.0.1:0", "--data-dir", b.path(oneNode)}, quiet...)
	p, err := b.start(oneNode, 1, append(args, flags...)...)
	if err != nil {
		return nil, err
	}
	s.parts = append(s.parts, p)
	return s, s.reach(p)
}

// cluster starts a broker over shards with so many members each, which speak framed JSON or gRPC.
func (b *bench) cluster(name string, shards, members int, flags ...string) (*system, error) {
	s := b.system(name)
	flag, protocol, prefix := "--shard-port", "shard", ""
	if name == overGRPC {
		flag, protocol, prefix = "--grpc", "grpc", "grpc://"
	}
	var groups []string
	for g := range shards {
		var group []string
		for m := range members {
			id := fmt.Sprintf("%s-%d-%d-%d", name, members, g, m)
			args := append([]string{"node", flag, "127.0.0.1:0", "--data-dir", b.path(id)}, quiet...)
			p, err := b.start(id, 1, append(args, flags...)...)
			if err != nil {
				return nil, errors.Join(err, s.stop())
			}
			s.parts = append(s.parts, p)
			group = append(group, prefix+p.at[protocol])
		}
		groups = append(groups, strings.Join(group, "|"))
	}
	id := fmt.Sprintf("%s-%d-broker", name, members)
	args := append([]string{"broker", "--http", "127.0.0.1:0", "--data-dir", b.path(id), "--shards", strings.Join(groups, ","), "--repair-every", "0s"}, quiet...)
	p, err := b.start(id, 1, args...)
	if err != nil {
		return nil, errors.Join(err, s.stop())
	}
	s.parts = append(s.parts, p)
	return s, s.reach(p)
}

func (b *bench) system(name string) *system {
	t := &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}
	return &system{name: name, http: &http.Client{Transport: t}}
}

func (b *bench) path(id string) string { return filepath.Join(b.out, "data", id) }

// reach waits until the server takes calls.
func (s *system) reach(p *process) error {
	base := "http://" + p.at["http"]
	s.url = base + "/search?index=" + index
	var err error
	if s.api, err = client.New(base, client.Options{HTTP: s.http}); err != nil {
		return errors.Join(err, s.stop())
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	for {
		if err = s.api.Ready(ctx); err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return errors.Join(fmt.Errorf("%s is not ready: %w", s.name, err), s.stop())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// stop ends all processes, the broker first.
func (s *system) stop() error {
	var errs []error
	for i := len(s.parts) - 1; i >= 0; i-- {
		errs = append(errs, s.parts[i].stop())
	}
	s.http.CloseIdleConnections()
	return errors.Join(errs...)
}

// ticks is the processor time of all processes, in hundredths of a second.
func (s *system) ticks() (sum int64) {
	for _, p := range s.parts {
		sum += p.ticks()
	}
	return sum
}

// memory is the resident memory of all processes in MiB, and the sum of the most that each had.
func (s *system) memory() (now, most int) {
	for _, p := range s.parts {
		n, m := p.memory()
		now, most = now+n, most+m
	}
	return now, most
}

// caller sends searches one after the other. Its buffer is used again.
type caller struct {
	s   *system
	buf bytes.Buffer
}

// search sends one request and reads its reply.
func (c *caller) search(ctx context.Context, body []byte) (time.Duration, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.s.url, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	began := time.Now()
	resp, err := c.s.http.Do(req)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", c.s.name, err)
	}
	c.buf.Reset()
	_, err = c.buf.ReadFrom(resp.Body)
	took := time.Since(began)
	if cerr := resp.Body.Close(); err == nil {
		err = cerr
	}
	switch {
	case err != nil:
		return 0, fmt.Errorf("%s: read the reply: %w", c.s.name, err)
	case resp.StatusCode != http.StatusOK:
		return 0, fmt.Errorf("%s: %s: status %d: %s", c.s.name, body, resp.StatusCode, c.buf.Bytes()[:min(c.buf.Len(), 500)])
	}
	return took, nil
}

// load sends the documents of a corpus in bulks and returns how long that took. The bulks are made before the clock runs.
func (s *system) load(ctx context.Context, name string, c *corpus, atOnce int) (time.Duration, error) {
	if _, err := s.api.PutIndex(ctx, name, strings.Replace(c.schema, "index bench", "index "+name, 1)); err != nil {
		return 0, fmt.Errorf("%s: make the index: %w", s.name, err)
	}
	var took time.Duration
	for from := 0; from < c.n; from += atOnce {
		to := min(from+atOnce, c.n)
		body := c.body(from, to)
		began := time.Now()
		r, err := s.api.Bulk(ctx, name, body)
		took += time.Since(began)
		if err == nil && r.Indexed != to-from {
			err = fmt.Errorf("%d of %d documents are in: %v", r.Indexed, to-from, r.Errors)
		}
		if err != nil {
			return 0, fmt.Errorf("%s: bulk: %w", s.name, err)
		}
	}
	return took, nil
}

// rest waits until the processes have nothing more to do, as after a load.
func rest(ctx context.Context, list ...*system) error {
	const look, idle = 500 * time.Millisecond, 4
	t := time.NewTicker(look)
	defer t.Stop()
	before, calm := int64(-1), 0
	for calm < 4 {
		select {
		case <-t.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		var now int64
		for _, s := range list {
			now += s.ticks()
		}
		if calm++; before < 0 || now-before > idle {
			calm = 0
		}
		before = now
	}
	return nil
}

// segments tells how many segments an index has in all.
func (s *system) segments(ctx context.Context) (uint64, error) {
	ix, err := s.api.Index(ctx, index)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", s.name, err)
	}
	return ix.Segments, nil
}

// clear removes what processes have kept.
func (b *bench) clear() error { return os.RemoveAll(filepath.Join(b.out, "data")) }
