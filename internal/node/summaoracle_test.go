package node

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/shard/summaquery/oracletest"
	"github.com/weft-search/weft/internal/summa"
)

// TestSummaSearchesAreTheOracles writes documents by chance over the wire, and holds what a node answers to requests by chance against
// brute force. It goes on until every type of query, combiner and fusion method was answered.
func TestSummaSearchesAreTheOracles(t *testing.T) {
	seed := oracletest.Seed(t)
	s := newSummaNode(t, Config{})
	kinds, ran := oracletest.Kinds{}, 0
	rounds := oracletest.Rounds(8, 800)
	for round := range 10 * rounds {
		if round >= rounds && len(kinds.Missing()) == 0 {
			break
		}
		if oracletest.Only(round) {
			ran++
			askByChance(t, s, oracletest.NewWorld(seed, uint64(round)), kinds, round)
		}
	}
	t.Logf("%d rounds, answered: %v", ran, kinds)
	if missing := kinds.Missing(); ran > 1 && len(missing) > 0 {
		t.Errorf("never answered: %v", missing)
	}
}

// askByChance does a round: an index that is filled twice, and requests after each time.
func askByChance(t *testing.T, s *summaNode, w oracletest.World, kinds oracletest.Kinds, round int) {
	t.Helper()
	sdl := oracletest.SDL(w.One([]string{"", ", query<max_terms: 3>"}))
	sch, err := summa.ParseSchema(sdl)
	if err != nil {
		t.Fatal(err)
	}
	an, err := exec.NewAnalyzers(sch)
	if err != nil {
		t.Fatal(err)
	}
	n := 6 + w.IntN(50)
	x := &oracleIndex{summaNode: s, w: w, n: n, kinds: kinds, sch: sch, an: an, written: map[string][]*summapb.FieldEntry{}}
	x.create("o", sdl)
	for half := range 2 {
		x.fill(n + n/3*half)
		x.learn()
		for i := range 50 {
			if w.IntN(8) == 0 {
				x.change() // no search sees it before the next commit
			}
			req := w.Request(n, false)
			switch w.IntN(8) {
			case 0:
				req = w.Nominations(n)
			case 1, 2:
				req = w.Scored(n)
			case 3, 4:
				req = w.Diagnosed(n)
			}
			req.FieldsToLoad = x.fieldsToLoad()
			if x.differs(req) != "" {
				req = oracletest.Shrink(req, func(r *summapb.SearchRequest) bool { return x.differs(r) != "" })
				t.Fatalf("round %d, request %d of half %d, %d documents in %d segments:\n%s\n%s", round, i, half, len(x.live), len(x.segments), prototext.Format(req), x.differs(req))
			}
		}
	}
	if _, err := s.index.DeleteIndex(t.Context(), &summapb.DeleteIndexRequest{IndexName: "o"}); err != nil {
		t.Fatal(err)
	}
}

// oracleIndex is the index o of a node with the documents that should be in it.
type oracleIndex struct {
	*summaNode
	w     oracletest.World
	n     int // about how many documents
	kinds oracletest.Kinds
	sch   *schema.Schema
	an    exec.Analyzers

	written, live map[string][]*summapb.FieldEntry // with what is staged; what was committed
	oracle        *oracletest.Oracle
	segments      []string                    // by name; the oracle's leaves
	keys          map[oracletest.Place]string // of places without their key
}

// fill writes until there are n documents, and commits them.
func (x *oracleIndex) fill(n int) {
	x.t.Helper()
	for len(x.written) < n {
		x.change()
		if x.w.IntN(3) == 0 {
			x.put()
		}
	}
	x.put()
}

// put commits, and merges by chance.
func (x *oracleIndex) put() {
	x.t.Helper()
	if got := x.commit("o"); int(got) != len(x.written) {
		x.t.Fatalf("%d documents are committed, want %d", got, len(x.written))
	}
	x.live = maps.Clone(x.written)
	if x.w.IntN(4) == 0 {
		if r, err := x.index.ForceMerge(context.Background(), &summapb.ForceMergeRequest{IndexName: "o", Compact: x.w.IntN(2) == 0}); err != nil || !r.Success {
			x.t.Fatal(r, err)
		}
	}
}

// change writes or deletes some documents in one call, and checks what the node says of each of them.
func (x *oracleIndex) change() {
	x.t.Helper()
	key := func() string { return fmt.Sprintf("k%03d", x.w.IntN(3*x.n)) }
	how := x.w.IntN(4)
	if how == 0 {
		var keys []string
		for range 1 + x.w.IntN(4) {
			keys = append(keys, key())
		}
		r, err := x.index.DeleteDocuments(context.Background(), &summapb.DeleteDocumentsRequest{IndexName: "o", PrimaryKeys: keys})
		if err != nil || int(r.AcceptedCount) != len(keys) || len(r.Errors) > 0 {
			x.t.Fatalf("delete %v: %v, %v", keys, r, err)
		}
		for _, k := range keys {
			delete(x.written, k)
		}
		return
	}
	var docs []*summapb.NamedDocument
	var refused []*summapb.DocumentError
	for i := range 1 + x.w.IntN(1+x.n/4) {
		k := key()
		d := x.w.Document(k)
		docs = append(docs, &summapb.NamedDocument{Fields: d})
		if _, there := x.written[k]; there && how != 1 {
			refused = append(refused, &summapb.DocumentError{Index: uint32(i), Error: summa.DuplicateKey(k)})
			continue
		}
		x.written[k] = d
	}
	var accepted uint32
	var errs []*summapb.DocumentError
	switch how {
	case 1:
		r, err := x.index.UpsertDocuments(context.Background(), &summapb.UpsertDocumentsRequest{IndexName: "o", Documents: docs})
		if err != nil {
			x.t.Fatal(err)
		}
		accepted, errs = r.AcceptedCount, r.Errors
	case 2:
		r := x.batch("o", docs...)
		accepted, errs = r.IndexedCount, r.Errors
	default:
		st, err := x.index.IndexDocuments(context.Background())
		if err != nil {
			x.t.Fatal(err)
		}
		for _, d := range docs {
			if err := st.Send(&summapb.IndexDocumentRequest{IndexName: "o", Fields: d.Fields}); err != nil {
				x.t.Fatal(err)
			}
		}
		r, err := st.CloseAndRecv()
		if err != nil {
			x.t.Fatal(err)
		}
		accepted, errs = r.IndexedCount, r.Errors
	}
	same := func(a, b *summapb.DocumentError) bool { return proto.Equal(a, b) }
	if int(accepted) != len(docs)-len(refused) || !slices.EqualFunc(errs, refused, same) {
		x.t.Fatalf("of %d documents %d are accepted and these refused: %v, want %v", len(docs), accepted, errs, refused)
	}
}

// learn asks where the documents lie, which the order of equals depends on. It tells whether that is elsewhere than before.
func (x *oracleIndex) learn() (moved bool) {
	x.t.Helper()
	r, err := x.search.Search(context.Background(), &summapb.SearchRequest{
		IndexName: "o", Limit: uint32(len(x.live)) + 10, FieldsToLoad: []string{"id"}, Query: &summapb.Query{Query: &summapb.Query_All{All: &summapb.AllQuery{}}},
	})
	if err != nil {
		x.t.Fatal(err)
	}
	before, names := x.oracle, x.segments
	x.oracle, x.segments, x.keys = oracletest.New(x.sch, x.an), nil, map[oracletest.Place]string{}
	var places []oracletest.Place
	found := map[string]bool{}
	for _, h := range r.Hits {
		leaf := x.leaf(h.Address.SegmentId)
		if leaf < 0 {
			leaf = len(x.segments)
			x.segments = append(x.segments, h.Address.SegmentId)
		}
		key := h.Fields["id"].GetValues()[0].GetText()
		fields, ok := x.live[key]
		if !ok || found[key] {
			x.t.Fatalf("document %s is found and not in the index, or twice", key)
		}
		found[key] = true
		x.oracle.Add(key, leaf, h.Address.DocId, fields)
		places = append(places, oracletest.Place{Key: key, Leaf: leaf, Doc: h.Address.DocId})
		x.keys[oracletest.Place{Leaf: leaf, Doc: h.Address.DocId}] = key
	}
	x.oracle.Ready()
	if len(found) != len(x.live) || int(r.TotalHits) != len(found) {
		x.t.Fatalf("%d documents and a total of %d, want %d", len(found), r.TotalHits, len(x.live))
	}
	if !slices.Equal(places, x.oracle.Places()) || !slices.IsSorted(x.segments) {
		x.t.Fatalf("documents that score the same are not in the order of places: %v of %v", places, x.segments)
	}
	return before == nil || !slices.Equal(places, before.Places()) || !slices.Equal(x.segments, names)
}

func (x *oracleIndex) leaf(segment string) int { return slices.Index(x.segments, segment) }

func (x *oracleIndex) fieldsToLoad() (out []string) {
	switch x.w.IntN(4) {
	case 0:
		return nil
	case 1:
		return []string{"id", "nowhere"}
	}
	all := x.w.IntN(2) == 0
	for i := range x.sch.Fields {
		if all || x.w.IntN(3) == 0 {
			out = append(out, x.sch.Fields[i].Name)
		}
	}
	return out
}

// differs tells how an answer differs from the oracle's. Merges go on behind the requests, so a difference counts only where the documents
// lie as they did before it.
func (x *oracleIndex) differs(req *summapb.SearchRequest) string {
	x.t.Helper()
	for {
		diff := x.compare(req)
		if diff == "" || !x.learn() {
			return diff
		}
	}
}

func (x *oracleIndex) compare(req *summapb.SearchRequest) string {
	x.t.Helper()
	w, bad := summa.Limits{}.CheckSearch(req)
	got, err := x.search.Search(context.Background(), req)
	switch {
	case err != nil && status.Code(err) != codes.InvalidArgument:
		return fmt.Sprint("error ", err)
	case err == nil && bad != nil:
		return fmt.Sprint("is answered, and should be refused: ", bad)
	case bad != nil:
		return ""
	case err != nil:
		if diff := x.oracle.Differs(req, w, nil, x.leaf); diff != "" {
			return fmt.Sprint(diff, ": ", err)
		}
		return ""
	}
	x.kinds.Add(req)
	if diff := x.oracle.Diagnosis(req, w, got, x.leaf); diff != "" {
		return diff
	}
	for _, h := range got.Hits {
		key := x.keys[oracletest.Place{Leaf: x.leaf(h.Address.SegmentId), Doc: h.Address.DocId}]
		want := &summapb.SearchHit{Fields: map[string]*summapb.FieldValueList{}}
		for _, e := range x.live[key] {
			if !slices.Contains(req.FieldsToLoad, e.Name) {
				continue
			}
			if want.Fields[e.Name] == nil {
				want.Fields[e.Name] = &summapb.FieldValueList{}
			}
			want.Fields[e.Name].Values = append(want.Fields[e.Name].Values, storedValue(e.Value))
		}
		if have := (&summapb.SearchHit{Fields: h.Fields}); !bytes.Equal(wireOf(x.t, have), wireOf(x.t, want)) {
			return fmt.Sprintf("document %s has the fields %v, want %v", key, have, want)
		}
	}
	return ""
}

// storedValue is what is kept of a value: equal dimensions of a sparse vector add up.
func storedValue(v *summapb.FieldValue) *summapb.FieldValue {
	sum := map[uint32]float32{}
	given := v.GetSparseVector()
	for k, i := range given.GetIndices() {
		sum[i] += given.Values[k]
	}
	if len(sum) == len(given.GetIndices()) {
		return v
	}
	out := &summapb.SparseVector{Indices: slices.Sorted(maps.Keys(sum))}
	for _, i := range out.Indices {
		out.Values = append(out.Values, sum[i])
	}
	return &summapb.FieldValue{Value: &summapb.FieldValue_SparseVector{SparseVector: out}}
}

// wireOf tells apart what proto.Equal does not: the two zeros.
func wireOf(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
