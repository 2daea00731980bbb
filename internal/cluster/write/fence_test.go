package write

import (
	"fmt"
	"slices"
	"testing"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
)

// TestFencesOfACoordinatorAbove: a fence of a coordinator is one at all its members, those of the group that a document is moved to among them.
func TestFencesOfACoordinatorAbove(t *testing.T) {
	c := newCluster(t, 2, 2)
	w := c.writer(Options{})
	ids := []string{"a", "b", "c", "d", "e", "f"}
	source := func(id string, n int) []byte { return fmt.Appendf(nil, `{"id":%q,"n":%d}`, id, n) }
	for _, id := range ids[:4] {
		put(t, w, string(source(id, 0)))
	}
	look := func() *leaf.SumsReply {
		t.Helper()
		r, err := w.FencedSums(t.Context(), &leaf.SumsRequest{Index: "x", IDs: ids, Fence: true})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Sums) != len(ids) || r.Fence == 0 || r.Below == nil || r.Below.Shards.Failed > 0 {
			t.Fatalf("%+v", r)
		}
		return r
	}
	// sync puts n in all documents that the look has shown, and tells in how many.
	sync := func(fence uint64, seen *leaf.SumsReply, n int) (done int) {
		t.Helper()
		req := &leaf.SyncRequest{Index: "x", Fence: fence}
		for i, id := range ids {
			req.Items = append(req.Items, leaf.SyncItem{ID: id, Expect: seen.Sums[i], Body: source(id, n)})
		}
		r, err := w.Sync(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, ok := range r.Applied {
			if ok {
				done++
			}
		}
		return done
	}
	one := look()
	for i, id := range ids {
		if want := leaf.SumOf(source(id, 0)); i < 4 && one.Sums[i] != want || i >= 4 && one.Sums[i] != (leaf.Sum{}) {
			t.Errorf("%s has %x", id, one.Sums[i])
		}
	}
	if len(one.Synced) > 0 {
		t.Errorf("synced are %v", one.Synced)
	}
	two := look()
	for what, fence := range map[string]uint64{"an earlier one": one.Fence, "one of another process": two.Fence ^ 1<<63, "one that was never made": two.Fence + 1, "a dead one": deadFence} {
		if n := sync(fence, two, 1); n > 0 {
			t.Errorf("%s: %d documents were changed", what, n)
		}
	}
	if n := sync(two.Fence, two, 2); n != len(ids) {
		t.Errorf("the latest one: %d documents were changed", n)
	}
	if three := look(); !slices.Equal(three.Synced, []int{0, 1, 2, 3, 4, 5}) {
		t.Errorf("synced are %v", three.Synced)
	}
	// Writers in the middle of the tree make fences too, and so the ones from above end.
	four := look()
	put(t, w, string(source("a", 3)))
	if n := sync(four.Fence, four, 4); n != len(ids)-1 {
		t.Errorf("behind a write of one: %d documents were changed", n)
	}
	// Old ones are forgotten, and change nothing.
	five := look()
	for range mostFences {
		if _, err := w.FencedSums(t.Context(), &leaf.SumsRequest{Index: "x", IDs: []string{"other"}, Fence: true}); err != nil {
			t.Fatal(err)
		}
	}
	if n := sync(five.Fence, five, 5); n > 0 {
		t.Errorf("one that is forgotten: %d documents were changed", n)
	}
	if n := sync(0, five, 6); n != len(ids) {
		t.Errorf("none: %d documents were changed", n)
	}
	if wrong := c.same("x"); wrong != "" {
		t.Error(wrong)
	}

	// A member that is away has none, and is named by nobody; where all are, the call fails.
	c.models["0/1"].during("Sums", gone, -1)
	six := look()
	c.models["0/1"].during("Sums", fine, 0)
	if n := sync(six.Fence, six, 7); n == 0 {
		t.Error("without one member nothing is changed")
	}
	if wrong := c.same("x"); wrong != "" {
		t.Error(wrong)
	}
	for _, m := range c.group(0) {
		m.during("Sums", gone, -1)
	}
	_, err := w.FencedSums(t.Context(), &leaf.SumsRequest{Index: "x", IDs: ids, Fence: true})
	problemOf(t, err, api.GroupUnavailable)
	for _, m := range c.group(0) {
		m.during("Sums", fine, 0)
	}
	_, err = w.FencedSums(t.Context(), &leaf.SumsRequest{Index: "not-there", IDs: ids, Fence: true})
	problemOf(t, err, api.IndexNotFound)
	_, err = w.FencedSums(t.Context(), &leaf.SumsRequest{Index: "x", IDs: make([]string, leaf.MaxIDs+1), Fence: true})
	problemOf(t, err, api.InvalidParameter)
	_, err = w.FencedSums(t.Context(), &leaf.SumsRequest{Index: "x", Range: &leaf.HashRange{}, Limit: 1, Fence: true})
	problemOf(t, err, api.InvalidParameter)
}
