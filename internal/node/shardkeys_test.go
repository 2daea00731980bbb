package node

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/zeebo/xxh3"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/shard"
	"github.com/weft-search/weft/internal/vfs"
	"github.com/weft-search/weft/internal/vfs/faultfs"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

// keyClock is the time of a test. now is the calendar, which may be set without time passing.
type keyClock struct {
	now time.Time
	set time.Duration // how far it was set forward
}

func (c *keyClock) up() time.Duration { return c.now.Sub(newKeyClock().now) - c.set }

func openLoadKeys(t testing.TB, fsys vfs.FS, clock *keyClock) *loadKeys {
	t.Helper()
	if err := fsys.MkdirAll("i"); err != nil {
		t.Fatal(err)
	}
	if err := fsys.SyncDir("."); err != nil {
		t.Fatal(err)
	}
	return &loadKeys{
		fs: fsys, path: "i/" + loadKeysFile, log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		now: func() time.Time { return clock.now }, up: clock.up,
	}
}

func newKeyClock() *keyClock { return &keyClock{now: time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)} }

// loadReply is a reply that its number determines.
func loadReply(n int) *api.BulkReply {
	r := &api.BulkReply{OK: n%3 != 0, Indexed: uint64(n), TookMicros: int64(7 * n), Shards: 1, Members: oneMember()}
	if !r.OK {
		r.Failed = 1
		r.Errors = []api.DocFailure{{Line: n, ID: fmt.Sprint("id ", n, " \"é\""), Code: "invalid_document", Reason: "it does not fit"}}
	}
	if n%5 == 0 {
		r.Inferred = []api.InferredField{{Name: "f", Type: "i64", From: "integer"}}
		r.Duplicates, r.DuplicatesAtLeast = 2, true
	}
	return r
}

// kept checks which of the loads 0..n-1, with their numbers as keys, are remembered.
func kept(t testing.TB, l *loadKeys, n int, want func(i int) bool) {
	t.Helper()
	for i := range n {
		got, err := l.find(fmt.Sprint("key ", i))
		if err != nil {
			t.Fatal(err)
		}
		if (got != nil) != want(i) {
			t.Fatalf("load %d of %d: remembered: %v", i, n, got != nil)
		}
		if got != nil {
			if d := cmp.Diff(loadReply(i), got, cmpopts.EquateEmpty()); d != "" {
				t.Fatalf("load %d: %s", i, d)
			}
		}
	}
}

func all(int) bool { return true }

func TestLoadKeysOutliveTheNode(t *testing.T) {
	fsys, clock := memfs.New(nil), newKeyClock()
	l := openLoadKeys(t, fsys, clock)
	kept(t, l, 3, func(int) bool { return false })
	for i := range 30 {
		l.remember(fmt.Sprint("key ", i), loadReply(i))
		kept(t, l, i+1, all)
		// What is durable is there after the power was cut.
		if i%5 == 0 {
			kept(t, openLoadKeys(t, fsys.CrashClone(rand.New(rand.NewPCG(1, uint64(i)))), clock), 31, func(k int) bool { return k <= i })
		}
		if i%7 == 3 {
			l = openLoadKeys(t, fsys, clock)
		}
	}
}

func TestLoadKeysAreBounded(t *testing.T) {
	t.Run("number", func(t *testing.T) {
		fsys, clock := memfs.New(nil), newKeyClock()
		l := openLoadKeys(t, fsys, clock)
		l.fs = noSync{fsys}
		const n = maxLoadKeys + 50
		for i := range n {
			l.remember(fmt.Sprint("key ", i), loadReply(i))
		}
		last := func(i int) bool { return i >= 50 }
		kept(t, l, n, last)
		kept(t, openLoadKeys(t, fsys, clock), n, last)
	})
	t.Run("age", func(t *testing.T) {
		fsys, clock := memfs.New(nil), newKeyClock()
		l := openLoadKeys(t, fsys, clock)
		for i := range 10 {
			l.remember(fmt.Sprint("key ", i), loadReply(i))
			clock.now = clock.now.Add(time.Hour)
		}
		clock.now = clock.now.Add(loadKeyAge - 5*time.Hour - time.Minute)
		young := func(i int) bool { return i >= 5 }
		kept(t, l, 10, young)
		kept(t, openLoadKeys(t, fsys, clock), 10, young)
		l.remember("key 1", loadReply(1)) // a key that was forgotten may be used again
		kept(t, l, 10, func(i int) bool { return i == 1 || young(i) })
	})
	t.Run("age and not the calendar", func(t *testing.T) {
		fsys, clock := memfs.New(nil), newKeyClock()
		set := func(d time.Duration) {
			clock.now = clock.now.Add(d)
			clock.set += d
		}
		l := openLoadKeys(t, fsys, clock)
		l.remember("key 0", loadReply(0))
		for _, d := range []time.Duration{2 * loadKeyAge, -100 * 365 * loadKeyAge, 250 * 365 * loadKeyAge} {
			set(d)
			kept(t, l, 1, all)
		}
		set(-clock.set - 30*loadKeyAge) // a node that starts with a clock that is late
		l = openLoadKeys(t, fsys, clock)
		kept(t, l, 1, all)
		clock.now = clock.now.Add(loadKeyAge + time.Minute)
		kept(t, l, 1, func(int) bool { return false })
	})
	t.Run("bytes", func(t *testing.T) {
		fsys, clock := memfs.New(nil), newKeyClock()
		l := openLoadKeys(t, fsys, clock)
		l.fs = noSync{fsys}
		big := &api.BulkReply{Indexed: 1}
		for i := range 1000 {
			big.Errors = append(big.Errors, api.DocFailure{Line: i, ID: "\xff", Code: "c", Reason: strings.Repeat("reason ", 20)})
		}
		const n = 2 * maxLoadKeyBytes / maxLoadReply
		for i := range n {
			l.remember(fmt.Sprint("key ", i), big)
		}
		st, err := fsys.Stat(l.path)
		if err != nil || st.Size > 2*maxLoadKeyBytes+2*loadKeySlack || l.mu.bytes > maxLoadKeyBytes {
			t.Errorf("the file is %d bytes long for %d: %v", st.Size, l.mu.bytes, err)
		}
		again := openLoadKeys(t, fsys, clock)
		for _, l := range []*loadKeys{l, again} {
			if r, err := l.find("key 0"); r != nil || err != nil {
				t.Errorf("the oldest is remembered: %v", err)
			}
			r, err := l.find(fmt.Sprint("key ", n-1))
			if err != nil || r == nil || len(r.Errors) == 0 || len(r.Errors)+int(r.ErrorsOmitted) != 1000 || r.Errors[1].Line != 1 {
				t.Fatalf("%+v, %v", r, err)
			}
		}
	})
}

// noSync spares the copies that memfs makes at each sync.
type noSync struct{ vfs.FS }

func (f noSync) Append(p string) (vfs.File, error) {
	file, err := f.FS.Append(p)
	return noSyncFile{file}, err
}

type noSyncFile struct{ vfs.File }

func (noSyncFile) Sync() error { return nil }

func TestLoadKeysAreWrittenAnewWhenTheFileIsLong(t *testing.T) {
	fsys, clock := memfs.New(nil), newKeyClock()
	l := openLoadKeys(t, fsys, clock)
	l.fs = noSync{fsys}
	r := loadReply(3)
	r.Errors[0].Reason = strings.Repeat("long ", 2000)
	most := int64(0)
	for i := range 500 {
		l.remember(fmt.Sprint("key ", i%7), r)
		st, err := fsys.Stat(l.path)
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, st.Size)
	}
	if most < loadKeySlack/2 || most > loadKeySlack+4*l.mu.bytes {
		t.Errorf("the file was up to %d bytes long", most)
	}
	if r, err := openLoadKeys(t, fsys, clock).find("key 6"); err != nil || r == nil || r.Indexed != 3 {
		t.Error(r, err)
	}
}

// TestLoadKeysAfterDamage cuts and flips the file at each of its bytes: what stands before is remembered, and what comes later again.
func TestLoadKeysAfterDamage(t *testing.T) {
	fsys, clock := memfs.New(nil), newKeyClock()
	l := openLoadKeys(t, fsys, clock)
	ends := []int{loadKeysHeader}
	for i := range 4 {
		l.remember(fmt.Sprint("key ", i), loadReply(i))
		ends = append(ends, int(l.mu.size))
	}
	whole, err := vfs.ReadFile(fsys, l.path)
	if err != nil || len(whole) != ends[4] {
		t.Fatal(len(whole), ends, err)
	}
	check := func(b []byte, at int) {
		t.Helper()
		fsys := memfs.New(nil)
		l := openLoadKeys(t, fsys, clock)
		l.log = slog.New(slog.DiscardHandler)
		if err := vfs.WriteFile(fsys, l.path, b); err != nil {
			t.Fatal(err)
		}
		good := func(i int) bool { return at >= ends[i+1] }
		kept(t, l, 4, good)
		l.remember("key 3", loadReply(3))
		later := func(i int) bool { return i == 3 || good(i) }
		kept(t, l, 4, later)
		kept(t, openLoadKeys(t, fsys, clock), 4, later)
	}
	for at := range whole {
		check(whole[:at], at)
		flipped := bytes.Clone(whole)
		flipped[at] ^= 1 << (at % 8)
		if at < loadKeysHeader {
			at = 0
		}
		check(flipped, at)
	}
	check(append(bytes.Clone(whole), make([]byte, 100)...), len(whole))
}

// TestLoadKeysOfALaterVersion: a file that cannot be understood is left as it is, and loads with keys are refused.
func TestLoadKeysOfALaterVersion(t *testing.T) {
	fsys, clock := memfs.New(nil), newKeyClock()
	l := openLoadKeys(t, fsys, clock)
	b := appendLoadKeysHeader(nil)
	binary.LittleEndian.PutUint32(b[len(loadKeysMagic):], LoadKeysVersion+1)
	binary.LittleEndian.PutUint32(b[loadKeysHeader-4:], uint32(xxh3.Hash(b[:loadKeysHeader-4])))
	b = append(b, "what only that version knows"...)
	if err := vfs.WriteFile(fsys, l.path, b); err != nil {
		t.Fatal(err)
	}
	if _, err := l.find("a"); !errors.Is(err, shard.ErrNewerFormat) {
		t.Error(err)
	}
	l.log = slog.New(slog.DiscardHandler)
	l.remember("a", loadReply(1))
	if now, err := vfs.ReadFile(fsys, l.path); err != nil || !bytes.Equal(now, b) {
		t.Error("the file was changed", err)
	}
}

// TestLoadKeysGolden holds what is written against a file of the first version.
func TestLoadKeysGolden(t *testing.T) {
	fsys, clock := memfs.New(nil), newKeyClock()
	l := openLoadKeys(t, fsys, clock)
	for i := range 6 {
		l.remember(fmt.Sprint("key ", i), loadReply(i))
		clock.now = clock.now.Add(1234 * time.Millisecond)
	}
	got, err := vfs.ReadFile(fsys, l.path)
	if err != nil {
		t.Fatal(err)
	}
	const file = "testdata/loads.v1.keys"
	if os.Getenv("WEFT_REWRITE") != "" {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the file is %d bytes long and not that of version %d, of %d bytes", len(got), LoadKeysVersion, len(want))
	}
	old := openLoadKeys(t, memfs.New(nil), clock)
	if err := vfs.WriteFile(old.fs, old.path, want); err != nil {
		t.Fatal(err)
	}
	kept(t, old, 7, func(i int) bool { return i < 6 })
}

// TestLoadKeysWhenTheDiskFails fails each operation in turn: the node goes on remembering, and when the disk works again so does the
// file.
func TestLoadKeysWhenTheDiskFails(t *testing.T) {
	for n := 1; ; n++ {
		inner, clock := memfs.New(nil), newKeyClock()
		fsys := faultfs.New(inner)
		l := openLoadKeys(t, fsys, clock)
		l.log = slog.New(slog.DiscardHandler)
		fsys.Inject(faultfs.Nth(n, faultfs.Mutating&^faultfs.Mkdir|faultfs.Close, faultfs.NoSpace))
		for i := range 3 {
			l.remember(fmt.Sprint("key ", i), loadReply(i))
			kept(t, l, 3, func(k int) bool { return k <= i })
		}
		fired := fsys.Fired()
		fsys.Inject(nil)
		l.remember("key 3", loadReply(3))
		kept(t, l, 4, all)
		kept(t, openLoadKeys(t, inner, clock), 4, all)
		list, err := inner.ReadDir("i")
		if err != nil || len(list) != 1 {
			t.Errorf("%d files are left: %v", len(list), err)
		}
		if !fired {
			if n < 8 {
				t.Errorf("only %d operations", n-1)
			}
			break
		}
	}
}

func FuzzParseLoadKeys(f *testing.F) {
	clock := newKeyClock()
	b := appendLoadKeysHeader(nil)
	f.Add(bytes.Clone(b))
	for i := range 3 {
		reply, err := keepReply(loadReply(i))
		if err != nil {
			f.Fatal(err)
		}
		b = (&keptLoad{key: fmt.Sprint("key ", i), taken: clock.now.UnixMilli(), reply: reply}).append(b)
		f.Add(bytes.Clone(b))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		loads, good, err := parseLoadKeys(b)
		if err != nil {
			if good != 0 || loads != nil {
				t.Fatal("an error, and loads")
			}
			return
		}
		again := appendLoadKeysHeader(nil)
		for _, k := range loads {
			again = k.append(again)
			if r, err := keptReplyOf(k.reply); err == nil {
				if _, err := keepReply(r); err != nil {
					t.Fatal(err)
				}
			}
		}
		if !bytes.Equal(again, b[:good]) {
			t.Fatalf("%d bytes read as good are written as %d others", good, len(again))
		}
	})
}

// TestBulkWithAKeyIsTakenOnce loads twice under one key, over restarts.
func TestBulkWithAKeyIsTakenOnce(t *testing.T) {
	dir := t.TempDir()
	s := newServer(t, Config{DataDir: dir})
	in := s.node.Leaf().(*shardLeaf)
	bulk := func(key, body string) (*leaf.BulkReply, error) {
		return in.Bulk(t.Context(), &leaf.BulkRequest{Index: "x", Key: key}, strings.NewReader(body))
	}
	first, err := bulk("k1", `{"id":"a","n":1}`+"\n"+`{"id":"b","n":"no"}`+"\n"+`{"id":"c","n":2}`)
	if err != nil || first.Repeated || first.Indexed != 2 || first.Failed != 1 {
		t.Fatal(first, err)
	}
	same := func(when string) {
		t.Helper()
		s.put("x", `{"id":"a","n":7}`)
		again, err := bulk("k1", `{"id":"a","n":100}`)
		if err != nil || !again.Repeated {
			t.Fatal(when, again, err)
		}
		if d := cmp.Diff(first.BulkReply, again.BulkReply, cmpopts.EquateEmpty()); d != "" {
			t.Errorf("%s: %s", when, d)
		}
		_, err = in.Export(t.Context(), &leaf.ExportRequest{Index: "x", IDs: []string{"a"}}, func(d leaf.ExportedDoc) error {
			if string(d.Source) != `{"id":"a","n":7}` {
				t.Errorf("%s: applied again: %s", when, d.Source)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if again.Snapshot.Version == 0 {
			t.Errorf("%s: a reply without a snapshot", when)
		}
	}
	same("at once")
	if err := s.node.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	s = newServer(t, Config{DataDir: dir})
	in = s.node.Leaf().(*shardLeaf)
	same("after a restart")
	// Another key, and another index, are other loads.
	if r, err := bulk("k2", `{"id":"d","n":1}`); err != nil || r.Repeated || r.Indexed != 1 {
		t.Error(r, err)
	}
	if r, err := in.Bulk(t.Context(), &leaf.BulkRequest{Index: "y", Key: "k1"}, strings.NewReader(`{"id":"a"}`)); err != nil || r.Repeated {
		t.Error(r, err)
	}
	// An index that is made anew remembers nothing of the one before.
	s.do("DELETE", "/indexes/x", "", "").want(200)
	if r, err := bulk("k1", `{"id":"a","n":1}`); err != nil || r.Repeated || r.Indexed != 1 {
		t.Error(r, err)
	}
	_, err = bulk(strings.Repeat("k", leaf.MaxBulkKey+1), `{"id":"a","n":1}`)
	wantProblem(t, "a long key", err, api.InvalidParameter)
	if r, err := bulk(strings.Repeat("\x00", leaf.MaxBulkKey), `{"id":"a","n":1}`); err != nil || r.Repeated {
		t.Error(r, err)
	}
}

// TestBulkThatDidNotEndIsNotRemembered: what broke off, stopped, or applied nothing is loaded anew.
func TestBulkThatDidNotEndIsNotRemembered(t *testing.T) {
	faults := &failingEngine{good: 1 << 30}
	s := startServer(t, Config{DataDir: t.TempDir(), Limits: Limits{BulkStall: time.Millisecond}}, func(n *Node) {
		open := n.openEngine
		n.openEngine = func(ctx context.Context, cfg shard.Config) (engine, error) {
			e, err := open(ctx, cfg)
			return &failing{e, faults}, err
		}
		n.chunkDocs = 2
	})
	in := s.node.Leaf().(*shardLeaf)
	const body = "{\"id\":\"a\"}\n{\"id\":\"b\"}\n{\"id\":\"c\"}\n"
	send := func(key string, src io.Reader) (*leaf.BulkReply, error) {
		return in.Bulk(t.Context(), &leaf.BulkRequest{Key: key}, src)
	}
	for name, first := range map[string]func(key string) (*leaf.BulkReply, error){
		"nothing applied": func(key string) (*leaf.BulkReply, error) { return send(key, strings.NewReader("no\n")) },
		"broken off": func(key string) (*leaf.BulkReply, error) {
			return send(key, io.MultiReader(strings.NewReader(body), brokenReader{}))
		},
		"stopped": func(key string) (*leaf.BulkReply, error) {
			faults.good = 1
			defer func() { faults.good = 1 << 30 }()
			return send(key, strings.NewReader(body))
		},
	} {
		r, err := first(name)
		if err != nil && r != nil || r != nil && r.Repeated || r == nil && name != "nothing applied" && name != "broken off" {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
		if r, err := send(name, strings.NewReader(body)); err != nil || r.Repeated || r.Indexed != 3 {
			t.Errorf("%s, again: %+v, %v", name, r, err)
		}
		if r, err := send(name, strings.NewReader(body)); err != nil || !r.Repeated || r.Indexed != 3 {
			t.Errorf("%s, once more: %+v, %v", name, r, err)
		}
	}
}

// TestAnEmptyLoadOfACoordinatorIsRemembered sends a key without documents, over HTTP too, where it is none of a coordinator.
func TestAnEmptyLoadOfACoordinatorIsRemembered(t *testing.T) {
	s := startServer(t, Config{DataDir: t.TempDir()}, nil)
	in := s.node.Leaf()
	send := func(body string) *leaf.BulkReply {
		t.Helper()
		r, err := in.Bulk(t.Context(), &leaf.BulkRequest{Index: "x", Key: "k"}, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for range 2 {
		if send("").Repeated {
			t.Error("it is remembered without an index")
		}
	}
	s.do("POST", "/index?index=x", "application/json", `{"id":"a"}`).want(http.StatusOK)
	if r := send("-\n"); r.Repeated || r.Failed != 1 {
		t.Errorf("who asks for a key leaves it behind: %+v", r)
	}
	if r := send(""); r.Repeated || !r.OK {
		t.Errorf("%+v", r)
	}
	if !send("-\n").Repeated || !send("").Repeated {
		t.Error("it is forgotten")
	}
	h := http.Header{"Content-Type": {"application/x-ndjson"}, "Idempotency-Key": {"other"}}
	for _, body := range []string{"", `{"id":"b"}`} {
		if n := s.sendHeader("POST", "/index/bulk?index=x", h, body).want(http.StatusOK).json()["indexed"]; n != float64(len(body)/10) {
			t.Errorf("%v of %q", n, body)
		}
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("the wire is cut") }

// TestBulkUnderWayIsRefused sends a load while one with its key waits for its sender.
func TestBulkUnderWayIsRefused(t *testing.T) {
	s := newServer(t, Config{})
	in := s.node.Leaf().(*shardLeaf)
	src, sender := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := in.Bulk(t.Context(), &leaf.BulkRequest{Index: "x", Key: "k"}, src)
		done <- err
	}()
	if _, err := io.WriteString(sender, "{\"id\":\"a\"}\n"); err != nil {
		t.Fatal(err)
	}
	_, err := in.Bulk(t.Context(), &leaf.BulkRequest{Index: "x", Key: "k"}, strings.NewReader(`{"id":"b"}`))
	if p := wantProblem(t, "a second load", err, api.LoadUnderWay); p.RetryAfterMS == 0 {
		t.Error("it does not say when to try again")
	}
	h := http.Header{"Content-Type": {"application/x-ndjson"}, front.KeyHeader: {"k"}}
	s.sendHeader("POST", "/index/bulk?index=x", h, `{"id":"b"}`).problem(http.StatusConflict, api.LoadUnderWay)
	if err := sender.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	r, err := in.Bulk(t.Context(), &leaf.BulkRequest{Index: "x", Key: "k"}, strings.NewReader(`{"id":"b"}`))
	if err != nil || !r.Repeated || r.Indexed != 1 {
		t.Error(r, err)
	}
	if len(s.node.underWay.m) != 0 {
		t.Error("a load that has ended is still under way")
	}
}

// TestIdempotencyKeyOverHTTP is the same by the header.
func TestIdempotencyKeyOverHTTP(t *testing.T) {
	s := newServer(t, Config{})
	send := func(body string, keys ...string) *answer {
		h := http.Header{"Content-Type": {"application/x-ndjson"}}
		for _, k := range keys {
			h.Add(front.KeyHeader, k)
		}
		return s.sendHeader("POST", "/index/bulk?index=x", h, body)
	}
	first := send("{\"id\":\"a\"}\n{\"id\":\"b\"", "key 1").want(http.StatusMultiStatus)
	again := send("{\"id\":\"other\"}\n"+strings.Repeat(" ", 1<<20), "key 1").want(http.StatusMultiStatus)
	// The reply is that of the first, and says so.
	if want := strings.TrimSuffix(string(first.body), "}") + `,"repeated":true}`; string(again.body) != want {
		t.Errorf("first %s, then %s", first.body, again.body)
	}
	if ids, _ := s.ids("/search?index=x&q=*"); len(ids) != 1 || ids[0] != "a" {
		t.Errorf("there are %v", ids)
	}
	for name, keys := range map[string][]string{
		"empty": {""}, "two": {"a", "b"}, "long": {strings.Repeat("k", leaf.MaxBulkKey+1)}, "a tab": {"a\tb"}, "not ASCII": {"é"},
	} {
		m := send("{\"id\":\"c\"}", keys...).problem(http.StatusBadRequest, api.InvalidParameter)
		if m["field"] != front.KeyHeader {
			t.Errorf("%s: %v", name, m)
		}
	}
	if send("{\"id\":\"c\"}", strings.Repeat("~", leaf.MaxBulkKey)).want(http.StatusOK).json()["indexed"] != 1.0 {
		t.Error("the longest key is not taken")
	}
}
