#include "textflag.h"

// func fetch(first, last *uint32)
TEXT ·fetch(SB), NOSPLIT, $0-16
	MOVQ       first+0(FP), AX
	MOVQ       last+8(FP), BX
	PREFETCHT0 (AX)
	PREFETCHT0 (BX)
	RET
