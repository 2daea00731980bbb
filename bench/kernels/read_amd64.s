//go:build amd64

#include "textflag.h"

// FOLD makes one word of four sums and returns it.
#define FOLD \
	VPXOR Y1, Y0, Y0 \
	VPXOR Y3, Y2, Y2 \
	VPXOR Y2, Y0, Y0 \
	VMOVQ X0, AX \
	MOVQ AX, ret+16(FP) \
	VZEROUPPER \
	RET

// func readAVX2(p *byte, n int) uint64
TEXT ·readAVX2(SB), NOSPLIT, $0-24
	MOVQ p+0(FP), SI
	MOVQ n+8(FP), CX
	VPXOR Y0, Y0, Y0
	VPXOR Y1, Y1, Y1
	VPXOR Y2, Y2, Y2
	VPXOR Y3, Y3, Y3
loop:
	VPXOR 0(SI), Y0, Y0
	VPXOR 32(SI), Y1, Y1
	VPXOR 64(SI), Y2, Y2
	VPXOR 96(SI), Y3, Y3
	ADDQ $128, SI
	SUBQ $128, CX
	JNE loop
	FOLD

// func readFarAVX2(p *byte, n int) uint64
TEXT ·readFarAVX2(SB), NOSPLIT, $0-24
	MOVQ p+0(FP), SI
	MOVQ n+8(FP), CX
	VPXOR Y0, Y0, Y0
	VPXOR Y1, Y1, Y1
	VPXOR Y2, Y2, Y2
	VPXOR Y3, Y3, Y3
loop:
	PREFETCHNTA 2048(SI)
	PREFETCHNTA 2112(SI)
	VPXOR 0(SI), Y0, Y0
	VPXOR 32(SI), Y1, Y1
	VPXOR 64(SI), Y2, Y2
	VPXOR 96(SI), Y3, Y3
	ADDQ $128, SI
	SUBQ $128, CX
	JNE loop
	FOLD
