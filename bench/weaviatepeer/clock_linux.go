package main

import (
	"time"

	"golang.org/x/sys/unix"
)

var began = time.Now()

// spent is the processor time of this program so far.
func spent() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		return time.Since(began)
	}
	return time.Duration(t.Nano())
}
