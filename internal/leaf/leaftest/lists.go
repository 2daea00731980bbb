package leaftest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-search/weft/internal/leaf"
)

// collectIDs lists ids, and checks the pages.
func collectIDs(t testing.TB, l leaf.Leaf, req leaf.IDsRequest) ([]string, *leaf.IDsReply) {
	t.Helper()
	req.Index = corpusIndex
	var all []string
	reply, err := l.IDs(t.Context(), &req, func(ids []string) error {
		if len(ids) == 0 || len(ids) > leaf.MaxIDPage {
			t.Errorf("a page of %d ids", len(ids))
		}
		all = append(all, ids...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	checkMeta(t, "ids", reply)
	return all, reply
}

func testLists(t *testing.T, e Env) {
	want := fill(t, e, 3000)
	t.Run("IDs", func(t *testing.T) {
		got, reply := collectIDs(t, e.Leaf, leaf.IDsRequest{})
		if d := cmp.Diff(want, got); d != "" || reply.Next != "" {
			t.Errorf("next %q, −there +listed\n%s", reply.Next, d)
		}
		for _, limit := range []int{1, 7, len(want) / 2, leaf.MaxIDPage, leaf.MaxIDPage + 1, len(want) - 1, len(want), len(want) + 1} {
			var got []string
			for after := ""; ; {
				part, reply := collectIDs(t, e.Leaf, leaf.IDsRequest{After: after, Limit: limit})
				if got = append(got, part...); reply.Next == "" || len(got) > len(want) {
					break
				}
				if after = reply.Next; after != part[len(part)-1] || len(part) != limit {
					t.Fatalf("next %q behind %d ids, the last of them %q", after, len(part), part[len(part)-1])
				}
				if limit == 1 && len(got) == 40 {
					break
				}
			}
			if d := cmp.Diff(want[:len(got)], got); d != "" || limit > 1 && len(got) != len(want) {
				t.Errorf("limit %d: −there +listed\n%s", limit, d)
			}
		}
		for _, after := range []string{"\x00", "d01499", "d014995", "zzz", "𝄞𝄢", "\U0010ffff", strings.Repeat("x", 600)} {
			got, _ := collectIDs(t, e.Leaf, leaf.IDsRequest{After: after})
			at, found := slices.BinarySearch(want, after)
			if found {
				at++
			}
			if !slices.Equal(got, want[at:]) {
				t.Errorf("after %q: %d ids, want %d", after, len(got), len(want)-at)
			}
		}
	})
	t.Run("SlowReader", func(t *testing.T) { testSlowReader(t, e, want) })
	t.Run("Export", func(t *testing.T) { testExport(t, e, want) })
	t.Run("Has", func(t *testing.T) {
		ids := []string{"d00001", "nosuch", "d00000", "", "𝄞𝄢", "\x00\x01\x1f\x7f", "nosuch", "x\x00", strings.Repeat("y", 513)}
		got, err := both(t, e, "has", func(l leaf.Leaf) (*leaf.HasReply, error) {
			return l.Has(t.Context(), &leaf.HasRequest{Index: corpusIndex, IDs: ids})
		})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff([]string{"nosuch", "d00000", "", "nosuch", "x\x00", strings.Repeat("y", 513)}, got.Missing); d != "" {
			t.Error(d)
		}
		for _, ids := range [][]string{nil, want[:leaf.MaxIDs/8]} {
			got, err := both(t, e, "has", func(l leaf.Leaf) (*leaf.HasReply, error) {
				return l.Has(t.Context(), &leaf.HasRequest{Index: corpusIndex, IDs: ids})
			})
			if err != nil || len(got.Missing) > 0 {
				t.Errorf("%d ids: %v, %v", len(ids), got, err)
			}
		}
	})
}

var errEnough = errors.New("enough")

// testSlowReader: the caller sets the pace, and may stop.
func testSlowReader(t *testing.T, e Env, want []string) {
	took, goOn := make(chan int), make(chan struct{})
	var got []string
	done := inBackground(func() error {
		_, err := e.Leaf.IDs(context.Background(), &leaf.IDsRequest{Index: corpusIndex}, func(ids []string) error {
			got = append(got, ids...)
			took <- len(ids)
			<-goOn
			return nil
		})
		return err
	})
	for n := 0; n < len(want); {
		n += <-took
		goOn <- struct{}{}
	}
	if err := returned(t, "a slow reader", done); err != nil || !slices.Equal(got, want) {
		t.Errorf("%d ids: %v", len(got), err)
	}
	pages := 0
	_, err := e.Leaf.IDs(t.Context(), &leaf.IDsRequest{Index: corpusIndex}, func([]string) error {
		pages++
		return errEnough
	})
	if !errors.Is(err, errEnough) || pages != 1 {
		t.Errorf("a reader that stops: %d pages, %v", pages, err)
	}
	idle(t, e)

	// A reader that is cancelled while it reads.
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	done = inBackground(func() error {
		_, err := e.Leaf.IDs(ctx, &leaf.IDsRequest{Index: corpusIndex}, func(ids []string) error {
			took <- len(ids)
			<-ctx.Done()
			return nil
		})
		return err
	})
	<-took
	if n := e.Node.Running(); n == 0 && !e.Wire.Buffered && len(want) > 100*leaf.MaxIDPage {
		t.Error("the node is done while its reader has had one page")
	}
	cancel(errEnough)
	if err := returned(t, "a cancelled reader", done); !errors.Is(err, errEnough) {
		t.Errorf("a cancelled reader: %v", err)
	}
	idle(t, e)
}

// exported is an Export with the documents.
type exported struct {
	leaf.ExportReply
	Docs []leaf.ExportedDoc
}

func export(ctx context.Context, index string, ids []string) func(l leaf.Leaf) (*exported, error) {
	return func(l leaf.Leaf) (*exported, error) {
		x := &exported{}
		reply, err := l.Export(ctx, &leaf.ExportRequest{Index: index, IDs: ids}, func(doc leaf.ExportedDoc) error {
			x.Docs = append(x.Docs, doc)
			return nil
		})
		if err != nil {
			return nil, err
		}
		x.ExportReply = *reply
		return x, nil
	}
}

func testExport(t *testing.T, e Env, want []string) {
	ids := []string{"most", "nosuch", "d00001", "most", "d00000", "", "least"}
	ids = append(ids, awkward...)
	got, err := both(t, e, "export", export(t.Context(), corpusIndex, ids))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"nosuch", "d00000", ""}, got.Missing); d != "" || len(got.Docs) != len(ids)-3 {
		t.Errorf("%d documents, missing %s", len(got.Docs), d)
	}
	all, err := both(t, e, "export", export(t.Context(), corpusIndex, want))
	if err != nil {
		t.Fatal(err)
	}
	// What is exported goes in elsewhere, and comes out the same.
	const index = "moved"
	e.Node.Create(t, index, strings.Replace(corpusSDL, corpusIndex, index, 1))
	var b strings.Builder
	for _, d := range all.Docs {
		b.Write(d.Source)
		b.WriteByte('\n')
	}
	reply, err := e.Leaf.Bulk(t.Context(), &leaf.BulkRequest{Index: index}, strings.NewReader(b.String()))
	if err != nil || !reply.OK || reply.Indexed != uint64(len(want)) {
		t.Fatalf("load what was exported: %+v, %v", reply, err)
	}
	again, err := export(t.Context(), index, want)(e.Leaf)
	if err != nil {
		t.Fatal(err)
	}
	if d := diff(all.Docs, again.Docs); d != "" {
		t.Error(d)
	}
	n := 0
	_, err = e.Leaf.Export(t.Context(), &leaf.ExportRequest{Index: corpusIndex, IDs: want}, func(leaf.ExportedDoc) error {
		if n++; n == 3 {
			return errEnough
		}
		return nil
	})
	if !errors.Is(err, errEnough) || n != 3 {
		t.Errorf("a reader that stops: %d documents, %v", n, err)
	}
	idle(t, e)
}

// testLarge moves more than the usual limit of a message.
func testLarge(t *testing.T, e Env) {
	const index = "large"
	e.Node.Create(t, index, strings.Replace(corpusSDL, corpusIndex, index, 1))
	var ids []string
	for i := range 10 {
		id := fmt.Sprint(i)
		doc := `{"id":"` + id + `","tag":"` + strings.Repeat(string(rune('a'+i)), 1000) + `","pad":"` + strings.Repeat("𝄞 loom ", 60_000) + `"}`
		if i == 3 {
			doc = `{"id":"3","pad":"` + strings.Repeat("织", 2<<20) + `"}`
		}
		reply, err := e.Leaf.Index(t.Context(), &leaf.IndexRequest{Index: index, Body: []byte(doc)})
		if err != nil || reply.ID != id {
			t.Fatalf("document %d: %+v, %v", i, reply, err)
		}
		ids = append(ids, id)
	}
	got, err := both(t, e, "export", export(t.Context(), index, ids))
	if err != nil {
		t.Fatal(err)
	}
	size := 0
	for _, d := range got.Docs {
		size += len(d.Source)
	}
	if len(got.Docs) != len(ids) || size < 11<<20 {
		t.Errorf("%d documents of %d bytes", len(got.Docs), size)
	}
}
