//go:build !amd64 || noasm

package kernel

import "testing"

// setASM says whether the assembly can be switched as wanted: here only off.
func setASM(tb testing.TB, on bool) bool {
	tb.Helper()
	return !on
}
