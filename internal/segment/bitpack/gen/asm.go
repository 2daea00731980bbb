package main

import (
	"bytes"
	"fmt"
	"go/format"
)

const tag = "//go:build !noasm\n\n"

// The three operations of the assembly. arg is the name of the third argument, "" if there is none.
var ops = []struct{ name, arg string }{
	{"unpack", ""},
	{"unpackAdd", "add"},
	{"unpackDeltas", "base"},
}

// stubFile writes the declarations of the routines and the jumps by width. Calls are direct so that escape analysis
// sees that the block stays where it is.
func stubFile() ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(header + tag + "package bitpack\n")
	for _, op := range ops {
		param, pass := "", ""
		if op.arg != "" {
			param, pass = ", "+op.arg+" uint32", ", "+op.arg
		}
		fmt.Fprintf(&b, "\nfunc %sAVX2(v *[128]uint32, src []byte, width uint8%s) {\n", op.name, param)
		b.WriteString("if width == 0 {\n")
		switch op.arg {
		case "":
			b.WriteString("*v = [128]uint32{}\n")
		default:
			fmt.Fprintf(&b, "for i := range v {\nv[i] = %s\n}\n", op.arg)
		}
		b.WriteString("return\n}\n_ = src[16*int(width)-1]\np := &src[0]\nswitch width {\n")
		for w := 1; w <= 32; w++ {
			fmt.Fprintf(&b, "case %d:\n%s%dAVX2(v, p%s)\n", w, op.name, w, pass)
		}
		b.WriteString("default:\npanic(\"bitpack: width over 32 bits\")\n}\n}\n")
	}
	for _, op := range ops {
		param := ""
		if op.arg != "" {
			param = ", " + op.arg + " uint32"
		}
		for w := 1; w <= 32; w++ {
			fmt.Fprintf(&b, "\n//go:noescape\nfunc %s%dAVX2(v *[128]uint32, src *byte%s)\n", op.name, w, param)
		}
	}
	out, err := format.Source(b.Bytes())
	if err != nil {
		return nil, fmt.Errorf("formatting declarations: %w", err)
	}
	return out, nil
}

// asmFile writes the AVX2 routines. Registers:
//
//	Y0 the mask of width bits        Y1-Y2 packed words, even and odd   Y3-Y6 scratch
//	Y7 the addend, or the carry: the last value of the row before, in all lanes
//	Y8 the byte shuffle that brings element 1 of a half to elements 2 and 3, zero elsewhere
//	Y9 ones in the upper half
func asmFile() []byte {
	var b bytes.Buffer
	b.WriteString(header + tag + "#include \"textflag.h\"\n")
	data := func(name string, words []uint32) {
		b.WriteString("\n")
		for i, w := range words {
			fmt.Fprintf(&b, "DATA %s<>+%d(SB)/4, $%#08x\n", name, 4*i, w)
		}
		fmt.Fprintf(&b, "GLOBL %s<>(SB), RODATA|NOPTR, $%d\n", name, 4*len(words))
	}
	const none = 0x80808080 // VPSHUFB gives zero where the top bit of the index is set
	data("spread", []uint32{none, none, 0x07060504, 0x07060504, none, none, 0x07060504, 0x07060504})
	data("upper", []uint32{0, 0, 0, 0, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff})
	b.WriteString(sums)
	for _, op := range ops {
		for w := 1; w <= 32; w++ {
			routine(&b, op.name, op.arg, w)
		}
	}
	return b.Bytes()
}

// sums is the macro for the prefix sum of one row. Its input is not changed, its result is in Y3. Written a to h, the
// row goes from a b c d | e f g h to a ab c cd | e ef g gh, then to a ab abc abcd | e ef efg efgh. The sums
// abcd and efgh are spread over their halves and swapped: abcd is added to the upper half. Both go to the carry apart
// from the values, so that the chain from row to row is one addition.
const sums = `
#define SUMS(in) \
	VPSLLQ $32, in, Y4 \
	VPADDD Y4, in, Y3 \
	VPSHUFB Y8, Y3, Y4 \
	VPADDD Y4, Y3, Y3 \
	VPSHUFD $0xff, Y3, Y4 \
	VPERM2I128 $1, Y4, Y4, Y5 \
	VPADDD Y7, Y3, Y3 \
	VPAND Y9, Y5, Y6 \
	VPADDD Y6, Y3, Y3 \
	VPADDD Y5, Y4, Y4 \
	VPADDD Y4, Y7, Y7
`

func routine(b *bytes.Buffer, op, arg string, w int) {
	ins := func(f string, a ...any) { fmt.Fprintf(b, "\t"+f+"\n", a...) }
	size := 16
	param := ""
	if arg != "" {
		size, param = 20, ", "+arg+" uint32"
	}
	fmt.Fprintf(b, "\n// func %s%dAVX2(v *[128]uint32, src *byte%s)\n", op, w, param)
	fmt.Fprintf(b, "TEXT ·%s%dAVX2(SB), NOSPLIT, $0-%d\n", op, w, size)
	ins("MOVQ v+0(FP), DI")
	ins("MOVQ src+8(FP), SI")
	if arg != "" {
		ins("MOVL %s+16(FP), AX", arg)
		ins("VMOVD AX, X7")
		ins("VPBROADCASTD X7, Y7")
	}
	if w < 32 {
		ins("VPCMPEQD Y0, Y0, Y0")
		ins("VPSRLD $%d, Y0, Y0", 32-w)
	}
	if op == "unpackDeltas" {
		ins("VMOVDQU spread<>(SB), Y8")
		ins("VMOVDQU upper<>(SB), Y9")
	}
	reg := func(k int) int { return 1 + k%2 }
	load := func(k int) {
		if w%2 == 1 && k == w/2 {
			ins("VPMOVZXWD %d(SI), Y%d", 32*k, reg(k)) // half a word a lane
			return
		}
		ins("VMOVDQU %d(SI), Y%d", 32*k, reg(k))
	}
	have := -1
	for r := 0; r < 16; r++ {
		k, s := r*w/32, r*w%32
		if k > have {
			load(k)
			have = k
		}
		out := 3
		end := 32 // bits that word k has
		if w%2 == 1 && k == w/2 {
			end = 16
		}
		switch {
		case w == 32:
			out = reg(k)
		case s+w == end && s > 0:
			ins("VPSRLD $%d, Y%d, Y3", s, reg(k))
		case s+w == end: // width 16 of half a word cannot be: the width is odd there
			out = reg(k)
		case s+w < end && s == 0:
			ins("VPAND Y0, Y%d, Y3", reg(k))
		case s+w < end:
			ins("VPSRLD $%d, Y%d, Y3", s, reg(k))
			ins("VPAND Y0, Y3, Y3")
		default:
			load(k + 1)
			have = k + 1
			ins("VPSRLD $%d, Y%d, Y3", s, reg(k))
			ins("VPSLLD $%d, Y%d, Y4", 32-s, reg(k+1))
			ins("VPOR Y4, Y3, Y3")
			ins("VPAND Y0, Y3, Y3")
		}
		switch op {
		case "unpackAdd":
			ins("VPADDD Y7, Y%d, Y3", out)
			out = 3
		case "unpackDeltas":
			ins("SUMS(Y%d)", out)
			out = 3
		}
		ins("VMOVDQU Y%d, %d(DI)", out, 32*r)
	}
	ins("VZEROUPPER")
	ins("RET")
}
