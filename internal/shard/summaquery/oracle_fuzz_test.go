package summaquery_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/shard/summaquery"
	"github.com/weft-search/weft/internal/shard/summaquery/oracletest"
	"github.com/weft-search/weft/internal/summa"
)

// FuzzSearch sends any request to a small index: it is answered soon, or refused as the client's fault.
func FuzzSearch(f *testing.F) {
	w := oracletest.NewWorld(2, 3)
	s := newStore(f, oracletest.SDL(""))
	s.fill(w, 40)
	ix, _ := s.index()
	for range 300 {
		req := w.Request(40, false)
		b, err := proto.Marshal(req)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		req := &summapb.SearchRequest{}
		if proto.Unmarshal(b, req) != nil {
			return
		}
		if fault := survives(t, ix, req); fault != "" {
			t.Fatal(fault)
		}
	})
}

// survives tells what is wrong with how a request that may be nonsense is answered.
func survives(t *testing.T, ix *summaquery.Index, req *summapb.SearchRequest) string {
	req.TimeBudgetMs = 0 // whether it is spent is chance
	if req.IndexName == "" {
		req.IndexName = "o"
	}
	began := time.Now()
	resp, err := search(t.Context(), ix, req)
	if took := time.Since(began); took > 5*time.Second {
		return fmt.Sprintf("took %v", took)
	}
	if err != nil {
		if bad, ok := errors.AsType[*summa.Error](err); !ok || bad.Code != codes.InvalidArgument {
			return fmt.Sprintf("error %T: %v", err, err)
		}
		return ""
	}
	// Open: a boost or a proximity weight near the end of binary32 gives scores that are not finite, of which a fusion alone is refused.
	if n := len(resp.Hits); n > int(max(req.Limit, 10)) {
		return fmt.Sprintf("%d hits", n)
	}
	return ""
}

// TestOddRequestsAreAnsweredOrRefused puts odd numbers and texts into requests, which bytes by chance seldom get to.
func TestOddRequestsAreAnsweredOrRefused(t *testing.T) {
	seed := oracletest.Seed(t)
	for round := range oracletest.Rounds(2, 400) {
		if !oracletest.Only(round) {
			continue
		}
		w := oracletest.NewWorld(seed, uint64(round))
		s := newStore(t, oracletest.SDL(""))
		s.fill(w, 5+w.IntN(40))
		ix, _ := s.index()
		for range 1000 {
			req := w.Request(20, false)
			spoil(w, req.ProtoReflect(), 1+w.IntN(20))
			if fault := survives(t, ix, req); fault != "" {
				req = oracletest.Shrink(req, func(r *summapb.SearchRequest) bool { return survives(t, ix, r) != "" })
				t.Fatalf("round %d:\n%s\n%s", round, prototext.Format(req), survives(t, ix, req))
			}
		}
	}
}

// spoil changes about one in n of the values of a message.
func spoil(w oracletest.World, m protoreflect.Message, n int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if m.Descriptor().FullName() == "summa.SearchRequest" && f.Name() != "query" && f.Name() != "reranker" && f.Name() != "text_stats" && f.Name() != "limit" {
			continue
		}
		switch {
		case f.IsMap():
		case f.IsList():
			if !m.Has(f) {
				continue
			}
			list := m.Mutable(f).List()
			for i := range list.Len() {
				if f.Kind() == protoreflect.MessageKind {
					spoil(w, list.Get(i).Message(), n)
				} else if w.IntN(n) == 0 {
					list.Set(i, odd(w, f))
				}
			}
			if list.Len() > 0 && w.IntN(4*n) == 0 {
				list.Truncate(list.Len() - 1)
			}
		case f.Kind() == protoreflect.MessageKind:
			if m.Has(f) {
				spoil(w, m.Mutable(f).Message(), n)
			}
		case m.Has(f) && w.IntN(n) == 0 || !m.Has(f) && f.ContainingOneof() == nil && w.IntN(4*n) == 0:
			m.Set(f, odd(w, f))
		}
	}
}

func odd(w oracletest.World, f protoreflect.FieldDescriptor) protoreflect.Value {
	floats := []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat32, -math.MaxFloat32, 1e-45, math.Copysign(0, -1), 0, -1, 1e30, 3e38, 1e19}
	x := floats[w.IntN(len(floats))]
	n := []uint64{0, 1, math.MaxUint64, 1 << 31, 1<<32 - 1, 1 << 16, 1 << 20, 65}[w.IntN(8)]
	switch f.Kind() {
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(float32(x))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(x)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(uint32(n))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(n)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(int64(n))
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(int32(n)))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(n&1 == 1)
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(make([]byte, w.IntN(5)))
	}
	return protoreflect.ValueOfString(w.One([]string{"", "*", " ", "the", "\x00", "id", "chunk", "sparse", "denses", "nowhere", "u", strings.Repeat("sea ", 300), strings.Repeat("x", 300)}))
}
