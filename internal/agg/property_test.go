package agg

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"strconv"
	"testing"
)

func bindTest(t testing.TB, specs []Spec, o Options) *Plan {
	t.Helper()
	p, err := Bind(specs, testSchema(), o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// answerOf and facetsOf print without bounds.
func answerOf(s *State) []byte { return must(s.Finish().AppendJSON(nil, Printing{})) }
func facetsOf(s *State) []byte { return must(s.Finish().AppendFacets(nil, Printing{})) }

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

// collect runs the plan over documents of a leaf that holds others as well.
func collect(t testing.TB, p *Plan, docs []doc, r *rand.Rand) *State {
	t.Helper()
	s := p.NewState()
	fast, all := r.IntN(2) == 0, r.IntN(2) == 0
	in := docs
	var set []uint64
	if !all {
		in = nil
		mark := func(d int) { set[d/64] |= 1 << (d % 64) }
		next := 0
		for next < len(docs) || r.IntN(3) > 0 && len(in) < 5_000 {
			if len(in)%64 == 0 {
				set = append(set, 0)
			}
			if next < len(docs) && r.IntN(4) > 0 {
				in = append(in, docs[next])
				mark(len(in) - 1)
				next++
			} else {
				in = append(in, randomDocs(r, 1, shape{extreme: true})...)
			}
		}
	}
	if err := s.Collect(context.Background(), newLeaf(in, fast, p), set, all); err != nil {
		t.Fatal(err)
	}
	return s
}

// same compares an answer as read from JSON with the oracle's.
func same(path string, got, want any) error {
	bad := fmt.Errorf("%s: got %v, want %v", path, got, want)
	switch w := want.(type) {
	case object:
		g, ok := got.(map[string]any)
		if !ok || len(g) != len(w) {
			return bad
		}
		for k, v := range w {
			if err := same(path+"."+k, g[k], v); err != nil {
				return err
			}
		}
		return nil
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return bad
		}
		for i, v := range w {
			if err := same(path+"."+strconv.Itoa(i), g[i], v); err != nil {
				return err
			}
		}
		return nil
	case whole:
		if n, ok := got.(json.Number); !ok || n.String() != string(w) {
			return bad
		}
		return nil
	case about:
		n, ok := got.(json.Number)
		if !ok {
			return bad
		}
		if f, err := n.Float64(); err != nil || math.Abs(f-float64(w)) > 5*1.04/128*float64(w) {
			return bad
		}
		return nil
	case float64:
		n, ok := got.(json.Number)
		if !ok {
			return bad
		}
		if f, err := n.Float64(); err != nil || f != w {
			return bad
		}
		return nil
	}
	if !reflect.DeepEqual(got, want) {
		return bad
	}
	return nil
}

func parseAnswer(t testing.TB, b []byte) any {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	return v
}

// Answers equal the oracle's, and states that were split, sent and merged in any order equal the whole one to the last byte.
func TestAnswersEqualOracleAndDoNotDependOnTheSplit(t *testing.T) {
	shapes := []shape{{}, {multi: true, missing: true}, {wide: true}, {wide: true, multi: true, missing: true}, {extreme: true, multi: true, missing: true}, {extreme: true, wide: true}}
	rounds := 10
	if os.Getenv("WEFT_LONG") != "" {
		rounds = 400
	}
	for i, s := range shapes {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			for round := range rounds {
				r := rand.New(rand.NewPCG(uint64(i), uint64(round)))
				docs := randomDocs(r, []int{0, 1, 7, 100, 300, 2_100}[r.IntN(6)], s)
				specs := randomSpecs(r, s, false)
				// Small tables and queues take the ways of large leaves.
				p := bindTest(t, specs, Options{table: []int{0, 1, 50, 1_000}[r.IntN(4)], pending: []int{0, 100}[r.IntN(2)], read: []int{0, 1, 7, 100}[r.IntN(4)]})
				one := collect(t, p, docs, r)
				answer := answerOf(one)
				if err := same("", parseAnswer(t, answer), oracle(specs, docs, false)); err != nil {
					t.Fatalf("round %d, %d documents: %v", round, len(docs), err)
				}
				whole := one.AppendBinary(nil)

				states := make([]*State, 1+r.IntN(8))
				parts := make([][]doc, len(states))
				for _, d := range docs {
					k := r.IntN(len(parts))
					parts[k] = append(parts[k], d)
				}
				for k := range states {
					states[k] = collect(t, p, parts[k], r)
					states[k] = resend(t, specs, states[k], r)
				}
				for len(states) > 1 {
					r.Shuffle(len(states), func(i, j int) { states[i], states[j] = states[j], states[i] })
					if err := states[0].Merge(context.Background(), states[1]); err != nil {
						t.Fatal(err)
					}
					states[1] = resend(t, specs, states[0], r)
					states = states[1:]
				}
				if got := answerOf(states[0]); !bytes.Equal(got, answer) {
					t.Fatalf("round %d: merged answer\n%s\nand whole answer\n%s", round, got, answer)
				}
				if states[0].size != one.size {
					t.Fatalf("round %d: the merged state is reckoned at %d bytes and the whole one at %d", round, states[0].size, one.size)
				}
				if got := states[0].AppendBinary(nil); len(docs) > 0 && !bytes.Equal(got, whole) {
					t.Fatalf("round %d: the merged state differs from the whole one", round)
				}
			}
		})
	}
}

// resend sends a state over the wire now and then.
func resend(t *testing.T, specs []Spec, s *State, r *rand.Rand) *State {
	t.Helper()
	var out *State
	var err error
	switch r.IntN(3) {
	case 0:
		return s
	case 1:
		out, err = Decode(specs, Options{}, s.AppendBinary(nil))
	default:
		out, err = DecodePartials(specs, Options{}, s.AppendPartials(nil))
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Whether aggregations are refused for the size of their state depends on the documents, not on how they lie in leaves: exactly when
// the reckoned size of the whole is above the limit.
func TestRefusalDependsOnTheDocumentsOnly(t *testing.T) {
	shapes := []shape{{long: true}, {long: true, multi: true, missing: true}, {wide: true, missing: true}, {multi: true}}
	fixed := []string{
		`{"a":{"kind":"terms","field":"i","aggs":{"c":{"kind":"cardinality","field":"t"}}}}`,
		`{"a":{"kind":"terms","field":"t","size":0,"aggs":{"c":{"kind":"cardinality","field":"t"},"s":{"kind":"stats","field":"f.x","filter":"mod 50"}}}}`,
		`{"a":{"kind":"filter","filter":"mod 2","aggs":{"c":{"kind":"cardinality","field":"t"},"d":{"kind":"cardinality","field":"u"}}}}`,
		`{"a":{"kind":"cardinality","field":"t"}}`,
		`{"a":{"kind":"terms","field":"u","aggs":{"s":{"kind":"stats","field":"i","filter":"mod 0"},"t":{"kind":"stats","field":"f.x","filter":"mod 100"}}}}`,
	}
	rounds := 2
	if os.Getenv("WEFT_LONG") != "" {
		rounds = 200
	}
	for i, s := range shapes {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			for round := range rounds + len(fixed) {
				r := rand.New(rand.NewPCG(uint64(100+i), uint64(round)))
				docs := randomDocs(r, []int{10, 200, 1_000}[r.IntN(3)], s)
				specs := randomSpecs(r, s, false)
				if round < len(fixed) {
					var err error
					if specs, err = ParseJSON([]byte(fixed[round])); err != nil {
						t.Fatal(err)
					}
					docs = randomDocs(r, 1_000, s)
				}
				leafs := map[int][]*memLeaf{}
				inLeaves := func(limit, leaves int) (*State, error) {
					p := bindTest(t, specs, Options{StateBytes: limit, pending: []int{0, 100}[r.IntN(2)], table: []int{0, 50}[r.IntN(2)], read: []int{0, 5}[r.IntN(2)]})
					st := p.NewState()
					for k := range leaves {
						if leafs[leaves] == nil {
							leafs[leaves] = make([]*memLeaf, leaves)
						}
						if leafs[leaves][k] == nil {
							leafs[leaves][k] = newLeaf(docs[k*len(docs)/leaves:(k+1)*len(docs)/leaves], r.IntN(2) == 0, p)
						}
						if err := st.Collect(context.Background(), leafs[leaves][k], nil, true); err != nil {
							return nil, err
						}
					}
					return st, nil
				}
				whole, err := inLeaves(1<<30, 1)
				if err != nil {
					t.Fatal(err)
				}
				want := whole.AppendBinary(nil)
				for _, limit := range []int{whole.size, whole.size - 1, whole.size / 3} {
					if limit <= 0 {
						continue
					}
					for _, leaves := range []int{1, 3, 10} {
						st, err := inLeaves(limit, leaves)
						var e *SpecError
						switch {
						case limit < whole.size && (!errors.As(err, &e) || e.Code != CodeLimit || e.Limit != int64(limit)):
							t.Fatalf("round %d: %d bytes of state in %d leaves with a limit of %d: %v", round, whole.size, leaves, limit, err)
						case limit >= whole.size && err != nil:
							t.Fatalf("round %d: %d bytes of state in %d leaves with a limit of %d: refused: %v", round, whole.size, leaves, limit, err)
						case err == nil && !bytes.Equal(st.AppendBinary(nil), want):
							t.Fatalf("round %d: the answer of %d leaves is another", round, leaves)
						}
					}
				}
			}
		})
	}
}
