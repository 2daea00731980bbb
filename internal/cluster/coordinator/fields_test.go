package coordinator

import (
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/store"
	"github.com/weft-search/weft/internal/topology/placement"
	"github.com/weft-search/weft/internal/topology/shardmap"
)

// declared is a member that takes the declaration of an index, and its deletion.
type declared struct{ keeper }

func (d *declared) Info(context.Context, *leaf.InfoRequest) (*leaf.InfoReply, error) {
	return nil, api.NewProblem(api.IndexNotFound, "there is none")
}

func (d *declared) PutIndex(_ context.Context, req *leaf.PutIndexRequest) (*leaf.PutIndexReply, error) {
	return &leaf.PutIndexReply{Made: true, Info: api.IndexInfo{Name: req.Index, Schema: req.Schema, State: "open"}}, nil
}

func (d *declared) DropIndex(_ context.Context, req *leaf.DropIndexRequest) (*leaf.DropIndexReply, error) {
	return &leaf.DropIndexReply{Info: api.IndexInfo{Name: req.Index, State: "deleted"}}, nil
}

// TestFieldsAreWrittenIntoTheStore: a coordinator with a store agrees on an index there, and deletes what it has agreed on with it.
func TestFieldsAreWrittenIntoTheStore(t *testing.T) {
	sm, err := shardmap.New(placement.Ring, 0, []shardmap.Group{{Members: []string{"a:1"}}})
	if err != nil {
		t.Fatal(err)
	}
	s := store.NewMemory(nil)
	c, err := New(Config{
		Shards: sm, Store: s, RepairEvery: -1, MapEvery: time.Hour, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Dial: func(addr string) (leaf.Member, error) { return &declared{keeper{addr: addr}}, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(c.Start(t.Context()), c.Ready(t.Context())); err != nil {
		t.Fatal(err)
	}
	call := func(method, body string, want int) {
		t.Helper()
		rec := httptest.NewRecorder()
		req := httptest.NewRequest(method, "/indexes/books", strings.NewReader(body))
		if body != "" {
			req.Header.Set("Content-Type", "text/plain")
		}
		c.Handler().ServeHTTP(rec, req)
		if rec.Code != want {
			t.Fatalf("%s: %d %s", method, rec.Code, rec.Body)
		}
	}
	call("PUT", "index books { field pages: i64 [stored] }", 201)
	got, _, err := store.ReadAll(t.Context(), s, "topology/fields/books.json", 1<<20)
	if err != nil || !strings.Contains(string(got), "pages: i64") {
		t.Errorf("%s, %v", got, err)
	}
	call("DELETE", "", 200)
	if _, _, err := store.ReadAll(t.Context(), s, "topology/fields/books.json", 1<<20); !errors.Is(err, store.ErrNotFound) {
		t.Error(err)
	}
}
