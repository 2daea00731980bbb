package segment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/weft-search/weft/internal/segment/bitset"
)

// split spreads the documents of m over k segments, adds dead ones with the same and other keys, and returns the sources and
// where each document went.
func split(t testing.TB, rng *rand.Rand, m *model, k int, dead bool) ([]MergeSource, [][]uint32) {
	t.Helper()
	type placed struct {
		doc  modelDoc
		want uint32
	}
	parts := make([][]placed, k)
	for i, d := range m.docs {
		at := rng.IntN(k)
		parts[at] = append(parts[at], placed{d, uint32(i)})
		if dead && rng.IntN(3) == 0 {
			// An older version of the document, in another segment.
			if other := rng.IntN(k); other != at {
				parts[other] = append(parts[other], placed{randomDoc(rng, d.key), NoDoc})
			}
		}
		if dead && rng.IntN(5) == 0 {
			parts[at] = append(parts[at], placed{randomDoc(rng, d.key+"\x01dead"), NoDoc})
		}
	}
	var sources []MergeSource
	var want [][]uint32
	for i, p := range parts {
		slices.SortFunc(p, func(a, b placed) int { return bytes.Compare([]byte(a.doc.key), []byte(b.doc.key)) })
		pm := &model{fields: m.fields}
		live := bitset.New(len(p))
		var w []uint32
		for j, d := range p {
			pm.docs = append(pm.docs, d.doc)
			if d.want != NoDoc {
				live.Add(uint32(j))
			}
			w = append(w, d.want)
		}
		r, err := FromBytes(fmt.Sprint("part", i), pm.bytes(t))
		if err != nil {
			t.Fatal(err)
		}
		if !dead {
			live = nil
		}
		sources = append(sources, MergeSource{r, live})
		want = append(want, w)
	}
	return sources, want
}

// A merge gives the bytes that the live documents give when they are written at once.
func TestMergeIsFresh(t *testing.T) {
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(2, seed))
		m := randomModel(rng, []int{0, 1, 40, 700, 2100}[rng.IntN(5)])
		if seed == 0 {
			m = randomModel(rng, 2500)
		}
		fresh := m.bytes(t)
		sources, want := split(t, rng, m, 1+rng.IntN(6), seed%4 != 3)
		var buf bytes.Buffer
		info, remap, err := Merge(context.Background(), &buf, sources, MergeOptions{})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for i := range want {
			if !slices.Equal(remap[i], want[i]) {
				t.Fatalf("seed %d: remap of source %d differs", seed, i)
			}
		}
		if info.Bytes != int64(buf.Len()) {
			t.Fatalf("seed %d: info says %d bytes of %d", seed, info.Bytes, buf.Len())
		}
		if !bytes.Equal(buf.Bytes(), fresh) {
			a, errA := FromBytes("merged", buf.Bytes())
			b, errB := FromBytes("fresh", fresh)
			if err := errors.Join(errA, errB); err != nil {
				t.Fatal(err)
			}
			for i := range min(len(a.sections), len(b.sections)) {
				if !bytes.Equal(a.sections[i].data, b.sections[i].data) {
					t.Errorf("seed %d: %s and %s differ", seed, a.sections[i].name(), b.sections[i].name())
				}
			}
			t.Fatalf("seed %d: merged segment has %d bytes, fresh one %d, and they differ", seed, buf.Len(), len(fresh))
		}
		// So does a merge in two steps.
		var steps []MergeSource
		for _, part := range [][]MergeSource{sources[:len(sources)/2], sources[len(sources)/2:]} {
			var buf bytes.Buffer
			if _, _, err := Merge(context.Background(), &buf, part, MergeOptions{}); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			r, err := FromBytes("step", buf.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			steps = append(steps, MergeSource{R: r})
		}
		buf.Reset()
		if _, _, err := Merge(context.Background(), &buf, steps, MergeOptions{}); err != nil || !bytes.Equal(buf.Bytes(), fresh) {
			t.Fatalf("seed %d: merged in two steps the segment differs: %v", seed, err)
		}
	}
}

func TestMergeRefuses(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 0))
	m := randomModel(rng, 2500)
	b := m.bytes(t)
	open := func() *Reader {
		r, err := FromBytes("part", b)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	ctx := context.Background()
	if _, _, err := Merge(ctx, &bytes.Buffer{}, []MergeSource{{R: open()}, {R: open()}}, MergeOptions{}); !errors.Is(err, ErrDuplicateKey) {
		t.Errorf("two live documents of a key: %v", err)
	}
	why := errors.New("no longer wanted")
	cctx, cancel := context.WithCancelCause(ctx)
	cancel(why)
	if _, _, err := Merge(cctx, &bytes.Buffer{}, []MergeSource{{R: open()}}, MergeOptions{}); !errors.Is(err, why) {
		t.Errorf("cancelled: %v", err)
	}
	cctx, cancel = context.WithCancelCause(ctx)
	defer cancel(nil)
	wrote := 0
	limit := func(n int) error {
		wrote += n
		cancel(why)
		return nil
	}
	if _, _, err := Merge(cctx, &bytes.Buffer{}, []MergeSource{{R: open()}}, MergeOptions{Limit: limit}); !errors.Is(err, why) || wrote == 0 {
		t.Errorf("cancelled while writing: %v after %d bytes", err, wrote)
	}
	if _, _, err := Merge(ctx, &bytes.Buffer{}, []MergeSource{{R: open()}}, MergeOptions{Limit: func(int) error { return why }}); !errors.Is(err, why) {
		t.Errorf("refusing limit: %v", err)
	}
	if _, _, err := Merge(ctx, &bytes.Buffer{}, []MergeSource{{R: open(), Live: bitset.New(10)}}, MergeOptions{}); err == nil {
		t.Error("set of live documents of another size is accepted")
	}
	var thin bytes.Buffer
	counted := int64(0)
	info, _, err := Merge(ctx, &thin, []MergeSource{{R: open()}}, MergeOptions{
		WriterOptions: WriterOptions{NoSources: true},
		Limit:         func(n int) error { counted += int64(n); return nil },
	})
	if err != nil || counted != info.Bytes {
		t.Fatalf("limit saw %d bytes of %d: %v", counted, info.Bytes, err)
	}
	r, err := FromBytes("thin", thin.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	m.check(t, r)
	if r.sources != nil {
		t.Error("sources are kept")
	}
	if _, _, err := Merge(ctx, &bytes.Buffer{}, []MergeSource{{R: r}}, MergeOptions{}); !errors.Is(err, errNoSources) {
		t.Errorf("sources out of nothing: %v", err)
	}
}

func TestMergeRefusesOtherNames(t *testing.T) {
	var sources []MergeSource
	for _, name := range []string{"a", "b"} {
		var buf bytes.Buffer
		w := NewWriter(&buf, WriterOptions{NoSources: true})
		w.Begin(1, []FieldMeta{{ID: 4, Name: name}})
		w.Key([]byte(name), 1)
		w.NumColumn(4, nil, []uint64{1})
		if _, err := w.Finish(); err != nil {
			t.Fatal(err)
		}
		r, err := FromBytes(name, buf.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, MergeSource{R: r})
	}
	if _, _, err := Merge(context.Background(), &bytes.Buffer{}, sources, MergeOptions{}); !errors.Is(err, ErrOrder) {
		t.Errorf("one field with two names: %v", err)
	}
}

// A merge of a damaged segment fails with the damage, wherever it is, or makes a segment that reads well.
func TestMergeOfDamaged(t *testing.T) {
	good := smallModel(6).bytes(t)
	rng := rand.New(rand.NewPCG(18, 18))
	failed := 0
	for range 150 {
		b := mutate(rng, bytes.Clone(good))
		reseal(b)
		r, err := FromBytes("damaged", b)
		if err != nil {
			continue
		}
		var buf bytes.Buffer
		if _, _, err := Merge(context.Background(), &buf, []MergeSource{{R: r}}, MergeOptions{WriterOptions: WriterOptions{NoSources: r.sources == nil}}); err != nil {
			failed++
			continue
		}
		m, err := FromBytes("merged", buf.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		exercise(m)
		if err := m.Err(); err != nil {
			t.Fatalf("merge passes damage on: %v", err)
		}
	}
	if failed == 0 {
		t.Error("no damage was noticed")
	}
}
