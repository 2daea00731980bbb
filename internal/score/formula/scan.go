package formula

import (
	"fmt"
	"strconv"
	"strings"
)

type tokenKind uint8

const (
	number tokenKind = iota
	constant
	name
	function1 // unary functions
	function2 // min, max, atan2
	symbol    // + - * / ^ ( ) ,
)

type token struct {
	kind  tokenKind
	pos   int
	text  string  // as written, names without braces; for a function its canonical name
	op    opcode  // of functions
	value float64 // of numbers and constants
}

var words = map[string]token{
	"PI": {kind: constant, value: 0x1.921fb54442d18p+1}, "TAU": {kind: constant, value: 0x1.921fb54442d18p+2},
	"E": {kind: constant, value: 0x1.5bf0a8b145769p+1}, "e": {kind: constant, value: 0x1.5bf0a8b145769p+1},
	"min": {kind: function2, op: opMin}, "max": {kind: function2, op: opMax}, "atan2": {kind: function2, op: opAtan2},
	"abs": {kind: function1, op: opAbs}, "signum": {kind: function1, op: opSignum}, "sqrt": {kind: function1, op: opSqrt}, "cbrt": {kind: function1, op: opCbrt},
	"exp": {kind: function1, op: opExp}, "expm1": {kind: function1, op: opExpm1}, "ln": {kind: function1, op: opLn}, "log": {kind: function1, op: opLn},
	"log2": {kind: function1, op: opLog2}, "log10": {kind: function1, op: opLog10}, "log1p": {kind: function1, op: opLog1p},
	"sin": {kind: function1, op: opSin}, "cos": {kind: function1, op: opCos}, "tan": {kind: function1, op: opTan},
	"asin": {kind: function1, op: opAsin}, "acos": {kind: function1, op: opAcos}, "atan": {kind: function1, op: opAtan},
	"sinh": {kind: function1, op: opSinh}, "cosh": {kind: function1, op: opCosh}, "tanh": {kind: function1, op: opTanh},
	"asinh": {kind: function1, op: opAsinh}, "acosh": {kind: function1, op: opAcosh}, "atanh": {kind: function1, op: opAtanh},
	"floor": {kind: function1, op: opFloor}, "ceil": {kind: function1, op: opCeil}, "round": {kind: function1, op: opRound},
	"trunc": {kind: function1, op: opTrunc}, "fract": {kind: function1, op: opFract},
}

func isDigit(c byte) bool  { return '0' <= c && c <= '9' }
func isLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' }
func isBlank(c byte) bool  { return c == ' ' || c == '\t' }

// refuse returns the error for what stands at a place.
func refuse(pos int, format string, args ...any) *Error {
	return &Error{pos, fmt.Sprintf("invalid l1.formula: at byte %d: ", pos) + fmt.Sprintf(format, args...)}
}

// measure checks the limits, on the text itself: also what stands in braces counts.
func measure(src string) error {
	if len(src) == 0 || len(src) > MaxBytes {
		return &Error{0, fmt.Sprintf("l1.formula requires 1..%d ASCII bytes", MaxBytes)}
	}
	tokens, depth, word := 0, 0, false
	for i := 0; i < len(src); i++ {
		c := src[i]
		if c >= 0x80 {
			return &Error{i, fmt.Sprintf("l1.formula requires 1..%d ASCII bytes", MaxBytes)}
		}
		w := isLetter(c) || isDigit(c) || c == '.'
		if !isBlank(c) && !(w && word) {
			tokens++
		}
		word = w
		switch c {
		case '(':
			depth++
		case ')':
			depth--
		}
		if tokens > MaxTokens || depth > MaxDepth {
			return &Error{i, fmt.Sprintf("l1.formula exceeds %d tokens or %d parenthesis levels", MaxTokens, MaxDepth)}
		}
	}
	return nil
}

// scan splits a formula into tokens. Errors are *Error.
func scan(src string) ([]token, error) {
	if err := measure(src); err != nil {
		return nil, err
	}
	var toks []token
	for i := 0; i < len(src); {
		c := src[i]
		from := i
		switch {
		case isBlank(c):
			i++
			continue
		case isDigit(c) || c == '.':
			for i < len(src) && (isDigit(src[i]) || src[i] == '.') {
				i++
			}
			text := src[from:i]
			if text == "." || strings.Count(text, ".") > 1 {
				return nil, refuse(from, "%q is not a number: digits and at most one point", text)
			}
			// A number past the largest is an infinity, as it has always been; the score decides. Nothing else can be wrong with the text.
			v, err := strconv.ParseFloat(text, 64)
			if err != nil && v-v == 0 {
				return nil, refuse(from, "%q is not a number", text)
			}
			toks = append(toks, token{kind: number, pos: from, text: text, value: v})
			continue
		case isLetter(c):
			for i < len(src) && (isLetter(src[i]) || isDigit(src[i])) {
				i++
			}
			text := src[from:i]
			t, ok := words[text]
			if !ok {
				t.kind = name
			}
			if text == "log" {
				text = "ln"
			}
			t.pos, t.text = from, text
			toks = append(toks, t)
			continue
		case c == '{':
			n := strings.IndexByte(src[i:], '}')
			if n < 0 {
				return nil, refuse(from, "the brace is not closed")
			}
			toks = append(toks, token{kind: name, pos: from, text: src[i+1 : i+n]})
			i += n + 1
			continue
		case strings.IndexByte("+-*/^(),", c) >= 0:
			toks = append(toks, token{kind: symbol, pos: from, text: src[i : i+1]})
			i++
			continue
		}
		return nil, refuse(from, "unexpected character %q", c)
	}
	return toks, nil
}

// print is Program.String. It has no more tokens and bytes than the formula that toks came from, so it keeps within the limits.
func print(toks []token) string {
	var b strings.Builder
	word := false // the last thing written could run on
	for _, t := range toks {
		text := t.text
		if t.kind == name && !plain(text) {
			b.WriteString("{" + text + "}")
			word = false
			continue
		}
		if word && (isLetter(text[0]) || isDigit(text[0])) {
			b.WriteByte(' ')
		}
		b.WriteString(text)
		word = t.kind != symbol && t.kind != number
	}
	return b.String()
}

// plain reports whether a name needs no braces.
func plain(s string) bool {
	if s == "" || !isLetter(s[0]) {
		return false
	}
	for i := 1; i < len(s); i++ {
		if !isLetter(s[i]) && !isDigit(s[i]) {
			return false
		}
	}
	_, reserved := words[s]
	return !reserved
}
