package crashtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/weft-search/weft/internal/client"
)

const (
	writers       = 4
	keysPerWriter = 120
	index         = "crash"
)

// The schema that the index is declared with: a writer's documents can be counted by a term and read back in full.
const sdl = `index crash {
    field id: text<raw> [indexed, stored, fast, primary]
    field writer: text<raw> [indexed, stored, fast]
    field version: u64 [indexed, stored, fast]
    field body: text<simple> [indexed<positions>, stored]
}
`

// doc is a document as it is written and read back.
type doc struct {
	ID      string `json:"id"`
	Writer  string `json:"writer"`
	Version uint64 `json:"version"`
	Body    string `json:"body"`
}

// version names a state of a key; 0 is absence.
type version uint64

// change is one write of a call: the key and what it becomes.
type change struct {
	key string
	to  version
}

// writer makes writes to its own keys, one call at a time, and knows what each key may hold.
type writer struct {
	name    string
	rng     *rand.Rand
	next    version
	acked   map[string]version // what the server has acknowledged last; absent keys are not there
	pending []change           // the call that was never answered, in order; nil if there is none
	calls   int
	refused int
}

func newWriter(i int, seed uint64) *writer {
	return &writer{name: fmt.Sprintf("w%d", i), rng: rand.New(rand.NewPCG(seed, uint64(i))), acked: map[string]version{}}
}

// body is a text that only this version of this key has, so that a mixture of two would show.
func body(key string, v version) string {
	rng := rand.New(rand.NewPCG(uint64(v), uint64(len(key))))
	words := make([]string, 5+rng.IntN(40))
	for i := range words {
		words[i] = fmt.Sprintf("t%d", rng.IntN(2000))
	}
	return fmt.Sprintf("%s v%d %s", key, v, strings.Join(words, " "))
}

func (w *writer) doc(c change) doc {
	return doc{ID: c.key, Writer: w.name, Version: uint64(c.to), Body: body(c.key, c.to)}
}

func (w *writer) key() string { return fmt.Sprintf("%s-%03d", w.name, w.rng.IntN(keysPerWriter)) }

// errUnknown is an error of the program and not of the crash.
var errUnknown = errors.New("unexpected answer")

// write makes one call, and calls acked if it was acknowledged. It returns false when the server is gone.
func (w *writer) write(ctx context.Context, c *client.Client, acked func()) (bool, error) {
	w.calls++
	var changes []change
	var call func() (int, error) // number of documents refused
	switch kind := w.rng.IntN(10); {
	case kind < 4:
		w.next++
		changes = []change{{w.key(), w.next}}
		call = func() (int, error) {
			raw, err := json.Marshal(w.doc(changes[0]))
			if err != nil {
				return 0, err
			}
			res, err := c.Put(ctx, index, raw)
			if err == nil && !res.OK {
				err = fmt.Errorf("%w: put not ok", errUnknown)
			}
			return 0, err
		}
	case kind < 6:
		changes = []change{{w.key(), 0}}
		call = func() (int, error) {
			res, err := c.Delete(ctx, index, changes[0].key)
			if err == nil && (res.Deleted == 1) != (w.acked[changes[0].key] != 0) {
				err = fmt.Errorf("%w: delete of %s says deleted %d, the key was at version %d", errUnknown, changes[0].key, res.Deleted, w.acked[changes[0].key])
			}
			return 0, err
		}
	default:
		var b bytes.Buffer
		for range 1 + w.rng.IntN(60) {
			w.next++
			changes = append(changes, change{w.key(), w.next})
			raw, err := json.Marshal(w.doc(changes[len(changes)-1]))
			if err != nil {
				return false, err
			}
			b.Write(raw)
			b.WriteByte('\n')
		}
		call = func() (int, error) {
			res, err := c.Bulk(ctx, index, b.Bytes())
			if err == nil && res.Indexed+res.Failed != len(changes) {
				err = fmt.Errorf("%w: %d indexed and %d failed of %d", errUnknown, res.Indexed, res.Failed, len(changes))
			}
			return res.Failed, err
		}
	}
	failed, err := call()
	var p *client.Problem
	switch {
	case errors.Is(err, errUnknown):
		return false, err
	case errors.As(err, &p):
		if wait, ok := p.Refused(); ok {
			// Before any effect. What the server asks for is cut short: it is to be kept busy.
			w.refused++
			<-time.After(min(wait, 20*time.Millisecond))
			return true, nil
		}
		return false, fmt.Errorf("%w: %w", errUnknown, err)
	case err != nil:
		w.pending = changes // the connection broke: the write may have happened
		return false, nil
	case failed > 0:
		return false, fmt.Errorf("%w: %d documents refused", errUnknown, failed)
	}
	for _, ch := range changes {
		w.set(ch)
	}
	acked()
	return true, nil
}

func (w *writer) set(c change) {
	if c.to == 0 {
		delete(w.acked, c.key)
	} else {
		w.acked[c.key] = c.to
	}
}

// settle compares what the server holds with what it owes, and takes the outcome of the call that was never answered.
func (w *writer) settle(held map[string]version) error {
	with := map[string]version{}
	for _, c := range w.pending {
		with[c.key] = c.to
	}
	var problems []string
	happened, not := 0, 0
	for key, want := range with {
		if want == w.acked[key] {
			continue // both outcomes look alike
		}
		switch held[key] {
		case want:
			happened++
		case w.acked[key]:
			not++
		default:
			problems = append(problems, fmt.Sprintf("%s is at version %d; acknowledged is %d, cut off was %d", key, held[key], w.acked[key], want))
		}
	}
	if happened > 0 && not > 0 {
		problems = append(problems, fmt.Sprintf("a call of %d documents that was cut off happened for %d and not for %d", len(w.pending), happened, not))
	}
	for i := range keysPerWriter {
		key := fmt.Sprintf("%s-%03d", w.name, i)
		if _, open := with[key]; !open && held[key] != w.acked[key] {
			problems = append(problems, fmt.Sprintf("%s is at version %d, acknowledged is %d", key, held[key], w.acked[key]))
		}
	}
	if len(problems) > 0 {
		slices.Sort(problems)
		return fmt.Errorf("writer %s: %s", w.name, strings.Join(problems, "\n  "))
	}
	if happened > 0 {
		for _, c := range w.pending {
			w.set(c)
		}
	}
	w.pending = nil
	return nil
}

// read returns the version of every key that the server holds, by search and by get, and fails where they differ or a
// document is not whole.
func read(ctx context.Context, c *client.Client, w *writer) (map[string]version, error) {
	res, err := c.Search(ctx, client.Search{Index: index, Q: "writer:" + w.name, Limit: keysPerWriter + 1})
	if err != nil {
		return nil, fmt.Errorf("search: %w", err)
	}
	if res.Total != uint64(len(res.Hits)) || res.TotalRelation != "eq" || !res.Coverage.Complete {
		return nil, fmt.Errorf("search of %s found %s %d, gave %d hits", w.name, res.TotalRelation, res.Total, len(res.Hits))
	}
	found := map[string]version{}
	for _, h := range res.Hits {
		if _, twice := found[h.ID]; twice {
			return nil, fmt.Errorf("%s was found twice", h.ID)
		}
		v, err := whole(w, h.ID, h.Source)
		if err != nil {
			return nil, fmt.Errorf("search: %w", err)
		}
		found[h.ID] = v
	}
	for i := range keysPerWriter {
		key := fmt.Sprintf("%s-%03d", w.name, i)
		got, err := c.Get(ctx, index, key)
		if client.IsNotFound(err) {
			if v, ok := found[key]; ok {
				return nil, fmt.Errorf("%s was found at version %d, get says there is none", key, v)
			}
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("get %s: %w", key, err)
		}
		v, err := whole(w, key, got.Source)
		if err != nil {
			return nil, fmt.Errorf("get: %w", err)
		}
		if v != found[key] {
			return nil, fmt.Errorf("%s is at version %d by get and %d by search", key, v, found[key])
		}
	}
	return found, nil
}

// whole checks that a document is one that was written, to the last letter.
func whole(w *writer, key string, source []byte) (version, error) {
	var d doc
	if err := json.Unmarshal(source, &d, json.RejectUnknownMembers(true)); err != nil {
		return 0, fmt.Errorf("read %s: %w", key, err)
	}
	if d.ID != key || d != w.doc(change{key, version(d.Version)}) {
		return 0, fmt.Errorf("%s was never written like this: %s", key, source)
	}
	return version(d.Version), nil
}

func envInt(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// TestAcknowledgedWritesSurviveKill is the test that the package comment describes.
func TestAcknowledgedWritesSurviveKill(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real processes")
	}
	rounds := envInt(t, "WEFT_CRASH_ROUNDS", 20)
	seed := envInt(t, "WEFT_CRASH_SEED", rand.Uint64()>>1)
	t.Logf("seed %d, %d rounds", seed, rounds)
	rng := rand.New(rand.NewPCG(seed, 99))
	dir := os.Getenv("WEFT_CRASH_DIR")
	if dir == "" {
		dir = t.TempDir()
	}
	// A memtable of 512 KiB is full after some hundred documents.
	flags := []string{"--memtable-mb", "0.5", "--merge-mb-per-sec", "0"}

	ws := make([]*writer, writers)
	for i := range ws {
		ws[i] = newWriter(i, seed)
	}
	ctx := context.Background()
	declared := false
	began := time.Now()
	var cutOff, kills, early int
	for round := range rounds {
		p, err := start(dir, flags...)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if declared && rng.IntN(8) == 0 {
			// In the middle of the recovery.
			<-time.After(time.Duration(rng.IntN(30_000)) * time.Microsecond)
			p.kill()
			if err := p.Killed(); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			early++
			kills++
			if p, err = start(dir, flags...); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
		}
		if err := p.ready(); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if declared {
			check(t, ctx, p, ws, fmt.Sprintf("round %d", round))
		} else if _, err := p.client.PutIndex(ctx, index, sdl); err != nil {
			t.Fatalf("declare index: %v\n%s", err, p.Stderr)
		}
		declared = true

		// The writers go on until the process is gone; it is killed a moment after the n-th acknowledgement.
		n := int64(rng.IntN(150))
		after := time.Duration(rng.IntN(4000)) * time.Microsecond
		var acks atomic.Int64
		reached := make(chan struct{})
		if n == 0 {
			close(reached)
		}
		errs := make([]error, writers)
		var wg sync.WaitGroup
		for i, w := range ws {
			wg.Go(func() {
				for {
					ok, err := w.write(ctx, p.client, func() {
						if acks.Add(1) == n {
							close(reached)
						}
					})
					if !ok {
						errs[i] = err
						return
					}
				}
			})
		}
		select {
		case <-reached:
			<-time.After(after)
		case <-p.Exited:
		case <-time.After(60 * time.Second):
			t.Errorf("round %d: %d of %d writes in a minute\n%s", round, acks.Load(), n, p.Stderr)
		}
		p.kill()
		wg.Wait()
		kills++
		if err := errors.Join(append(errs, p.Killed())...); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		for _, w := range ws {
			if w.pending != nil {
				cutOff++
			}
		}
		if t.Failed() {
			return
		}
		if round%10 == 5 {
			if err := doctor(dir); err != nil {
				t.Fatalf("round %d: after the kill: %v", round, err)
			}
		}
	}
	p, err := start(dir, flags...)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.ready(); err != nil {
		t.Fatal(err)
	}
	check(t, ctx, p, ws, "at the end")
	info, err := p.client.Index(ctx, index)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	if err := doctor(dir); err != nil {
		t.Fatal(err)
	}
	calls, refused := 0, 0
	for _, w := range ws {
		calls += w.calls
		refused += w.refused
	}
	t.Logf("%d kills (%d of them during recovery), %d calls, %d cut off, %d refused, %d documents in %d segments at the end, %v",
		kills, early, calls, cutOff, refused, info.Docs, info.Segments, time.Since(began).Round(time.Millisecond))
}

// check compares everything that the process serves with what it owes.
func check(t *testing.T, ctx context.Context, p *process, ws []*writer, when string) {
	t.Helper()
	errs := make([]error, len(ws))
	var wg sync.WaitGroup
	for i, w := range ws {
		wg.Go(func() {
			held, err := read(ctx, p.client, w)
			if err == nil {
				err = w.settle(held)
			}
			errs[i] = err
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("%s: %v\n%s", when, err, p.Stderr)
	}
	want := uint64(0)
	for _, w := range ws {
		want += uint64(len(w.acked))
	}
	res, err := p.client.Search(ctx, client.Search{Index: index, Limit: 0})
	if err != nil {
		t.Fatalf("%s: %v\n%s", when, err, p.Stderr)
	}
	info, err := p.client.Index(ctx, index)
	if err != nil {
		t.Fatalf("%s: %v\n%s", when, err, p.Stderr)
	}
	if res.Total != want || info.Docs != want {
		t.Fatalf("%s: %d documents are acknowledged, search counts %d, the index says %d", when, want, res.Total, info.Docs)
	}
}
