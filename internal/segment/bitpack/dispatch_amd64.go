//go:build !noasm

package bitpack

import "golang.org/x/sys/cpu"

// useAVX2 says whether the assembly is used. It changes in tests only.
var useAVX2 = cpu.X86.HasAVX2
