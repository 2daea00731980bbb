package partition_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/broker/partition"
	"github.com/weft-search/weft/internal/summa"
)

func threeShards(locate func([]byte) int) *partition.Index {
	return &partition.Index{Name: "i", Shards: []string{"a", "b", "c"}, Locate: locate}
}

// randomValue makes a value of any kind, and its key bytes by the contract.
func randomValue(r *rand.Rand) (*summapb.FieldValue, string) {
	switch r.IntN(12) {
	case 0:
		return nil, ""
	case 1:
		return &summapb.FieldValue{}, ""
	case 2:
		return &summapb.FieldValue{Value: &summapb.FieldValue_DenseVector{DenseVector: &summapb.DenseVector{Values: []float32{1}}}}, ""
	case 3:
		return &summapb.FieldValue{Value: &summapb.FieldValue_SparseVector{SparseVector: &summapb.SparseVector{}}}, ""
	case 4:
		return &summapb.FieldValue{Value: &summapb.FieldValue_BinaryDenseVector{BinaryDenseVector: []byte{1}}}, ""
	case 5:
		n := r.Uint64() >> r.IntN(64)
		return &summapb.FieldValue{Value: &summapb.FieldValue_U64{U64: n}}, fmt.Sprint(n)
	case 6:
		n := int64(r.Uint64()) >> r.IntN(64)
		return &summapb.FieldValue{Value: &summapb.FieldValue_I64{I64: n}}, fmt.Sprint(n)
	case 7:
		n := float64(r.IntN(2000)-1000) / 8
		return &summapb.FieldValue{Value: &summapb.FieldValue_F64{F64: n}}, strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.3f", n), "0"), ".")
	case 8:
		b := []byte{byte(r.IntN(256)), byte(r.IntN(256))}[:r.IntN(3)]
		return &summapb.FieldValue{Value: &summapb.FieldValue_BytesValue{BytesValue: b}}, string(b)
	case 9:
		s := strings.Repeat("j", r.IntN(3))
		return &summapb.FieldValue{Value: &summapb.FieldValue_JsonValue{JsonValue: s}}, s
	}
	s := strings.Repeat("k", r.IntN(3)) + fmt.Sprint(r.IntN(100))[:r.IntN(2)]
	return &summapb.FieldValue{Value: &summapb.FieldValue_Text{Text: s}}, s
}

// randomDocument makes a document with things before and after its key, fields that nobody knows among them.
func randomDocument(t testing.TB, r *rand.Rand, n int) (wire []byte, key string) {
	d := &summapb.NamedDocument{Fields: []*summapb.FieldEntry{textEntry("n", fmt.Sprint(n))}}
	if r.IntN(2) == 0 {
		d.Fields = nil
	}
	for k := range r.IntN(3) {
		v, bytes := randomValue(r)
		d.Fields = append(d.Fields, &summapb.FieldEntry{Name: "id", Value: v})
		if k == 0 {
			key = bytes
		}
	}
	d.Fields = append(d.Fields, textEntry("t", strings.Repeat("x", r.IntN(20))))
	wire = marshal(t, d)
	if r.IntN(3) == 0 {
		wire = append(field(77, []byte("new")), wire...)
	}
	return wire, key
}

// TestWritesAreSplitAndRepliesMappedBack holds splitting and merging against a model that looks at one document after another.
func TestWritesAreSplitAndRepliesMappedBack(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 1))
	for round := range 600 {
		kind := round % 3 // batch, upsert, delete
		weights := []uint64{uint64(1 + r.IntN(3)), uint64(1 + r.IntN(3)), uint64(1 + r.IntN(3))}
		ix := threeShards(locate(weights...))
		req := field(1, []byte("i"))
		type input struct {
			wire string
			part int    // -1: refused by the broker
			text string // of the error, "" if it is taken
		}
		var inputs []input
		for n := range r.IntN(30) {
			var in input
			if kind == 2 {
				in.wire = strings.Repeat("k", r.IntN(4))
				in.part = ix.Locate([]byte(in.wire))
			} else {
				wire, key := randomDocument(t, r, n)
				in.wire, in.part = string(wire), -1
				if key != "" {
					in.part = ix.Locate([]byte(key))
				}
			}
			switch {
			case in.part < 0:
				in.text = "document has no 'id' primary key value; a partitioned index cannot route it"
			case r.IntN(4) == 0:
				in.text = fmt.Sprintf("no %d", n)
			}
			inputs = append(inputs, in)
			req = append(req, field(2, []byte(in.wire))...)
		}
		req = append(req, field(99, []byte("later"))...) // goes to everybody

		var mu sync.Mutex
		asked := map[int]bool{}
		node := callerFunc(func(_ context.Context, part int, method string, got []byte) ([]byte, error) {
			mu.Lock()
			defer mu.Unlock()
			if asked[part] {
				t.Errorf("partition %d is asked twice", part)
			}
			asked[part] = true
			want := field(1, []byte("i"))
			var errs []*summapb.DocumentError
			n, bad := 0, 0
			for _, in := range inputs {
				if in.part != part {
					continue
				}
				want = append(want, field(2, []byte(in.wire))...)
				if in.text != "" {
					errs = append(errs, &summapb.DocumentError{Index: uint32(n), Error: in.text})
					bad++
				}
				n++
			}
			if want = append(want, field(99, []byte("later"))...); n == 0 || !bytes.Equal(got, want) {
				t.Errorf("partition %d: %d inputs\n got %q\nwant %q", part, n, got, want)
			}
			r.Shuffle(len(errs), func(i, j int) { errs[i], errs[j] = errs[j], errs[i] })
			if kind == 0 {
				return proto.Marshal(&summapb.BatchIndexDocumentsResponse{IndexedCount: uint32(n - bad), ErrorCount: uint32(bad), Errors: errs})
			}
			return proto.Marshal(&summapb.DocumentMutationResponse{AcceptedCount: uint32(n - bad), Errors: errs})
		})
		var wantErrors []*summapb.DocumentError
		for i, in := range inputs {
			if in.text != "" {
				wantErrors = append(wantErrors, &summapb.DocumentError{Index: uint32(i), Error: in.text})
			}
		}
		good := uint32(len(inputs) - len(wantErrors))
		var got []byte
		var err error
		var want, answer proto.Message
		p := knowing(t, "id", "i")
		switch kind {
		case 0:
			got, err = partition.BatchIndexDocuments(t.Context(), ix, node, p, req)
			want = &summapb.BatchIndexDocumentsResponse{IndexedCount: good, ErrorCount: uint32(len(wantErrors)), Errors: wantErrors}
			answer = &summapb.BatchIndexDocumentsResponse{}
		case 1:
			got, err = partition.UpsertDocuments(t.Context(), ix, node, p, req)
			want, answer = &summapb.DocumentMutationResponse{AcceptedCount: good, Errors: wantErrors}, &summapb.DocumentMutationResponse{}
		case 2:
			got, err = partition.DeleteDocuments(t.Context(), ix, node, req)
			want, answer = &summapb.DocumentMutationResponse{AcceptedCount: good, Errors: wantErrors}, &summapb.DocumentMutationResponse{}
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := proto.Unmarshal(got, answer); err != nil || !proto.Equal(answer, want) {
			t.Fatalf("%v\n got %v\nwant %v", err, answer, want)
		}
		for _, in := range inputs {
			if in.part >= 0 && !asked[in.part] {
				t.Errorf("partition %d was not asked", in.part)
			}
		}
	}
}

func TestKeysOfEveryKindOfValue(t *testing.T) {
	for _, c := range []struct {
		value *summapb.FieldValue
		key   string
	}{
		{&summapb.FieldValue{Value: &summapb.FieldValue_F64{F64: 1e21}}, "1000000000000000000000"},
		{&summapb.FieldValue{Value: &summapb.FieldValue_F64{F64: 1e-7}}, "0.0000001"},
		{&summapb.FieldValue{Value: &summapb.FieldValue_F64{F64: 1}}, "1"},
		{&summapb.FieldValue{Value: &summapb.FieldValue_F64{F64: math.Copysign(0, -1)}}, "-0"},
		{&summapb.FieldValue{Value: &summapb.FieldValue_F64{F64: math.NaN()}}, "NaN"},
		{&summapb.FieldValue{Value: &summapb.FieldValue_F64{F64: math.Inf(1)}}, "inf"},
		{&summapb.FieldValue{Value: &summapb.FieldValue_F64{F64: math.Inf(-1)}}, "-inf"},
		{&summapb.FieldValue{Value: &summapb.FieldValue_I64{I64: math.MinInt64}}, "-9223372036854775808"},
		{&summapb.FieldValue{Value: &summapb.FieldValue_U64{U64: math.MaxUint64}}, "18446744073709551615"},
		{&summapb.FieldValue{Value: &summapb.FieldValue_U64{}}, "0"},
	} {
		located := ""
		ix := threeShards(func(key []byte) int { located = string(key); return 0 })
		req := marshal(t, &summapb.BatchIndexDocumentsRequest{IndexName: "i", Documents: []*summapb.NamedDocument{
			{Fields: []*summapb.FieldEntry{{Name: "id", Value: c.value}}},
		}})
		node := callerFunc(func(context.Context, int, string, []byte) ([]byte, error) { return nil, nil })
		if _, err := partition.BatchIndexDocuments(t.Context(), ix, node, knowing(t, "id", "i"), req); err != nil || located != c.key {
			t.Errorf("%v: %v, key %q, want %q", c.value, err, located, c.key)
		}
	}
}

// Of a oneof that is set twice the last counts, and an entry in pieces is one.
func TestKeysOfOddEncodings(t *testing.T) {
	text := func(s string) []byte { return field(1, []byte(s)) }
	entry := func(parts ...[]byte) []byte { return field(1, slices.Concat(parts...)) }
	for name, c := range map[string]struct{ doc, key string }{
		"text twice":         {string(entry(text("id"), field(2, slices.Concat(text("x"), text("y"))))), "y"},
		"a vector last":      {string(entry(text("id"), field(2, slices.Concat(text("x"), field(7, nil))))), ""},
		"two values":         {string(entry(text("id"), field(2, field(7, nil)), field(2, text("y")))), "y"},
		"the name behind":    {string(entry(field(2, text("y")), text("id"))), "y"},
		"named twice":        {string(entry(text("other"), field(2, text("y")), text("id"))), "y"},
		"a value of no kind": {string(entry(text("id"), field(2, field(55, []byte("z"))))), ""},
	} {
		located := "none"
		ix := threeShards(func(key []byte) int { located = string(key); return 0 })
		node := callerFunc(func(context.Context, int, string, []byte) ([]byte, error) { return nil, nil })
		_, err := partition.BatchIndexDocuments(t.Context(), ix, node, knowing(t, "id", "i"), field(2, []byte(c.doc)))
		if want := cmpOr(c.key, "none"); err != nil || located != want {
			t.Errorf("%s: %v, %q, want %q", name, err, located, want)
		}
	}
}

func cmpOr(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

// TestRepliesThatDoNotAddUp has partition 1 of a batch, and of a deletion, answer nonsense.
func TestRepliesThatDoNotAddUp(t *testing.T) {
	const (
		short = "backend mutation response does not account for every input"
		far   = "backend mutation error index is out of bounds"
		twice = "backend mutation response repeats an error index"
	)
	at := func(n ...uint32) (errs []*summapb.DocumentError) {
		for _, i := range n {
			errs = append(errs, &summapb.DocumentError{Index: i, Error: "e"})
		}
		return errs
	}
	for _, c := range []struct {
		errs          []*summapb.DocumentError
		good          uint32
		batch, delete string
	}{
		{nil, 3, "", ""},
		{at(0, 2, 1), 0, "", ""},
		{at(2), 2, "", ""},
		{nil, 2, "", short}, // a node that is busy skips the rest of a batch
		{nil, 4, "", short},
		{at(3), 2, far, far},
		{at(math.MaxUint32), 2, far, far},
		{at(1, 1), 1, twice, twice},
		{at(3), 3, far, short},
		{at(0, 0, 9), 0, twice, twice},
		{at(9, 0, 0), 0, far, far},
	} {
		ix := threeShards(func(key []byte) int { return int(key[0] - '0') })
		batch := &summapb.BatchIndexDocumentsRequest{IndexName: "i"}
		del := &summapb.DeleteDocumentsRequest{IndexName: "i"}
		for _, key := range []string{"1a", "0a", "1b", "2a", "1c"} {
			batch.Documents = append(batch.Documents, textDocument("id", key))
			del.PrimaryKeys = append(del.PrimaryKeys, key)
		}
		node := callerFunc(func(_ context.Context, part int, method string, _ []byte) ([]byte, error) {
			if part != 1 {
				return proto.Marshal(&summapb.BatchIndexDocumentsResponse{IndexedCount: 1})
			}
			if method == summapb.IndexService_BatchIndexDocuments_FullMethodName {
				return proto.Marshal(&summapb.BatchIndexDocumentsResponse{IndexedCount: c.good, ErrorCount: uint32(len(c.errs)), Errors: c.errs})
			}
			return proto.Marshal(&summapb.DocumentMutationResponse{AcceptedCount: c.good, Errors: c.errs})
		})
		check := func(call, want string, err error) {
			t.Helper()
			if st := status.Convert(err); want == "" && err != nil || want != "" && (st.Code() != codes.DataLoss || st.Message() != want) {
				t.Errorf("%s, %d taken, %v: %v, want %q", call, c.good, c.errs, err, want)
			}
		}
		_, err := partition.BatchIndexDocuments(t.Context(), ix, node, knowing(t, "id", "i"), marshal(t, batch))
		check("batch", c.batch, err)
		_, err = partition.DeleteDocuments(t.Context(), ix, node, marshal(t, del))
		check("delete", c.delete, err)
	}
}

// Of a node's errors all but the index comes through, wherever the index stands.
func TestErrorsOfNodesKeepWhatNobodyKnows(t *testing.T) {
	index := func(n uint64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), n)
	}
	text, extra := field(2, []byte("no")), field(40, []byte("why"))
	for name, e := range map[string][]byte{
		"first":  slices.Concat(index(1), text, extra),
		"middle": slices.Concat(text, index(1), extra),
		"last":   slices.Concat(text, extra, index(1)),
		"twice":  slices.Concat(index(0), text, index(1), extra),
		"often":  slices.Concat(text, index(0), extra, index(7), index(1)),
	} {
		ix := threeShards(func(key []byte) int { return int(key[0] - '0') })
		node := callerFunc(func(_ context.Context, part int, _ string, _ []byte) ([]byte, error) {
			if part == 1 {
				return slices.Concat(protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1), field(2, e)), nil
			}
			return proto.Marshal(&summapb.DocumentMutationResponse{AcceptedCount: 1})
		})
		got, err := partition.DeleteDocuments(t.Context(), ix, node, marshal(t, &summapb.DeleteDocumentsRequest{PrimaryKeys: []string{"0", "1a", "2", "1b"}}))
		want := slices.Concat(protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 3), field(2, slices.Concat(index(3), text, extra)))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %v\n got %q\nwant %q", name, err, got, want)
		}
	}
}

func TestWritesToAnIndexWithAHoleAskNobody(t *testing.T) {
	ix := threeShards(locate(1, 1, 1))
	ix.Missing = []int{0, 2}
	nobody := callerFunc(func(context.Context, int, string, []byte) ([]byte, error) {
		t.Error("a partition was asked")
		return nil, nil
	})
	for method := range everyWrite {
		_, err := play(t.Context(), ix, nobody, &partition.Primaries{}, partition.Reads{Partial: true}, method, nil)
		if st := status.Convert(err); st.Code() != codes.Unavailable || st.Message() != "index 'i' is partitioned over 3 shards but partition(s) [a, c] carry no healthy copy" {
			t.Errorf("%s: %v", method, err)
		}
	}
}

var everyWrite = map[string]bool{
	summapb.IndexService_BatchIndexDocuments_FullMethodName: true,
	summapb.IndexService_UpsertDocuments_FullMethodName:     true,
	summapb.IndexService_DeleteDocuments_FullMethodName:     true,
	summapb.IndexService_Commit_FullMethodName:              true,
	summapb.IndexService_ForceMerge_FullMethodName:          true,
	summapb.IndexService_Reorder_FullMethodName:             true,
	summapb.IndexService_DeleteIndex_FullMethodName:         true,
	summapb.IndexService_RetrainVectorIndex_FullMethodName:  true,
	summapb.IndexService_AlterVectorIndex_FullMethodName:    true,
	summapb.IndexService_CreateIndex_FullMethodName:         true,
}

// TestBoundsAreThoseOfANode compares with package summa, which looks at decoded messages, at every bound and one past it.
func TestBoundsAreThoseOfANode(t *testing.T) {
	check := func(name string, got, want error) {
		t.Helper()
		if g, w := status.Convert(got), status.Convert(want); g.Code() != w.Code() || g.Message() != w.Message() {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	for _, n := range []int{0, 99_999, 100_000, 100_001} {
		m := &summapb.DeleteDocumentsRequest{IndexName: "i", PrimaryKeys: slices.Repeat([]string{"k"}, n)}
		check(fmt.Sprint(n, " keys"), partition.CheckDelete(marshal(t, m)), summa.CheckDelete(m))
	}
	for _, n := range []int{8<<20 - 1, 8 << 20, 8<<20 + 1} {
		m := &summapb.DeleteDocumentsRequest{IndexName: "i", PrimaryKeys: []string{"a", strings.Repeat("k", n-1)}}
		check(fmt.Sprint(n, " bytes of keys"), partition.CheckDelete(marshal(t, m)), summa.CheckDelete(m))
	}
	for _, n := range []int{0, 999, 1000, 1001} {
		m := &summapb.UpsertDocumentsRequest{IndexName: "i", Documents: slices.Repeat([]*summapb.NamedDocument{{}}, n)}
		check(fmt.Sprint(n, " documents"), partition.CheckUpsert(marshal(t, m)), summa.CheckUpsert(m))
	}
	for _, n := range []int{32<<20 - 1, 32 << 20, 32<<20 + 1} {
		b := upsertOf(t, 2, n)
		check(fmt.Sprint(n, " bytes of two"), partition.CheckUpsert(b), summa.CheckUpsert(unmarshal[summapb.UpsertDocumentsRequest](t, b)))
	}
	if b := upsertOf(t, 1, 200<<20+1); partition.CheckUpsert(b) == nil || partition.CheckUpsert(b[:len(b)-1]) == nil {
		t.Error("one document past 200 MiB is taken, or one that is cut off")
	}
}

func TestDocumentsWithoutKeysAreBounded(t *testing.T) {
	nobody := callerFunc(func(context.Context, int, string, []byte) ([]byte, error) {
		t.Error("a partition was asked")
		return nil, nil
	})
	ix := threeShards(locate(1, 1, 1))
	req := bytes.Repeat(field(2, nil), 1_000_000)
	_, err := partition.BatchIndexDocuments(t.Context(), ix, nobody, knowing(t, "id", "i"), req)
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("%v", err)
	}
	got, err := partition.BatchIndexDocuments(t.Context(), ix, nobody, knowing(t, "id", "i"), req[:2000])
	if m := unmarshal[summapb.BatchIndexDocumentsResponse](t, got); err != nil || m.ErrorCount != 1000 || len(m.Errors) != 1000 || m.Errors[999].Index != 999 {
		t.Errorf("%v: %d errors", err, len(m.Errors))
	}
}

// TestEveryPartitionIsAskedThoughOneFails: a write is not cut short, since what became of it would not be known.
func TestEveryPartitionIsAskedThoughOneFails(t *testing.T) {
	ix := threeShards(func(key []byte) int { return int(key[0] - '0') })
	answered := make(chan struct{})
	node := callerFunc(func(ctx context.Context, part int, _ string, _ []byte) ([]byte, error) {
		switch part {
		case 0:
			<-answered
		case 1:
			return nil, status.Error(codes.Unavailable, "away")
		case 2:
			defer close(answered)
		}
		return proto.Marshal(&summapb.DocumentMutationResponse{AcceptedCount: 1})
	})
	_, err := partition.DeleteDocuments(t.Context(), ix, node, marshal(t, &summapb.DeleteDocumentsRequest{PrimaryKeys: []string{"0", "1", "2"}}))
	if st := status.Convert(err); st.Code() != codes.Unavailable || st.Message() != "index 'i' partition on shard 'b': away" {
		t.Error(err)
	}
}
