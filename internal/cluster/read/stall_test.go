package read

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/serve/replica"
)

// stallsAt lets a member stand still when it has given so many pages or documents.
func stallsAt(n int64) func(ctx context.Context, call string) error {
	var given atomic.Int64
	return func(ctx context.Context, call string) error {
		if strings.Contains(call, " of ") && given.Add(1) >= n || n == 0 {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		return nil
	}
}

// streamed are the ids of all documents, by each call that streams.
var streamed = map[string]func(ctx context.Context, r *Reader, each func()) ([]string, error){
	"IDs": func(ctx context.Context, r *Reader, each func()) (out []string, err error) {
		_, err = r.IDs(ctx, &leaf.IDsRequest{Index: "i"}, func(ids []string) error {
			out = append(out, ids...)
			each()
			return nil
		})
		return out, err
	},
	"Export": func(ctx context.Context, r *Reader, each func()) (out []string, err error) {
		var all []string
		for _, d := range numbered(100) {
			all = append(all, d.id)
		}
		_, err = r.Export(ctx, &leaf.ExportRequest{Index: "i", IDs: all}, func(doc leaf.ExportedDoc) error {
			out = append(out, doc.ID)
			each()
			return nil
		})
		return out, err
	},
}

func TestAStreamGoesOnElsewhereWhenAMemberStalls(t *testing.T) {
	for name, call := range streamed {
		for _, after := range []int64{0, 1, 2} {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, numbered(100), 3, 2)
				r := c.reader(Options{Order: replica.Preferred, StreamIdle: 7 * time.Second})
				want, err := call(t.Context(), r, func() {})
				if err != nil || len(want) != 100 {
					t.Fatalf("%s: %d ids, %v", name, len(want), err)
				}
				c.groups[1][0].fail(stallsAt(after))
				began := time.Now()
				got, err := call(t.Context(), r, func() {})
				if err != nil || !slices.Equal(got, want) {
					t.Errorf("%s, after %d: %d ids, %v", name, after, len(got), err)
				}
				if took := time.Since(began); took != 7*time.Second {
					t.Errorf("%s, after %d: it took %v", name, after, took)
				}
			})
		}
	}
}

func TestAStreamThatStallsEverywhereNamesTheMember(t *testing.T) {
	for name, call := range streamed {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, numbered(100), 3, 1)
			r := c.reader(Options{})
			c.groups[1][0].fail(stallsAt(1))
			began := time.Now()
			_, err := call(t.Context(), r, func() {})
			if took := time.Since(began); took != DefaultStreamIdle {
				t.Errorf("%s: it took %v", name, took)
			}
			p, ok := errors.AsType[*api.Problem](err)
			if !ok || p.Code != api.GroupUnavailable || !strings.Contains(string(p.Extra), `"failed_addresses":["g1m0"]`) {
				t.Fatalf("%s: %v", name, err)
			}
			u, ok := errors.AsType[*UncoveredError](err)
			if !ok {
				t.Fatalf("%s: %v", name, err)
			}
			at, ok := errors.AsType[*leaf.TransportError](u.Errs[1])
			if !ok || at.Address != "g1m0" {
				t.Errorf("%s: %v", name, u.Errs[1])
			}
			if _, ok := errors.AsType[*StalledError](u.Errs[1]); !ok {
				t.Errorf("%s: %v", name, u.Errs[1])
			}
		})
	}
}

func TestACallerThatReadsSlowlyIsNoStall(t *testing.T) {
	for name, call := range streamed {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, numbered(100), 3, 1)
			r := c.reader(Options{StreamIdle: time.Second})
			got, err := call(t.Context(), r, func() { <-time.After(time.Minute) })
			if err != nil || len(got) != 100 {
				t.Errorf("%s: %d ids, %v", name, len(got), err)
			}
		})
	}
}

// A member that has missed that the index was made does not end the stream of one that was lost.
func TestAStreamDoesNotEndWhereTheIndexIsMissing(t *testing.T) {
	for name, call := range streamed {
		for _, after := range []int64{0, 1, 2} {
			c := newCluster(t, numbered(100), 3, 2)
			r := c.reader(Options{Order: replica.Preferred})
			var given atomic.Int64
			c.groups[1][0].fail(func(_ context.Context, call string) error {
				if after == 0 || strings.Contains(call, " of ") && given.Add(1) == after {
					return errors.New("the connection broke")
				}
				return nil
			})
			c.groups[1][1].fail(func(context.Context, string) error {
				return api.NewProblem(api.IndexNotFound, "it does not have the index")
			})
			got, err := call(t.Context(), r, func() {})
			if p, ok := errors.AsType[*api.Problem](err); !ok || p.Code != api.GroupUnavailable || !strings.Contains(string(p.Extra), "g1m0") {
				t.Errorf("%s, after %d: %d ids, %v", name, after, len(got), err)
			}
		}
	}
}
