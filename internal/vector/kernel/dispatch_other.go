//go:build !amd64 || noasm

package kernel

// useASM is a constant here, so that the compiler drops the calls.
const useASM = false

func dotF32AVX2(*float32, *byte, int) float32                  { return 0 }
func l2F32AVX2(*float32, *byte, int) float32                   { return 0 }
func dotF16AVX2(*float32, *byte, int) float32                  { return 0 }
func l2F16AVX2(*float32, *byte, int) float32                   { return 0 }
func dotU8AVX2(*float32, *byte, int, float32, float32) float32 { return 0 }
func l2U8AVX2(*float32, *byte, int, float32, float32) float32  { return 0 }
func decodeF16AVX2(*float32, *byte, int)                       {}
func encodeF16AVX2(*byte, *float32, int)                       {}
func dotI8AVX2(_, _ *int8, _ int) int32                        { return 0 }
func dotI8x4AVX2(_, _, _, _, _ *int8, _ int, _ *[4]int32)      {}
func fetch4(_, _, _, _ *int8)                                  {}
func hammingAVX2(_, _ *byte, _ int) int                        { return 0 }
