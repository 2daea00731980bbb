package read

import (
	"slices"
	"testing"

	"github.com/weft-search/weft/internal/leaf"
)

// A shard that gave what it reached until its time was over answered, and yet counts as one that did not.
func TestAShardWhoseTimeRanOutIsNotOK(t *testing.T) {
	c := newCluster(t, numbered(60), 3, 1)
	c.groups[1][0].change = func(reply any) {
		if r, ok := reply.(*leaf.SearchReply); ok {
			r.Partial, r.Approximate = true, []string{leaf.ApproximateTime}
		}
	}
	got, err := search(t.Context(), c.reader(Options{}))
	if err != nil {
		t.Fatal(err)
	}
	b := got.Below
	if addresses(b) != "g0m0 answered, g1m0 timed_out, g2m0 answered" || b.Shards.OK != 2 || b.Shards.Failed != 1 || !slices.Equal(b.Shards.FailedAddresses, []string{"g1m0"}) {
		t.Errorf("%s: %+v", addresses(b), b.Shards)
	}
	if cut := uint64(len(c.groups[1][0].docs)); b.DocsTotal != 60 || b.DocsCovered != 60-cut || !got.Partial || len(got.Hits) != 5 {
		t.Errorf("%d of %d documents are covered: %+v", b.DocsCovered, b.DocsTotal, got)
	}
}

// What a group holds that never answered a reader is not known, and so not how much of the index an answer covers.
func TestAGroupThatWasNeverHeardOfIsNotOfSizeZero(t *testing.T) {
	c := newCluster(t, numbered(60), 3, 1)
	lost := uint64(len(c.groups[1][0].docs))
	look := func(when string, r *Reader, unsized bool, total uint64, most float64) {
		t.Helper()
		got, err := search(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		cover := Coverage(got.Below)
		if got.Below.Unsized != unsized || cover.AtLeast != unsized || cover.DocsTotal != total || cover.Docs() > most || cover.Docs() == 0 {
			t.Errorf("%s: %+v covers %v", when, cover, cover.Docs())
		}
	}
	old := c.reader(Options{})
	look("all live", old, false, 60, 1)
	c.groups[1][0].kill()
	look("a group that was heard of", old, false, 60, float64(60-lost)/60)

	fresh := c.reader(Options{})
	look("a fresh reader", fresh, true, 60-lost, 2.0/3)
	// The other two are shards of a coordinator over it, which cannot know more.
	above := newCluster(t, nil, 2, 1)
	above.others["below"] = coordinator{Reader: c.reader(Options{})}
	above.m.Groups[0].Members[0] = "below"
	above.use(above.m)
	for _, d := range numbered(200)[100:] {
		above.groups[1][0].docs[d.id] = d
	}
	top := above.reader(Options{})
	look("through a coordinator", top, true, 160-lost, 3.0/4)

	// An answer without a number of documents makes nothing known.
	c.groups[1][0].fail(nil)
	for _, call := range []string{"Has", "Fetch"} {
		if _, err := calls[call](t.Context(), fresh); err != nil {
			t.Fatal(err)
		}
	}
	c.groups[1][0].kill()
	look("after calls that tell no size", fresh, true, 60-lost, 2.0/3)
	c.groups[1][0].fail(nil)
	look("back again", fresh, false, 60, 1)
	look("through a coordinator, back again", top, false, 160, 1)
	c.groups[1][0].kill()
	look("lost once more", fresh, false, 60, float64(60-lost)/60)
	look("through a coordinator, once more", top, false, 160, float64(160-lost)/160)
}

// A group without the index holds nothing of it, and is known to.
func TestTheSizeOfAGroupWithoutTheIndexIsKnown(t *testing.T) {
	c := newCluster(t, numbered(60), 3, 1)
	c.groups[1][0].absent = true
	r := c.reader(Options{})
	if _, err := search(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	c.groups[1][0].kill()
	got, err := search(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if got.Below.Unsized || Coverage(got.Below).Docs() != 1 {
		t.Errorf("%+v", got.Below)
	}
}

// restarted is a member that is another one after a restart.
type restarted struct{ leaf.Member }

// A coordinator in the middle that was restarted does not know how much its lost shards have; the one above it remembers.
func TestWhatACoordinatorForgotIsKnownAbove(t *testing.T) {
	docs := numbered(90)
	bottom, top := newCluster(t, nil, 2, 1), newCluster(t, nil, 2, 1)
	below := &restarted{coordinator{Reader: bottom.reader(Options{})}}
	top.others["below"] = below
	top.m.Groups[0].Members[0] = "below"
	top.use(top.m)
	for i, d := range docs {
		switch {
		case top.src.State().Owner(d.id).Ordinal == 1:
			top.groups[1][0].docs[d.id] = d
		default:
			bottom.groups[i%2][0].docs[d.id] = d
		}
	}
	r := top.reader(Options{})
	if got, err := search(t.Context(), r); err != nil || got.Below.DocsTotal != 90 || got.Below.DocsCovered != 90 {
		t.Fatalf("%+v, %v", got, err)
	}
	bottom.groups[1][0].kill()
	lost := uint64(len(bottom.groups[1][0].docs))
	below.Member = coordinator{Reader: bottom.reader(Options{})}
	for range 2 {
		got, err := search(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if b := got.Below; b.DocsTotal != 90 || b.DocsCovered != 90-lost || b.Unsized || b.Shards.Failed != 1 {
			t.Errorf("%+v", b)
		}
	}
	// To one that is new as well it is not known, and it says so.
	if got, err := search(t.Context(), top.reader(Options{})); err != nil || !got.Below.Unsized || got.Below.DocsTotal != 90-lost {
		t.Errorf("%+v, %v", got, err)
	}
}
