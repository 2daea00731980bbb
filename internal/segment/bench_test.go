package segment

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"sync"
	"testing"

	"github.com/weft-search/weft/internal/corpus"
	"github.com/weft-search/weft/internal/segment/bitset"
)

// debian is the collection of package descriptions, tokenised by ASCII words in lower case, as plain postings.
type debian struct {
	keys    []string
	sources [][]byte
	lens    []uint16
	terms   []string
	docs    [][]uint32
	freqs   [][]uint32
	pos     [][]uint32
	tokens  int
	total   int // postings
}

var loadDebian = sync.OnceValues(func() (*debian, error) {
	dir := debianDir
	names, err := filepath.Glob(filepath.Join(dir, "packages-en-*.jsonl.gz"))
	if err != nil {
		return nil, err
	}
	type doc struct {
		key, text string
		src       []byte
	}
	var all []doc
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		z, err := gzip.NewReader(f)
		if err != nil {
			return nil, err
		}
		sc := bufio.NewScanner(z)
		sc.Buffer(nil, 1<<20)
		for sc.Scan() {
			var d struct {
				ID    string `json:"_id"`
				Title string `json:"title"`
				Text  string `json:"text"`
			}
			if err := json.Unmarshal(sc.Bytes(), &d); err != nil {
				return nil, err
			}
			all = append(all, doc{d.ID, d.Title + " " + d.Text, bytes.Clone(sc.Bytes())})
		}
		if err := sc.Err(); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(all, func(a, b doc) int { return bytes.Compare([]byte(a.key), []byte(b.key)) })
	c := &debian{}
	type list struct{ docs, freqs, pos []uint32 }
	lists := map[string]*list{}
	for i, d := range all {
		c.keys = append(c.keys, d.key)
		c.sources = append(c.sources, d.src)
		words := map[string][]uint32{}
		n := uint32(0)
		var order []string
		for at := 0; at < len(d.text); {
			end := at
			for end < len(d.text) && wordByte(d.text[end]) {
				end++
			}
			if end > at {
				w := string(bytes.ToLower([]byte(d.text[at:end])))
				if words[w] == nil {
					order = append(order, w)
				}
				words[w] = append(words[w], n)
				n++
			}
			at = end + 1
		}
		c.tokens += int(n)
		c.lens = append(c.lens, uint16(min(n, 65535)))
		for _, w := range order {
			l := lists[w]
			if l == nil {
				l = &list{}
				lists[w] = l
			}
			l.docs = append(l.docs, uint32(i))
			l.freqs = append(l.freqs, uint32(len(words[w])))
			l.pos = append(l.pos, words[w]...)
			c.total++
		}
	}
	for w := range lists {
		c.terms = append(c.terms, w)
	}
	sort.Strings(c.terms)
	for _, w := range c.terms {
		l := lists[w]
		c.docs, c.freqs, c.pos = append(c.docs, l.docs), append(c.freqs, l.freqs), append(c.pos, l.pos)
	}
	return c, nil
})

var debianDir string

func wordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c >= 0x80
}

func getDebian(tb testing.TB) *debian {
	debianDir = corpus.Dir(tb, "debian-packages")
	c, err := loadDebian()
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func (c *debian) write(w io.Writer, sources bool) (Info, error) {
	sw := NewWriter(w, WriterOptions{NoSources: !sources})
	sw.Begin(len(c.keys), []FieldMeta{{ID: 0, Name: "text"}})
	for i, k := range c.keys {
		sw.Key([]byte(k), uint64(i/1000))
	}
	sw.BeginField(0, true, c.lens)
	for i, t := range c.terms {
		sw.StartTerm([]byte(t))
		sw.Add(c.docs[i], c.freqs[i], c.pos[i])
		sw.EndTerm()
	}
	sw.EndField()
	if sources {
		for _, s := range c.sources {
			sw.Source(s)
		}
	}
	return sw.Finish()
}

func (c *debian) open(tb testing.TB, sources bool) *Reader {
	var buf bytes.Buffer
	if _, err := c.write(&buf, sources); err != nil {
		tb.Fatal(err)
	}
	r, err := FromBytes("debian", buf.Bytes())
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// The index of the Debian descriptions stays within its size, and the sections tell where it goes.
func TestDebianSize(t *testing.T) {
	if raceEnabled {
		t.Skip("the size does not depend on the race detector, which makes this slow")
	}
	c := getDebian(t)
	r := c.open(t, false)
	t.Logf("%d documents, %d tokens, %d postings, %d terms: %d bytes", len(c.keys), c.tokens, c.total, len(c.terms), r.Size())
	for i := range r.sections {
		t.Logf("%-12s %9d", r.sections[i].name(), len(r.sections[i].data))
	}
	if r.Size() > 8<<20 {
		t.Errorf("segment has %d bytes", r.Size())
	}
}

func BenchmarkWrite(b *testing.B) {
	c := getDebian(b)
	for _, sources := range []bool{false, true} {
		b.Run(fmt.Sprintf("sources=%v", sources), func(b *testing.B) {
			var n int64
			for b.Loop() {
				info, err := c.write(io.Discard, sources)
				if err != nil {
					b.Fatal(err)
				}
				n = info.Bytes
			}
			b.SetBytes(n)
			b.ReportMetric(float64(c.total)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mpostings/s")
		})
	}
}

func BenchmarkMerge(b *testing.B) {
	c := getDebian(b)
	whole := c.open(b, false)
	// Five sources that interleave by key, made by merging the whole with a fifth of it alive.
	var sources []MergeSource
	for i := range 5 {
		live := bitset.New(len(c.keys))
		for d := range c.keys {
			if d%5 == i {
				live.Add(uint32(d))
			}
		}
		var buf bytes.Buffer
		if _, _, err := Merge(context.Background(), &buf, []MergeSource{{whole, live}}, MergeOptions{WriterOptions: WriterOptions{NoSources: true}}); err != nil {
			b.Fatal(err)
		}
		r, err := FromBytes("part", buf.Bytes())
		if err != nil {
			b.Fatal(err)
		}
		sources = append(sources, MergeSource{R: r})
	}
	for b.Loop() {
		if _, _, err := Merge(context.Background(), io.Discard, sources, MergeOptions{WriterOptions: WriterOptions{NoSources: true}}); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(whole.Size())
	b.ReportMetric(float64(c.total)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mpostings/s")
}

func BenchmarkLookup(b *testing.B) {
	c := getDebian(b)
	r := c.open(b, false)
	rng := rand.New(rand.NewPCG(4, 4))
	terms := make([][]byte, 1<<14)
	misses := make([][]byte, len(terms))
	keys := make([]string, len(terms))
	for i := range terms {
		terms[i] = []byte(c.terms[rng.IntN(len(c.terms))])
		misses[i] = append(bytes.Clone(terms[i]), 'q', 'z')
		keys[i] = c.keys[rng.IntN(len(c.keys))]
	}
	b.Run("term", func(b *testing.B) {
		i := 0
		for b.Loop() {
			if _, ok := r.Postings(0, terms[i&(len(terms)-1)]); !ok {
				b.Fatal("term is missing")
			}
			i++
		}
	})
	b.Run("miss", func(b *testing.B) {
		i := 0
		for b.Loop() {
			r.Postings(0, misses[i&(len(terms)-1)])
			i++
		}
	})
	b.Run("key", func(b *testing.B) {
		i := 0
		for b.Loop() {
			if _, ok := r.FindKey(keys[i&(len(terms)-1)]); !ok {
				b.Fatal("key is missing")
			}
			i++
		}
	})
}

// lists returns the lists with df in [lo, hi).
func (c *debian) lists(r *Reader, lo, hi int) (ps []Postings, postings int) {
	for i, t := range c.terms {
		if n := len(c.docs[i]); n >= lo && n < hi {
			p, _ := r.Postings(0, []byte(t))
			ps = append(ps, p)
			postings += n
		}
	}
	return ps, postings
}

// BenchmarkPrefix expands prefixes of two letters and opens the list of every term.
func BenchmarkPrefix(b *testing.B) {
	c := getDebian(b)
	r := c.open(b, false)
	var prefixes [][]byte
	for _, t := range c.terms {
		if len(t) >= 2 && (len(prefixes) == 0 || string(prefixes[len(prefixes)-1]) != t[:2]) {
			prefixes = append(prefixes, []byte(t[:2]))
		}
	}
	run := func(name string, expand func(prefix []byte) int) {
		b.Run(name, func(b *testing.B) {
			n := 0
			for b.Loop() {
				for _, p := range prefixes {
					n += expand(p)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/term")
		})
	}
	run("scan-and-look-up", func(prefix []byte) (n int) {
		if err := r.ScanTerms(0, prefix, func(term []byte, _ uint32) bool {
			if _, ok := r.Postings(0, term); ok {
				n++
			}
			return true
		}); err != nil {
			b.Fatal(err)
		}
		return n
	})
	run("scan-postings", func(prefix []byte) (n int) {
		if err := r.ScanPostings(0, prefix, func([]byte, Postings) bool { n++; return true }); err != nil {
			b.Fatal(err)
		}
		return n
	})
}

func BenchmarkDecode(b *testing.B) {
	c := getDebian(b)
	r := c.open(b, false)
	for _, size := range []struct {
		name   string
		lo, hi int
	}{{"blocks", 1024, 1 << 30}, {"short", 2, 128}} {
		ps, n := c.lists(r, size.lo, size.hi)
		var docs, freqs [128]uint32
		run := func(name string, fn func(p *Postings, blk int)) {
			b.Run(size.name+"/"+name, func(b *testing.B) {
				for b.Loop() {
					for i := range ps {
						for blk := range ps[i].Blocks() {
							fn(&ps[i], blk)
						}
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/posting")
			})
		}
		run("docs", func(p *Postings, blk int) { p.Docs(blk, &docs) })
		run("freqs", func(p *Postings, blk int) { p.Freqs(blk, &freqs) })
		run("docsfreqs", func(p *Postings, blk int) { p.DocsFreqs(blk, &docs, &freqs) })
		var imp [8]Impact
		run("impacts", func(p *Postings, blk int) { p.Impacts(blk, imp[:0]) })
		var pos []uint32
		run("positions", func(p *Postings, blk int) {
			n := p.DocsFreqs(blk, &docs, &freqs)
			for i := range n {
				pos = p.Positions(blk, i, &freqs, pos[:0])
			}
		})
		run("blockpositions", func(p *Postings, blk int) {
			p.DocsFreqs(blk, &docs, &freqs)
			pos = p.BlockPositions(blk, &freqs, pos[:0])
		})
	}
}

func BenchmarkSource(b *testing.B) {
	c := getDebian(b)
	r := c.open(b, true)
	rng := rand.New(rand.NewPCG(5, 5))
	var buf []byte
	for b.Loop() {
		var err error
		if buf, err = r.Source(uint32(rng.IntN(len(c.keys))), buf[:0]); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOpen(b *testing.B) {
	c := getDebian(b)
	path := filepath.Join(b.TempDir(), "segment")
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	info, err := c.write(f, true)
	if err != nil {
		b.Fatal(err)
	}
	if err := f.Close(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		r, err := Open(path, OpenOptions{})
		if err != nil {
			b.Fatal(err)
		}
		if err := r.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(info.Bytes)
}

func BenchmarkColumn(b *testing.B) {
	rng := rand.New(rand.NewPCG(6, 6))
	m := randomModel(rng, 20000)
	var buf bytes.Buffer
	if _, err := m.write(NewWriter(&buf, WriterOptions{NoSources: true}), true); err != nil {
		b.Fatal(err)
	}
	r, err := FromBytes("model", buf.Bytes())
	if err != nil {
		b.Fatal(err)
	}
	for _, f := range []struct {
		name  string
		field int
	}{{"one", 3}, {"maybe", 4}, {"many", 5}} {
		c, _ := r.NumColumn(f.field)
		var dst []uint64
		b.Run("values/"+f.name, func(b *testing.B) {
			for b.Loop() {
				dst = c.Values(uint32(rng.IntN(20000)), dst[:0])
			}
		})
	}
	for _, f := range []struct {
		name  string
		field int
	}{{"dense", 0}, {"sparse", 300}} {
		p := r.Present(f.field)
		b.Run("has/"+f.name, func(b *testing.B) {
			for b.Loop() {
				p.Has(uint32(rng.IntN(20000)))
			}
		})
	}
}
