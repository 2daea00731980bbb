//go:build !linux

package main

import "time"

var began = time.Now()

// spent is the time that has passed; that of the processor is not to be had.
func spent() time.Duration { return time.Since(began) }
