package query

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

func (n *Term) String() string { return fieldPrefix(n.Field) + escapeWord(n.Text, n.Field != "") }
func (n *Prefix) String() string {
	return fieldPrefix(n.Field) + escapeWord(n.Text, n.Field != "") + "*"
}

func (n *Words) String() string {
	return "words(" + escapeWord(n.Field, false) + ", " + fmt.Sprint(n.Words) + ")"
}

func (n *Given) String() string { return "given(" + strconv.Itoa(n.List) + ")" }

func (n *Exists) String() string { return "_exists_:" + escapeWord(n.Field, false) }
func (*All) String() string      { return "*" }

func (n *Match) String() string {
	s := "match(" + quoteText(n.Text)
	if n.All {
		s += ", all"
	}
	if n.MaxTerms > 0 {
		s += ", max_terms " + strconv.Itoa(n.MaxTerms)
	}
	return fieldPrefix(n.Field) + s + ")"
}

func (n *Phrase) String() string {
	s := fieldPrefix(n.Field) + quoteText(n.Text)
	if n.Slop > 0 {
		s += "~" + strconv.FormatUint(uint64(n.Slop), 10)
	}
	return s
}

func (n *Range) String() string {
	open, end := "[", "]"
	lo, hi := "*", "*"
	if n.Min != nil {
		lo = boundText(n.Min.Value)
		if n.Min.Exclusive {
			open = "{"
		}
	}
	if n.Max != nil {
		hi = boundText(n.Max.Value)
		if n.Max.Exclusive {
			end = "}"
		}
	}
	return fieldPrefix(n.Field) + open + lo + " TO " + hi + end
}

func (n *Terms) String() string {
	if len(n.Values) == 1 {
		return fieldPrefix(n.Field) + "=" + quoteText(n.Values[0])
	}
	parts := make([]string, len(n.Values))
	for i, v := range n.Values {
		parts[i] = quoteText(v)
	}
	return fieldPrefix(n.Field) + "=(" + strings.Join(parts, " ") + ")"
}

func (n *Boost) String() string {
	q := operand(n.Query)
	if _, ok := n.Query.(*Boost); ok {
		q = "(" + q + ")"
	}
	return q + "^" + strconv.FormatFloat(float64(n.Factor), 'g', -1, 32)
}

func (n *Bool) String() string {
	var parts []string
	for _, l := range []struct {
		sign string
		list []Node
	}{{"+", n.Must}, {"#", n.Filter}, {"", n.Should}, {"-", n.MustNot}} {
		for _, c := range l.list {
			parts = append(parts, l.sign+operand(c))
		}
	}
	return strings.Join(parts, " ")
}

// operand prints a query so that it is one operand of an outer one.
func operand(n Node) string {
	if b, ok := n.(*Bool); ok {
		return "(" + b.String() + ")"
	}
	return n.String()
}

func fieldPrefix(field string) string {
	if field == "" {
		return ""
	}
	return escapeWord(field, false) + ":"
}

// escapeWord writes text so that it reads as one word. value says that it stands behind "field:".
func escapeWord(text string, value bool) string {
	var b strings.Builder
	reserved := text == "AND" || text == "OR" || text == "NOT" || text == "_exists_" || text == "&&" || text == "||" ||
		len(text) > 1 && text[0] == '!'
	for i, r := range text {
		switch {
		case i == 0 && (reserved || r == '+' || r == '-' || value && (r == '<' || r == '>' || r == '=')), endsWord(r), r == '\\', r == '?' && i > 0:
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// endsWord says whether r, unescaped, ends a word or has a meaning inside of one.
func endsWord(r rune) bool {
	switch r {
	case '(', ')', '"', '[', ']', '{', '}', '^', ':', '~', '*':
		return true
	}
	return unicode.IsSpace(r)
}

func quoteText(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		if r == '"' || r == '\\' {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	b.WriteByte('"')
	return b.String()
}

// boundText writes one end of a range, in quotes unless it is plain.
func boundText(s string) string {
	for i := range len(s) {
		c := s[i]
		if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || strings.IndexByte("._:+-/", c) >= 0) {
			return quoteText(s)
		}
	}
	if s == "" || s == "TO" {
		return quoteText(s)
	}
	return s
}

// Fields returns the names of the fields that a query names, sorted, each once. The default fields, which terms without a field
// search, are not among them. The tree has to be within limits (Check).
func Fields(n Node) []string {
	var names []string
	walk(n, func(n Node) {
		name := ""
		switch n := n.(type) {
		case *Term:
			name = n.Field
		case *Match:
			name = n.Field
		case *Phrase:
			name = n.Field
		case *Prefix:
			name = n.Field
		case *Range:
			name = n.Field
		case *Terms:
			name = n.Field
		case *Exists:
			name = n.Field
		}
		if name != "" {
			names = append(names, name)
		}
	})
	slices.Sort(names)
	return slices.Compact(names)
}

// walk visits a tree, parents first.
func walk(n Node, visit func(Node)) {
	visit(n)
	switch n := n.(type) {
	case *Boost:
		walk(n.Query, visit)
	case *Bool:
		for _, list := range [][]Node{n.Must, n.Should, n.MustNot, n.Filter} {
			for _, c := range list {
				walk(c, visit)
			}
		}
	}
}
