package formula

import (
	"fmt"
	"slices"
)

// node is a part of a formula as a tree.
type node struct {
	op       opcode
	a, b     *node
	value    float64 // of opConst
	variable int     // of opVar

	// first and last: the first and last thing in its text that is a number, constant or variable is a number or constant.
	first, last bool
	need        int // lanes needed to compute it
}

// parser reads tokens by recursive descent; MaxDepth bounds the recursion.
type parser struct {
	toks      []token
	i         int
	end       int // length of the text
	names     []string
	positions []int
}

// parse reads the whole formula.
func (p *parser) parse() (*node, error) {
	n, err := p.formula()
	if err != nil {
		return nil, err
	}
	if p.i < len(p.toks) {
		return nil, p.expected("an operator or the end")
	}
	return n, nil
}

func (p *parser) expected(what string) error {
	if p.i >= len(p.toks) {
		return refuse(p.end, "expected %s, found the end", what)
	}
	t := &p.toks[p.i]
	return refuse(t.pos, "expected %s, found %s", what, quote(t))
}

func quote(t *token) string {
	if t.kind == name && !plain(t.text) {
		return fmt.Sprintf("%q", "{"+t.text+"}")
	}
	return fmt.Sprintf("%q", t.text)
}

// is reports whether the next token is the symbol s, and takes it.
func (p *parser) is(s string) bool {
	if p.i < len(p.toks) && p.toks[p.i].kind == symbol && p.toks[p.i].text == s {
		p.i++
		return true
	}
	return false
}

// binary returns the operator that the next token is between two operands.
func (p *parser) binary() (opcode, bool) {
	if p.i >= len(p.toks) {
		return 0, false
	}
	t := &p.toks[p.i]
	switch t.kind {
	case function2:
		return t.op, true
	case symbol:
		switch t.text {
		case "+":
			return opAdd, true
		case "-":
			return opSub, true
		case "*":
			return opMul, true
		case "/":
			return opDiv, true
		case "^":
			return opPow, true
		}
	case number, constant, name, function1:
	}
	return 0, false
}

// precedence returns how tightly an operator binds.
func precedence(op opcode) int {
	switch op {
	case opPow:
		return 4
	case opDiv:
		return 3
	case opMul:
		return 2
	case opSub:
		return 1
	}
	return 0
}

// formula reads operands with operators between them and joins them in the order of the operators.
func (p *parser) formula() (*node, error) {
	n, err := p.operand()
	if err != nil {
		return nil, err
	}
	operands := []*node{n}
	var ops []opcode
	for {
		op, ok := p.binary()
		if !ok {
			break
		}
		p.i++
		if n, err = p.operand(); err != nil {
			return nil, err
		}
		ops, operands = append(ops, op), append(operands, n)
	}
	type turn struct{ at, key int }
	turns := make([]turn, len(ops))
	for i, op := range ops {
		turns[i] = turn{i, 2 * precedence(op)}
		if (op == opAdd || op == opMul) && operands[i].last && operands[i+1].first {
			turns[i].key++
		}
	}
	slices.SortStableFunc(turns, func(a, b turn) int { return b.key - a.key })
	// Each operator takes the nearest operand that is left on either side. joined[i] tells that operand i is part of an earlier one.
	joined := make([]bool, len(operands))
	for _, t := range turns {
		l, r := t.at, t.at+1
		for joined[l] {
			l--
		}
		for joined[r] {
			r++
		}
		a, b := operands[l], operands[r]
		operands[l] = fold(&node{op: ops[t.at], a: a, b: b, first: a.first, last: b.last})
		joined[r] = true
	}
	return operands[0], nil
}

// operand reads unary operators and what they apply to.
func (p *parser) operand() (*node, error) {
	var unary []opcode
loop:
	for ; p.i < len(p.toks); p.i++ {
		t := &p.toks[p.i]
		switch {
		case t.kind == function1:
			unary = append(unary, t.op)
		case t.kind == symbol && t.text == "-":
			unary = append(unary, opNeg)
		case t.kind == symbol && t.text == "+":
			// changes nothing
		default:
			break loop
		}
	}
	n, err := p.primary()
	if err != nil {
		return nil, err
	}
	for _, op := range slices.Backward(unary) {
		n = fold(&node{op: op, a: n, first: n.first, last: n.last})
	}
	return n, nil
}

func (p *parser) primary() (*node, error) {
	if p.i >= len(p.toks) {
		return nil, p.expected("a value")
	}
	t := &p.toks[p.i]
	switch t.kind {
	case number, constant:
		p.i++
		return &node{op: opConst, value: t.value, first: true, last: true}, nil
	case name:
		p.i++
		v := slices.Index(p.names, t.text)
		if v < 0 {
			v = len(p.names)
			p.names, p.positions = append(p.names, t.text), append(p.positions, t.pos)
		}
		return &node{op: opVar, variable: v}, nil
	case function2:
		p.i++
		if !p.is("(") {
			return nil, p.expected(fmt.Sprintf("( after %s", t.text))
		}
		a, err := p.formula()
		if err != nil {
			return nil, err
		}
		if !p.is(",") {
			return nil, p.expected(fmt.Sprintf("a comma and the second argument of %s", t.text))
		}
		b, err := p.formula()
		if err != nil {
			return nil, err
		}
		if !p.is(")") {
			return nil, p.expected(fmt.Sprintf(") after the arguments of %s", t.text))
		}
		return fold(&node{op: t.op, a: a, b: b, first: a.first, last: b.last}), nil
	case symbol:
		if !p.is("(") {
			return nil, p.expected("a value")
		}
		n, err := p.formula()
		if err != nil {
			return nil, err
		}
		if !p.is(")") {
			return nil, p.expected("an operator or )")
		}
		return n, nil
	case function1:
	}
	return nil, p.expected("a value")
}

// fold replaces an operation on constants by its result, which has the bits that evaluation would give.
func fold(n *node) *node {
	if n.a.op != opConst || n.b != nil && n.b.op != opConst {
		return n
	}
	var b float64
	if n.b != nil {
		b = n.b.value
	}
	return &node{op: opConst, value: apply(n.op, n.a.value, b), first: n.first, last: n.last}
}
