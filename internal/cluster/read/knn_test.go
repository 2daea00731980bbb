package read

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/serve/replica"
)

// asked takes what the fakes were asked for since the last time, by group.
func (c *cluster) asked() [][]int {
	out := make([][]int, len(c.groups))
	for i, fakes := range c.groups {
		for _, f := range fakes {
			f.mu.Lock()
			out[i] = append(out[i], f.nearest...)
			f.nearest = nil
			f.mu.Unlock()
		}
	}
	return out
}

func near(ctx context.Context, r *Reader, k int) (*leaf.KNNReply, error) {
	return r.KNN(ctx, &leaf.KNNRequest{Index: "i", KNN: api.KNN{K: k}})
}

// skewed are documents of which those of group 0 are the nearest.
func skewed(t *testing.T, n, groups int) []document {
	rnd := rand.New(rand.NewPCG(1, 1))
	st := newCluster(t, nil, groups, 1).src.State()
	var docs []document
	for i := range n {
		d := document{id: fmt.Sprintf("d%04d", i), score: rnd.Float32()}
		if st.Owner(d.id).Ordinal == 0 {
			d.score++
		}
		docs = append(docs, d)
	}
	return docs
}

func TestGroupsAreAskedForTheirShareOfTheNearest(t *testing.T) {
	rnd := rand.New(rand.NewPCG(2, 2))
	var docs []document
	for i := range 1500 {
		docs = append(docs, document{id: fmt.Sprintf("d%04d", i), score: rnd.Float32()})
	}
	c := newCluster(t, docs, 3, 1)
	r := c.reader(Options{})
	const k = 200
	for round, most := range []int{k, 100} { // of how large they are nothing is known at first
		want, err := newFake("one", docs...).KNN(t.Context(), &leaf.KNNRequest{Index: "i", KNN: api.KNN{K: k}})
		if err != nil {
			t.Fatal(err)
		}
		got, err := near(t.Context(), r, k)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.Hits, want.Hits) || got.Docs != want.Docs {
			t.Errorf("round %d: %d neighbours of %d documents differ from one member's", round, len(got.Hits), got.Docs)
		}
		for i, ks := range c.asked() {
			if len(ks) != 1 || ks[0] > most || ks[0] < k/3 {
				t.Errorf("round %d: group %d was asked for %v", round, i, ks)
			}
		}
	}
	// To compare with every vector costs the same for all.
	if _, err := r.KNN(t.Context(), &leaf.KNNRequest{Index: "i", KNN: api.KNN{K: k, Exact: true}}); err != nil {
		t.Fatal(err)
	}
	if ks := c.asked(); !slices.EqualFunc(ks, [][]int{{k}, {k}, {k}}, slices.Equal) {
		t.Errorf("of an exact search the groups were asked for %v", ks)
	}
}

func TestAGroupThatMayHaveMoreOfTheNearestIsAskedAgain(t *testing.T) {
	docs := skewed(t, 900, 3)
	c := newCluster(t, docs, 3, 1)
	r := c.reader(Options{})
	one := newFake("one", docs...)
	for round := range 2 {
		for _, k := range []int{2, 7, 50, 200, 600, 899, 900, 2000} {
			want, err := one.KNN(t.Context(), &leaf.KNNRequest{Index: "i", KNN: api.KNN{K: k}})
			if err != nil {
				t.Fatal(err)
			}
			got, err := near(t.Context(), r, k)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got.Hits, want.Hits) || got.Below.Shards.OK != 3 || got.Below.DocsCovered != 900 {
				t.Errorf("round %d: the %d nearest: %d hits, %+v", round, k, len(got.Hits), got.Below)
			}
			ks := c.asked()
			if k == 200 && round == 1 && (len(ks[0]) != 2 || ks[0][0] >= k || ks[0][1] != k || len(ks[1]) != 1 || ks[1][0] >= k || len(ks[2]) != 1) {
				t.Errorf("the groups were asked for %v", ks)
			}
		}
	}
	if r.AskedAgain() == 0 || r.Duplicates() != 0 {
		t.Errorf("asked again %d times, %d duplicates", r.AskedAgain(), r.Duplicates())
	}
}

func TestAGroupThatFailsWhenItIsAskedAgainIsMissing(t *testing.T) {
	docs := skewed(t, 900, 3)
	c := newCluster(t, docs, 3, 2)
	r := c.reader(Options{Order: replica.Preferred})
	if _, err := near(t.Context(), r, 200); err != nil {
		t.Fatal(err)
	}
	lost := 0
	for _, f := range c.groups[0] {
		lost = len(f.docs)
		first := f == c.groups[0][0]
		f.fail(func(context.Context, string) error {
			if first {
				first = false
				return nil
			}
			return &leaf.TransportError{Address: f.addr, Call: "KNN", Cause: errors.New("connection refused")}
		})
	}
	got, err := near(t.Context(), r, 200)
	if err != nil {
		t.Fatal(err)
	}
	if b := got.Below; b.Shards.OK != 2 || b.Shards.Failed != 1 || b.DocsTotal != 900 || b.DocsCovered != uint64(900-lost) || len(b.Shards.FailedAddresses) != 2 {
		t.Errorf("the answer has %+v", b)
	}
	for _, h := range got.Hits {
		if h.Similarity >= 1 {
			t.Fatalf("%v is of the group that failed", h)
		}
	}
}

func TestWhatTheTimeWasEnoughForIsKeptWhenAGroupIsAskedAgain(t *testing.T) {
	docs := skewed(t, 900, 3)
	c := newCluster(t, docs, 3, 1)
	r := c.reader(Options{})
	first, err := near(t.Context(), r, 200)
	if err != nil {
		t.Fatal(err)
	}
	replies := 0
	c.groups[0][0].change = func(reply any) {
		k, ok := reply.(*leaf.KNNReply)
		if replies++; ok && replies > 1 {
			k.Hits, k.Partial = nil, true
		}
	}
	got, err := near(t.Context(), r, 200)
	if err != nil {
		t.Fatal(err)
	}
	if replies != 2 || !got.Partial || got.Hits[0] != first.Hits[0] {
		t.Errorf("%d replies; partial %v, the first is %v, not %v", replies, got.Partial, got.Hits[0], first.Hits[0])
	}
}
