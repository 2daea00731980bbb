//go:build !noasm

package kernel

import "testing"

// setASM switches the assembly on or off until the test ends; false when there is none to switch on.
func setASM(tb testing.TB, on bool) bool {
	tb.Helper()
	was := useASM
	if on && !was {
		return false
	}
	useASM = on
	tb.Cleanup(func() { useASM = was })
	return true
}
