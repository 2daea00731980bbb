package sparse

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/vector/topk"
)

func decoded(t testing.TB, rec []byte) (out []pair) {
	t.Helper()
	if why := fault(rec); why != "" {
		t.Fatalf("Encode made a damaged record: %s", why)
	}
	v, _ := parse(rec)
	for i := range v.n {
		out = append(out, pair{v.dim(i), v.weight(i)})
	}
	return out
}

func TestRecordsKeepFloats(t *testing.T) {
	in := []pair{{0, 1.5}, {3, -math.SmallestNonzeroFloat32}, {65535, 1e18}, {65536, 0.1}, {math.MaxUint32, -7}}
	for n := range len(in) + 1 {
		if got := decoded(t, Encode(Params{}, []byte(nil), valueOf(in[:n]))); !slices.Equal(got, in[:n]) {
			t.Errorf("got %v, want %v", got, in[:n])
		}
	}
	got := decoded(t, Encode(Params{}, nil, valueOf([]pair{{1, 0}, {2, 5}, {3, float32(math.Copysign(0, -1))}})))
	if want := []pair{{2, 5}}; !slices.Equal(got, want) {
		t.Errorf("weights of 0 were kept: %v", got)
	}
	if b := Encode(Params{}, []byte("abc"), valueOf(in)); string(b[:3]) != "abc" {
		t.Errorf("what stood before the record is %q", b[:3])
	}
}

func TestQuantizedRecordsAreClose(t *testing.T) {
	r := newRand(3)
	for range 300 {
		in := draw(r, 1+r.IntN(100), 90_000, func(uint32) float32 { return float32(r.NormFloat64()) })
		lo, hi := in[0].w, in[0].w
		for _, x := range in {
			lo, hi = min(lo, x.w), max(hi, x.w)
		}
		for _, k := range []struct {
			weights Weights
			within  float64
		}{{Float16, 0}, {Uint8, float64(hi-lo) / 255 / 1.99}, {Uint4, float64(hi-lo) / 15 / 1.99}} {
			got := decoded(t, Encode(Params{Weights: k.weights}, nil, valueOf(in)))
			if len(got) != len(in) {
				t.Fatalf("%d weights became %d", len(in), len(got))
			}
			for i, x := range in {
				within := k.within
				if k.weights == Float16 {
					within = math.Abs(float64(x.w))/2048 + 1.0/(1<<25)
				}
				if got[i].dim != x.dim || math.Abs(float64(got[i].w)-float64(x.w)) > within+1e-7 {
					t.Fatalf("weights of kind %d: %v became %v, more than %v away", k.weights, x, got[i], within)
				}
			}
		}
	}
}

func TestWholeWeightsStayExactInBytes(t *testing.T) {
	in := []pair{{1, -55}, {2, 3}, {9, 200}}
	if got := decoded(t, Encode(Params{Weights: Uint8}, nil, valueOf(in))); !slices.Equal(got, in) {
		t.Errorf("got %v, want %v", got, in)
	}
	in = []pair{{1, -5}, {2, 3}, {9, 10}}
	if got := decoded(t, Encode(Params{Weights: Uint4}, nil, valueOf(in))); !slices.Equal(got, in) {
		t.Errorf("got %v, want %v", got, in)
	}
	in = []pair{{4, 0.7}, {5, 0.7}}
	if got := decoded(t, Encode(Params{Weights: Uint4}, nil, valueOf(in))); !slices.Equal(got, in) {
		t.Errorf("got %v, want %v", got, in)
	}
}

func TestHalfFloatsStayFinite(t *testing.T) {
	got := decoded(t, Encode(Params{Weights: Float16}, nil, valueOf([]pair{{1, 1e9}, {2, -1e9}, {3, 1e-9}, {4, 1}})))
	if want := []pair{{1, 65504}, {2, -65504}, {4, 1}}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestCropping(t *testing.T) {
	in := []pair{{1, 0.05}, {2, -4}, {3, 1}, {4, 3}, {5, -0.2}, {6, 1}, {7, 0.75}}
	for _, c := range []struct {
		name string
		p    Params
		want []pair
	}{
		{"nothing", Params{}, in},
		{"threshold", Params{Threshold: 0.2}, in[1:]},
		{"mass ends with the weight that reaches it", Params{Mass: 0.69}, []pair{{2, -4}, {4, 3}}},
		{"equal weights go by dimension", Params{Mass: 0.72}, []pair{{2, -4}, {3, 1}, {4, 3}}},
		{"few weights are not cropped", Params{Threshold: 9, Mass: 0.1, MinTerms: 7}, in},
		{"both", Params{Threshold: 0.8, Mass: 0.9, MinTerms: 4}, []pair{{2, -4}, {3, 1}, {4, 3}, {6, 1}}},
		{"all below the threshold", Params{Threshold: 9}, nil},
	} {
		if got := decoded(t, Encode(c.p, nil, valueOf(in))); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

func TestParamsOfEveryOptionOfASchema(t *testing.T) {
	parse := func(options string) (Params, error) {
		s, err := schema.ParseSDL("index x { field v: sparse_vector<u16> [indexed<"+options+">] }", nil)
		if err != nil {
			t.Fatalf("%s: %v", options, err)
		}
		return ParamsOf(&s.Fields[0])
	}
	for _, c := range []struct {
		options string
		want    Params
	}{
		{"format: bmp", Params{U16: true, MinTerms: 4}},
		{"format: maxscore, dims: 30522, max_weight: 5.0, pruning: 0.2", Params{U16: true, MinTerms: 4}},
		{"format: seismic, seismic_postings: 10, seismic_cluster_size: 4, seismic_summary_energy: 0.4, seismic_forward_compression: true", Params{U16: true, MinTerms: 4}},
		{"bmp_block_size: 32, bmp_grid_bits: 4, bmp_forward_index: false, query<weighting: one, max_dims: 25>", Params{U16: true, MinTerms: 4}},
		{"quantization: uint8, weight_threshold: 0.1", Params{U16: true, Weights: Uint8, Threshold: 0.1, MinTerms: 4}},
		{"quantization: u4, doc_mass: 0.9, min_terms: 2", Params{U16: true, Weights: Uint4, Mass: 0.9, MinTerms: 2}},
		{"quantization: float16, doc_mass: 1.0", Params{U16: true, Weights: Float16, MinTerms: 4}},
		{"quantization: float32, doc_mass: 0", Params{U16: true, MinTerms: 4}},
	} {
		if got, err := parse(c.options); err != nil || got != c.want {
			t.Errorf("%s: got %+v, %v, want %+v", c.options, got, err, c.want)
		}
	}
	if _, err := ParamsOf(&schema.Field{Name: "d", Type: schema.DenseVector}); err == nil || !strings.Contains(err.Error(), "d") {
		t.Errorf("a dense field: %v", err)
	}
	if _, err := ParamsOf(&schema.Field{Name: "v", Type: schema.SparseVector, Options: []schema.Option{{Name: "min_terms", Value: "x"}}}); err == nil {
		t.Error("an option that is no number passes")
	}
}

// FuzzRecord reads any bytes as a record, as a search of a damaged section would.
func FuzzRecord(f *testing.F) {
	for _, w := range []Weights{Float32, Float16, Uint8, Uint4} {
		f.Add(Encode(Params{Weights: w}, nil, valueOf([]pair{{1, 2}, {7, -0.3}, {100_000, 4}})))
		f.Add(Encode(Params{Weights: w}, nil, valueOf([]pair{{1, 2}, {2, 3}, {7, -0.3}, {8, 1}, {1000, 4}})))
	}
	qs := []*Query{query(f, Params{}, []pair{{1, 1}, {2, 3}, {7, 1}}), query(f, Params{}, []pair{{1, 1}, {7, -1}, {65543, 3}, {100_000, 1}})}
	f.Fuzz(func(t *testing.T, rec []byte) {
		why := fault(rec)
		for _, q := range qs {
			s, matches := q.score(rec)
			if s-s != 0 {
				t.Fatalf("score %v", s)
			}
			if why != "" {
				continue
			}
			var want float32
			shared := false
			for _, x := range decoded(t, rec) {
				if i, ok := slices.BinarySearch(q.dims, x.dim); ok {
					want += float32(q.weights[i] * x.w)
					shared = true
				}
			}
			if matches != shared || s != topk.Finite(want) {
				t.Fatalf("score %v, %v, want %v, %v", s, matches, want, shared)
			}
		}
	})
}

// FuzzEncode takes any value that a schema accepts through records of all kinds.
func FuzzEncode(f *testing.F) {
	f.Add(valueOf([]pair{{1, 2}, {7, -0.3}, {100_000, 4}}), uint8(2), float32(0.1), 0.5)
	field := schema.Field{Name: "v", Type: schema.SparseVector, Indexed: true}
	f.Fuzz(func(t *testing.T, value []byte, kind uint8, threshold float32, mass float64) {
		if field.VectorFault(value) != "" {
			t.Skip()
		}
		p := Params{Weights: Weights(kind % 4), Threshold: threshold, Mass: mass, MinTerms: int(kind / 4)}
		rec := Encode(p, nil, value)
		if got := decoded(t, rec); len(got) > schema.SparseLen(value) {
			t.Fatalf("%d weights became %d", schema.SparseLen(value), len(got))
		}
	})
}
