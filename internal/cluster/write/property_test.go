package write

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
)

// attempt is one write of one document, with what it would leave there: the source, empty for a deletion.
type attempt struct {
	id, source   string
	began, ended int64 // ticks
	ok           bool  // all members have it, says the reply
	over         bool  // of a load: a later line has the same id
}

// history is what writers did. Its ticks order what did not overlap.
type history struct {
	mu       sync.Mutex
	tick     int64
	attempts []*attempt
}

func (h *history) begin(id, source string) *attempt {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tick++
	a := &attempt{id: id, source: source, began: h.tick}
	h.attempts = append(h.attempts, a)
	return a
}

func (h *history) end(a *attempt, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tick++
	a.ended, a.ok = h.tick, ok
}

// allows tells whether a document may be what it is: a write that was acknowledged is there unless one that did not end before it began has
// taken its place.
func (h *history) allows(id, source string) bool {
	if source == "" && !slices.ContainsFunc(h.attempts, func(a *attempt) bool { return a.id == id && a.ok }) {
		return true // no write has to be in
	}
	for _, a := range h.attempts {
		if a.id != id || a.source != source {
			continue
		}
		lost := slices.ContainsFunc(h.attempts, func(later *attempt) bool { return later.id == id && later.ok && later.began > a.ended })
		if !lost {
			return true
		}
	}
	return false
}

// storm is writers that write the same few documents at the same time.
type storm struct {
	c       *cluster
	h       *history
	writers []*Writer
	hints   *hintBook
	ids     int
	keeps   bool // nothing is deleted
}

// age begins with some of the documents there since long ago, at all members alike.
func (s *storm) age(r *rand.Rand) {
	docs := make([]map[string]string, len(s.c.State().Groups))
	for k := range s.ids {
		if r.IntN(4) == 0 {
			continue
		}
		id := fmt.Sprint("d", k)
		source := fmt.Sprintf(`{"id":"%s","n":-1}`, id)
		g := s.c.State().Owner(id).Ordinal
		if docs[g] == nil {
			docs[g] = map[string]string{}
		}
		docs[g][id] = source
		s.h.end(s.h.begin(id, source), true)
	}
	for g, docs := range docs {
		for _, m := range s.c.group(g) {
			m.age("x", docs)
		}
	}
}

// act makes one random write, or a load of several.
func (s *storm) act(ctx context.Context, r *rand.Rand, who, n int) error {
	w := s.writers[r.IntN(len(s.writers))]
	id := fmt.Sprint("d", r.IntN(s.ids))
	doc := func(k int) string { return fmt.Sprintf(`{"id":"%s","n":%d}`, id, (who*1000+n)*100+k) }
	what := r.IntN(8)
	if s.keeps {
		what = 1 + what%7
	}
	switch what {
	case 0:
		a := s.h.begin(id, "")
		reply, err := w.Delete(ctx, "x", id)
		s.h.end(a, err == nil && reply.OK)
		return err
	case 1, 2:
		var body bytes.Buffer
		var list []*attempt
		for k := range 1 + r.IntN(6) {
			id = fmt.Sprint("d", r.IntN(s.ids))
			body.WriteString(doc(k) + "\n")
			list = append(list, s.h.begin(id, doc(k)))
		}
		reply, err := w.Bulk(ctx, &leaf.BulkRequest{Index: "x"}, &body)
		for i, a := range list {
			// The later of two with one id wins.
			last := !slices.ContainsFunc(list[i+1:], func(b *attempt) bool { return b.id == a.id })
			a.over = !last
			s.h.end(a, err == nil && reply.OK && last)
		}
		return err
	default:
		a := s.h.begin(id, doc(0))
		reply, err := w.Index(ctx, &leaf.IndexRequest{Index: "x", Body: []byte(doc(0))})
		s.h.end(a, err == nil && reply.OK)
		return err
	}
}

// run lets so many goroutines make so many writes each.
func (s *storm) run(t *testing.T, seed uint64, goroutines, each int, failed func(err error)) {
	var wg sync.WaitGroup
	for g := range goroutines {
		r := rand.New(rand.NewPCG(seed, uint64(g)))
		wg.Go(func() {
			for n := range each {
				if err := s.act(t.Context(), r, g, n); err != nil {
					failed(err)
				}
			}
		})
	}
	wg.Wait()
}

// check holds every member against the history and against the first of its group. Documents with a hint may differ.
func (s *storm) check(t *testing.T) {
	t.Helper()
	for k := range s.ids {
		id := fmt.Sprint("d", k)
		own := s.c.group(s.c.State().Owner(id).Ordinal)
		hinted := slices.ContainsFunc(own, func(m *model) bool { return slices.Contains(s.hints.of(m.addr), "x/"+id) })
		first := own[0].docs("x")[id]
		for _, m := range own {
			have := m.docs("x")[id]
			if !hinted && have != first {
				t.Errorf("%s: %s has %q, %s has %q", id, own[0].addr, first, m.addr, have)
			}
			if !hinted && !s.h.allows(id, have) {
				t.Errorf("%s has %q at %s, which a later write was acknowledged after", id, have, m.addr)
			}
		}
		if hinted && !slices.ContainsFunc(own, func(m *model) bool { return s.h.allows(id, m.docs("x")[id]) }) {
			t.Errorf("%s: no member has a state that writes allow", id)
		}
	}
}

// jitter makes the calls of a member take random times, on both sides of their effect.
func (m *model) jitter(seed uint64, most time.Duration) {
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(seed, 7))
	wait := func(ctx context.Context, _ string) {
		mu.Lock()
		d := time.Duration(r.Int64N(int64(most)))
		if seed%2 == 0 && r.IntN(4) > 0 { // most are fast, and some as long as several others
			d /= 16
		}
		mu.Unlock()
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
	m.before, m.after = wait, wait
	m.between = func(ctx context.Context) { wait(ctx, "") }
}

func rounds(t *testing.T, short, long int) int {
	if testing.Short() || raced {
		return short
	}
	return long
}

// TestMembersEndEqual writes a few documents from many sides at once through two coordinators. Nothing fails, so every write has to be
// acknowledged, and nothing may need a hint.
func TestMembersEndEqual(t *testing.T) {
	for seed := range uint64(rounds(t, 4, 14)) {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 3, 2)
			s := &storm{c: c, h: &history{}, hints: &hintBook{}, ids: 1 + int(seed%6)}
			if seed%2 == 1 {
				s.keeps, s.ids = true, 40 // most of them are new
			}
			for range 2 {
				w := c.writer(Options{Hints: s.hints})
				w.chunkDocs = 2
				s.writers = append(s.writers, w)
			}
			put(t, s.writers[0], `{"id":"first","n":0}`)
			if seed%3 > 0 {
				s.age(rand.New(rand.NewPCG(seed, 3)))
			}
			for i, m := range c.all() {
				m.jitter(seed*100+uint64(i), time.Millisecond)
			}
			s.run(t, seed, 8, 15, func(err error) { t.Error(err) })
			s.check(t)
			for _, a := range s.h.attempts {
				if !a.ok && !a.over {
					t.Fatalf("%+v was not acknowledged", *a)
				}
			}
			if len(s.hints.ids) > 0 {
				t.Errorf("hints %v", s.hints.ids)
			}
			if wrong := c.same("x") + c.sameSchemas("x"); wrong != "" {
				t.Error(wrong)
			}
			for _, w := range s.writers {
				if err := w.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestNewDocumentsEndEqual lets two or three writers cross at one document that is not there, with deletes among them.
func TestNewDocumentsEndEqual(t *testing.T) {
	compared, not := 0, 0
	for seed := range uint64(rounds(t, 300, 3000)) {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 2+int(seed%2))
			var writers []*Writer
			for range 2 {
				writers = append(writers, c.writer(Options{}))
			}
			if seed%3 > 0 {
				put(t, writers[0], `{"id":"first","n":0}`) // else the index is not there either
			}
			for i, m := range c.all() {
				m.jitter(seed*100+uint64(i), time.Millisecond)
			}
			r := rand.New(rand.NewPCG(seed, 9))
			var wg sync.WaitGroup
			for n := range 2 + r.IntN(2) {
				w, deletes, later := writers[n%2], n > 0 && r.IntN(2) == 0, time.Duration(r.Int64N(int64(2*time.Millisecond)))
				wg.Go(func() {
					<-time.After(later)
					var err error
					if deletes {
						if _, err = w.Delete(t.Context(), "x", "a"); hasCode(err, api.IndexNotFound) {
							err = nil
						}
					} else {
						_, err = w.Index(t.Context(), &leaf.IndexRequest{Index: "x", Body: fmt.Appendf(nil, `{"id":"a","n":%d}`, n+1)})
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if wrong := c.same("x"); wrong != "" {
				t.Errorf("seed %d: %s", seed, wrong)
			}
			puts, sums := 0, 0
			for _, m := range c.all() {
				puts, sums = puts+m.called("Index"), sums+m.called("Sums")
			}
			if sums > 0 {
				compared++
			}
			if puts > sums {
				not++
			}
			for _, w := range writers {
				if err := w.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	if compared == 0 || not == 0 {
		t.Errorf("in %d cases members were compared, in %d not always", compared, not)
	}
}

// repair makes the members of a group equal to the first for a document, as jobs do: it looks at all, and changes what it has seen to differ.
// It tells whether it has changed any.
func (c *cluster) repair(ctx context.Context, id string) (changed bool, err error) {
	ms := c.group(0)
	looks := make([]*leaf.SumsReply, len(ms))
	errs := make([]error, len(ms))
	each(len(ms), func(i int) {
		looks[i], errs[i] = ms[i].Sums(ctx, &leaf.SumsRequest{Index: "x", IDs: []string{id}, Fence: true})
	})
	if err := errors.Join(errs...); err != nil {
		return false, err
	}
	item := leaf.SyncItem{ID: id}
	if looks[0].Sums[0] == (leaf.Sum{}) {
		reply, err := ms[0].Sync(ctx, &leaf.SyncRequest{Index: "x", Items: []leaf.SyncItem{item}, Fence: looks[0].Fence})
		if err != nil || !reply.Applied[0] {
			return false, err // it has come there
		}
	} else if _, err := ms[0].Export(ctx, &leaf.ExportRequest{Index: "x", IDs: []string{id}}, func(doc leaf.ExportedDoc) error {
		item.Body = slices.Clone(doc.Source)
		return nil
	}); err != nil || item.Body == nil {
		return false, err
	}
	for i, m := range ms[1:] {
		have := looks[i+1]
		if have.Sums[0] == looks[0].Sums[0] {
			continue
		}
		item.Expect = have.Sums[0]
		reply, err := m.Sync(ctx, &leaf.SyncRequest{Index: "x", Items: []leaf.SyncItem{item}, Fence: have.Fence})
		if err != nil {
			return changed, err
		}
		changed = changed || reply.Applied[0]
	}
	return changed, nil
}

// TestOldDocumentsEndEqual lets two or three writers cross at one document that members have since long ago, equal or not, with deletes among them
// and repairs that make members equal to the first. A write that nothing crosses is not compared.
func TestOldDocumentsEndEqual(t *testing.T) { endEqual(t, 600, 6000, false) }

// TestHotDocumentsEndEqual does the same behind writes of a moment ago.
func TestHotDocumentsEndEqual(t *testing.T) { endEqual(t, 1200, 12000, true) }

func endEqual(t *testing.T, short, long int, hot bool) {
	compared, not := 0, 0
	var copied atomic.Int64
	for seed := range uint64(rounds(t, short, long)) {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 2+int(seed%2))
			s := &storm{c: c, h: &history{}, hints: &hintBook{}}
			for range 2 {
				s.writers = append(s.writers, c.writer(Options{Hints: s.hints}))
			}
			put(t, s.writers[0], `{"id":"first","n":0}`)
			r := rand.New(rand.NewPCG(seed, 9))
			contents := []string{`{"id":"a","n":1}`, `{"id":"a","n":2}`, ""}
			if hot {
				for range 1 + r.IntN(2) {
					source := contents[r.IntN(2)]
					a := s.h.begin("a", source)
					put(t, s.writers[r.IntN(2)], source)
					s.h.end(a, true)
				}
			}
			before := map[string]int{}
			for i, m := range c.all() {
				if !hot {
					m.age("x", map[string]string{"a": contents[r.IntN(3)*r.IntN(2)]})
				}
				m.jitter(seed*100+uint64(i), time.Millisecond)
				before[m.addr] = m.called("Sums")
			}
			later := func() <-chan time.Time { return time.After(time.Duration(r.Int64N(int64(2 * time.Millisecond)))) }
			var wg sync.WaitGroup
			for n := range 1 + r.IntN(3) {
				w, wait, deletes, loads, source := s.writers[n%2], later(), n > 0 && r.IntN(3) == 0, n > 0 && r.IntN(4) == 0, contents[r.IntN(2)]
				if deletes {
					source = ""
				} else if r.IntN(2) == 0 {
					source = fmt.Sprintf(`{"id":"a","n":%d}`, n+10)
				}
				wg.Go(func() {
					<-wait
					a := s.h.begin("a", source)
					var err error
					switch {
					case deletes:
						_, err = w.Delete(t.Context(), "x", "a")
					case loads:
						_, err = w.Bulk(t.Context(), &leaf.BulkRequest{Index: "x"}, strings.NewReader(source+"\n"))
					default:
						_, err = w.Index(t.Context(), &leaf.IndexRequest{Index: "x", Body: []byte(source)})
					}
					s.h.end(a, err == nil)
					if err != nil {
						t.Error(err)
					}
				})
			}
			for range r.IntN(3) {
				wait := later()
				wg.Go(func() {
					<-wait
					changed, err := c.repair(t.Context(), "a")
					if err != nil {
						t.Error(err)
					}
					if changed {
						copied.Add(1)
					}
				})
			}
			wg.Wait()
			if wrong := c.same("x"); wrong != "" {
				t.Errorf("seed %d: %s", seed, wrong)
			}
			for _, m := range c.all() {
				if have := m.docs("x")["a"]; !s.h.allows("a", have) {
					t.Errorf("seed %d: %s has %q", seed, m.addr, have)
				}
			}
			if len(s.hints.ids) > 0 {
				t.Errorf("seed %d: hints %v", seed, s.hints.ids)
			}
			puts, sums := 0, 0
			for _, m := range c.all() {
				puts, sums = puts+m.called("Index"), sums+m.called("Sums")-before[m.addr]
			}
			if sums == 0 && puts > 0 {
				not++
			} else {
				compared++
			}
			for _, w := range s.writers {
				if err := w.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	if compared == 0 || not == 0 || copied.Load() == 0 {
		t.Errorf("in %d cases members were compared, in %d not; %d were copied to", compared, not, copied.Load())
	}
}

// TestNothingAcknowledgedIsLost lets members fail in every way under the same storm. What was acknowledged is there, and members that have
// no hint are equal.
func TestNothingAcknowledgedIsLost(t *testing.T) {
	acknowledged, missed := 0, 0
	for seed := range uint64(rounds(t, 5, 18)) {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 2, 3)
			s := &storm{c: c, h: &history{}, hints: &hintBook{}, ids: 1 + int(seed%6)}
			for range 2 {
				w := c.writer(Options{Hints: s.hints, Limits: Limits{CallTimeout: 50 * time.Millisecond, ChunkTimeout: 50 * time.Millisecond, BulkStall: 20 * time.Millisecond}})
				w.chunkDocs = 2
				s.writers = append(s.writers, w)
			}
			put(t, s.writers[0], `{"id":"first","n":0}`)
			if seed%3 > 0 {
				s.age(rand.New(rand.NewPCG(seed, 3)))
			}
			for i, m := range c.all() {
				m.jitter(seed*100+uint64(i), time.Millisecond)
				r := rand.New(rand.NewPCG(seed, uint64(i)+1000))
				var mu sync.Mutex
				m.fates = func(string) fate {
					mu.Lock()
					defer mu.Unlock()
					if r.IntN(12) > 0 {
						return fine
					}
					return fate(r.IntN(int(numFates)))
				}
			}
			s.run(t, seed, 6, 12, func(error) {})
			for _, w := range s.writers {
				if err := w.Close(); err != nil {
					t.Error(err)
				}
			}
			s.check(t)
			for _, a := range s.h.attempts {
				if a.ok {
					acknowledged++
				} else {
					missed++
				}
			}
		})
	}
	if acknowledged == 0 || missed == 0 {
		t.Errorf("%d acknowledged, %d not: nothing was tested", acknowledged, missed)
	}
}

// TestMovesLoseNothing moves the documents to a third group and back to two under the storm, with coordinators that learn of each map only
// by being refused.
func TestMovesLoseNothing(t *testing.T) {
	for seed := range uint64(rounds(t, 3, 10)) {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 2, 2, 2)
			back := c.State().Map.Clone()
			back.Epoch, back.Placed = back.Epoch+1, 2
			c.setMap(back, c.all()...)
			s := &storm{c: c, h: &history{}, hints: &hintBook{}, ids: 8}
			for range 2 {
				w, err := New(&frozen{c: c}, Options{Hints: s.hints})
				if err != nil {
					t.Fatal(err)
				}
				w.chunkDocs = 2
				s.writers = append(s.writers, w)
			}
			put(t, s.writers[0], `{"id":"first","n":0}`)
			for i, m := range c.all() {
				m.jitter(seed*100+uint64(i), time.Millisecond)
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				for _, to := range []int{3, 2} {
					c.move(t, to)
				}
			}()
			s.run(t, seed, 6, 25, func(err error) { t.Error(err) })
			<-done
			s.check(t)
			if wrong := c.same("x"); wrong != "" {
				t.Error(wrong)
			}
			stale := uint64(0)
			for _, w := range s.writers {
				stale += w.Stats().Stale
				if err := w.Close(); err != nil {
					t.Error(err)
				}
			}
			if stale == 0 {
				t.Error("no coordinator was out of date")
			}
		})
	}
}

// move is what a job does, with members that can be copied from one to the other at one moment.
func (c *cluster) move(t *testing.T, to int) {
	rest := func() { <-time.After(5 * time.Millisecond) }
	rest()
	c.moveTo(t, to)
	rest()
	st := c.State()
	for g := range st.Groups {
		src := c.group(g)[0]
		for id := range src.docs("x") {
			for _, gr := range st.Writers(id) {
				if gr.Ordinal == g || st.Owner(id).Ordinal != g {
					continue
				}
				for _, dst := range c.group(gr.Ordinal) {
					copyDoc(src, dst, id)
				}
			}
		}
	}
	next, err := c.State().Map.Cutover()
	if err != nil {
		t.Error(err)
		return
	}
	c.setMap(next, c.all()...)
	rest()
	if next, err = c.State().Map.BeginCleaning(); err != nil {
		t.Error(err)
		return
	}
	c.setMap(next, c.all()...)
	rest()
	st = c.State()
	for g := range st.Groups {
		for _, m := range c.group(g) {
			m.mu.Lock()
			if h := m.indexes["x"]; h != nil {
				maps.DeleteFunc(h.docs, func(id, _ string) bool { return st.Owner(id).Ordinal != g })
			}
			m.mu.Unlock()
		}
	}
	if next, err = st.Map.EndMove(); err != nil {
		t.Error(err)
		return
	}
	c.setMap(next, c.all()...)
}

// copyDoc puts a document as it is at one member at another, if that has none.
func copyDoc(src, dst *model, id string) {
	both := []*model{src, dst}
	sort.Slice(both, func(i, k int) bool { return both[i].addr < both[k].addr })
	for _, m := range both {
		m.mu.Lock()
		defer m.mu.Unlock()
	}
	from := src.indexes["x"]
	if from == nil {
		return
	}
	source, ok := from.docs[id]
	to := dst.made("x")
	if _, there := to.docs[id]; ok && !there {
		to.docs[id] = source
	}
}

// line is one line of a random load.
func randomLine(r *rand.Rand) string {
	id := fmt.Sprint("d", r.IntN(12))
	switch r.IntN(14) {
	case 0:
		return ""
	case 1:
		return "  \t"
	case 2:
		return `{"id":"` + id + `"`
	case 3:
		return `{"n":1}`
	case 4:
		return `{"id":"` + id + `","n":"word"}`
	case 5:
		return fmt.Sprintf(`{"id":"%s","f%d":%s}`, id, r.IntN(6), []string{`1`, `2.5`, `"w"`, `true`}[r.IntN(4)])
	case 6:
		return `{"id":"` + id + `","long":"` + strings.Repeat("x", r.IntN(700)) + `"}`
	case 7:
		return `{"id":""}`
	case 8:
		return "{\"id\":\"" + id + "\",\"n\": 5 }\r"
	}
	return fmt.Sprintf(`{"id":"%s","n":%d}`, id, r.IntN(1000))
}

// TestABulkIsItsLinesOneByOne holds loads against single writes of their lines to another cluster.
func TestABulkIsItsLinesOneByOne(t *testing.T) {
	for seed := range uint64(rounds(t, 40, 150)) {
		r := rand.New(rand.NewPCG(seed, 1))
		var lines []string
		for range r.IntN(60) {
			lines = append(lines, randomLine(r))
		}
		sizes := [][]int{{1}, {2}, {2, 1}, {1, 2, 2}}[seed%4]
		limits := Limits{DocumentBytes: 600, LoadBytes: 1200}
		a, b := newCluster(t, sizes...), newCluster(t, sizes...)
		bulk, single := a.writer(Options{Limits: limits}), b.writer(Options{Limits: limits})
		bulk.chunkDocs = 1 + r.IntN(5)
		put(t, bulk, `{"id":"first","n":0}`)
		put(t, single, `{"id":"first","n":0}`)
		reply, err := bulk.Bulk(t.Context(), &leaf.BulkRequest{Index: "x"}, strings.NewReader(strings.Join(lines, "\n")))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		var want api.BulkReply
		var inferred []api.InferredField
		seen := map[string]bool{}
		for i, line := range lines {
			line = strings.TrimSpace(line)
			if line == "" {
				continue
			}
			one, err := single.Index(t.Context(), &leaf.IndexRequest{Index: "x", Body: []byte(line)})
			if err != nil {
				p, ok := err.(*api.Problem)
				if !ok {
					t.Fatalf("seed %d: %v", seed, err)
				}
				want.Failed++
				want.Errors = append(want.Errors, api.DocFailure{Line: i + 1, Code: string(p.Code)})
				continue
			}
			want.Indexed++
			if seen[one.ID] {
				want.Duplicates++
			}
			seen[one.ID] = true
			inferred = append(inferred, one.Inferred...)
		}
		if reply.Indexed != want.Indexed || reply.Failed != want.Failed || reply.Duplicates != want.Duplicates || reply.OK != (want.Failed == 0) {
			t.Fatalf("seed %d: %+v, one by one %+v", seed, reply.BulkReply, want)
		}
		if !slices.EqualFunc(reply.Errors, want.Errors, func(x, y api.DocFailure) bool { return x.Line == y.Line && x.Code == y.Code }) {
			t.Fatalf("seed %d: %+v, one by one %+v", seed, reply.Errors, want.Errors)
		}
		if !slices.Equal(reply.Inferred, inferred) {
			t.Fatalf("seed %d: inferred %v, one by one %v", seed, reply.Inferred, inferred)
		}
		for addr, m := range a.models {
			if other := b.models[addr]; !maps.Equal(m.docs("x"), other.docs("x")) || m.sdl("x") != other.sdl("x") {
				t.Fatalf("seed %d: %s has %v, one by one %v\n%s\n%s", seed, addr, m.docs("x"), other.docs("x"), m.sdl("x"), other.sdl("x"))
			}
		}
		touched := 0
		for g := range sizes {
			if len(a.group(g)[0].docs("x")) > 0 {
				touched++
			}
		}
		if reply.Shards > touched || reply.Members.OK != reply.Members.Total {
			t.Fatalf("seed %d: %+v", seed, reply.BulkReply)
		}
	}
}
