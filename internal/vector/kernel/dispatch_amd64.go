//go:build !noasm

package kernel

import "golang.org/x/sys/cpu"

// useASM says whether the assembly is used. It changes in tests only. Every processor with AVX2 that was sold has the
// half float conversions too; one flag for both keeps the calls short.
var useASM = cpu.X86.HasAVX2 && cpu.X86.HasF16C
