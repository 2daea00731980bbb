package wal

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/weft-search/weft/internal/vfs"
	"github.com/weft-search/weft/internal/vfs/faultfs"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func mustOpen(t testing.TB, fsys vfs.FS, o Options) *Log {
	t.Helper()
	l, err := Open(fsys, "log", o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func mustClose(t testing.TB, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func mustAppend(t testing.TB, l *Log, payload string) uint64 {
	t.Helper()
	seq, err := l.Append(t.Context(), []byte(payload))
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

// contents replays the whole log and checks that the numbers are consecutive.
func contents(l *Log) ([]string, error) {
	out := []string{}
	next := l.FirstSeq()
	err := l.Replay(0, func(seq uint64, p []byte) error {
		if seq != next {
			return fmt.Errorf("record %d where %d belongs", seq, next)
		}
		next++
		out = append(out, string(p))
		return nil
	})
	return out, err
}

func mustContents(t testing.TB, l *Log) []string {
	t.Helper()
	got, err := contents(l)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func isPrefix(short, long []string) bool {
	return len(short) <= len(long) && slices.Equal(short, long[:len(short)])
}

// putFile places b as a durable file.
func putFile(t testing.TB, fsys vfs.FS, name string, b []byte) {
	t.Helper()
	if err := vfs.MkdirAll(fsys, "log"); err != nil {
		t.Fatal(err)
	}
	if err := vfs.WriteFile(fsys, name, b); err != nil {
		t.Fatal(err)
	}
}

func TestAppendReplayReopen(t *testing.T) {
	for _, mode := range []SyncMode{SyncAlways, SyncNone} {
		fsys := memfs.New(nil)
		l := mustOpen(t, fsys, Options{Sync: mode, FileBytes: 200})
		var want []string
		for i := range 50 {
			p := strings.Repeat("x", i+1)
			if seq := mustAppend(t, l, p); seq != uint64(i+1) {
				t.Fatalf("record %d got number %d", i+1, seq)
			}
			want = append(want, p)
		}
		first, err := l.AppendBatch(t.Context(), [][]byte{[]byte("a"), []byte("b"), []byte("c")})
		if err != nil || first != 51 {
			t.Fatalf("batch: %d, %v", first, err)
		}
		want = append(want, "a", "b", "c")
		if got := mustContents(t, l); !cmp.Equal(got, want) {
			t.Fatal(cmp.Diff(want, got))
		}
		mustClose(t, l)
		if _, err := l.Append(t.Context(), []byte("late")); !errors.Is(err, ErrClosed) {
			t.Fatalf("append after close: %v", err)
		}
		rep, err := Verify(fsys, "log")
		if err != nil || rep.LastSeq != 53 || rep.FirstSeq != 1 || rep.Torn != nil || rep.Files < 10 {
			t.Fatalf("verify: %+v, %v", rep, err)
		}
		l = mustOpen(t, fsys, Options{})
		if got := mustContents(t, l); !cmp.Equal(got, want) {
			t.Fatal(cmp.Diff(want, got))
		}
		if seq := mustAppend(t, l, "d"); seq != 54 {
			t.Fatalf("after reopening: number %d", seq)
		}
		st := l.Stats()
		if st.LastSeq != 54 || st.Records != 1 || st.Size != l.Size() {
			t.Fatalf("stats: %+v", st)
		}
		mustClose(t, l)
		mustClose(t, l)
	}
}

func TestReplayFrom(t *testing.T) {
	fsys := memfs.New(nil)
	l := mustOpen(t, fsys, Options{FileBytes: 100, FirstSeq: 11})
	defer mustClose(t, l)
	for i := range 20 {
		mustAppend(t, l, fmt.Sprint(i+11))
	}
	for from := uint64(11); from <= 31; from++ {
		next := from
		err := l.Replay(from, func(seq uint64, p []byte) error {
			if seq != next || string(p) != fmt.Sprint(seq) {
				t.Fatalf("from %d: record %d %q", from, seq, p)
			}
			next++
			return nil
		})
		if err != nil || next != 31 {
			t.Fatalf("from %d: %v, ended at %d", from, err, next)
		}
	}
	none := func(uint64, []byte) error { return errors.New("called") }
	if err := l.Replay(10, none); !errors.Is(err, ErrTrimmed) {
		t.Fatalf("before the first: %v", err)
	}
	if err := l.Replay(32, none); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("after a lost end: %v", err)
	}
	stop := errors.New("stop")
	if err := l.Replay(15, func(uint64, []byte) error { return stop }); err != stop {
		t.Fatalf("error of fn: %v", err)
	}
}

func TestBadRecords(t *testing.T) {
	l := mustOpen(t, memfs.New(nil), Options{MaxPending: 1000})
	defer mustClose(t, l)
	for name, batch := range map[string][][]byte{
		"none":       nil,
		"empty":      {[]byte("a"), {}},
		"long":       {make([]byte, MaxRecord+1)},
		"long batch": {make([]byte, 500), make([]byte, 500)},
	} {
		if _, err := l.AppendBatch(t.Context(), batch); !errors.Is(err, ErrRecord) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if seq := mustAppend(t, l, "good"); seq != 1 {
		t.Fatalf("number %d", seq)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	_, err := Open(memfs.New(nil), "log", Options{FileBytes: -1, MaxPending: 2 << 30, ProbeBytes: -1, Sync: 7})
	for _, want := range []string{"FileBytes", "MaxPending", "ProbeBytes", "sync mode"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no complaint about %s in %v", want, err)
		}
	}
}

func TestRotateAndTrim(t *testing.T) {
	fsys := memfs.New(nil)
	var trimmed, rotated int
	l := mustOpen(t, fsys, Options{Events: Events{Trimmed: func(string) { trimmed++ }, Rotated: func(string) { rotated++ }}})
	for i := range 9 {
		mustAppend(t, l, fmt.Sprint(i+1))
		if i%3 == 2 {
			for range 2 { // the second does nothing
				if err := l.Rotate(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if st := l.Stats(); st.Files != 4 || rotated != 3 {
		t.Fatalf("%+v, %d events", st, rotated)
	}
	for seq, first := range []uint64{1, 1, 1, 1, 4, 4, 4, 7} {
		if err := l.TrimBefore(uint64(seq)); err != nil {
			t.Fatal(err)
		}
		if got := l.FirstSeq(); got != first {
			t.Fatalf("trim before %d leaves %d, want %d", seq, got, first)
		}
	}
	if err := l.TrimBefore(1 << 60); err != nil || l.FirstSeq() != 10 || l.LastSeq() != 9 || trimmed != 3 {
		t.Fatalf("trim all: %v, first %d, last %d, %d events", err, l.FirstSeq(), l.LastSeq(), trimmed)
	}
	mustClose(t, l)
	l = mustOpen(t, fsys, Options{})
	defer mustClose(t, l)
	if seq := mustAppend(t, l, "10"); seq != 10 {
		t.Fatalf("number after trimming and reopening: %d", seq)
	}
}

// smallLog returns the only file of a log that was not closed: records, each its own group but for a batch in the middle.
func smallLog(t testing.TB) ([]byte, []string) {
	t.Helper()
	fsys := memfs.New(nil)
	l := mustOpen(t, fsys, Options{})
	want := []string{"alpha", "b", "gamma gamma", "delta", "epsilon", "z"}
	mustAppend(t, l, want[0])
	mustAppend(t, l, want[1])
	if _, err := l.AppendBatch(t.Context(), [][]byte{[]byte(want[2]), []byte(want[3]), []byte(want[4])}); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, want[5])
	mustClose(t, l)
	b, err := vfs.ReadFile(fsys, "log/"+fileName(1))
	if err != nil {
		t.Fatal(err)
	}
	return b, want
}

func TestTornTailAtEveryByte(t *testing.T) {
	whole, want := smallLog(t)
	counts := map[int]bool{}
	for n := 0; n <= len(whole); n++ {
		for _, junk := range [][]byte{nil, make([]byte, 7), make([]byte, 100), bytes.Repeat([]byte{0xff}, 33)} {
			fsys := memfs.New(nil)
			putFile(t, fsys, "log/"+fileName(1), append(whole[:n:n], junk...))
			var cut int
			l, err := Open(fsys, "log", Options{Events: Events{TailCut: func(Tail) { cut++ }}})
			if n < headerSize && len(junk)+n > headerSize {
				if !errors.Is(err, ErrCorrupt) {
					t.Fatalf("cut at %d: header damaged before other bytes: %v", n, err)
				}
				continue
			}
			if err != nil {
				t.Fatalf("cut at %d: %v", n, err)
			}
			got := mustContents(t, l)
			if !isPrefix(got, want) {
				t.Fatalf("cut at %d: %q", n, got)
			}
			counts[len(got)] = true
			if torn := l.Recovery(); (torn != nil) != (cut == 1) || torn != nil && torn.Bytes == 0 || len(junk) > 0 && junk[0] != 0 && n >= headerSize && torn == nil { // zeros may complete a mark
				t.Fatalf("cut at %d with %d bytes after: reported %v", n, len(junk), torn)
			}
			if seq := mustAppend(t, l, "next"); seq != uint64(len(got)+1) {
				t.Fatalf("cut at %d: next number %d", n, seq)
			}
			mustClose(t, l)
			l = mustOpen(t, fsys, Options{})
			if again := mustContents(t, l); !cmp.Equal(again, append(got, "next")) || l.Recovery() != nil {
				t.Fatalf("cut at %d: second opening: %q", n, again)
			}
			mustClose(t, l)
		}
	}
	if len(counts) != len(want)+1 {
		t.Fatalf("lengths seen: %v", counts)
	}
}

func TestBitFlipAtEveryByte(t *testing.T) {
	whole, want := smallLog(t)
	for i := range whole {
		for bit := range 8 {
			b := bytes.Clone(whole)
			b[i] ^= 1 << bit
			fsys := memfs.New(nil)
			putFile(t, fsys, "log/"+fileName(1), b)
			l, err := Open(fsys, "log", Options{})
			var corrupt *CorruptError
			switch {
			case errors.As(err, &corrupt):
				if corrupt.Offset > int64(i) || corrupt.File != "log/"+fileName(1) {
					t.Fatalf("flip at %d reported as %v", i, err)
				}
				continue
			case err != nil:
				t.Fatalf("flip at %d: %v", i, err)
			}
			// The log was closed in order, so every record is covered by a mark: nothing but the last mark may be cut.
			if got := mustContents(t, l); !cmp.Equal(got, want) {
				t.Fatalf("flip at %d, bit %d: %q", i, bit, got)
			}
			mustClose(t, l)
		}
	}
}

// A crash in the middle of an unsynced group may leave its sectors in any order: no reason to refuse to open.
func TestOutOfOrderGroupIsTornTail(t *testing.T) {
	whole, want := smallLog(t)
	at := bytes.Index(whole, []byte(want[2])) // the batch starts before it and was one group
	end := bytes.Index(whole, []byte(want[4])) + len(want[4])
	b := bytes.Clone(whole[:end])
	b[at] ^= 1
	fsys := memfs.New(nil)
	putFile(t, fsys, "log/"+fileName(1), b)
	l := mustOpen(t, fsys, Options{})
	defer mustClose(t, l)
	if got := mustContents(t, l); !cmp.Equal(got, want[:2]) || l.Recovery() == nil {
		t.Fatalf("%q, %v", got, l.Recovery())
	}
}

// A log inside a payload must not be taken for the records after a torn one.
func TestLogInPayload(t *testing.T) {
	whole, _ := smallLog(t)
	fsys := memfs.New(nil)
	l := mustOpen(t, fsys, Options{})
	mustAppend(t, l, string(whole[headerSize:]))
	mustClose(t, l)
	b, err := vfs.ReadFile(fsys, "log/"+fileName(1))
	if err != nil {
		t.Fatal(err)
	}
	fsys = memfs.New(nil)
	putFile(t, fsys, "log/"+fileName(1), b[:headerSize+recordSize+len(whole)-headerSize-1])
	l = mustOpen(t, fsys, Options{})
	defer mustClose(t, l)
	if l.LastSeq() != 0 || l.Recovery() == nil {
		t.Fatalf("last %d, %v", l.LastSeq(), l.Recovery())
	}
}

func TestDamageInOlderFiles(t *testing.T) {
	build := func() *memfs.FS {
		fsys := memfs.New(nil)
		l := mustOpen(t, fsys, Options{FileBytes: 70})
		for i := range 6 {
			mustAppend(t, l, fmt.Sprintf("record %d", i))
		}
		mustClose(t, l)
		return fsys
	}
	files, _, err := list(build(), "log")
	if err != nil || len(files) < 4 {
		t.Fatalf("%v, %v", files, err)
	}
	second := "log/" + fileName(files[1].first)
	tests := map[string]func(fsys vfs.FS) error{
		"missing file": func(fsys vfs.FS) error { return fsys.Remove(second) },
		"cut short": func(fsys vfs.FS) error {
			f, err := fsys.OpenRW(second)
			if err != nil {
				return err
			}
			return errors.Join(f.Truncate(files[1].size-1), f.Close())
		},
		"cut to nothing": func(fsys vfs.FS) error { return vfs.WriteFile(fsys, second, nil) },
		"strange name":   func(fsys vfs.FS) error { return vfs.WriteFile(fsys, "log/7.log", nil) },
		"another's content": func(fsys vfs.FS) error {
			b, err := vfs.ReadFile(fsys, "log/"+fileName(files[2].first))
			return errors.Join(err, vfs.WriteFile(fsys, second, b))
		},
	}
	for name, damage := range tests {
		t.Run(name, func(t *testing.T) {
			fsys := build()
			if err := damage(fsys); err != nil {
				t.Fatal(err)
			}
			if _, err := Verify(fsys, "log"); !errors.Is(err, ErrCorrupt) {
				t.Errorf("verify: %v", err)
			}
			l, err := Open(fsys, "log", Options{})
			if err == nil {
				_, err = contents(l)
				mustClose(t, l)
			}
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("open and replay: %v", err)
			}
		})
	}
}

func TestNewerFormat(t *testing.T) {
	h := appendHeader(nil, 1)
	h[8], h[12] = 9, 9
	h = append(h[:28], 0, 0, 0, 0)
	sum := crc(h[:28])
	copy(h[28:], []byte{byte(sum), byte(sum >> 8), byte(sum >> 16), byte(sum >> 24)})
	for _, extra := range []int{0, 40} {
		fsys := memfs.New(nil)
		putFile(t, fsys, "log/"+fileName(1), append(bytes.Clone(h), make([]byte, extra)...))
		if _, err := Open(fsys, "log", Options{}); !errors.Is(err, ErrNewerFormat) || !strings.Contains(err.Error(), "format 9") {
			t.Errorf("%v", err)
		}
	}
}

func TestGolden(t *testing.T) {
	for _, g := range []struct {
		file   string
		closed bool // in good order; else as it is while the log is open, with room
		want   []string
	}{
		{"v1.log", true, []string{"hi"}},
		{"v1-room.log", false, []string{"hi", strings.Repeat("there", 800), "and on"}},
	} {
		t.Run(g.file, func(t *testing.T) {
			fsys := memfs.New(nil)
			l := mustOpen(t, fsys, Options{})
			for _, p := range g.want {
				mustAppend(t, l, p)
			}
			l.written() // behind it the last mark is there
			if g.closed {
				mustClose(t, l)
			} else {
				defer mustClose(t, l)
			}
			b, err := vfs.ReadFile(fsys, "log/"+fileName(1))
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", g.file)
			if os.Getenv("WEFT_REWRITE") != "" {
				if err := os.WriteFile(golden, b, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(b, want) {
				t.Errorf("written:\n%sgolden:\n%s", hex.Dump(b), hex.Dump(want))
			}
			fsys = memfs.New(nil)
			putFile(t, fsys, "log/"+fileName(1), want)
			l = mustOpen(t, fsys, Options{})
			defer mustClose(t, l)
			if got := mustContents(t, l); !cmp.Equal(got, g.want) || l.Recovery() != nil {
				t.Errorf("golden file holds %q, %v", got, l.Recovery())
			}
		})
	}
}

// gate is a file system whose Sync waits.
type gate struct {
	vfs.FS
	enter chan struct{} // one token for each Sync that came in
	leave chan struct{} // one token lets one go; closed lets all
}

type gateFile struct {
	vfs.File
	g *gate
}

func (g *gate) OpenRW(p string) (vfs.File, error) {
	f, err := g.FS.OpenRW(p)
	return gateFile{f, g}, err
}

func (f gateFile) Sync() error {
	f.g.enter <- struct{}{}
	<-f.g.leave
	return f.File.Sync()
}

func TestGroupSharesSync(t *testing.T) {
	fsys := faultfs.New(memfs.New(nil))
	g := &gate{FS: fsys, enter: make(chan struct{}, 10), leave: make(chan struct{})}
	var groups []Group
	l := mustOpen(t, g, Options{Events: Events{Committed: func(g Group) { groups = append(groups, g) }}})
	before := fsys.Count(faultfs.Sync)
	var wg sync.WaitGroup
	appendOne := func() {
		defer wg.Done()
		if _, err := l.Append(context.Background(), []byte("r")); err != nil {
			t.Error(err)
		}
	}
	wg.Add(1)
	go appendOne()
	<-g.enter // the first is in its sync; the next 31 must gather behind it
	for range 31 {
		wg.Add(1)
		go appendOne()
	}
	for {
		l.mu.Lock()
		n := l.mu.nextSeq
		l.mu.Unlock()
		if n == 33 {
			break
		}
		runtime.Gosched()
	}
	close(g.leave)
	wg.Wait()
	mustClose(t, l)
	if n := fsys.Count(faultfs.Sync) - before; n != 2 {
		t.Errorf("%d syncs for 32 records in two groups", n)
	}
	if len(groups) != 2 || groups[0].Records != 1 || groups[1].Records != 31 {
		t.Errorf("%+v", groups)
	}
}

func TestCallerLeaves(t *testing.T) {
	g := &gate{FS: memfs.New(nil), enter: make(chan struct{}, 10), leave: make(chan struct{})}
	l := mustOpen(t, g, Options{})
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("client hung up")
	go func() {
		<-g.enter
		cancel(reason)
	}()
	seq, err := l.Append(ctx, []byte("stays"))
	if !errors.Is(err, ErrUnknown) || !errors.Is(err, reason) || seq != 1 {
		t.Fatalf("%d, %v", seq, err)
	}
	if _, err := l.Append(ctx, []byte("never")); !errors.Is(err, reason) || errors.Is(err, ErrUnknown) {
		t.Fatalf("append with an ended context: %v", err)
	}
	close(g.leave)
	mustAppend(t, l, "next")
	if got := mustContents(t, l); !cmp.Equal(got, []string{"stays", "next"}) {
		t.Fatalf("%q", got)
	}
	mustClose(t, l)
}

func TestPendingBytesAreBounded(t *testing.T) {
	g := &gate{FS: memfs.New(nil), enter: make(chan struct{}, 10), leave: make(chan struct{})}
	l := mustOpen(t, g, Options{MaxPending: 2 * (recordSize + 10)})
	var wg sync.WaitGroup
	appendOne := func() {
		defer wg.Done()
		if _, err := l.Append(context.Background(), make([]byte, 10)); err != nil {
			t.Error(err)
		}
	}
	wg.Add(3)
	go appendOne()
	<-g.enter // one is in its sync, two wait: full
	go appendOne()
	go appendOne()
	for l.pending() < 2*(recordSize+10) {
		runtime.Gosched()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := l.enqueue(ctx, [][]byte{{1}}, recordSize+1); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	wg.Add(1)
	go appendOne() // waits for room, then gets it
	close(g.leave)
	wg.Wait()
	if l.LastSeq() != 4 {
		t.Errorf("last %d", l.LastSeq())
	}
	mustClose(t, l)
}

func TestWritersAtOnce(t *testing.T) {
	fsys := faultfs.New(memfs.New(nil))
	l := mustOpen(t, fsys, Options{FileBytes: 10 << 10})
	const writers, each = 32, 50
	var mu sync.Mutex
	got := map[uint64]string{}
	var wg sync.WaitGroup
	for w := range writers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range each {
				p := fmt.Sprintf("%d/%d", w, i)
				seq, err := l.Append(context.Background(), []byte(p))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				got[seq] = p
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
	st := l.Stats()
	if st.Records != writers*each || st.Groups != st.Syncs || st.Groups > st.Records {
		t.Errorf("%+v", st)
	}
	mustClose(t, l)
	l = mustOpen(t, fsys, Options{})
	defer mustClose(t, l)
	for i, p := range mustContents(t, l) {
		if got[uint64(i+1)] != p {
			t.Fatalf("record %d is %q, its writer was told %q", i+1, p, got[uint64(i+1)])
		}
	}
	if l.LastSeq() != writers*each {
		t.Errorf("last %d", l.LastSeq())
	}
}

// TestAllWaysToWriteAtOnce lets writers that commit themselves and writers that may leave share a log with what the log's goroutine does besides, and
// closes it under them. Whatever was acknowledged is there, once and at its number, and nobody is left waiting.
func TestAllWaysToWriteAtOnce(t *testing.T) {
	for seed := range uint64(30) {
		disk := memfs.New(nil)
		l := mustOpen(t, disk, Options{FileBytes: 3 << 10})
		var mu sync.Mutex
		got, appended := map[uint64]string{}, 0
		var wg sync.WaitGroup
		closing := make(chan struct{})
		for w := range 12 {
			r := rand.New(rand.NewPCG(seed, uint64(w)))
			wg.Go(func() {
				for i := 0; ; i++ {
					ctx, cancel := context.Background(), func() {}
					if w%2 == 1 {
						ctx, cancel = context.WithCancel(ctx)
						if r.IntN(4) == 0 {
							cancel()
						}
					}
					p := fmt.Sprintf("%d/%d %s", w, i, strings.Repeat(".", r.IntN(300)))
					seq, err := l.Append(ctx, []byte(p))
					cancel()
					switch {
					case err == nil:
						mu.Lock()
						got[seq] = p
						if appended++; appended == 200 {
							close(closing)
						}
						mu.Unlock()
					case errors.Is(err, ErrClosed):
						return
					case !errors.Is(err, context.Canceled):
						t.Errorf("seed %d: %v", seed, err)
						return
					}
				}
			})
		}
		wg.Go(func() {
			for {
				if err := errors.Join(l.Rotate(context.Background()), l.Probe(context.Background()), l.Sync(context.Background())); err != nil {
					if !errors.Is(err, ErrClosed) {
						t.Errorf("seed %d: %v", seed, err)
					}
					return
				}
			}
		})
		<-closing
		mustClose(t, l)
		wg.Wait()
		l = mustOpen(t, disk, Options{})
		found := mustContents(t, l)
		for seq, p := range got {
			if seq == 0 || seq > uint64(len(found)) || found[seq-1] != p {
				t.Fatalf("seed %d: record %d was acknowledged as %q", seed, seq, p)
			}
		}
		if l.Recovery() != nil {
			t.Errorf("seed %d: %v", seed, l.Recovery())
		}
		mustClose(t, l)
	}
}

// outcome of a run against a file system that may fail.
type outcome struct {
	acked  []string // in order
	failed int      // appends that got an error
}

// drive opens the log and appends n records, one after the other and some in batches; it stops at the first error of the log, which it returns.
func drive(fsys vfs.FS, o Options, n, pad int) (out outcome, err error) {
	l, err := Open(fsys, "log", o)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	for i := range n {
		p := fmt.Sprintf("record %d %s", i, strings.Repeat("=", i%40+pad))
		batch := [][]byte{[]byte(p)}
		if i%3 == 0 {
			batch = append(batch, []byte(p+" second"))
		}
		_, appendErr := l.AppendBatch(context.Background(), batch)
		if appendErr != nil {
			out.failed++
			err = appendErr
			continue // a failed log must go on failing
		}
		if out.failed > 0 {
			return out, errors.New("acknowledged after a failure")
		}
		for _, b := range batch {
			out.acked = append(out.acked, string(b))
		}
		if i%10 == 9 {
			if trimErr := l.TrimBefore(0); trimErr != nil {
				return out, trimErr
			}
		}
	}
	return out, err
}

func TestFailAtEveryOperation(t *testing.T) {
	for _, file := range []struct {
		name       string
		bytes      int64
		n, pad     int
		operations int // at least
	}{{"short", 300, 20, 0, 30}, {"roomy", 30 << 10, 30, 1000, 30}} {
		o := Options{FileBytes: file.bytes}
		all, err := drive(memfs.New(nil), o, file.n, file.pad)
		if err != nil {
			t.Fatal(err)
		}
		for name, fault := range map[string]faultfs.Fault{"nospace": faultfs.NoSpace, "io": faultfs.IOError, "readonly": faultfs.ReadOnly} {
			for when, inject := range map[string]func(int, faultfs.Kind, faultfs.Fault) faultfs.Injector{"from": faultfs.From, "once": faultfs.Nth} {
				t.Run(file.name+"/"+name+"/"+when, func(t *testing.T) {
					for n := 1; ; n++ {
						disk := memfs.New(nil)
						fsys := faultfs.New(disk)
						fsys.Inject(inject(n, faultfs.Mutating, fault))
						got, err := drive(fsys, o, file.n, file.pad)
						if !fsys.Fired() {
							if n < file.operations {
								t.Fatalf("only %d operations", n)
							}
							return
						}
						if err != nil && !errors.Is(err, fault.Err) {
							t.Fatalf("operation %d: %v does not name its cause", n, err)
						}
						if got.failed > 0 && !errors.Is(err, ErrFailed) {
							t.Fatalf("operation %d: %v", n, err)
						}
						rng := rand.New(rand.NewPCG(uint64(n), 1))
						for i, after := range []vfs.FS{disk.CrashClone(rng), disk.CrashClone(rng), disk} {
							l, err := Open(after, "log", Options{})
							if err != nil {
								t.Fatalf("operation %d, copy %d: %v", n, i, err)
							}
							have := mustContents(t, l)
							if !isPrefix(got.acked, have) || !isPrefix(have, all.acked) {
								t.Fatalf("operation %d, copy %d: acknowledged %q, found %q", n, i, got.acked, have)
							}
							mustAppend(t, l, "goes on")
							mustClose(t, l)
						}
					}
				})
			}
		}
	}
}

// fileSize is the length of a file of the log.
func fileSize(t testing.TB, fsys vfs.FS, first uint64) int64 {
	t.Helper()
	in, err := fsys.Stat("log/" + fileName(first))
	if err != nil {
		t.Fatal(err)
	}
	return in.Size
}

func TestRoomIsNotATornTail(t *testing.T) {
	disk := memfs.New(nil)
	l := mustOpen(t, disk, Options{})
	most := int64(0)
	for i := range 200 {
		mustAppend(t, l, strings.Repeat("x", 100*(i%20)+1))
		size := l.written()
		ahead := fileSize(t, disk, 1) - size
		if ahead > size || ahead > mostRoom+pageSize {
			t.Fatalf("%d bytes of room behind %d", ahead, size)
		}
		most = max(most, ahead)
	}
	if most < mostRoom/2 {
		t.Fatalf("at most %d bytes of room", most)
	}
	mustAppend(t, l, strings.Repeat("x", int(fileSize(t, disk, 1)-l.written())+1)) // and a group that does not fit into it
	want := mustContents(t, l)
	killed := disk.CrashClone(rand.New(rand.NewPCG(1, 1)))
	if rep, err := Verify(killed, "log"); err != nil || rep.Torn != nil || rep.LastSeq != 201 {
		t.Fatalf("%+v, %v", rep, err)
	}
	again := mustOpen(t, killed, Options{})
	if got := mustContents(t, again); again.Recovery() != nil || !slices.Equal(got, want) {
		t.Fatalf("%v, %d records", again.Recovery(), len(got))
	}
	if have := fileSize(t, killed, 1); have != again.written() {
		t.Errorf("opened again the file has %d bytes, %d of them written", have, again.written())
	}
	mustClose(t, again)

	for range 40 {
		mustAppend(t, l, "y")
	}
	end := l.written()
	if fileSize(t, disk, 1) == end {
		t.Fatal("there is no room to be cut")
	}
	if err := l.Rotate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if have := fileSize(t, disk, 1); have != end {
		t.Errorf("behind a new file the one before has %d bytes, %d of them written", have, end)
	}
	for range 200 {
		mustAppend(t, l, strings.Repeat("z", 100))
	}
	mustClose(t, l)
	if have := fileSize(t, disk, 242); have != l.size { // nobody has the files any more
		t.Errorf("closed the file has %d bytes, %d of them written", have, l.size)
	}
}

// TestDamageBehindRoomIsSeen has what lies in the room read as what it is: bytes that are no record.
func TestDamageBehindRoomIsSeen(t *testing.T) {
	disk := memfs.New(nil)
	l := mustOpen(t, disk, Options{})
	for range 100 {
		mustAppend(t, l, strings.Repeat("x", 100))
	}
	end := l.written()
	b, err := vfs.ReadFile(disk, "log/"+fileName(1))
	if err != nil || int64(len(b)) < end+pageSize/2 {
		t.Fatalf("%d bytes, %d written, %v", len(b), end, err)
	}
	mustClose(t, l)
	b[end+100] = 1
	torn := memfs.New(nil)
	putFile(t, torn, "log/"+fileName(1), b)
	l = mustOpen(t, torn, Options{})
	if cut := l.Recovery(); cut == nil || cut.Offset != end || l.LastSeq() != 100 {
		t.Errorf("%v, %d records", cut, l.LastSeq())
	}
	mustClose(t, l)
}

func TestNoSpaceForRoomRefusesNoRecord(t *testing.T) {
	disk := memfs.New(nil)
	fsys := faultfs.New(disk)
	l := mustOpen(t, fsys, Options{})
	defer mustClose(t, l)
	for range 10 {
		mustAppend(t, l, strings.Repeat("x", 1000))
	}
	before := fsys.Count(faultfs.Truncate)
	fsys.Inject(faultfs.Nth(1, faultfs.Write, faultfs.NoSpace))
	for range 100 {
		mustAppend(t, l, strings.Repeat("x", 1000))
	}
	if !fsys.Fired() || fsys.Count(faultfs.Truncate) != before+1 {
		t.Fatal("no room was refused")
	}
	if have := fileSize(t, disk, 1); have != l.written() {
		t.Errorf("%d bytes, %d of them written: room was made on a disk without space for it", have, l.written())
	}
}

func TestFailingSyncIsFinal(t *testing.T) {
	fsys := faultfs.New(memfs.New(nil))
	var events []error
	l := mustOpen(t, fsys, Options{Events: Events{Failed: func(err error) { events = append(events, err) }}})
	mustAppend(t, l, "safe")
	fsys.Inject(faultfs.Nth(1, faultfs.Sync, faultfs.Fault{Err: syscall.ENOSPC}))
	for range 3 {
		_, err := l.Append(t.Context(), []byte("lost"))
		if !errors.Is(err, ErrFailed) || errors.Is(err, ErrNoSpace) || !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("%v", err)
		}
	}
	if err := l.Probe(t.Context()); !errors.Is(err, ErrFailed) {
		t.Fatalf("probe: %v", err)
	}
	if err := l.Rotate(t.Context()); !errors.Is(err, ErrFailed) {
		t.Fatalf("rotate: %v", err)
	}
	if len(events) != 1 {
		t.Fatalf("events %v", events)
	}
	mustClose(t, l)
	l = mustOpen(t, fsys, Options{})
	defer mustClose(t, l)
	if got := mustContents(t, l); !cmp.Equal(got, []string{"safe"}) {
		t.Fatalf("%q", got)
	}
}

func TestProbeAfterNoSpace(t *testing.T) {
	for _, rotating := range []bool{false, true} {
		disk := memfs.New(nil)
		fsys := faultfs.New(disk)
		recovered := 0
		o := Options{ProbeBytes: 100, Events: Events{Recovered: func() { recovered++ }}}
		if rotating {
			o.FileBytes = 40
		}
		l := mustOpen(t, fsys, o)
		mustAppend(t, l, "one")
		if err := l.Probe(t.Context()); err != nil {
			t.Fatal(err)
		}
		fsys.Inject(faultfs.From(1, faultfs.Write|faultfs.Create, faultfs.NoSpace))
		if _, err := l.Append(t.Context(), []byte("no room")); !errors.Is(err, ErrNoSpace) || !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("rotating %v: %v", rotating, err)
		}
		if err := l.Probe(t.Context()); !errors.Is(err, ErrNoSpace) {
			t.Fatalf("%v", err)
		}
		if got := mustContents(t, l); !cmp.Equal(got, []string{"one"}) {
			t.Fatalf("%q", got)
		}
		fsys.Inject(nil)
		if _, err := l.Append(t.Context(), []byte("not probed")); !errors.Is(err, ErrNoSpace) {
			t.Fatalf("%v", err)
		}
		if err := l.Probe(t.Context()); err != nil || l.Err() != nil || recovered != 1 {
			t.Fatalf("%v, %v, %d", err, l.Err(), recovered)
		}
		if seq := mustAppend(t, l, "two"); seq != 2 {
			t.Fatalf("number %d", seq)
		}
		after := disk.CrashClone(rand.New(rand.NewPCG(1, 2)))
		mustClose(t, l)
		l = mustOpen(t, after, Options{})
		if got := mustContents(t, l); !cmp.Equal(got, []string{"one", "two"}) {
			t.Fatalf("%q", got)
		}
		mustClose(t, l)
	}
}

func TestOpenOnFullDisk(t *testing.T) {
	whole, want := smallLog(t)
	disk := memfs.New(nil)
	putFile(t, disk, "log/"+fileName(1), whole[:len(whole)-recordSize]) // without the last mark
	fsys := faultfs.New(disk)
	fsys.Inject(faultfs.From(1, faultfs.Write|faultfs.Create, faultfs.NoSpace))
	l := mustOpen(t, fsys, Options{})
	defer mustClose(t, l)
	if got := mustContents(t, l); !slices.Equal(got, want) {
		t.Fatalf("%q", got)
	}
	if _, err := l.Append(t.Context(), []byte("x")); !errors.Is(err, ErrNoSpace) {
		t.Fatalf("%v", err)
	}
	fsys.Inject(nil)
	if err := l.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	if seq := mustAppend(t, l, "x"); seq != uint64(len(want)+1) {
		t.Fatalf("number %d", seq)
	}
}

// TestCrashLoop cuts the power again and again under writers, and follows one log through all of it.
func TestCrashLoop(t *testing.T) {
	roomy := false
	defer func() {
		if !roomy {
			t.Error("no file was longer than what was written")
		}
	}()
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 7))
		disk := memfs.New(nil)
		var known []string // what the log is known to hold
		for round := range 8 {
			fsys := faultfs.New(disk)
			at := 1 + rng.IntN(60)
			var mu sync.Mutex
			var clone *memfs.FS
			cutRNG := rand.New(rand.NewPCG(seed, uint64(round)))
			fsys.Before(func(faultfs.Op) {
				mu.Lock()
				defer mu.Unlock()
				if at--; at == 0 {
					clone = disk.CrashClone(cutRNG)
				}
			})
			o, ctx := Options{FileBytes: 400}, t.Context()
			if seed%2 == 1 { // files that are made longer ahead of what is written, and writers that commit themselves
				o.FileBytes, ctx = 40<<10, context.Background()
			}
			l, err := Open(fsys, "log", o)
			if err != nil {
				t.Fatalf("seed %d round %d: %v", seed, round, err)
			}
			written := mustContents(t, l)
			if !slices.Equal(known, written) {
				t.Fatalf("seed %d round %d: %s", seed, round, cmp.Diff(known, written))
			}
			acked := len(written) // the opening before made these durable
			for i := range 15 {
				batch := [][]byte{}
				for k := range 1 + rng.IntN(3) {
					p := fmt.Sprintf("%d.%d.%d %s", round, i, k, strings.Repeat("-", rng.IntN(700)))
					batch = append(batch, []byte(p))
					written = append(written, p)
				}
				if _, err := l.AppendBatch(ctx, batch); err != nil {
					t.Fatal(err)
				}
				size, room := l.extent()
				roomy = roomy || room > size
				mu.Lock()
				if clone == nil {
					acked = len(written) // answered while the power was on
				}
				mu.Unlock()
			}
			mustClose(t, l)
			if clone == nil {
				clone, acked = disk.CrashClone(cutRNG), len(written)
			}
			known = written[:acked:acked]
			disk = clone
			check := mustOpen(t, disk, Options{})
			if got := mustContents(t, check); !isPrefix(known, got) || !isPrefix(got, written) {
				t.Fatalf("seed %d round %d: acknowledged %d, found %d of %d written", seed, round, len(known), len(got), len(written))
			} else {
				known = got // durable by the opening
			}
			mustClose(t, check)
		}
	}
}

func FuzzOpen(f *testing.F) {
	whole, _ := smallLog(f)
	f.Add(whole)
	f.Add(whole[:len(whole)-30])
	f.Add(append(slices.Clone(whole), make([]byte, 100)...))
	f.Add(appendHeader(nil, 1))
	f.Add(append(appendHeader(nil, 1), 0xff, 0xff, 0xff, 3, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		fsys := memfs.New(nil)
		putFile(t, fsys, "log/"+fileName(1), b)
		l, err := Open(fsys, "log", Options{})
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNewerFormat) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		defer mustClose(t, l)
		got := mustContents(t, l)
		mustAppend(t, l, "more")
		if again := mustContents(t, l); !cmp.Equal(again, append(got, "more")) {
			t.Fatalf("%q, then %q", got, again)
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	for _, writers := range []int{1, 8, 32, 128} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			l, err := Open(vfs.OS, b.TempDir(), Options{})
			if err != nil {
				b.Fatal(err)
			}
			payload := bytes.Repeat([]byte("x"), 256)
			b.SetBytes(int64(len(payload)))
			b.ReportAllocs()
			work := make(chan struct{})
			var wg sync.WaitGroup
			for range writers {
				wg.Add(1)
				go func() {
					defer wg.Done()
					for range work {
						if _, err := l.Append(context.Background(), payload); err != nil {
							b.Error(err)
						}
					}
				}()
			}
			for b.Loop() {
				work <- struct{}{}
			}
			close(work)
			wg.Wait()
			st := l.Stats()
			b.ReportMetric(float64(st.Records)/float64(st.Syncs), "records/fsync")
			mustClose(b, l)
		})
	}
}
