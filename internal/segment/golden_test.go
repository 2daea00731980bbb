package segment

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files of the current format version anew")

// exampleModel is the worked example of FORMAT.md.
func exampleModel() *model {
	return &model{
		fields: []modelField{
			{meta: FieldMeta{ID: 0, Name: "text"}, kind: 't', positions: true},
			{meta: FieldMeta{ID: 1, Name: "price"}, kind: 'n'},
			{meta: FieldMeta{ID: 2, Name: "tag"}, kind: 's'},
		},
		docs: []modelDoc{
			{
				key: "apple", ts: 1000, text: map[int]map[string][]uint32{0: {"red": {0}, "apple": {1}, "pie": {2}}},
				nums: map[int][]uint64{1: {120}}, strs: map[int][]string{2: {"fruit", "cake"}}, source: "A",
			},
			{
				key: "apricot", ts: 1003, text: map[int]map[string][]uint32{0: {"apricot": {0}}},
				nums: map[int][]uint64{1: {100}}, source: "B",
			},
			{
				key: "cherry", ts: 1001, text: map[int]map[string][]uint32{0: {"red": {0, 2}, "cherry": {1}}},
				strs: map[int][]string{2: {"fruit"}}, source: "C",
			},
		},
	}
}

// goldenModel has every kind of list, column block, set chunk and source block. It must never change: its files are opened
// for ever.
func goldenModel() *model {
	m := &model{fields: []modelField{
		{meta: FieldMeta{ID: 0, Name: "body"}, kind: 't', positions: true},
		{meta: FieldMeta{ID: 1, Name: "title"}, kind: 't'},
		{meta: FieldMeta{ID: 3, Name: "one"}, kind: 'n'},
		{meta: FieldMeta{ID: 4, Name: "maybe"}, kind: 'n'},
		{meta: FieldMeta{ID: 5, Name: "many"}, kind: 'n'},
		{meta: FieldMeta{ID: 6, Name: "tag"}, kind: 's'},
	}}
	for i := range 1100 {
		d := modelDoc{key: fmt.Sprintf("k/%05d", i*7), ts: 1 << 60, text: map[int]map[string][]uint32{0: {}}, nums: map[int][]uint64{}, strs: map[int][]string{}}
		d.ts += uint64(i % 3)
		if i%3 != 0 {
			d.text[0]["common"] = positions(1+i%4, uint32(i%5), 3)
		}
		if i%40 == 0 {
			d.text[0]["some"] = positions(1+i%7, 1, 50)
		}
		if i%300 == 0 {
			d.text[0]["few"] = positions(60, 2, 200)
		}
		if i%17 == 0 {
			d.text[0][fmt.Sprintf("once%d", i)] = positions(1+i%11, 9, 1)
		}
		if i == 5 {
			d.text[0]["lone"] = positions(400, 0, 2)
		}
		if i%2 == 0 {
			d.text[1] = map[string][]uint32{"t": {0}, "a-long-term-that-is-not-short": {1}}
		}
		d.nums[3] = []uint64{uint64(i)<<40 | 5}
		if i < 1024 && i%6 == 0 {
			d.nums[4] = []uint64{uint64(i / 10)}
		}
		for j := range i % 3 {
			d.nums[5] = append(d.nums[5], uint64(i*j))
		}
		if i%9 == 0 {
			d.strs[6] = []string{"tag", fmt.Sprintf("tag-%d", i%20)}
		}
		d.source = fmt.Sprintf("{%d}", i)
		m.docs = append(m.docs, d)
	}
	return m
}

// golden2Model is goldenModel with vectors of every kind, one field of them with a graph. It must never change either.
func golden2Model() *model {
	m := goldenModel()
	m.fields = append(m.fields, vectorFields()...)
	rng := rand.New(rand.NewPCG(2, 2))
	for i := range m.docs {
		m.docs[i].vecs = randomVectors(rng)
	}
	return m
}

func positions(n int, from, step uint32) []uint32 {
	var p []uint32
	for range n {
		p = append(p, from)
		from += step
	}
	return p
}

// Files of every format version are opened for ever, and the writer still gives the bytes of its own. New golden files, and a
// new name for them, come with a new FormatVersion. A new version of the compressor may change the sources section of the newest file:
// then WriterVersion grows, the old file stays, and a new one is added.
func TestGolden(t *testing.T) {
	for _, c := range []struct {
		name string
		m    *model
		old  bool // of a format before
	}{{"example", exampleModel(), false}, {"v1", goldenModel(), true}, {"v2", golden2Model(), true}, {"v2_writer2", golden2Model(), false}} {
		if c.old {
			checkOldGolden(t, c.name, c.m)
			continue
		}
		b := c.m.bytes(t)
		file := filepath.Join("testdata", c.name+".seg")
		r, err := FromBytes(c.name, b)
		if err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		if err := Describe(&text, r); err != nil {
			t.Fatal(err)
		}
		if *update {
			for name, b := range map[string][]byte{file: b, filepath.Join("testdata", c.name+".txt"): text.Bytes()} {
				if err := os.WriteFile(name, b, 0o666); err != nil {
					t.Fatal(err)
				}
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		old, err := Open(file, OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		c.m.check(t, old)
		if err := old.Close(); err != nil {
			t.Error(err)
		}
		if !bytes.Equal(b, want) {
			t.Errorf("%s: writer gives other bytes than it did", c.name)
		}
		wantText, err := os.ReadFile(filepath.Join("testdata", c.name+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(text.Bytes(), wantText) {
			t.Errorf("%s: Describe prints something else than %s.txt has; see the difference after -update", c.name, c.name)
		}
	}
}

// checkOldGolden opens a file that no writer makes any more, and merges it into one of the current format.
func checkOldGolden(t *testing.T, name string, m *model) {
	t.Helper()
	r, err := Open(filepath.Join("testdata", name+".seg"), OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m.check(t, r)
	if err := r.DeepVerify(t.Context()); err != nil {
		t.Error(err)
	}
	var text, merged bytes.Buffer
	if err := Describe(&text, r); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(text.Bytes(), want) {
		t.Errorf("%s: Describe prints something else than %s.txt has", name, name)
	}
	if _, _, err := Merge(t.Context(), &merged, []MergeSource{{R: r}}, MergeOptions{}); err != nil || !bytes.Equal(merged.Bytes(), m.bytes(t)) {
		t.Errorf("%s: merged it differs from what a writer makes of its documents: %v", name, err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// The bytes that the worked example of FORMAT.md shows are in the golden files.
func TestFormatPage(t *testing.T) {
	page, err := os.ReadFile("FORMAT.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, ok := strings.Cut(string(page), "## Worked example")
	if !ok {
		t.Fatal("FORMAT.md has no worked example")
	}
	var files [][]byte
	for _, name := range []string{"example.seg", "v1.seg"} {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, b)
	}
	lines, inside := 0, false
	for line := range strings.Lines(example) {
		if strings.HasPrefix(line, "```") {
			inside = !inside
			continue
		}
		if !inside {
			continue
		}
		var want []byte
		for _, w := range strings.Fields(line) {
			b, err := hex.DecodeString(w)
			if err != nil || len(w) != 2 {
				break
			}
			want = append(want, b...)
		}
		if len(want) == 0 {
			continue
		}
		lines++
		if !bytes.Contains(files[0], want) && !bytes.Contains(files[1], want) {
			t.Errorf("no golden file has % x, of the line %q", want, line)
		}
	}
	if lines < 25 {
		t.Errorf("only %d lines of bytes are found", lines)
	}
}
