package frame

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Requests that are quick are never watched, however many follow each other; one that lasts is, once, from twice watchAfter at the latest.
func TestOnlyLongRequestsAreWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begun atomic.Int32
		quit := make(chan struct{})
		w := &watchman{watch: func() { begun.Add(1); <-quit }}
		wait := func(d time.Duration) {
			<-time.After(d)
			synctest.Wait()
		}
		for range 20 {
			w.begin()
			wait(watchAfter - time.Microsecond)
			if w.end() {
				t.Fatal("a quick request was watched")
			}
		}
		w.begin()
		wait(watchAfter / 2)
		if begun.Load() > 0 {
			t.Fatal("watched at once")
		}
		wait(2 * watchAfter)
		if begun.Load() != 1 {
			t.Fatalf("a long request was watched %d times", begun.Load())
		}
		wait(time.Minute)
		if !w.end() || begun.Load() != 1 {
			t.Fatalf("the end does not know of the watch, of %d", begun.Load())
		}
		quit <- struct{}{}
		w.begin()
		wait(0)
		if w.end() || begun.Load() != 1 {
			t.Fatal("the watch of one request went over to the next")
		}
		wait(time.Minute) // the timer finds nothing
		w.begin()
		wait(3 * watchAfter)
		if !w.end() || begun.Load() != 2 {
			t.Fatal("behind a pause nothing is watched any more")
		}
		quit <- struct{}{}
	})
}

// No timer is set for each of many quick requests.
func TestQuickRequestsShareATimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &watchman{watch: func() { t.Error("watched") }}
		w.begin()
		w.end()
		timer := w.timer
		for range 100 {
			w.begin()
			if !w.armed || w.timer != timer || w.end() {
				t.Fatal("another timer")
			}
		}
		<-time.After(3 * watchAfter)
		synctest.Wait()
		if w.armed {
			t.Error("the timer is set without a request")
		}
	})
}
