package formula

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/weft-search/weft/internal/score/elem"
)

// naive evaluates a formula by splitting its tokens where the last operator to be applied stands, again and again: the rules of the language
// from the other end. It takes formulas that Compile takes.
type naive struct {
	toks []token
	row  map[string]float64
}

// items splits toks[from:to] into operands, each a range of tokens, and the operators between them.
func (n *naive) items(from, to int) (operands [][2]int, ops []token) {
	for i := from; i < to; {
		start := i
		for n.toks[i].kind == function1 || n.toks[i].kind == symbol && strings.Contains("+-", n.toks[i].text) {
			i++
		}
		if n.toks[i].kind == function2 {
			i++
		}
		if n.toks[i].text == "(" && n.toks[i].kind == symbol {
			i = n.closing(i)
		}
		i++
		operands = append(operands, [2]int{start, i})
		if i < to {
			ops = append(ops, n.toks[i])
			i++
		}
	}
	return operands, ops
}

func (n *naive) closing(open int) int {
	depth := 0
	for i := open; ; i++ {
		if n.toks[i].kind != symbol {
			continue
		}
		switch n.toks[i].text {
		case "(":
			depth++
		case ")":
			if depth--; depth == 0 {
				return i
			}
		}
	}
}

// literal reports whether the next value from token i on in the given direction is a number or constant.
func (n *naive) literal(i, step int) bool {
	for {
		switch n.toks[i].kind {
		case number, constant:
			return true
		case name:
			return false
		default:
			i += step
		}
	}
}

func (n *naive) eval(from, to int) float64 {
	operands, ops := n.items(from, to)
	if len(ops) == 0 {
		return n.operand(from, to)
	}
	last, least := 0, 1000
	for i, op := range ops {
		rank := map[string]int{"^": 40, "/": 30, "*": 20, "-": 10}[op.text]
		if (op.text == "+" || op.text == "*") && n.literal(operands[i][1]-1, -1) && n.literal(operands[i+1][0], 1) {
			rank += 5
		}
		if rank <= least {
			last, least = i, rank
		}
	}
	a, b := n.eval(from, operands[last][1]), n.eval(operands[last+1][0], to)
	switch ops[last].text {
	case "+":
		return a + b
	case "-":
		return a - b
	case "*":
		return a * b
	case "/":
		return a / b
	case "^":
		return elem.Pow(a, b)
	}
	return call2(ops[last].op, a, b)
}

func call2(op opcode, a, b float64) float64 {
	switch op {
	case opMin:
		return minOf(a, b)
	case opMax:
		return maxOf(a, b)
	}
	return elem.Atan2(a, b)
}

func (n *naive) operand(from, to int) float64 {
	t := n.toks[from]
	switch t.kind {
	case number, constant:
		return t.value
	case name:
		return n.row[t.text]
	case function1:
		x := n.operand(from+1, to)
		if t.op == opAbs {
			return math.Abs(x)
		}
		return functions[t.op](x)
	case function2:
		depth := 0
		for i := from + 1; ; i++ {
			if n.toks[i].kind != symbol {
				continue
			}
			switch n.toks[i].text {
			case "(":
				depth++
			case ")":
				depth--
			case ",":
				if depth == 1 {
					return call2(t.op, n.eval(from+2, i), n.eval(i+1, to-1))
				}
			}
		}
	case symbol:
	}
	switch t.text {
	case "+":
		return n.operand(from+1, to)
	case "-":
		return -n.operand(from+1, to)
	}
	return n.eval(from+1, to-1)
}

// check compiles src, prints and compiles it again, evaluates both over a block of random rows and compares bits with the naive evaluator.
func check(t *testing.T, src string, r *rand.Rand) {
	p, err := Compile(src)
	if err != nil {
		var bad *Error
		var infinite *NonFiniteError
		switch {
		case errors.As(err, &bad):
			if bad.Position < 0 || bad.Position > len(src) {
				t.Fatalf("%q: position %d", src, bad.Position)
			}
		case !errors.As(err, &infinite):
			t.Fatalf("%q: error of type %T", src, err)
		}
		return
	}
	again, err := Compile(p.String())
	if err != nil {
		t.Fatalf("%q prints as %q, which is refused: %v", src, p, err)
	}
	if again.String() != p.String() || !slices.Equal(again.Variables(), p.Variables()) || !slices.Equal(again.code, p.code) {
		t.Fatalf("%q prints as %q and then as %q", src, p, again)
	}
	toks, err := scan(src)
	if err != nil {
		t.Fatal(err)
	}
	b, err := p.NewBatch(nil)
	if err != nil {
		t.Fatal(err)
	}
	rows := b.Start(1 + r.IntN(BlockRows))
	want := make([]float32, rows)
	bad := -1
	for row := range rows {
		cells := map[string]float64{}
		for i, n := range p.Variables() {
			if r.IntN(5) > 0 {
				v := float64(float32((r.Float64() - 0.3) * math.Pow(10, float64(r.IntN(4)-1))))
				if r.IntN(4) == 0 {
					v = math.Round(v)
				}
				cells[n] = v
				b.Set(i, row, v)
			}
		}
		n := naive{toks, cells}
		want[row] = float32(n.eval(0, len(toks)))
		if bad < 0 && want[row]-want[row] != 0 {
			bad = row
		}
	}
	got := make([]float32, rows)
	err = b.Eval(got)
	var infinite *NonFiniteError
	if errors.As(err, &infinite) != (bad >= 0) || bad >= 0 && infinite.Row != bad {
		t.Fatalf("%q: error %v, the naive evaluator finds row %d not finite", src, err, bad)
	}
	if bad >= 0 {
		return
	}
	for row := range rows {
		if math.Float32bits(got[row]) != math.Float32bits(want[row]) {
			t.Fatalf("%q: row %d is %v, want %v", src, row, got[row], want[row])
		}
	}
}

// generate1 returns a random formula.
func generate1(r *rand.Rand, depth int) string {
	blank := func() string { return []string{"", "", "", " ", "\t"}[r.IntN(5)] }
	functions := []string{"abs", "signum", "sqrt", "cbrt", "exp", "expm1", "ln", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "floor", "ceil", "round", "trunc", "fract"}
	operand := func() string {
		s := ""
		for r.IntN(4) == 0 {
			switch r.IntN(3) {
			case 0:
				s += "-"
			case 1:
				s += "+" + blank()
			default:
				s += functions[r.IntN(len(functions))] + " "
			}
		}
		k := r.IntN(9)
		if depth == 0 {
			k = r.IntN(6)
		}
		switch k {
		case 0, 1:
			return s + []string{"x", "y", "z", "{a b}", "{max}", "rrf", "max_x", "e2"}[r.IntN(8)]
		case 2, 3, 4:
			return s + []string{"0.1", "2", "3", "0.7", ".5", "10.", "0.3", "1"}[r.IntN(8)]
		case 5:
			return s + []string{"PI", "e", "E", "TAU"}[r.IntN(4)]
		case 6:
			return s + []string{"min", "max", "atan2"}[r.IntN(3)] + blank() + "(" + generate1(r, depth-1) + "," + blank() + generate1(r, depth-1) + ")"
		default:
			return s + "(" + blank() + generate1(r, depth-1) + ")"
		}
	}
	s := operand()
	for r.IntN(5) > 1 && len(s) < 300 {
		s += blank() + []string{"+", "+", "-", "*", "*", "/", "^", " min ", " max ", " atan2 "}[r.IntN(10)] + blank() + operand()
	}
	return s
}

func TestRandomFormulas(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	const n = 2000
	compiled := 0
	for range n {
		src := generate1(r, 3)
		if _, err := Compile(src); err == nil {
			compiled++
		}
		check(t, src, r)
	}
	if compiled*2 < n {
		t.Errorf("only %d of %d formulas compiled", compiled, n)
	}
}

func FuzzCompile(f *testing.F) {
	for _, s := range []string{"x", "-x^2", "2^3^2", "a*b/c", "x*2*3", "max(1,min(x,2))", "{a.b}+{max}", "x\t+y", "min x y", "{x", "sqrt()", "1e5", "1..2", "x min y max 2", "{}", "(((x)))", "ln(1+x)/ln(2)", "2max(x,.5)", "sqrt.5", "\xff", "", strings.Repeat("(", 40)} {
		f.Add(s)
	}
	r := rand.New(rand.NewPCG(2, 2))
	for range 50 {
		f.Add(generate1(r, 2))
	}
	f.Fuzz(func(t *testing.T, src string) {
		check(t, src, rand.New(rand.NewPCG(1, uint64(len(src)))))
	})
}

// score1 evaluates a formula for one row.
func score1(t *testing.T, src string, row map[string]float64) (float32, error) {
	t.Helper()
	p, err := Compile(src)
	if err != nil {
		return 0, err
	}
	b, err := p.NewBatch(nil)
	if err != nil {
		t.Fatal(err)
	}
	b.Start(1)
	for i, n := range p.Variables() {
		if v, ok := row[n]; ok {
			b.Set(i, 0, v)
		}
	}
	var out [1]float32
	err = b.Eval(out[:])
	return out[0], err
}

func TestMeaning(t *testing.T) {
	row := map[string]float64{"x": 3, "y": 5, "z": 0.1, "max_score": 7, "a.b": 11, "max": 13, "": 17}
	x, y, z := 3.0, 5.0, 0.1
	for _, c := range []struct {
		src  string
		want float64
	}{
		{"-x^2", 9},
		{"-(x)^2", 9},
		{"0-x^2", -9},
		{"2^3^2", 64},
		{"x*y/4", x * (y / 4)},
		{"x/y/2", x / y / 2},
		{"x+y-3", x + (y - 3)},
		{"x-y+3", x - y + 3},
		{"1-x-y", 1 - x - y},
		{"z*2*3", z * 6},
		{"z+0.1+0.2", z + (0.1 + 0.2)},
		{"z*0.1*0.7*y", z * (0.1 * 0.7) * y},
		{"z+(0.1)+0.2", z + (0.1 + 0.2)},
		{"(z+0.1)+0.2", z + 0.1 + 0.2},
		{"z+0.1+sqrt(0.2*y)", z + (0.1 + math.Sqrt(0.2*y))},
		{"z+0.1+sqrt(y*0.2)", z + 0.1 + math.Sqrt(y*0.2)},
		{"z+max(y,0.1)+0.2", z + (y + 0.2)},
		{"z+-0.1+0.2", z + (-0.1 + 0.2)},
		{"z+PI+0.2", z + (math.Pi + 0.2)},
		{"sqrt(x+1+5)", 3},
		{"x min y+1", 4},
		{"x+1 max y", 5},
		{"x max-y", 3},
		{"max(1,min(x,2))", 2},
		{"max(min(x,2),min(y,4))", 4},
		{"min(1+x,y*2)", 4},
		{"atan2(x,y)*2", 2 * elem.Atan2(x, y)},
		{"y atan2 x", elem.Atan2(y, x)},
		{"max_score", 7},
		{"{a.b}+{max}", 24},
		{"{}", 17},
		{"sqrt x^2*3", 9},
		{"abs -x", 3},
		{"- -x--x", 6},
		{"2max x", 3},
		{"sqrt.25", 0.5},
		{"signum(x-x)", 1},
		{"signum(-(x-x))", -1},
		{"round(x/2)", 2},
		{"round(-(x/2))", -2},
		{"trunc(-2.5)+fract(2.25)", -1.75},
		{"floor(-2.5)*ceil(-2.5)", 6},
		{"log(8)/ln 2", elem.Log(8) / elem.Log(2)},
		{"log2(8)+log10(1000)", 6},
		{"cbrt(27)", 3},
		{"E-e+TAU-PI*2", 0},
		{"1/(1+exp(-(0.3*x+0.7*y-1.2)))", 1 / (1 + elem.Exp(-(0.3*x + (0.7*y - 1.2))))},
		{"max(ln(-1),2)", 2}, // a NaN loses
		{"missing+1", 1},
		{"1/(1/(x-x))", 0}, // an infinity on the way is no error
	} {
		got, err := score1(t, c.src, row)
		if err != nil || got != float32(c.want) {
			t.Errorf("%s = %v, %v, want %v", c.src, got, err, float32(c.want))
		}
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		src, want string
		pos       int
	}{
		{"", "l1.formula requires 1..4096 ASCII bytes", 0},
		{strings.Repeat(" ", 4096) + "1", "l1.formula requires 1..4096 ASCII bytes", 0},
		{"x+π", "l1.formula requires 1..4096 ASCII bytes", 2},
		{strings.Repeat("x+", 128) + "x", "l1.formula exceeds 256 tokens or 32 parenthesis levels", 256},
		{strings.Repeat("(", 33) + "x" + strings.Repeat(")", 33), "l1.formula exceeds 256 tokens or 32 parenthesis levels", 32},
		{" ", "at byte 1: expected a value, found the end", 1},
		{"x+", "at byte 2: expected a value, found the end", 2},
		{"*x", `at byte 0: expected a value, found "*"`, 0},
		{"min x y", `at byte 4: expected ( after min, found "x"`, 4},
		{"x y", `at byte 2: expected an operator or the end, found "y"`, 2},
		{"2x", `at byte 1: expected an operator or the end, found "x"`, 1},
		{"1e5", `at byte 1: expected an operator or the end, found "e5"`, 1},
		{"x({y z})", `at byte 1: expected an operator or the end, found "("`, 1},
		{"(x", "at byte 2: expected an operator or ), found the end", 2},
		{"x)", `at byte 1: expected an operator or the end, found ")"`, 1},
		{"sqrt()", `at byte 5: expected a value, found ")"`, 5},
		{"sqrt", "at byte 4: expected a value, found the end", 4},
		{"sqrt(x,y)", `at byte 6: expected an operator or ), found ","`, 6},
		{"max(x)", `at byte 5: expected a comma and the second argument of max, found ")"`, 5},
		{"max(x,y,z)", `at byte 7: expected ) after the arguments of max, found ","`, 7},
		{"x min (y,2)", `at byte 8: expected an operator or ), found ","`, 8},
		{"+(x,y)", `at byte 3: expected an operator or ), found ","`, 3},
		{"{x", "at byte 0: the brace is not closed", 0},
		{"1..2", `at byte 0: "1..2" is not a number: digits and at most one point`, 0},
		{"x+.", `at byte 2: "." is not a number: digits and at most one point`, 2},
		{"x\n+y", `at byte 1: unexpected character '\n'`, 1},
		{"x=y", `at byte 1: unexpected character '='`, 1},
		{"x}", `at byte 1: unexpected character '}'`, 1},
		{"sqrt {a b} {c d}", `at byte 11: expected an operator or the end, found "{c d}"`, 11},
	} {
		_, err := Compile(c.src)
		var e *Error
		if !errors.As(err, &e) || e.Position != c.pos || !strings.HasSuffix(e.Msg, c.want) {
			t.Errorf("%.40q: %v, want %s", c.src, err, c.want)
		}
	}
	for _, src := range []string{"ln(0)", "1/0", "10^39", "asin(2)", "0/0", strings.Repeat("1", 400)} {
		_, err := Compile(src)
		var e *NonFiniteError
		if !errors.As(err, &e) || e.Row != -1 || e.Error() != "L1 formula produced a non-finite score (domain error or overflow)" {
			t.Errorf("%.20s: %v", src, err)
		}
	}
	for _, src := range []string{strings.Repeat("x+", 127) + "xx", strings.Repeat("(", 32) + "x" + strings.Repeat(")", 32), strings.Repeat(" ", 4095) + "1", "10^38*3"} {
		if _, err := Compile(src); err != nil {
			t.Errorf("%.40q: %v", src, err)
		}
	}
}

func TestPrinting(t *testing.T) {
	for src, want := range map[string]string{
		" x +\t{y} ": "x+y", "log x": "ln x", "{max}+{a b}+{}": "{max}+{a b}+{}", "x min {y}": "x min y", "sqrt{x}": "sqrt x",
		"sqrt .5": "sqrt.5", "max ( x , 2 )": "max(x,2)", "2 max x": "2max x", "- - x": "--x",
	} {
		p, err := Compile(src)
		if err != nil || p.String() != want {
			t.Errorf("%q prints as %q, %v, want %q", src, p, err, want)
		}
	}
}

func TestBind(t *testing.T) {
	p, err := Compile("b + rrf*a + {z z} + b")
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(p.Variables()); got != "[b rrf a z z]" {
		t.Errorf("variables %s", got)
	}
	got, err := p.Bind([]string{"a", "b", "z z", "other"})
	if err != nil || !slices.Equal(got, []int{1, -1, 0, 2}) || !p.UsesRRF() {
		t.Errorf("%v, %v", got, err)
	}
	_, err = p.Bind([]string{"b"})
	var e *Error
	if !errors.As(err, &e) || e.Msg != "l1.formula references unknown branch 'a'" || e.Position != 8 {
		t.Errorf("%v", err)
	}
}

func TestMissingValues(t *testing.T) {
	p, err := Compile("x + 10*y + 0*rrf")
	if err != nil {
		t.Fatal(err)
	}
	b, err := p.NewBatch(map[string]float64{"y": 5.5})
	if err != nil {
		t.Fatal(err)
	}
	if n := b.Start(200); n != BlockRows {
		t.Fatalf("a block of %d rows", n)
	}
	if n := b.Start(3); n != 3 {
		t.Fatalf("a block of %d rows", n)
	}
	b.Set(0, 0, 1)
	b.Set(1, 1, 0) // an observed zero is not a missing value
	b.Column(0)[2], b.Column(1)[2] = 2, 3
	var out [3]float32
	if err := b.Eval(out[:]); err != nil || out != [3]float32{56, 0, 32} {
		t.Errorf("%v, %v", out, err)
	}
	b.Start(2)
	if err := b.Eval(out[:]); err != nil || out[0] != 55 || out[1] != 55 {
		t.Errorf("cells of the block before are still there: %v, %v", out, err)
	}
	for _, c := range []struct {
		missing map[string]float64
		name    string
	}{
		{map[string]float64{"z": 1}, "z"},
		{map[string]float64{"rrf": 1}, "rrf"},
		{map[string]float64{"x": math.NaN(), "y": math.Inf(1)}, "x"},
		{map[string]float64{"y": 1, "": 2}, ""},
	} {
		_, err := p.NewBatch(c.missing)
		var e *Error
		if !errors.As(err, &e) || e.Msg != "l1 missing value '"+c.name+"' needs a formula variable and finite raw default" {
			t.Errorf("%v: %v", c.missing, err)
		}
	}
}

func TestNonFiniteRows(t *testing.T) {
	p, err := Compile("1/x")
	if err != nil {
		t.Fatal(err)
	}
	b, err := p.NewBatch(nil)
	if err != nil {
		t.Fatal(err)
	}
	var out [BlockRows]float32
	b.Start(4)
	fill(b.Column(0), 2)
	b.Set(0, 2, 1e-39) // finite in binary64, not in binary32
	err = b.Eval(out[:])
	var e *NonFiniteError
	if !errors.As(err, &e) || e.Row != 2 || e.Variable != "" {
		t.Errorf("%v", err)
	}
	b.Set(0, 1, math.Inf(1))
	if err = b.Eval(out[:]); !errors.As(err, &e) || e.Row != 1 || e.Variable != "x" {
		t.Errorf("%v", err)
	}
	b.Set(0, 1, math.NaN())
	if err = b.Eval(out[:]); !errors.As(err, &e) || e.Row != 1 || e.Variable != "x" {
		t.Errorf("%v", err)
	}
}

func TestMinAndMax(t *testing.T) {
	minus, nan := math.Copysign(0, -1), math.NaN()
	for _, c := range [][4]float64{ // a, b, the smaller, the larger
		{1, 2, 1, 2},
		{2, 1, 1, 2},
		{nan, 2, 2, 2},
		{2, nan, 2, 2},
		{nan, nan, nan, nan},
		{0, minus, minus, 0},
		{minus, 0, minus, 0},
		{math.Inf(-1), nan, math.Inf(-1), math.Inf(-1)},
		{math.Inf(-1), math.Inf(1), math.Inf(-1), math.Inf(1)},
		{-3, -3, -3, -3},
	} {
		same := func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) || a != a && b != b }
		if a, b := minOf(c[0], c[1]), maxOf(c[0], c[1]); !same(a, c[2]) || !same(b, c[3]) {
			t.Errorf("%v and %v: min %v, max %v", c[0], c[1], a, b)
		}
	}
}

func TestConstant(t *testing.T) {
	p, err := Compile("2*max(3,4)+0.5")
	if err != nil {
		t.Fatal(err)
	}
	if v, ok := p.Constant(); !ok || v != 8.5 || len(p.code) != 0 {
		t.Errorf("%v %v, %d instructions", v, ok, len(p.code))
	}
	if p, err = Compile("0*x"); err != nil {
		t.Fatal(err)
	}
	if _, ok := p.Constant(); ok {
		t.Error("0*x counts as constant")
	}
}

var formulas = []string{
	"0.3*bm25 + 0.7*dense",
	"0.3*d+0.5*p-0.2*q+0.1*s",
	"max(p,q)+log1p(abs(d))",
	"1/(1+exp(-(0.3*x+0.7*y-1.2)))",
	"x^2*y",
	"x^0.7*ln(1+y)",
}

func filled(tb testing.TB, src string) *Batch {
	p, err := Compile(src)
	if err != nil {
		tb.Fatal(err)
	}
	b, err := p.NewBatch(nil)
	if err != nil {
		tb.Fatal(err)
	}
	b.Start(BlockRows)
	r := rand.New(rand.NewPCG(1, 1))
	for i := range p.Variables() {
		for row := range BlockRows {
			b.Set(i, row, float64(r.Float32()*10))
		}
	}
	return b
}

func TestEvalDoesNotAllocate(t *testing.T) {
	var out [BlockRows]float32
	for _, src := range formulas {
		b := filled(t, src)
		if n := testing.AllocsPerRun(50, func() {
			b.Start(BlockRows)
			for row := range BlockRows {
				b.Set(0, row, 2)
			}
			if err := b.Eval(out[:]); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations for a block", src, n)
		}
	}
}

func BenchmarkEval(b *testing.B) {
	var out [BlockRows]float32
	for _, src := range formulas {
		batch := filled(b, src)
		b.Run(src, func(b *testing.B) {
			for b.Loop() {
				if err := batch.Eval(out[:]); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/BlockRows, "ns/row")
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	for b.Loop() {
		if _, err := Compile("1/(1+exp(-(0.3*x+0.7*y-1.2)))"); err != nil {
			b.Fatal(err)
		}
	}
}
