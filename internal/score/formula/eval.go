package formula

import (
	"math"

	"github.com/weft-search/weft/internal/score/elem"
)

type opcode uint8

const (
	opConst opcode = iota
	opVar
	opAdd
	opSub
	opMul
	opDiv
	opPow
	opSquare // ^2, which Pow defines as x·x
	opMin
	opMax
	opAtan2
	opNeg
	opAbs
	opSignum
	opSqrt
	opCbrt
	opExp
	opExpm1
	opLn
	opLog2
	opLog10
	opLog1p
	opSin
	opCos
	opTan
	opAsin
	opAcos
	opAtan
	opSinh
	opCosh
	opTanh
	opAsinh
	opAcosh
	opAtanh
	opFloor
	opCeil
	opRound
	opTrunc
	opFract
)

// functions holds the operations that are called for each row; the others are written out in run.
var functions = [...]func(float64) float64{
	opSignum: signum, opSqrt: math.Sqrt, opCbrt: elem.Cbrt, opExp: elem.Exp, opExpm1: elem.Expm1, opLn: elem.Log, opLog2: elem.Log2,
	opLog10: elem.Log10, opLog1p: elem.Log1p, opSin: elem.Sin, opCos: elem.Cos, opTan: elem.Tan, opAsin: elem.Asin, opAcos: elem.Acos,
	opAtan: elem.Atan, opSinh: elem.Sinh, opCosh: elem.Cosh, opTanh: elem.Tanh, opAsinh: elem.Asinh, opAcosh: elem.Acosh,
	opAtanh: elem.Atanh, opFloor: math.Floor, opCeil: math.Ceil, opRound: math.Round, opTrunc: math.Trunc, opFract: fract,
}

// signum is 1 for +0 and what is above, −1 for −0 and what is below.
func signum(x float64) float64 {
	if x != x {
		return x
	}
	return math.Copysign(1, x)
}

func fract(x float64) float64 { return x - math.Trunc(x) }

// apply performs one operation on one row; b counts for binary operations only.
func apply(op opcode, a, b float64) float64 {
	switch op {
	case opAdd:
		return a + b
	case opSub:
		return a - b
	case opMul:
		return float64(a * b)
	case opDiv:
		return a / b
	case opPow:
		return elem.Pow(a, b)
	case opMin:
		return minOf(a, b)
	case opMax:
		return maxOf(a, b)
	case opAtan2:
		return elem.Atan2(a, b)
	case opNeg:
		return -a
	case opAbs:
		return math.Abs(a)
	}
	return functions[op](a)
}

// instruction computes a lane from one or two others: the variables' lanes come first, then the constants', then the registers'.
type instruction struct {
	op        opcode
	dst, a, b int
}

// generate writes the code that computes root.
func (p *Program) generate(root *node) {
	label(root)
	g := generator{prog: p, consts: map[uint64]int{}}
	g.collect(root)
	p.result = g.emit(root)
	p.regs = g.regs
}

// label sets need, the number of registers to compute a node without keeping one more than necessary (Sethi and Ullman, JACM 17:4, 1970).
func label(n *node) {
	if n.op == opConst || n.op == opVar {
		return
	}
	label(n.a)
	n.need = max(1, n.a.need)
	if n.b != nil {
		label(n.b)
		n.need = max(n.need, n.b.need)
		if n.a.need == n.b.need && n.a.need > 0 {
			n.need++
		}
	}
}

type generator struct {
	prog   *Program
	consts map[uint64]int // lane by bits
	free   []int          // registers' lanes that can be written again
	regs   int
}

// collect gives every constant its lane.
func (g *generator) collect(n *node) {
	switch n.op {
	case opConst:
		k := math.Float64bits(n.value)
		if _, ok := g.consts[k]; !ok {
			g.consts[k] = len(g.prog.names) + len(g.prog.consts)
			g.prog.consts = append(g.prog.consts, n.value)
		}
	case opVar:
	default:
		g.collect(n.a)
		if n.b != nil {
			g.collect(n.b)
		}
	}
}

// emit writes the code for n and returns the lane of its value.
func (g *generator) emit(n *node) int {
	switch n.op {
	case opConst:
		return g.consts[math.Float64bits(n.value)]
	case opVar:
		return n.variable
	}
	in := instruction{op: n.op}
	if n.b != nil && n.b.need > n.a.need {
		in.b = g.emit(n.b)
		in.a = g.emit(n.a)
	} else {
		in.a = g.emit(n.a)
		if n.b != nil {
			in.b = g.emit(n.b)
		}
	}
	g.release(n.a, in.a)
	if n.b != nil {
		g.release(n.b, in.b)
		if n.op == opPow && n.b.op == opConst && n.b.value == 2 {
			in.op = opSquare
		}
	}
	if k := len(g.free); k > 0 {
		in.dst, g.free = g.free[k-1], g.free[:k-1]
	} else {
		in.dst = len(g.prog.names) + len(g.prog.consts) + g.regs
		g.regs++
	}
	g.prog.code = append(g.prog.code, in)
	return in.dst
}

// release gives back the lane of a node that has been used, if it is a register.
func (g *generator) release(n *node, lane int) {
	if n.op != opConst && n.op != opVar {
		g.free = append(g.free, lane)
	}
}

// run carries out an instruction for every row of the block. dst may be a or b.
func (b *Batch) run(in *instruction) {
	dst := b.lanes[in.dst][:b.rows]
	x, y := b.lanes[in.a][:len(dst)], b.lanes[in.b][:len(dst)]
	switch in.op {
	case opAdd:
		for i := range dst {
			dst[i] = x[i] + y[i]
		}
	case opSub:
		for i := range dst {
			dst[i] = x[i] - y[i]
		}
	case opMul:
		for i := range dst {
			dst[i] = float64(x[i] * y[i])
		}
	case opDiv:
		for i := range dst {
			dst[i] = x[i] / y[i]
		}
	case opSquare:
		for i := range dst {
			dst[i] = float64(x[i] * x[i])
		}
	case opPow:
		for i := range dst {
			dst[i] = elem.Pow(x[i], y[i])
		}
	case opMin:
		for i := range dst {
			dst[i] = minOf(x[i], y[i])
		}
	case opMax:
		for i := range dst {
			dst[i] = maxOf(x[i], y[i])
		}
	case opAtan2:
		for i := range dst {
			dst[i] = elem.Atan2(x[i], y[i])
		}
	case opNeg:
		for i := range dst {
			dst[i] = -x[i]
		}
	case opAbs:
		for i := range dst {
			dst[i] = math.Abs(x[i])
		}
	case opSqrt:
		for i := range dst {
			dst[i] = math.Sqrt(x[i])
		}
	case opExp:
		for i := range dst {
			dst[i] = elem.Exp(x[i])
		}
	case opLn:
		for i := range dst {
			dst[i] = elem.Log(x[i])
		}
	case opLog1p:
		for i := range dst {
			dst[i] = elem.Log1p(x[i])
		}
	default:
		f := functions[in.op]
		for i := range dst {
			dst[i] = f(x[i])
		}
	}
}
