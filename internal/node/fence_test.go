package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

func TestFencesWaitForSyncsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f fences
		first, err := f.make(t.Context(), []string{"a", "b"})
		if err != nil {
			t.Fatal(err)
		}
		at := []string{"a"}
		may := f.begin(at, first)
		again := f.begin(at, first) // two at once
		if !may[0] || !again[0] {
			t.Fatal("nothing stands in their way")
		}
		if _, err := f.make(t.Context(), []string{"b"}); err != nil {
			t.Fatal(err) // nobody is at that one
		}
		ctx, stop := context.WithCancelCause(t.Context())
		gone := errors.New("the caller is gone")
		stop(gone)
		if _, err := f.make(ctx, at); !errors.Is(err, gone) {
			t.Fatalf("got %v", err)
		}
		made := make(chan uint64)
		go func() {
			n, err := f.make(t.Context(), at)
			if err != nil {
				t.Error(err)
			}
			made <- n
		}()
		synctest.Wait()
		if late := f.begin(at, first); late[0] {
			t.Error("a fence that waits lets earlier ones begin")
		}
		f.end(at, may)
		synctest.Wait()
		select {
		case <-made:
			t.Error("the fence did not wait for both")
		default:
		}
		f.end(at, again)
		if n := <-made; n <= first {
			t.Errorf("fence %d follows %d", n, first)
		}
		if len(f.busy) > 0 || f.idle != nil {
			t.Errorf("%d documents are busy yet", len(f.busy))
		}
	})
}

func TestFencesAreBounded(t *testing.T) {
	var f fences
	first, err := f.make(t.Context(), []string{"first"})
	if err != nil {
		t.Fatal(err)
	}
	var last uint64
	const each = 1 << 12
	for k := range mostFences / each {
		ids := make([]string, each)
		for i := range ids {
			ids[i] = fmt.Sprint(k, "/", i)
		}
		if last, err = f.make(t.Context(), ids); err != nil {
			t.Fatal(err)
		}
	}
	if len(f.of) > mostFences {
		t.Errorf("%d documents have fences", len(f.of))
	}
	if f.begin([]string{"first"}, first)[0] {
		t.Error("a fence of a table that is no more counts")
	}
	if last>>32 == first>>32 || !f.begin([]string{"first"}, last)[0] {
		t.Error("a fence of the new table does not count")
	}
}

// TestWhatIsKnownOfSyncs: more than there is room for, and what an earlier process did, is anything for a minute.
func TestWhatIsKnownOfSyncs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f fences
		ids := func(from, to int) []string {
			out := make([]string, 0, to-from)
			for i := from; i < to; i++ {
				out = append(out, strconv.Itoa(i))
			}
			return out
		}
		says := func(what string, of []string, want ...int) {
			t.Helper()
			if got := f.among(of); !slices.Equal(got, want) {
				t.Errorf("%s: %v, not %v", what, got, want)
			}
		}
		some := ids(0, 4)
		says("nothing happened", some)
		f.changed(some[1:3])
		says("two were changed", some, 1, 2)
		f.write(2, func(i int) string { return some[2*i] })(func(int) bool { return false })
		says("one of them was written", some, 1)
		f.write(4, func(i int) string { return some[i] })(func(i int) bool { return i > 0 })
		says("a write that was refused", some, 1)
		done := f.write(1, func(int) string { return some[1] })
		says("a write under way", some, 1)
		f.changed(some[1:2])
		done(func(int) bool { return false })
		says("a Sync came meanwhile", some, 1)
		f.changed(ids(10, 9+mostSynced))
		says("it is full", some, 1)
		f.changed(ids(5, 6))
		f.write(1, func(int) string { return "0" })(func(int) bool { return false })
		says("there was no room", some, 0, 1, 2, 3)
		<-time.After(unknownFor)
		says("ten minutes later", append(some, "5"), 4)
		f.opened()
		says("it was opened", some, 0, 1, 2, 3)
	})
}

// TestAFenceOfNobodyHoldsASync: a coordinator names a fence that no member has made where a member was away when it looked. No Sync may go by that,
// at a table that has made none yet as at others.
func TestAFenceOfNobodyHoldsASync(t *testing.T) {
	f := &fences{}
	for _, fence := range []uint64{1, 1 << 32} {
		if may := f.begin([]string{"a"}, fence); may[0] {
			t.Errorf("%x: before any fence was made", fence)
		}
	}
	if _, err := f.make(t.Context(), []string{"a"}); err != nil {
		t.Fatal(err)
	}
	if may := f.begin([]string{"a"}, 1); may[0] {
		t.Error("behind a fence that was made")
	}
	if may := f.begin([]string{"a"}, 0); !may[0] {
		t.Error("one that names none is held")
	}
}
