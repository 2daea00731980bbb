// Package invariant switches on checks that cost too much to run always. They run in builds with the tag invariants, as
// `make invariants` does for the tests of the engine; in other builds they are not compiled in.
//
// A check stands in an `if invariant.Enabled`, so that the compiler drops it, and ends in Fail: what it finds is a fault of the
// program, not of its input, which has errors for that.
//
// Everything here is safe to use at once.
package invariant

import "fmt"

// Fail panics with a message.
func Fail(format string, args ...any) { panic("invariant violated: " + fmt.Sprintf(format, args...)) }

// Mangle overwrites bytes whose life has ended, so that whoever kept them notices.
func Mangle(b []byte) {
	for i := range b {
		b[i] = 0xdb
	}
}

// Lend returns a function to be called instead of fn, which is given bytes that die when it returns. With checks off it is fn itself;
// else fn gets a copy that is mangled after the call.
func Lend[T any](fn func(lent []byte, with T) bool) func(lent []byte, with T) bool {
	if !Enabled {
		return fn
	}
	return func(lent []byte, with T) bool {
		b := append([]byte(nil), lent...)
		defer Mangle(b)
		return fn(b, with)
	}
}
