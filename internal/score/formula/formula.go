// Package formula compiles and evaluates the L1 formulas of a coordinated search (ranking method formula_v1): one line of arithmetic over the
// scores that the branches of a fusion gave a document or passage.
//
//	f, err := formula.Compile("0.3*bm25 + 0.7*dense")
//	b, err := f.NewBatch(nil)
//	for len(rows) > 0 {
//		n := b.Start(len(rows))       // all cells absent
//		b.Set(variable, row, score)   // for every cell that is there
//		err := b.Eval(scores[:n])
//	}
//
// The grammar:
//
//	formula = operand { binary operand }
//	operand = { unary } primary
//	primary = number | constant | name | "{" any but "}" "}" | "(" formula ")" | function "(" formula "," formula ")"
//	binary  = "+" | "-" | "*" | "/" | "^" | "min" | "max" | "atan2"
//	unary   = "+" | "-" | "abs" | "signum" | "sqrt" | "cbrt" | "exp" | "expm1" | "ln" | "log" | "log2" | "log10" | "log1p" | "sin" | "cos"
//	          | "tan" | "asin" | "acos" | "atan" | "sinh" | "cosh" | "tanh" | "asinh" | "acosh" | "atanh" | "floor" | "ceil" | "round"
//	          | "trunc" | "fract"
//
// Constants are PI, TAU and E or e. A number is digits with at most one point. A name is a letter or _ and then letters, digits and _; in braces it is
// anything, also a word of the language. signum(+0) is 1 and signum(-0) is −1; round takes halves away from zero; log is ln.
//
// Unary operators bind tightest (-x^2 is (−x)²), then ^, then /, then *, then -, then + with min, max and atan2; equal ones go from left to
// right (2^3^2 is 64). So a*b/c is a·(b/c) and a+b-c is a+(b−c). One rule more: among equals, a + or * that stands between two literals
// goes first, so x*2*3 is x·6. What counts is the text: the last value before the operator and the first value behind it, whatever
// parentheses, functions and signs stand in between. All this decides how results are rounded, and clients have the bits of the engine
// that the language comes from, so it stays. Space and tab separate.
//
// Evaluation is in binary64 with the same bits on every machine: the operations are those of IEEE 754 and of package elem, never fused.
// One rounding to binary32 ends it. Where the older engine refuses what is right (a function in a function's second argument, a tab, a name
// that begins with a function's name) or takes what is wrong (min x y, a brace that is not closed), this grammar differs on purpose.
//
// A Program is immutable and safe for concurrent use; a Batch belongs to one goroutine at a time.
package formula

import (
	"fmt"
	"math"
	"slices"
)

// Limits of a formula.
const (
	MaxBytes  = 4096
	MaxTokens = 256 // a run of letters, digits, _ and . is one token, any other character that is not blank is one
	MaxDepth  = 32  // levels of parentheses
)

// BlockRows is the most rows that a Batch holds at a time.
const BlockRows = 128

// RRF is the name of the variable that stands for the reciprocal rank score; no branch may have it.
const RRF = "rrf"

// Error says why a formula, its variables or its values for missing cells were refused. Msg is what a client sees.
type Error struct {
	Position int // byte offset into the formula; 0 where there is none
	Msg      string
}

// Error implements error.
func (e *Error) Error() string { return e.Msg }

// NonFiniteError says that a formula gave a score that is no finite binary32, or was given such a value.
type NonFiniteError struct {
	Row      int    // of the block; -1 for a constant formula
	Variable string // the variable that had the value, "" if it is the score
}

// Error implements error.
func (e *NonFiniteError) Error() string {
	if e.Variable != "" {
		return fmt.Sprintf("L1 formula variable '%s' has a value that is not finite", e.Variable)
	}
	return "L1 formula produced a non-finite score (domain error or overflow)"
}

// Program is a compiled formula.
type Program struct {
	text      string
	names     []string
	positions []int     // of the first use of each name
	consts    []float64 // the lanes after those of the variables
	code      []instruction
	regs      int // lanes after the constants
	result    int // lane
}

// Compile compiles a formula. Errors are *Error, and *NonFiniteError for a formula without variables whose score is not finite.
func Compile(src string) (*Program, error) {
	toks, err := scan(src)
	if err != nil {
		return nil, err
	}
	p := parser{toks: toks, end: len(src)}
	root, err := p.parse()
	if err != nil {
		return nil, err
	}
	prog := &Program{text: print(toks), names: p.names, positions: p.positions}
	prog.generate(root)
	if len(p.names) == 0 {
		if _, ok := prog.Constant(); !ok {
			return nil, &NonFiniteError{Row: -1}
		}
	}
	return prog, nil
}

// String prints the formula canonically: no spaces that are not needed, names without braces where they can be, ln for log. It compiles to
// the same program.
func (p *Program) String() string { return p.text }

// Variables returns the names of the variables in order of first use; positions in it number the columns of a Batch. Do not change it.
func (p *Program) Variables() []string { return p.names }

// UsesRRF reports whether rrf is among the variables.
func (p *Program) UsesRRF() bool { return slices.Contains(p.names, RRF) }

// Constant returns the score of a formula without variables, and whether it is one with a finite score.
func (p *Program) Constant() (float32, bool) {
	if len(p.names) > 0 {
		return 0, false
	}
	v := float32(p.consts[0])
	return v, v-v == 0
}

// Bind returns for each variable the position of its name in branches, or -1 for rrf. A name that is not there is an *Error; of several the
// first in order of bytes is named.
func (p *Program) Bind(branches []string) ([]int, error) {
	out := make([]int, len(p.names))
	unknown := -1
	for i, n := range p.names {
		out[i] = -1
		if n == RRF {
			continue
		}
		if out[i] = slices.Index(branches, n); out[i] < 0 && (unknown < 0 || n < p.names[unknown]) {
			unknown = i
		}
	}
	if unknown >= 0 {
		return nil, &Error{p.positions[unknown], fmt.Sprintf("l1.formula references unknown branch '%s'", p.names[unknown])}
	}
	return out, nil
}

// Batch holds up to BlockRows rows of a program's variables and the memory to evaluate them.
type Batch struct {
	prog    *Program
	rows    int
	missing []float64 // by variable
	lanes   [][BlockRows]float64
}

// NewBatch returns a Batch whose absent cells have the value that missing has for their variable, else 0. A name in missing that is no
// variable, or is rrf, and a value that is not finite are an *Error.
func (p *Program) NewBatch(missing map[string]float64) (*Batch, error) {
	b := &Batch{prog: p, missing: make([]float64, len(p.names))}
	bad, any := "", false
	for n, v := range missing {
		i := slices.Index(p.names, n)
		if i < 0 || n == RRF || v-v != 0 {
			if !any || n < bad {
				bad, any = n, true
			}
			continue
		}
		b.missing[i] = v
	}
	if any {
		return nil, &Error{Msg: fmt.Sprintf("l1 missing value '%s' needs a formula variable and finite raw default", bad)}
	}
	b.lanes = make([][BlockRows]float64, len(p.names)+len(p.consts)+p.regs)
	for i, c := range p.consts {
		fill(b.lanes[len(p.names)+i][:], c)
	}
	return b, nil
}

func fill(s []float64, v float64) {
	for i := range s {
		s[i] = v
	}
}

// Start begins a block whose cells are all absent and returns how many rows it has: rows, or BlockRows if that is less.
func (b *Batch) Start(rows int) int {
	b.rows = max(0, min(rows, BlockRows))
	for i, v := range b.missing {
		fill(b.lanes[i][:b.rows], v)
	}
	return b.rows
}

// Set sets the cell of a variable (a position in Variables) in a row of the block.
func (b *Batch) Set(variable, row int, v float64) { b.Column(variable)[row] = v }

// Column returns the cells of a variable, one for each row of the block, for callers that have many: write to it, and leave absent cells as
// they are. It is valid until the next Start.
func (b *Batch) Column(variable int) []float64 { return b.lanes[:len(b.missing)][variable][:b.rows] }

// Eval puts the score of each row into dst, which has room for all of them. It does not allocate unless it fails. Errors are
// *NonFiniteError, for the first such value of a variable or else the first such score; dst is then of no use.
func (b *Batch) Eval(dst []float32) error {
	dst = dst[:b.rows]
	for i := range b.missing {
		var bad float64
		for _, v := range b.lanes[i][:b.rows] {
			bad += v - v // 0, or NaN for ever
		}
		if bad != 0 {
			for row, v := range b.lanes[i][:b.rows] {
				if v-v != 0 {
					return &NonFiniteError{row, b.prog.names[i]}
				}
			}
		}
	}
	for i := range b.prog.code {
		b.run(&b.prog.code[i])
	}
	var bad float32
	for i, v := range b.lanes[b.prog.result][:b.rows] {
		s := float32(v)
		dst[i] = s
		bad += s - s
	}
	if bad != 0 {
		for row, s := range dst {
			if s-s != 0 {
				return &NonFiniteError{Row: row}
			}
		}
	}
	return nil
}

// maxOf and minOf are those of the language: a NaN loses against a number, and +0 counts as larger than −0.
func maxOf(a, b float64) float64 {
	if a > b || b != b || a == b && math.Float64bits(a) < math.Float64bits(b) {
		return a
	}
	return b
}

func minOf(a, b float64) float64 {
	if a < b || b != b || a == b && math.Float64bits(a) > math.Float64bits(b) {
		return a
	}
	return b
}
