package framed

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/wire/frame"
)

// slowUplink takes two megabytes a second.
type slowUplink struct{ net.Conn }

func (c *slowUplink) Write(p []byte) (int, error) {
	const rate, step = 2_000_000, 100_000
	sent := 0
	for sent < len(p) {
		part := p[sent:min(len(p), sent+step)]
		<-time.After(time.Duration(len(part)) * time.Second / rate)
		n, err := c.Conn.Write(part)
		if sent += n; err != nil {
			return sent, err
		}
	}
	return sent, nil
}

// A client whose uplink carries two megabytes a second gets loads and long documents through, with the limits there are.
func TestClientWithASlowUplink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &fake{}
		loaded := int64(0)
		l.bulk = func(_ context.Context, _ *leaf.BulkRequest, body io.Reader) (*leaf.BulkReply, error) {
			n, err := io.Copy(io.Discard, body)
			loaded += n
			return &leaf.BulkReply{BulkReply: api.BulkReply{OK: true, Indexed: 1}}, err
		}
		l.info = func(context.Context, *leaf.InfoRequest) (*leaf.InfoReply, error) { return &leaf.InfoReply{}, nil }
		l.index = func(_ context.Context, r *leaf.IndexRequest) (*leaf.IndexReply, error) {
			loaded += int64(len(r.Body))
			return &leaf.IndexReply{}, nil
		}
		h := NewHandler(l, HandlerOptions{})
		s := &frame.Server{Handler: h.Handle, Refuse: Refuse}
		lis := &pipes{make(chan net.Conn), make(chan struct{})}
		served := make(chan error, 1)
		go func() { served <- s.Serve(lis) }()
		c := NewClient(&frame.Client{Addr: "pipe", Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			nc, err := lis.dial(ctx, addr)
			return &slowUplink{nc}, err
		}})

		const docs, doc = 10, 1 << 20
		line := `{"t":"` + strings.Repeat("a", doc) + `"}` + "\n"
		begun := time.Now()
		if _, err := c.Bulk(t.Context(), &leaf.BulkRequest{}, strings.NewReader(strings.Repeat(line, docs))); err != nil {
			t.Errorf("load: %v after %v", err, time.Since(begun))
		}
		if _, err := c.Index(t.Context(), &leaf.IndexRequest{Body: []byte(`{"t":"` + strings.Repeat("a", 8<<20) + `"}`)}); err != nil {
			t.Errorf("document: %v after %v", err, time.Since(begun))
		}
		if want := int64(docs*len(line) + 8<<20 + 8); loaded != want {
			t.Errorf("%d bytes came of %d", loaded, want)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		<-served
	})
}
