// Package storetest holds the test that every store.Store passes.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weft-search/weft/internal/store"
)

// Accept runs the acceptance test; open returns an empty store, closed by the test's cleanup if need be.
func Accept(t *testing.T, open func(t *testing.T) store.Store) {
	for _, tc := range []struct {
		name string
		run  func(t *testing.T, s store.Store)
	}{
		{"PutGet", putGet},
		{"Conditions", conditions},
		{"WrongSize", wrongSize},
		{"Ranges", ranges},
		{"Writer", writer},
		{"List", list},
		{"Delete", deletes},
		{"Keys", keys},
		{"Cancelled", cancelled},
		{"OpenReaderKeepsContent", openReader},
		{"OneWriterWins", race},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.run(t, open(t)) })
	}
}

func put(t *testing.T, s store.Store, key, content string, c store.Condition) string {
	t.Helper()
	tag, err := s.Put(t.Context(), key, strings.NewReader(content), int64(len(content)), c)
	if err != nil {
		t.Fatalf("put %s: %v", key, err)
	}
	if tag == "" {
		t.Fatalf("put %s: no etag", key)
	}
	return tag
}

func mustFail(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

func content(t *testing.T, s store.Store, key string) (string, store.Info) {
	t.Helper()
	b, in, err := store.ReadAll(t.Context(), s, key, 1<<20)
	if err != nil {
		t.Fatalf("get %s: %v", key, err)
	}
	return string(b), in
}

func putGet(t *testing.T, s store.Store) {
	for _, want := range []string{"one", "two, longer", ""} {
		tag := put(t, s, "a/b/c", want, store.Condition{})
		got, in := content(t, s, "a/b/c")
		if got != want || in.ETag != tag || in.Size != int64(len(want)) || in.Key != "a/b/c" || in.Modified.IsZero() {
			t.Fatalf("got %q, %+v; etag %s", got, in, tag)
		}
		st, err := s.Stat(t.Context(), "a/b/c")
		if err != nil || st.ETag != tag || st.Size != in.Size {
			t.Fatalf("stat %+v, %v", st, err)
		}
	}
	_, _, err := s.Get(t.Context(), "a/b")
	mustFail(t, err, store.ErrNotFound)
	_, err = s.Stat(t.Context(), "a/x")
	mustFail(t, err, store.ErrNotFound)
	_, err = s.Stat(t.Context(), "a/b/c/d")
	mustFail(t, err, store.ErrNotFound)
	_, _, err = s.GetRange(t.Context(), "nothing", 0, 1)
	mustFail(t, err, store.ErrNotFound)
	if _, _, err := store.ReadAll(t.Context(), s, "a/b/c", -1); !errors.Is(err, store.ErrCorrupt) {
		t.Fatalf("read over the limit: %v", err)
	}
}

func conditions(t *testing.T, s store.Store) {
	try := func(c store.Condition) error {
		_, err := s.Put(t.Context(), "k", strings.NewReader("lost"), 4, c)
		return err
	}
	mustFail(t, try(store.Condition{IfMatch: "nothing there"}), store.ErrPrecondition)
	if _, err := s.Stat(t.Context(), "k"); !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("a refused put left something: %v", err)
	}
	one := put(t, s, "k", "one", store.Absent)
	mustFail(t, try(store.Absent), store.ErrPrecondition)
	two := put(t, s, "k", "two", store.Condition{IfMatch: one})
	if one == two {
		t.Fatal("the same etag for different content")
	}
	mustFail(t, try(store.Condition{IfMatch: one}), store.ErrPrecondition)
	mustFail(t, try(store.Condition{IfMatch: two, IfNoneMatch: "*"}), store.ErrInvalid)
	mustFail(t, try(store.Condition{IfNoneMatch: two}), store.ErrInvalid)
	if got, _ := content(t, s, "k"); got != "two" {
		t.Fatalf("content %q", got)
	}
}

func wrongSize(t *testing.T, s store.Store) {
	for _, size := range []int64{0, 4, 6, 1 << 40} {
		if _, err := s.Put(t.Context(), "k", strings.NewReader("12345"), size, store.Condition{}); err == nil {
			t.Fatalf("5 bytes were put as %d", size)
		}
	}
	if _, err := s.Stat(t.Context(), "k"); !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("a refused put left something: %v", err)
	}
}

func ranges(t *testing.T, s store.Store) {
	put(t, s, "k", "0123456789", store.Condition{})
	for _, tc := range []struct {
		off, n int64
		want   string
	}{{0, 10, "0123456789"}, {3, 4, "3456"}, {8, 100, "89"}, {10, 5, ""}, {4, 0, ""}} {
		r, in, err := s.GetRange(t.Context(), "k", tc.off, tc.n)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil || string(b) != tc.want || in.Size != 10 {
			t.Fatalf("%d bytes at %d: %q, %+v, %v", tc.n, tc.off, b, in, err)
		}
	}
	for _, tc := range [][2]int64{{11, 1}, {-1, 1}, {0, -1}} {
		if _, _, err := s.GetRange(t.Context(), "k", tc[0], tc[1]); err == nil {
			t.Fatalf("range %v of 10 bytes", tc)
		}
	}
}

func writer(t *testing.T, s store.Store) {
	w, err := s.NewWriter(t.Context(), "dir/k")
	if err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	for i := range 1000 {
		fmt.Fprintf(&want, "%d ", i)
		if _, err := fmt.Fprintf(w, "%d ", i); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Stat(t.Context(), "dir/k"); !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("visible before commit: %v", err)
	}
	tag, err := w.Commit(t.Context(), store.Absent)
	if err != nil {
		t.Fatal(err)
	}
	if got, in := content(t, s, "dir/k"); got != want.String() || in.ETag != tag {
		t.Fatalf("%d bytes, etag %s; want %d, %s", len(got), in.ETag, want.Len(), tag)
	}
	if err := w.Abort(); err != nil {
		t.Fatalf("abort after commit: %v", err)
	}
	if _, err := w.Commit(t.Context(), store.Condition{}); err == nil {
		t.Fatal("committed twice")
	}
	w, err = s.NewWriter(t.Context(), "dir/aborted")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Abort(), w.Abort()); err != nil {
		t.Fatal(err)
	}
	if got := listed(t, s, ""); !slices.Equal(got, []string{"dir/k"}) {
		t.Fatalf("listed %q", got)
	}
}

func listed(t *testing.T, s store.Store, prefix string) []string {
	t.Helper()
	var got []string
	err := s.List(t.Context(), prefix, func(in store.Info) error {
		if in.Size != int64(len(in.Key)) && in.Key != "dir/k" {
			t.Errorf("%s listed with %d bytes", in.Key, in.Size)
		}
		if in.Modified.IsZero() {
			t.Errorf("%s listed without a time", in.Key)
		}
		got = append(got, in.Key)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func list(t *testing.T, s store.Store) {
	all := []string{"a/b", "a/b-c", "a/b.c", "a/bb/x", "a0", "b/c/d/e", "b/c/f", "c"}
	for _, k := range all {
		put(t, s, k, k, store.Condition{})
	}
	for _, prefix := range []string{"", "a", "a/", "a/b", "a/bb/", "a/bb/x", "b/c", "b/c/d/", "b/", "nothing", "no/where/"} {
		var want []string
		for _, k := range all {
			if strings.HasPrefix(k, prefix) {
				want = append(want, k)
			}
		}
		if got := listed(t, s, prefix); !slices.Equal(got, want) {
			t.Errorf("prefix %q: %q, want %q", prefix, got, want)
		}
	}
	stop := errors.New("stop")
	if err := s.List(t.Context(), "", func(store.Info) error { return stop }); err != stop {
		t.Errorf("error of fn: %v", err)
	}
}

func deletes(t *testing.T, s store.Store) {
	tag := put(t, s, "a/k", "k", store.Condition{})
	for range 2 { // an absent object is no error
		if err := s.Delete(t.Context(), "a/k"); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Delete(t.Context(), "never/there"); err != nil {
		t.Fatal(err)
	}
	_, _, err := s.Get(t.Context(), "a/k")
	mustFail(t, err, store.ErrNotFound)
	_, err = s.Put(t.Context(), "a/k", strings.NewReader("x"), 1, store.Condition{IfMatch: tag})
	mustFail(t, err, store.ErrPrecondition)
	put(t, s, "a/k", "again", store.Absent)
}

func keys(t *testing.T, s store.Store) {
	for _, key := range []string{"", "/a", "a/", "a//b", "../a", "a/../b", "a/./b", ".hidden", "a\x00", "ü", "a b", `a\b`, "a.tmp", strings.Repeat("x", 201), strings.Repeat("x/", 500) + "x"} {
		_, err := s.Put(t.Context(), key, strings.NewReader(""), 0, store.Condition{})
		mustFail(t, err, store.ErrKey)
		_, _, err = s.Get(t.Context(), key)
		mustFail(t, err, store.ErrKey)
		mustFail(t, s.Delete(t.Context(), key), store.ErrKey)
	}
	for _, key := range []string{"A", "a.b_c-d%20+=@", strings.Repeat("x", 200), strings.Repeat("x/", 400) + "x"} {
		put(t, s, key, key, store.Absent)
	}
}

func cancelled(t *testing.T, s store.Store) {
	put(t, s, "k", "before", store.Condition{})
	w, err := s.NewWriter(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = w.Commit(ctx, store.Condition{})
	mustFail(t, err, context.Canceled)
	_, err = s.Put(ctx, "k", strings.NewReader("x"), 1, store.Condition{})
	mustFail(t, err, context.Canceled)
	_, _, err = s.Get(ctx, "k")
	mustFail(t, err, context.Canceled)
	mustFail(t, s.Delete(ctx, "k"), context.Canceled)
	mustFail(t, s.List(ctx, "", func(store.Info) error { return nil }), context.Canceled)
	if got, _ := content(t, s, "k"); got != "before" {
		t.Fatalf("content %q", got)
	}
}

func openReader(t *testing.T, s store.Store) {
	put(t, s, "k", "old", store.Condition{})
	r, _, err := s.Get(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, "k", "new content", store.Condition{})
	if err := s.Delete(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil || string(b) != "old" {
		t.Fatalf("%q, %v", b, err)
	}
}

// race has writers count up one object by compare-and-swap: no count may be lost.
func race(t *testing.T, s store.Store) {
	const writers, each = 6, 5
	put(t, s, "n", "0", store.Absent)
	var wg sync.WaitGroup
	for range writers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for done := 0; done < each; {
				b, in, err := store.ReadAll(context.Background(), s, "n", 100)
				if err != nil {
					t.Error(err)
					return
				}
				var n int
				if _, err := fmt.Sscan(string(b), &n); err != nil {
					t.Error(err)
					return
				}
				next := fmt.Sprint(n + 1)
				switch _, err := s.Put(context.Background(), "n", strings.NewReader(next), int64(len(next)), store.Condition{IfMatch: in.ETag}); {
				case err == nil:
					done++
				case !errors.Is(err, store.ErrPrecondition):
					t.Error(err)
					return
				}
			}
		}()
	}
	wg.Wait()
	if got, _ := content(t, s, "n"); got != fmt.Sprint(writers*each) {
		t.Fatalf("counted to %s, want %d", got, writers*each)
	}
}
