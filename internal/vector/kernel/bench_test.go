package kernel

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

var (
	sinkF float32
	sinkI int32
	sinkN int
)

// both runs a benchmark with the assembly, where there is any, and without.
func both(b *testing.B, name string, bytes int, f func()) {
	for _, asm := range []bool{true, false} {
		way := "go"
		if asm {
			way = "asm"
		}
		b.Run(name+"/"+way, func(b *testing.B) {
			if !setASM(b, asm) {
				b.Skip("no assembly")
			}
			b.SetBytes(int64(bytes))
			for b.Loop() {
				f()
			}
		})
	}
}

func BenchmarkKernels(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{100, 128, 768, 1024} {
		q, v := floats(rng, n), floats(rng, n)
		rec := f32Record(v)
		half := make([]byte, 2*n)
		EncodeF16(half, v)
		codes := make([]byte, 64*n)
		for i := range codes {
			codes[i] = byte(rng.Uint32())
		}
		qc := Int8s(codes[:n])
		ids := []uint32{5, 9, 2, 11, 63, 30, 21, 40, 1, 3, 17, 60, 33, 44, 50, 8}
		out := make([]int32, len(ids))
		at := func(s string) string { return fmt.Sprintf("%s/%d", s, n) }
		both(b, at("Dot"), 4*n, func() { sinkF = Dot(q, v) })
		both(b, at("L2"), 4*n, func() { sinkF = L2(q, v) })
		both(b, at("DotF32"), 4*n, func() { sinkF = DotF32(q, rec) })
		both(b, at("DotF16"), 2*n, func() { sinkF = DotF16(q, half) })
		both(b, at("DotU8"), n, func() { sinkF = DotU8(q, codes[:n], -1, 0.01) })
		both(b, at("DotI8"), n, func() { sinkI = DotI8(qc, qc) })
		both(b, at("DotI8List"), 16*n, func() { DotI8List(qc, Int8s(codes), n, ids, out) })
		both(b, at("Hamming"), n, func() { sinkN = Hamming(codes[:n], codes[n:]) })
	}
}
