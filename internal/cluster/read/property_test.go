package read

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/weft-search/weft/internal/agg"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/serve/replica"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/topology/placement"
	"github.com/weft-search/weft/internal/topology/shardmap"
)

// likeOne leaves out of a reply what is not that of one member.
var likeOne = cmp.Options{
	cmpopts.EquateEmpty(), cmpopts.IgnoreTypes(leaf.Meta{}), cmpopts.IgnoreFields(leaf.AggregateReply{}, "State"),
	cmpopts.IgnoreFields(leaf.InfoReply{}, "Node"), cmpopts.IgnoreFields(api.IndexInfo{}, "Segments"),
}

// same makes a call of the cluster and of one member with all documents.
func same[R any](t *testing.T, what string, one, all leaf.Member, call func(m leaf.Member) (*R, error)) (want, got *R) {
	t.Helper()
	want, err := call(one)
	if err != nil {
		t.Fatalf("%s: one member: %v", what, err)
	}
	if got, err = call(all); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if reflect.DeepEqual(bare(want), bare(got)) { // package cmp takes a hundred times as long
		return want, got
	}
	if d := cmp.Diff(want, got, likeOne); d != "" {
		t.Fatalf("%s: −one member +cluster\n%s", what, d)
	}
	return want, got
}

// bare is a reply without its Meta.
func bare[R any](r *R) R {
	out := *r
	if v := reflect.ValueOf(&out).Elem(); v.Kind() == reflect.Struct {
		v.FieldByName("Meta").SetZero()
	}
	return out
}

// asOne holds every call of a cluster against one member with all documents.
func asOne(t *testing.T, rnd *rand.Rand, docs []document, all leaf.Member) {
	t.Helper()
	ctx := t.Context()
	one := newFake("one", docs...)
	orders := [][]exec.SortKey{nil, {{By: exec.ByScore, Desc: true}}, {{By: exec.ByField, Field: "num"}}, {{By: exec.ByField, Field: "num", Desc: true}, {By: exec.ByScore, Desc: true}}}
	for range 6 {
		req := &leaf.SearchRequest{Index: "i", Limit: rnd.IntN(60), Sort: orders[rnd.IntN(len(orders))], Total: exec.TotalMode(rnd.IntN(3)), TotalFloor: 1000, LocalStats: true}
		if rnd.IntN(2) == 0 {
			req.Show = &leaf.Show{Source: true}
		}
		for page := 0; page < 5; page++ {
			what := fmt.Sprintf("page %d of %+v", page, req)
			want, _ := same(t, what, one, all, func(m leaf.Member) (*leaf.SearchReply, error) { return m.Search(ctx, req) })
			if len(want.Hits) == 0 {
				break
			}
			next := *req
			last := want.Hits[len(want.Hits)-1]
			next.After = exec.AfterHit(&exec.Hit{Key: last.ID, Score: last.Score, Sort: last.Sort})
			req = &next
		}
	}
	same(t, "docs", one, all, func(m leaf.Member) (*leaf.DocsReply, error) { return m.Docs(ctx, &leaf.DocsRequest{Index: "i"}) })
	same(t, "stats", one, all, func(m leaf.Member) (*leaf.StatsReply, error) {
		return m.Stats(ctx, &leaf.StatsRequest{Index: "i"})
	})
	k := rnd.IntN(40)
	same(t, "knn", one, all, func(m leaf.Member) (*leaf.KNNReply, error) {
		return m.KNN(ctx, &leaf.KNNRequest{Index: "i", KNN: api.KNN{K: k}})
	})
	specs, err := agg.Parse("s:stats(num),t:terms(num,0),p:percentiles(num,50,90),c:cardinality(num)")
	if err != nil {
		t.Fatal(err)
	}
	want, got := same(t, "aggregate", one, all, func(m leaf.Member) (*leaf.AggregateReply, error) {
		r, err := m.Aggregate(ctx, &leaf.AggregateRequest{Index: "i", Specs: specs, Values: []string{"num"}})
		if err == nil {
			slices.Sort(r.Values[0].Numbers) // they come in the order of the shards
		}
		return r, err
	})
	if a, b := want.State.AppendBinary(nil), got.State.AppendBinary(nil); !slices.Equal(a, b) {
		t.Fatal("the aggregations differ")
	}
	var some []string
	for range rnd.IntN(80) {
		some = append(some, fmt.Sprintf("d%03d", rnd.IntN(len(docs)+10)))
	}
	same(t, "has", one, all, func(m leaf.Member) (*leaf.HasReply, error) {
		return m.Has(ctx, &leaf.HasRequest{Index: "i", IDs: some})
	})
	same(t, "fetch", one, all, func(m leaf.Member) (*leaf.FetchReply, error) {
		return m.Fetch(ctx, &leaf.FetchRequest{Index: "i", IDs: some, Show: leaf.Show{Source: true}})
	})
	same(t, "sums", one, all, func(m leaf.Member) (*leaf.SumsReply, error) {
		return m.Sums(ctx, &leaf.SumsRequest{Index: "i", IDs: some})
	})
	depth := rnd.IntN(6)
	same(t, "digest", one, all, func(m leaf.Member) (*leaf.DigestReply, error) {
		return m.Digest(ctx, &leaf.DigestRequest{Index: "i", Depth: depth})
	})
	from := rnd.Uint32()
	hashes := &leaf.SumsRequest{Index: "i", Range: &leaf.HashRange{From: from / 2, To: from/2 + 1<<31}, Limit: 1 + rnd.IntN(30)}
	for {
		_, got := same(t, fmt.Sprintf("sums %+v", hashes), one, all, func(m leaf.Member) (*leaf.SumsReply, error) { return m.Sums(ctx, hashes) })
		if got.Next == "" {
			break
		}
		next := *hashes
		next.After = got.Next
		hashes = &next
	}
	same(t, "export", one, all, func(m leaf.Member) (*[]string, error) {
		var out []string
		r, err := m.Export(ctx, &leaf.ExportRequest{Index: "i", IDs: some}, func(d leaf.ExportedDoc) error {
			out = append(out, d.ID+string(d.Source))
			return nil
		})
		if err != nil {
			return nil, err
		}
		out = append(append(out, "missing"), r.Missing...)
		return &out, nil
	})
	for _, limit := range []int{0, 1, rnd.IntN(len(docs) + 3), len(docs)} {
		req := &leaf.IDsRequest{Index: "i", Limit: limit}
		if rnd.IntN(2) == 0 {
			req.After = fmt.Sprintf("d%03d", rnd.IntN(len(docs)+1))
		}
		same(t, fmt.Sprintf("ids %+v", req), one, all, func(m leaf.Member) (*[]string, error) { return listIDs(ctx, m, req) })
	}
}

// listIDs lists ids, and Next behind them.
func listIDs(ctx context.Context, m leaf.Member, req *leaf.IDsRequest) (*[]string, error) {
	var out []string
	r, err := m.IDs(ctx, req, func(ids []string) error {
		if len(ids) == 0 || len(ids) > leaf.MaxIDPage {
			return fmt.Errorf("a page of %d ids", len(ids))
		}
		out = append(out, ids...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	out = append(out, "next "+r.Next)
	return &out, nil
}

// A cluster answers every call as one member with all documents does, whole and with a dead member in each group, also while documents
// are moved and stand on several shards, and as a shard of another cluster.
func TestAnswersAreThoseOfOneMember(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 3))
			docs := numbered(1 + rnd.IntN(120))
			groups := 1 + rnd.IntN(5)
			c := newCluster(t, docs, groups, 1+rnd.IntN(3))
			o := Options{Order: replica.Order(rnd.IntN(2)), Parallel: rnd.IntN(3)}
			all := coordinator{Reader: c.reader(o)}
			asOne(t, rnd, docs, all)
			for _, fakes := range c.groups {
				if len(fakes) > 1 {
					fakes[rnd.IntN(len(fakes))].kill()
				}
			}
			asOne(t, rnd, docs, all)

			// Above it, a coordinator with another shard beside it.
			top := newCluster(t, nil, 2, 1)
			top.m.Groups[0].Members[0] = "below"
			top.others["below"] = all
			top.use(top.m)
			st := top.src.State()
			for id := range newFake("", docs...).docs {
				if own := st.Owner(id).Ordinal; own == 1 {
					for _, fakes := range c.groups {
						for _, f := range fakes {
							if d, ok := f.docs[id]; ok {
								top.groups[1][0].docs[id] = d
								delete(f.docs, id)
							}
						}
					}
				}
			}
			asOne(t, rnd, docs, coordinator{Reader: top.reader(o)})
		})
	}
}

func TestCopiesOutOfPlaceAreNotSeenWhileDocumentsMove(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 4))
			docs := numbered(80)
			c := newCluster(t, docs, 4, 1)
			all := coordinator{Reader: c.reader(Options{})}
			placed := 2 + rnd.IntN(2)
			if rnd.IntN(2) == 0 {
				placed = 4
			}
			to := 1 + rnd.IntN(4)
			for to == placed {
				to = 1 + rnd.IntN(4)
			}
			m := c.m.Clone()
			m.Placed = placed
			m.Epoch++
			m, err := m.BeginMove(to, "job")
			if err != nil {
				t.Fatal(err)
			}
			for _, phase := range []shardmap.Phase{shardmap.Preparing, shardmap.Copying, shardmap.Switching, shardmap.Cleaning} {
				switch phase {
				case shardmap.Copying:
					m, err = m.BeginCopying()
				case shardmap.Switching:
					m, err = m.Cutover()
				case shardmap.Cleaning:
					m, err = m.BeginCleaning()
				}
				if err != nil {
					t.Fatal(err)
				}
				c.use(m)
				st := c.src.State()
				for _, fakes := range c.groups {
					fakes[0].docs = map[string]document{}
				}
				for _, d := range docs {
					c.groups[st.Owner(d.id).Ordinal][0].docs[d.id] = d
					// A copy elsewhere, that may be an old one.
					if f := c.groups[rnd.IntN(4)][0]; f.docs[d.id].id == "" {
						old := d
						old.score += float32(rnd.IntN(3) - 1)
						old.num += uint64(rnd.IntN(2))
						f.docs[d.id] = old
					}
				}
				asOne(t, rnd, docs, all)
				// What a caller hides, whose own documents are being moved, stays hidden; its epoch is of another map.
				view := leaf.View{Epoch: 1, Owned: []placement.Share{{Spec: placement.Spec{Rule: placement.Modulo, Shards: 3}, Ordinal: 1}}}
				same(t, "a part", newFake("one", docs...), all, func(m leaf.Member) (*leaf.SearchReply, error) {
					return m.Search(t.Context(), &leaf.SearchRequest{View: view, Limit: 100})
				})
				same(t, "a part of ids", newFake("one", docs...), all, func(m leaf.Member) (*leaf.HasReply, error) {
					return m.Has(t.Context(), &leaf.HasRequest{View: view, IDs: manyIDs})
				})
			}
			if n := all.Duplicates(); n != 0 {
				t.Errorf("%d duplicates were seen", n)
			}
		})
	}
}
