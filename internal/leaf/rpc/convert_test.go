package rpc

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	pb "github.com/weft-search/weft/api/shard/v1"
	"github.com/weft-search/weft/internal/agg"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/topology/placement"
)

// same compares what went over the wire. Lists without elements are the same as none, but for the default fields and vectors, where a
// test of their own tells them apart.
func same(t interface {
	Helper()
	Fatalf(string, ...any)
}, got, want any,
) {
	t.Helper()
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmp.AllowUnexported(agg.Spec{}), cmpopts.IgnoreFields(agg.Spec{}, "pos", "facet")); d != "" {
		t.Fatalf("want -, got +:\n%s", d)
	}
}

// wire sends a message through its bytes.
func wire[M any, P message[M]](t *rapid.T, m P) P {
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	out := P(new(M))
	if err := decodeOptions.Unmarshal(b, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// read is what was read of a message, which has to make sense.
func read[T any](t *rapid.T, v T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

var (
	text   = rapid.StringN(0, 6, 24)
	anyKey = rapid.Custom(func(t *rapid.T) string { return string(rapid.SliceOfN(rapid.Byte(), 0, 8).Draw(t, "bytes")) })
	name   = rapid.SampledFrom([]string{"", "title", "body", "n"})
	float  = rapid.Custom(func(t *rapid.T) float32 {
		return rapid.Float32().Filter(func(f float32) bool { return f-f == 0 }).Draw(t, "float")
	})
)

// nodes draws a tree of at most depth levels.
func nodes(depth int) *rapid.Generator[query.Node] {
	return rapid.Custom(func(t *rapid.T) query.Node {
		kinds := 8
		if depth > 1 {
			kinds = 10
		}
		list := func(label string) []query.Node { return rapid.SliceOfN(nodes(depth-1), 0, 2).Draw(t, label) }
		bound := rapid.Ptr(rapid.Custom(func(t *rapid.T) query.Bound {
			return query.Bound{Value: text.Draw(t, "value"), Exclusive: rapid.Bool().Draw(t, "exclusive")}
		}), true)
		switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
		case 0:
			return &query.Term{Field: name.Draw(t, "field"), Text: text.Draw(t, "text")}
		case 1:
			return &query.Match{Field: name.Draw(t, "field"), Text: text.Draw(t, "text"), All: rapid.Bool().Draw(t, "all"), MaxTerms: rapid.IntRange(0, maxCount).Draw(t, "most")}
		case 2:
			return &query.Phrase{Field: name.Draw(t, "field"), Text: text.Draw(t, "text"), Slop: rapid.Uint32().Draw(t, "slop")}
		case 3:
			return &query.Prefix{Field: name.Draw(t, "field"), Text: text.Draw(t, "text")}
		case 4:
			return &query.Range{Field: name.Draw(t, "field"), Min: bound.Draw(t, "min"), Max: bound.Draw(t, "max")}
		case 5:
			return &query.Terms{Field: "f", Values: rapid.SliceOfN(anyKey, 0, 3).Draw(t, "values")}
		case 6:
			return &query.Exists{Field: name.Draw(t, "field")}
		case 7:
			return &query.All{}
		case 8:
			return &query.Boost{Query: nodes(depth-1).Draw(t, "of"), Factor: float.Draw(t, "factor")}
		}
		return &query.Bool{Must: list("must"), Should: list("should"), MustNot: list("must not"), Filter: list("filter")}
	})
}

func maybe(t *rapid.T) query.Node {
	if rapid.Bool().Draw(t, "no query") {
		return nil
	}
	return nodes(4).Draw(t, "query")
}

func filters(t *rapid.T) []query.Node { return rapid.SliceOfN(nodes(2), 0, 3).Draw(t, "filters") }

func fields(t *rapid.T) []string { return rapid.SliceOfN(name, 0, 3).Draw(t, "fields") }

var terms = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) score.Term {
	return score.Term{Field: name.Draw(t, "field"), Text: anyKey.Draw(t, "text")}
}), 0, 6)

func termStats(t *rapid.T) *score.Stats {
	if rapid.Bool().Draw(t, "no stats") {
		return nil
	}
	s := &score.Stats{Docs: rapid.Uint64().Draw(t, "docs"), Fields: map[string]score.FieldStats{}, DF: map[score.Term]uint64{}}
	for _, f := range fields(t) {
		s.Fields[f] = score.FieldStats{SumLen: rapid.Uint64().Draw(t, "sum"), Docs: rapid.Uint64().Draw(t, "docs")}
	}
	for _, term := range terms.Draw(t, "terms") {
		s.DF[term] = rapid.Uint64().Draw(t, "df")
	}
	return s
}

var sortValue = rapid.Custom(func(t *rapid.T) exec.SortValue {
	v := exec.SortValue{Kind: exec.ValueKind(rapid.IntRange(0, int(exec.ScoreValue)).Draw(t, "kind"))}
	switch v.Kind {
	case exec.NumberValue:
		v.Number = rapid.Uint64().Draw(t, "number")
	case exec.TextValue:
		v.Text = anyKey.Draw(t, "text")
	case exec.ScoreValue:
		v.Score = float.Draw(t, "score")
	}
	return v
})

func sortKeys(t *rapid.T) []exec.SortKey {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) exec.SortKey {
		return exec.SortKey{
			By: exec.SortBy(rapid.IntRange(0, int(exec.ByField)).Draw(t, "by")), Field: name.Draw(t, "field"), Desc: rapid.Bool().Draw(t, "desc"),
			MissingFirst: rapid.Bool().Draw(t, "missing first"), Mode: exec.Mode(rapid.IntRange(0, int(exec.Greatest)).Draw(t, "mode")),
		}
	}), 0, exec.MaxSortKeys).Draw(t, "sort")
}

// sameShown tells parts without bytes from those that are not there, which same does not.
func sameShown(t *rapid.T, got, want []leaf.Shown) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d documents are shown, and not %d", len(got), len(want))
	}
	for i := range got {
		if d := cmp.Diff(want[i], got[i]); d != "" {
			t.Fatalf("document %d: want -, got +:\n%s", i, d)
		}
	}
}

// vector draws what to search for, often without a vector.
func vector(t *rapid.T) api.KNN {
	k := api.KNN{
		Field: name.Draw(t, "field"), K: rapid.IntRange(0, maxCount).Draw(t, "k"), Exact: rapid.Bool().Draw(t, "exact"), Ef: rapid.IntRange(0, maxCount).Draw(t, "ef"),
		Combiner: score.Combiner{
			Kind: score.CombinerKind(rapid.IntRange(0, int(score.WeightedTopK)).Draw(t, "combiner")), Temperature: float.Draw(t, "temperature"),
			TopK: rapid.IntRange(0, maxCount).Draw(t, "top k"), Decay: float.Draw(t, "decay"),
		},
	}
	switch rapid.IntRange(0, 3).Draw(t, "vector") {
	case 0:
		k.Dense = rapid.SliceOfN(float, 0, 5).Draw(t, "dense")
	case 1:
		k.Bits = rapid.SliceOfN(rapid.Byte(), 0, 5).Draw(t, "bits")
	case 2:
		n := rapid.IntRange(0, 5).Draw(t, "n")
		k.Indices = rapid.SliceOfN(rapid.Uint32(), n, n).Draw(t, "indices")
		k.Weights = rapid.SliceOfN(float, n, n).Draw(t, "weights")
	}
	return k
}

func TestRequestsKeepEverything(t *testing.T) {
	t.Run("search", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			want := &leaf.SearchRequest{
				Index: name.Draw(t, "index"), Query: maybe(t), Filters: filters(t), DefaultFields: fields(t), Limit: rapid.IntRange(0, exec.MaxWindow).Draw(t, "limit"),
				Sort: sortKeys(t), Total: exec.TotalMode(rapid.IntRange(0, int(exec.TotalNone)).Draw(t, "total")), TotalFloor: rapid.Uint64().Draw(t, "floor"),
				Stats: termStats(t), KeepStats: rapid.Bool().Draw(t, "keep"), AllowPartial: rapid.Bool().Draw(t, "partial"),
				View: view(t), Show: show(t), LocalStats: rapid.Bool().Draw(t, "local"),
			}
			if rapid.Bool().Draw(t, "after") {
				want.After = &exec.After{Key: anyKey.Draw(t, "key"), Values: rapid.SliceOfN(sortValue, 0, exec.MaxSortKeys).Draw(t, "values")}
			}
			m, err := packSearch(want)
			if err != nil {
				t.Fatal(err)
			}
			got, err := unpackSearch(wire(t, m), query.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			same(t, got, want)
		})
	})
	t.Run("stats", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			want := &leaf.StatsRequest{Index: name.Draw(t, "index"), View: view(t), Terms: terms.Draw(t, "terms"), Query: maybe(t), DefaultFields: fields(t)}
			m, err := packStatsRequest(want)
			if err != nil {
				t.Fatal(err)
			}
			got, err := unpackStatsRequest(wire(t, m), query.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			same(t, got, want)
		})
	})
	t.Run("aggregate", func(t *testing.T) {
		lists := []string{"", "t:terms(a,5),s:stats(b)", "h:histogram(n,0.5),d:date_histogram(d,1M),r:range(n,..1,2..3)", `p:percentiles(n,50,99.9),c:cardinality(a),f:filter(x AND "y z")`}
		rapid.Check(t, func(t *rapid.T) {
			want := &leaf.AggregateRequest{
				Index: name.Draw(t, "index"), View: view(t), Query: maybe(t), Filters: filters(t), DefaultFields: fields(t), DefaultOp: query.Op(rapid.IntRange(0, 1).Draw(t, "op")),
				Stats: termStats(t), Values: fields(t),
			}
			if list := rapid.SampledFrom(lists).Draw(t, "specs"); list != "" {
				var err error
				if want.Specs, err = agg.Parse(list); err != nil {
					t.Fatal(err)
				}
			}
			m, err := packAggregate(want)
			if err != nil {
				t.Fatal(err)
			}
			got, err := unpackAggregate(wire(t, m), query.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			same(t, got, want)
		})
	})
	t.Run("knn", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			want := &leaf.KNNRequest{Index: name.Draw(t, "index"), View: view(t), KNN: vector(t), Filters: filters(t), DefaultFields: fields(t), AllowPartial: rapid.Bool().Draw(t, "partial")}
			k := &want.KNN
			m, err := packKNN(want)
			if err != nil {
				t.Fatal(err)
			}
			got, err := unpackKNN(wire(t, m), query.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			same(t, got, want)
			if (k.Dense == nil) != (got.KNN.Dense == nil) || (k.Bits == nil) != (got.KNN.Bits == nil) || (k.Indices == nil) != (got.KNN.Indices == nil) {
				t.Fatalf("another kind of vector: %+v, want %+v", got.KNN, *k)
			}
		})
	})
	t.Run("ids", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			ids := &leaf.IDsRequest{Index: name.Draw(t, "index"), View: view(t), After: anyKey.Draw(t, "after"), Limit: rapid.IntRange(0, maxCount).Draw(t, "limit")}
			m, err := packIDsRequest(ids)
			if err != nil {
				t.Fatal(err)
			}
			got, err := unpackIDsRequest(wire(t, m))
			if err != nil {
				t.Fatal(err)
			}
			same(t, got, ids)
			has := &leaf.HasRequest{Index: name.Draw(t, "index"), View: view(t), IDs: rapid.SliceOfN(anyKey, 0, 5).Draw(t, "ids")}
			h, err := packHas(has)
			if err != nil {
				t.Fatal(err)
			}
			gotHas, err := unpackHas(wire(t, h))
			if err != nil {
				t.Fatal(err)
			}
			same(t, gotHas, has)
		})
	})
}

func TestNoDefaultFieldsIsNotAllOfThem(t *testing.T) {
	for _, want := range [][]string{nil, {}, {"a"}} {
		b, err := proto.Marshal(&pb.SearchRequest{DefaultFields: packFields(want)})
		if err != nil {
			t.Fatal(err)
		}
		var m pb.SearchRequest
		if err := proto.Unmarshal(b, &m); err != nil {
			t.Fatal(err)
		}
		if got := unpackFields(m.DefaultFields); (got == nil) != (want == nil) || len(got) != len(want) {
			t.Errorf("%#v became %#v", want, got)
		}
	}
}

// view draws a View, often the zero one.
func view(t *rapid.T) leaf.View {
	if rapid.Bool().Draw(t, "no view") {
		return leaf.View{}
	}
	return leaf.View{Epoch: rapid.Uint64().Draw(t, "epoch"), Lenient: rapid.Bool().Draw(t, "lenient"), Owned: rapid.SliceOfN(share, 0, leaf.MaxShares).Draw(t, "owned")}
}

var share = rapid.Custom(func(t *rapid.T) placement.Share {
	n := rapid.IntRange(1, placement.MaxShards).Draw(t, "shards")
	return placement.Share{
		Spec: placement.Spec{
			Rule:   rapid.SampledFrom([]placement.Rule{placement.Ring, placement.Modulo, placement.Rendezvous}).Draw(t, "rule"),
			Shards: n, VNodes: rapid.IntRange(0, placement.MaxVNodes).Draw(t, "vnodes"),
		},
		Ordinal: rapid.IntRange(0, n-1).Draw(t, "ordinal"),
	}
})

// show draws a Show, often none.
func show(t *rapid.T) *leaf.Show {
	if rapid.Bool().Draw(t, "no show") {
		return nil
	}
	s := &leaf.Show{Source: rapid.Bool().Draw(t, "source"), Explain: rapid.Bool().Draw(t, "explain")}
	if rapid.Bool().Draw(t, "some fields") {
		s.Fields = rapid.SliceOfN(name, 0, 3).Draw(t, "fields")
	}
	if rapid.Bool().Draw(t, "highlight") {
		s.Highlight = &api.Highlight{
			Fields: rapid.SliceOfN(text, 0, 3).Draw(t, "highlighted"), FragmentSize: rapid.IntRange(0, maxCount).Draw(t, "size"),
			Fragments: rapid.IntRange(0, maxCount).Draw(t, "fragments"), Pre: text.Draw(t, "pre"), Post: text.Draw(t, "post"), Raw: rapid.Bool().Draw(t, "raw"),
		}
	}
	return s
}

// part draws what may be shown of a document: nothing, nothing in it, or something.
var part = rapid.Custom(func(t *rapid.T) []byte {
	if rapid.Bool().Draw(t, "none") {
		return nil
	}
	return rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "part")
})

// shown draws what is to be shown of n documents.
func shown(t *rapid.T, n int) []leaf.Shown {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) leaf.Shown {
		return leaf.Shown{
			Missing: rapid.Bool().Draw(t, "missing"), Source: part.Draw(t, "source"), Highlight: part.Draw(t, "fragments"), Lexical: part.Draw(t, "lexical"),
			Vector: part.Draw(t, "vector"),
		}
	}), n, n).Draw(t, "shown")
}

func below(t *rapid.T) *leaf.Below {
	if rapid.Bool().Draw(t, "nothing below") {
		return nil
	}
	b := &leaf.Below{DocsCovered: rapid.Uint64().Draw(t, "covered"), DocsTotal: rapid.Uint64().Draw(t, "total"), Unsized: rapid.Bool().Draw(t, "unsized")}
	outcomes := []api.Outcome{api.Answered, api.Skipped, api.TimedOut, api.Refused, api.Unavailable, api.Failed}
	for range rapid.IntRange(0, 4).Draw(t, "shards") {
		b.Shards.Count(api.ShardOutcome{
			Shard: rapid.IntRange(0, maxCount).Draw(t, "shard"), Address: anyKey.Draw(t, "address"), Outcome: rapid.SampledFrom(outcomes).Draw(t, "outcome"),
			Micros: rapid.Int64().Draw(t, "micros"),
		})
	}
	return b
}

func meta(t *rapid.T) leaf.Meta {
	return leaf.Meta{
		Snapshot: leaf.Snapshot{Instance: rapid.Uint64().Draw(t, "instance"), Version: rapid.Uint64().Draw(t, "version"), CommitTS: rapid.Uint64().Draw(t, "ts")},
		Timings: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) api.Timing {
			return api.Timing{Stage: text.Draw(t, "stage"), Micros: rapid.Int64().Draw(t, "micros")}
		}), 0, 3).Draw(t, "timings"),
		Approximate: rapid.SliceOfN(rapid.SampledFrom([]string{leaf.ApproximateGraph, leaf.ApproximateLocal}), 0, 2).Draw(t, "approximate"),
		Below:       below(t),
	}
}

func TestRepliesKeepEverything(t *testing.T) {
	t.Run("search", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			keys := rapid.IntRange(0, 3).Draw(t, "keys")
			want := &leaf.SearchReply{
				Meta: meta(t), Docs: rapid.Uint64().Draw(t, "docs"), Total: rapid.Uint64().Draw(t, "total"), Partial: rapid.Bool().Draw(t, "partial"),
				TotalRelation: rapid.SampledFrom([]string{"", exec.Exactly, exec.AtLeast}).Draw(t, "relation"),
				Notes:         rapid.SliceOfN(text, 0, 2).Draw(t, "notes"), Stats: termStats(t),
				LocalStats: termStats(t), Plan: part.Draw(t, "plan"),
			}
			for range rapid.IntRange(0, 5).Draw(t, "hits") {
				want.Hits = append(want.Hits, leaf.Hit{ID: anyKey.Draw(t, "id"), Score: float.Draw(t, "score"), Sort: rapid.SliceOfN(sortValue, keys, keys).Draw(t, "values")})
			}
			if rapid.Bool().Draw(t, "show") {
				want.Shown = shown(t, len(want.Hits))
			}
			got, err := unpackSearchReply(wire(t, packSearchReply(want, keys)), keys, len(want.Hits))
			if err != nil {
				t.Fatal(err)
			}
			same(t, got, want)
			sameShown(t, got.Shown, want.Shown)
			if keys == 0 {
				for _, h := range got.Hits {
					if h.Sort != nil {
						t.Fatal("sort values without keys")
					}
				}
			}
			if n := len(want.Hits); n > 0 {
				if _, err := unpackSearchReply(packSearchReply(want, keys), keys, n-1); err == nil {
					t.Fatal("took more hits than were asked for")
				}
				if _, err := unpackSearchReply(packSearchReply(want, keys), keys+1, n); err == nil {
					t.Fatal("took fewer columns than there are keys")
				}
			}
		})
	})
	t.Run("others", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			info := &leaf.InfoReply{Meta: meta(t), Node: text.Draw(t, "node"), Version: text.Draw(t, "version"), Index: api.IndexInfo{
				Name: text.Draw(t, "name"), Docs: rapid.Uint64().Draw(t, "docs"), Segments: rapid.Int().Draw(t, "segments"), Bytes: rapid.Int64().Draw(t, "bytes"),
				Schema: text.Draw(t, "schema"), Dynamic: rapid.Bool().Draw(t, "dynamic"), State: text.Draw(t, "state"), Reason: text.Draw(t, "reason"),
			}}
			gotInfo, err := unpackInfo(wire(t, packInfo(info)))
			same(t, read(t, gotInfo, err), info)

			st := &leaf.StatsReply{Meta: meta(t)}
			if s := termStats(t); s != nil {
				st.Stats = *s
			}
			gotStats, err := unpackStatsReply(wire(t, packStatsReply(st)))
			if err != nil {
				t.Fatal(err)
			}
			same(t, gotStats, st)
			if gotStats.Stats.DF == nil || gotStats.Stats.Fields == nil {
				t.Fatal("maps that cannot be added to")
			}

			near := &leaf.KNNReply{Meta: meta(t), Docs: rapid.Uint64().Draw(t, "docs"), Partial: rapid.Bool().Draw(t, "partial")}
			for range rapid.IntRange(0, 4).Draw(t, "hits") {
				near.Hits = append(near.Hits, leaf.Neighbour{ID: anyKey.Draw(t, "id"), Similarity: float.Draw(t, "similarity")})
			}
			gotNear, err := unpackKNNReply(wire(t, packKNNReply(near)), len(near.Hits))
			if err != nil {
				t.Fatal(err)
			}
			same(t, gotNear, near)

			members := api.Members{OK: rapid.Int().Draw(t, "ok"), Total: rapid.Int().Draw(t, "total"), FailedAddresses: rapid.SliceOfN(text, 0, 2).Draw(t, "failed")}
			inferred := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) api.InferredField {
				return api.InferredField{Name: text.Draw(t, "name"), Type: text.Draw(t, "type"), From: text.Draw(t, "from")}
			}), 0, 2).Draw(t, "inferred")
			index := &leaf.IndexReply{Meta: meta(t), WriteReply: api.WriteReply{OK: rapid.Bool().Draw(t, "ok"), ID: anyKey.Draw(t, "id"), Members: members, Inferred: inferred}}
			gotIndex, err := unpackIndexReply(wire(t, packIndexReply(index)))
			same(t, read(t, gotIndex, err), index)

			bulk := &leaf.BulkReply{Meta: meta(t), BulkReply: api.BulkReply{
				OK: rapid.Bool().Draw(t, "ok"), Indexed: rapid.Uint64().Draw(t, "indexed"), Failed: rapid.Uint64().Draw(t, "failed"),
				Duplicates: rapid.Uint64().Draw(t, "duplicates"), DuplicatesAtLeast: rapid.Bool().Draw(t, "at least"), Shards: rapid.Int().Draw(t, "shards"),
				Members: members, TookMicros: rapid.Int64().Draw(t, "took"), ErrorsOmitted: rapid.Uint64().Draw(t, "omitted"), Inferred: inferred,
				Errors: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) api.DocFailure {
					return api.DocFailure{Line: rapid.Int().Draw(t, "line"), ID: anyKey.Draw(t, "id"), Code: text.Draw(t, "code"), Reason: text.Draw(t, "reason")}
				}), 0, 3).Draw(t, "errors"),
			}}
			gotBulk, err := unpackBulkReply(wire(t, packBulkReply(bulk)))
			same(t, read(t, gotBulk, err), bulk)
		})
	})
	t.Run("values", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			want := &leaf.AggregateReply{Meta: meta(t), Docs: rapid.Uint64().Draw(t, "docs"), Matched: rapid.Uint64().Draw(t, "matched")}
			req := &leaf.AggregateRequest{}
			for i := range rapid.IntRange(0, 3).Draw(t, "fields") {
				v := leaf.FieldValues{Field: fmt.Sprint("f", i), Type: schema.Type(rapid.IntRange(0, 10).Draw(t, "type"))}
				v.Numbers = rapid.SliceOfN(rapid.Uint64(), 0, 3).Draw(t, "numbers")
				v.Texts = rapid.SliceOfN(anyKey, 0, 3).Draw(t, "texts")
				want.Values, req.Values = append(want.Values, v), append(req.Values, v.Field)
			}
			got, err := unpackAggregateReply(wire(t, packAggregateReply(want)), req, agg.Options{})
			if err != nil {
				t.Fatal(err)
			}
			same(t, got, want)
		})
	})
}

// Problems keep every member, and every code of the API is a status of its own kind.
func TestProblemsKeepEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := &api.Problem{
			Code: api.Code(text.Draw(t, "code")), Detail: text.Draw(t, "detail"), Status: rapid.IntRange(0, 599).Draw(t, "status"), Field: text.Draw(t, "field"),
			Line: rapid.Int().Draw(t, "line"), Column: rapid.Int().Draw(t, "column"), Expected: text.Draw(t, "expected"),
			RetryAfterMS: rapid.Int64().Draw(t, "retry"), RequestID: text.Draw(t, "request"), Extra: rapid.SliceOfN(rapid.Byte(), 0, 9).Draw(t, "extra"),
		}
		if rapid.Bool().Draw(t, "has position") {
			want.At(rapid.Int().Draw(t, "position"))
		}
		if rapid.Bool().Draw(t, "has limit") {
			want.Within(rapid.Int64().Draw(t, "limit"))
		}
		same(t, unpackProblem(packProblem(want)), want)
	})
	for code, info := range api.Codes {
		if _, ok := statusCodes[info.Status]; !ok {
			t.Errorf("%s: HTTP status %d has no gRPC code", code, info.Status)
		}
	}
	large := api.NewProblem(api.NothingApplied, strings.Repeat("é", maxProblem))
	large.Extra = []byte(`"errors":[]`)
	if got := unpackProblem(packProblem(large)); got == nil || got.Code != large.Code || got.Extra != nil || len(got.Detail) > maxProblem {
		t.Errorf("a large problem does not shrink: %v", got.Code)
	}
	if got := unpackProblem(packProblem(api.NewProblem(api.Internal, "\xff"))); got == nil || got.Detail != "\uFFFD" {
		t.Errorf("a detail that is not UTF-8: %v", got)
	}
}

func TestEnumsAreThoseOfTheEngine(t *testing.T) {
	for _, c := range []struct{ wire, engine int }{
		{int(pb.SortKey_BY_SCORE), int(exec.ByScore)},
		{int(pb.SortKey_BY_ID), int(exec.ByID)},
		{int(pb.SortKey_BY_FIELD), int(exec.ByField)},
		{int(pb.SortKey_MODE_ANY), int(exec.AnyMode)},
		{int(pb.SortKey_MODE_LEAST), int(exec.Least)},
		{int(pb.SortKey_MODE_GREATEST), int(exec.Greatest)},
		{int(pb.ValueKind_VALUE_MISSING), int(exec.MissingValue)},
		{int(pb.ValueKind_VALUE_NUMBER), int(exec.NumberValue)},
		{int(pb.ValueKind_VALUE_TEXT), int(exec.TextValue)},
		{int(pb.ValueKind_VALUE_SCORE), int(exec.ScoreValue)},
		{int(pb.TotalMode_TOTAL_EXACT), int(exec.TotalExact)},
		{int(pb.TotalMode_TOTAL_AT_LEAST), int(exec.TotalAtLeast)},
		{int(pb.TotalMode_TOTAL_NONE), int(exec.TotalNone)},
		{int(pb.Operator_OPERATOR_OR), int(query.Or)},
		{int(pb.Operator_OPERATOR_AND), int(query.And)},
		{int(pb.Combiner_COMBINER_LOG_SUM_EXP), int(score.LogSumExp)},
		{int(pb.Combiner_COMBINER_MAX), int(score.Max)},
		{int(pb.Combiner_COMBINER_AVG), int(score.Avg)},
		{int(pb.Combiner_COMBINER_SUM), int(score.Sum)},
		{int(pb.Combiner_COMBINER_WEIGHTED_TOP_K), int(score.WeightedTopK)},
	} {
		if c.wire != c.engine {
			t.Errorf("%d on the wire is %d in the engine", c.wire, c.engine)
		}
	}
}

// What is refused before it is sent is refused by the server too, with the same words, and bounded work.
func TestBoundsOfRequests(t *testing.T) {
	deep := func(n int) (query.Node, *pb.Query) {
		node, m := query.Node(&query.All{}), &pb.Query{Node: &pb.Query_All_{All: &pb.Query_All{}}}
		for range n - 1 {
			node, m = &query.Boost{Query: node, Factor: 1}, &pb.Query{Node: &pb.Query_Boost_{Boost: &pb.Query_Boost{Query: m, Factor: 1}}}
		}
		return node, m
	}
	wide := func(n int) (query.Node, *pb.Query) {
		b, m := &query.Bool{}, &pb.Query_Bool{}
		for range n {
			b.Should, m.Should = append(b.Should, &query.All{}), append(m.Should, &pb.Query{Node: &pb.Query_All_{All: &pb.Query_All{}}})
		}
		return b, &pb.Query{Node: &pb.Query_Bool_{Bool: m}}
	}
	for _, c := range []struct {
		name string
		make func() (query.Node, *pb.Query)
		code api.Code
	}{
		{"32 levels", func() (query.Node, *pb.Query) { return deep(defaultDepth) }, ""},
		{"33 levels", func() (query.Node, *pb.Query) { return deep(defaultDepth + 1) }, api.QueryLimit},
		{"60 levels", func() (query.Node, *pb.Query) { return deep(60) }, api.QueryLimit},
		{"256 nodes", func() (query.Node, *pb.Query) { return wide(defaultNodes - 1) }, ""},
		{"257 nodes", func() (query.Node, *pb.Query) { return wide(defaultNodes) }, api.QueryLimit},
		{"a missing child", func() (query.Node, *pb.Query) {
			return &query.Boost{Factor: 1}, &pb.Query{Node: &pb.Query_Boost_{Boost: &pb.Query_Boost{Factor: 1}}}
		}, api.InvalidQuery},
		{"no field", func() (query.Node, *pb.Query) {
			return &query.Terms{}, &pb.Query{Node: &pb.Query_Terms_{Terms: &pb.Query_Terms{}}}
		}, api.InvalidQuery},
		{"an endless boost", func() (query.Node, *pb.Query) {
			inf := float32(math.Inf(1))
			return &query.Boost{Query: &query.All{}, Factor: inf}, &pb.Query{Node: &pb.Query_Boost_{Boost: &pb.Query_Boost{Query: &pb.Query{Node: &pb.Query_All_{All: &pb.Query_All{}}}, Factor: inf}}}
		}, api.InvalidQuery},
	} {
		t.Run(c.name, func(t *testing.T) {
			node, m := c.make()
			_, packErr := packSearch(&leaf.SearchRequest{Query: node})
			_, unpackErr := unpackSearch(&pb.SearchRequest{Query: m}, query.Limits{})
			_, filterErr := unpackKNN(&pb.KNNRequest{Filters: []*pb.Query{m}}, query.Limits{})
			if c.code == "" {
				if packErr != nil || unpackErr != nil || filterErr != nil {
					t.Fatal(packErr, unpackErr, filterErr)
				}
				return
			}
			a, okA := errors.AsType[*api.Problem](packErr)
			b, okB := errors.AsType[*api.Problem](unpackErr)
			f, okF := errors.AsType[*api.Problem](filterErr)
			if !okA || !okB || !okF || a.Code != c.code || f.Code != c.code || f.Field != "filter" {
				t.Fatalf("%v, %v, %v", packErr, unpackErr, filterErr)
			}
			same(t, b, a)
		})
	}
	ids := make([]string, leaf.MaxIDs+1)
	_, err := packHas(&leaf.HasRequest{IDs: ids})
	_, err2 := unpackHas(&pb.HasRequest{Ids: packTexts(ids)})
	for _, err := range []error{err, err2} {
		if p, ok := errors.AsType[*api.Problem](err); !ok || p.Limit != leaf.MaxIDs {
			t.Errorf("%d ids: %v", len(ids), err)
		}
	}
	for name, err := range map[string]error{
		"lengths": func() error {
			_, err := unpackHas(&pb.HasRequest{Ids: &pb.Texts{Data: []byte("ab"), Lengths: []uint32{1}}})
			return err
		}(),
		"over": func() error {
			_, err := unpackHas(&pb.HasRequest{Ids: &pb.Texts{Lengths: []uint32{math.MaxUint32, math.MaxUint32}}})
			return err
		}(),
		"term field": func() error {
			_, err := unpackStatsRequest(&pb.StatsRequest{Terms: &pb.TermList{Field: []uint32{1}, Texts: packTexts([]string{"a"}), Fields: packTexts([]string{"f"})}}, query.Limits{})
			return err
		}(),
		"sort kind": func() error {
			_, err := unpackSearch(&pb.SearchRequest{Sort: []*pb.SortKey{{By: 7}}}, query.Limits{})
			return err
		}(),
		"total": func() error { _, err := unpackSearch(&pb.SearchRequest{Total: 9}, query.Limits{}); return err }(),
		"limit": func() error { _, err := packSearch(&leaf.SearchRequest{Limit: -1}); return err }(),
		"keys": func() error {
			_, err := unpackSearch(&pb.SearchRequest{Sort: make([]*pb.SortKey, 9)}, query.Limits{})
			return err
		}(),
		"specs": func() error {
			_, err := unpackAggregate(&pb.AggregateRequest{Specs: []byte("{")}, query.Limits{})
			return err
		}(),
		"pairs": func() error {
			_, err := unpackKNN(&pb.KNNRequest{Vector: &pb.KNNRequest_Sparse{Sparse: &pb.SparseVector{Indices: []uint32{1}}}}, query.Limits{})
			return err
		}(),
	} {
		if _, ok := errors.AsType[*api.Problem](err); !ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzRequests reads any bytes as each request: what it makes is within bounds, and is the same after another way over the wire.
func FuzzRequests(f *testing.F) {
	for i := range byte(16) {
		f.Add(i, []byte{})
	}
	q, err := query.Parse(`a:b "c d"~2 -(x* OR n:[1 TO 2})^3`, query.ParseOptions{})
	if err != nil {
		f.Fatal(err)
	}
	search, err := packSearch(&leaf.SearchRequest{Query: q, Sort: []exec.SortKey{{By: exec.ByField, Field: "n"}}, After: &exec.After{Key: "k", Values: []exec.SortValue{{Kind: exec.TextValue, Text: "t"}}}})
	if err != nil {
		f.Fatal(err)
	}
	b, err := proto.Marshal(search)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(byte(0), b)
	for which, m := range map[byte]proto.Message{
		8: &pb.FetchRequest{
			Ids: packTexts([]string{"a", "bc"}), View: wireShares(2), Show: &pb.Show{Source: true, Highlight: &pb.Highlight{Fragments: 3}},
			Knn: &pb.KNNRequest{Field: "v", Vector: &pb.KNNRequest_Sparse{Sparse: &pb.SparseVector{Indices: []uint32{1}, Weights: []float32{2}}}},
		},
		9:  &pb.SumsRequest{Range: &pb.HashRange{To: 7}, Limit: 5, After: []byte("a")},
		10: &pb.SumsRequest{Ids: packTexts([]string{"a", "bc"})},
		11: &pb.SyncRequest{Ids: packTexts([]string{"a", "bc"}), Ops: []byte{0, 1}, Expect: make([]byte, 2*sumSize), Bodies: packTexts([]string{"{}"})},
		12: &pb.PlaceRequest{Epoch: 3, Map: []byte("{}")},
		15: &pb.BulkRequest{Key: []byte("k"), View: wireShares(1)},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(which, b)
	}
	f.Fuzz(func(t *testing.T, which byte, b []byte) {
		switch which % 16 {
		case 0:
			again(t, b, func(m *pb.SearchRequest) (*leaf.SearchRequest, error) { return unpackSearch(m, query.Limits{}) }, packSearch)
		case 1:
			again(t, b, func(m *pb.StatsRequest) (*leaf.StatsRequest, error) { return unpackStatsRequest(m, query.Limits{}) }, packStatsRequest)
		case 2:
			again(t, b, func(m *pb.AggregateRequest) (*leaf.AggregateRequest, error) {
				return unpackAggregate(m, query.Limits{})
			}, packAggregate)
		case 3:
			again(t, b, func(m *pb.KNNRequest) (*leaf.KNNRequest, error) { return unpackKNN(m, query.Limits{}) }, packKNN)
		case 4:
			again(t, b, unpackIDsRequest, packIDsRequest)
		case 5:
			again(t, b, unpackExport, packExport)
		case 6:
			again(t, b, unpackHas, packHas)
		case 7:
			again(t, b, unpackDelete, packDelete)
		case 8:
			again(t, b, func(m *pb.FetchRequest) (*leaf.FetchRequest, error) { return unpackFetch(m, query.Limits{}) }, packFetch)
		case 9, 10:
			again(t, b, unpackSumsRequest, packSumsRequest)
		case 11:
			again(t, b, unpackSync, packSync)
		case 12:
			again(t, b, unpackPlace, packPlace)
		case 13:
			again(t, b, unpackDigestRequest, packDigestRequest)
		case 14:
			again(t, b, unpackDocs, packDocs)
		case 15:
			again(t, b, unpackBulk, packBulk)
		}
	})
}

func again[M any, P message[M], R any](t *testing.T, b []byte, unpack func(P) (*R, error), pack func(*R) (P, error)) {
	m := P(new(M))
	if decodeOptions.Unmarshal(b, m) != nil {
		return
	}
	r, err := unpack(m)
	if err != nil {
		return
	}
	m, err = pack(r)
	if err != nil {
		t.Fatalf("what was read cannot be written: %v", err)
	}
	r2, err := unpack(m)
	if err != nil {
		t.Fatalf("what was written cannot be read: %v", err)
	}
	nan := cmp.FilterValues(func(a, b float32) bool { return true }, cmp.Comparer(func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }))
	if d := cmp.Diff(r, r2, cmpopts.EquateEmpty(), nan, cmp.AllowUnexported(agg.Spec{}), cmpopts.IgnoreFields(agg.Spec{}, "pos", "facet")); d != "" {
		t.Fatal(d)
	}
}

// FuzzReplies reads any bytes as replies.
func FuzzReplies(f *testing.F) {
	b, err := proto.Marshal(packSearchReply(&leaf.SearchReply{Hits: []leaf.Hit{{ID: "a", Sort: []exec.SortValue{{Kind: exec.NumberValue, Number: 4}}}}}, 1))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(byte(0), b)
	for i := range byte(10) {
		f.Add(i, []byte{})
	}
	for which, m := range map[byte]proto.Message{
		0: packSearchReply(&leaf.SearchReply{Hits: make([]leaf.Hit, 1), Shown: []leaf.Shown{{Source: []byte("{}")}}, LocalStats: &score.Stats{Docs: 3}}, 1),
		4: &pb.FetchReply{Docs: packShown([]leaf.Shown{{Missing: true}, {Source: []byte("{}"), Vector: []byte{}}})},
		5: &pb.SumsReply{Ids: packTexts([]string{"a", "bc"}), Sums: make([]byte, 2*sumSize)},
		6: &pb.DigestReply{Docs: []uint32{1, 2}, Sums: make([]byte, 2*sumSize)},
		7: &pb.SyncReply{Applied: []byte{0, 1}, Sums: make([]byte, 2*sumSize), Refused: []uint32{0}, Problems: []*pb.Problem{{Code: "c"}}},
		8: &pb.Meta{Below: &pb.Below{Outcomes: []byte{1}, Shards: []uint32{1}, Addresses: packTexts([]string{"a"}), Micros: []int64{9}}},
		9: &pb.IndexesReply{Indexes: []*pb.IndexInfo{{Name: "docs"}}},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(which, b)
	}
	specs, err := agg.Parse("t:terms(a),s:stats(n)")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, which byte, b []byte) {
		switch which % 10 {
		case 0:
			var m pb.SearchReply
			if decodeOptions.Unmarshal(b, &m) == nil {
				if r, err := unpackSearchReply(&m, 1, 100); err == nil && len(r.Hits) > 100 {
					t.Fatal("more hits than asked for")
				}
			}
		case 1:
			var m pb.StatsReply
			if decodeOptions.Unmarshal(b, &m) == nil {
				unpackStatsReply(&m)
			}
		case 2:
			var m pb.AggregateReply
			if decodeOptions.Unmarshal(b, &m) == nil {
				unpackAggregateReply(&m, &leaf.AggregateRequest{Specs: specs, Values: []string{"a"}}, agg.Options{})
			}
		case 3:
			var m pb.KNNReply
			if decodeOptions.Unmarshal(b, &m) == nil {
				unpackKNNReply(&m, 100)
			}
		case 4:
			var m pb.FetchReply
			if decodeOptions.Unmarshal(b, &m) == nil {
				if docs, err := unpackShown(m.Docs, len(m.Docs.GetParts())); err == nil {
					back, err := unpackShown(packShown(docs), len(docs))
					if d := cmp.Diff(docs, back); err != nil || d != "" {
						t.Fatal(err, d)
					}
				}
			}
		case 5:
			var m pb.SumsReply
			if decodeOptions.Unmarshal(b, &m) == nil {
				if r, err := unpackSumsReply(&m, &leaf.SumsRequest{Range: &leaf.HashRange{}, Limit: 2}); err == nil && (len(r.IDs) > 2 || len(r.Sums) != len(r.IDs)) {
					t.Fatal("more sums than asked for")
				}
			}
		case 6:
			var m pb.DigestReply
			if decodeOptions.Unmarshal(b, &m) == nil {
				if r, err := unpackDigestReply(&m, 1); err == nil && (len(r.Docs) != 2 || len(r.Sums) != 2) {
					t.Fatal("other ranges than asked for")
				}
			}
		case 7:
			var m pb.SyncReply
			if decodeOptions.Unmarshal(b, &m) == nil {
				if r, err := unpackSyncReply(&m, 2); err == nil && (len(r.Applied) != 2 || len(r.Sums) != 2 || r.Problems != nil && len(r.Problems) != 2) {
					t.Fatal("not what became of two items")
				}
			}
		case 8:
			var m pb.Meta
			if decodeOptions.Unmarshal(b, &m) == nil {
				if r, err := unpackMeta(&m); err == nil && r.Below != nil && r.Below.Shards.OK+r.Below.Shards.Failed != len(r.Below.Shards.Outcomes) {
					t.Fatal("the accounting does not add up")
				}
			}
		case 9:
			var m pb.IndexesReply
			if decodeOptions.Unmarshal(b, &m) == nil {
				unpackIndexes(&m)
			}
		}
	})
}
