// Package clock tells the time that a thread has run. Other work on the machine then counts only by what it takes of
// caches and of the bandwidth of memory. Where a system cannot tell, it is the time that has passed.
package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

var began = time.Now()

// Thread is the time that the calling thread has run. The caller is locked to its thread.
func Thread() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return time.Since(began)
	}
	return time.Duration(t.Nano())
}
