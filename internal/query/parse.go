package query

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Op is the operator between operands that have none.
type Op uint8

// Default operators.
const (
	Or Op = iota
	And
)

// ParseOptions says how a query string is read. The zero value is OR and the default limits.
type ParseOptions struct {
	DefaultOp Op
	Limits    Limits
	// Positions, where not nil, receives the byte offset at which each leaf of the tree begins, for errors that show only when the query
	// meets a schema.
	Positions map[Node]int
}

// SyntaxError is a fault in a query string.
type SyntaxError struct {
	Position int    // byte offset
	Expected string // what could have stood there
	Found    string // what stands there
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("position %d: expected %s, found %s", e.Position, e.Expected, e.Found)
}

// Parse reads a query string. The empty string is All.
//
//	query    = items | ""
//	items    = chain { [ "OR" ] chain }
//	chain    = operand { "AND" operand }
//	operand  = "NOT" operand | [ "+" | "-" ] primary
//	primary  = ( "(" items ")" | value | field ":" value | "_exists_:" field | "*" | "*:*" ) [ "^" number ]
//	value    = word [ "*" ] | '"' text '"' [ "~" digits ] | field only: "(" items ")" | range | "*" | compare bound | "=" exact
//	range    = ( "[" | "{" ) bound "TO" bound ( "]" | "}" ),  bound = word | '"' text '"' | "*"
//	compare  = ">" | ">=" | "<" | "<="
//	exact    = element | "(" element { element } ")",  element = word | '"' text '"'
//
// AND binds tighter than OR. Operands side by side are ORed; with the default operator And they are a chain, as if AND stood between
// them. In a list of ORed items +x has to match, -x must not, and so must not x in NOT x where it stands side by side with others:
// "a NOT b" is a without b. Next to an explicit OR, NOT x is an operand of its own: "a OR NOT b" is a, or everything without b. In a
// chain every operand has to match but those with - or NOT. What is only negative means every other document.
//
// field:( … ) gives the field to everything inside that names no other. A word goes on to the next white space or one of
// ( ) " [ ] { } ^ : ~ *, each of which (and any other character) stands for itself behind a backslash; behind "field:" a colon is part
// of the word. +, -, <, > and = mean something only at the start of an operand, AND, OR, NOT and TO only as words of their own, in
// capitals. Fuzzy words (word~) and wildcards inside of words are not part of the language.
//
// Words become Term, quoted texts Phrase, word* Prefix, field:* Exists, field:="text" Terms, the rest what it says. A list of one is its only element. For
// every tree t that Parse returns, Parse(t.String()) with the default operator Or equals t.
//
// Limits are enforced while reading: the length first, then depth and count, before any memory is taken for what exceeds them.
// Errors are *SyntaxError or *LimitError.
func Parse(q string, o ParseOptions) (Node, error) {
	p := parser{q: q, and: o.DefaultOp == And, lim: o.Limits.withDefaults(), positions: o.Positions}
	if len(q) > p.lim.TextBytes {
		return nil, &LimitError{What: LimitText, Limit: p.lim.TextBytes, Got: len(q), Position: p.lim.TextBytes}
	}
	for i := 0; i < len(q); {
		r, n := utf8.DecodeRuneInString(q[i:])
		if r == utf8.RuneError && n == 1 {
			return nil, &SyntaxError{Position: i, Expected: "UTF-8", Found: fmt.Sprintf("the byte 0x%02x", q[i])}
		}
		i += n
	}
	p.space()
	if p.end() {
		return &All{}, nil
	}
	n, err := p.items()
	if err != nil {
		return nil, err
	}
	if !p.end() {
		return nil, p.expected("the end of the query")
	}
	// Trees can be deeper than the nesting of their text, by the Boost and Bool of each level.
	if err := Check(n, p.lim); err != nil {
		return nil, err
	}
	return n, nil
}

type parser struct {
	q      string
	pos    int
	and    bool   // operands side by side are a chain
	field  string // of the field:( … ) around pos
	lim    Limits
	depth  int // open parentheses and NOTs
	nodes  int
	start  int // where the operand begins
	exacts int // values of Terms

	positions map[Node]int // of leaves, nil when not wanted
}

func (p *parser) end() bool { return p.pos == len(p.q) }

// peek returns the byte at pos, 0 at the end.
func (p *parser) peek() byte {
	if p.pos < len(p.q) {
		return p.q[p.pos]
	}
	return 0
}

// space skips white space and says whether there was any.
func (p *parser) space() bool {
	start := p.pos
	for p.pos < len(p.q) {
		r, n := utf8.DecodeRuneInString(p.q[p.pos:])
		if !unicode.IsSpace(r) {
			break
		}
		p.pos += n
	}
	return p.pos > start
}

func (p *parser) expected(what string) error {
	return &SyntaxError{Position: p.pos, Expected: what, Found: p.found()}
}

// found describes what stands at pos: a word, or one character.
func (p *parser) found() string {
	if p.end() {
		return "the end of the query"
	}
	rest := p.q[p.pos:]
	size := 0
	for i, r := range rest {
		if i >= 40 || endsWord(r) {
			break
		}
		size = i + utf8.RuneLen(r)
	}
	if size == 0 {
		r, n := utf8.DecodeRuneInString(rest)
		if unicode.IsSpace(r) {
			return "a space"
		}
		size = n
	}
	return strconv.Quote(rest[:size])
}

// enter opens one level of nesting.
func (p *parser) enter() error {
	p.depth++
	if p.depth > p.lim.Depth {
		return &LimitError{What: LimitDepth, Limit: p.lim.Depth, Got: p.depth, Position: p.pos}
	}
	return nil
}

// count enters a node into the limit.
func (p *parser) count() error {
	p.nodes++
	if p.nodes > p.lim.Nodes {
		return &LimitError{What: LimitNodes, Limit: p.lim.Nodes, Got: p.nodes, Position: p.pos}
	}
	return nil
}

// keyword says whether the given word in capitals stands at pos on its own.
func (p *parser) keyword(word string) bool {
	rest, ok := strings.CutPrefix(p.q[p.pos:], word)
	if !ok {
		return false
	}
	r, _ := utf8.DecodeRuneInString(rest)
	return rest == "" || r == '(' || r == ')' || r == '"' || unicode.IsSpace(r)
}

// mark says how an operand takes part.
type mark uint8

const (
	plain   mark = iota
	must         // +
	mustNot      // -
	not          // NOT
)

// items reads up to the closing parenthesis or the end.
func (p *parser) items() (Node, error) {
	var b Bool
	var only Node // the node if there was one item, unmarked or must
	count := 0
	afterOr := false
	for {
		n, m, err := p.chain()
		if err != nil {
			return nil, err
		}
		p.space()
		or := p.keyword("OR")
		if or {
			p.pos += len("OR")
			p.space()
		}
		count++
		only = n
		switch {
		case m == must:
			b.Must = append(b.Must, n)
		case m == mustNot, m == not && !or && !afterOr:
			b.MustNot = append(b.MustNot, n)
			only = nil
		case m == not:
			if err := p.count(); err != nil {
				return nil, err
			}
			b.Should = append(b.Should, &Bool{MustNot: []Node{n}})
		default:
			b.Should = append(b.Should, n)
		}
		if !or && (p.end() || p.peek() == ')') {
			break
		}
		afterOr = or
	}
	if count == 1 && only != nil {
		return only, nil
	}
	return &b, p.count()
}

// chain reads operands joined by AND, or side by side where that means the same. The mark is that of a single operand.
func (p *parser) chain() (Node, mark, error) {
	n, m, err := p.operand()
	if err != nil {
		return nil, plain, err
	}
	var b *Bool
	for {
		p.space()
		switch {
		case p.keyword("AND"):
			p.pos += len("AND")
			p.space()
		case !p.and || p.end() || p.peek() == ')' || p.keyword("OR"):
			if b == nil {
				return n, m, nil
			}
			return b, plain, p.count()
		}
		if b == nil {
			b = &Bool{}
			b.join(n, m)
		}
		if n, m, err = p.operand(); err != nil {
			return nil, plain, err
		}
		b.join(n, m)
	}
}

// join adds an operand of a chain.
func (n *Bool) join(q Node, m mark) {
	if m == mustNot || m == not {
		n.MustNot = append(n.MustNot, q)
	} else {
		n.Must = append(n.Must, q)
	}
}

func (p *parser) operand() (Node, mark, error) {
	if p.keyword("NOT") {
		if err := p.enter(); err != nil {
			return nil, plain, err
		}
		p.pos += len("NOT")
		p.space()
		n, m, err := p.operand()
		if err != nil {
			return nil, plain, err
		}
		p.depth--
		if m == mustNot || m == not {
			n = &Bool{MustNot: []Node{n}}
			err = p.count()
		}
		return n, not, err
	}
	m := plain
	switch p.peek() {
	case '+':
		m = must
	case '-':
		m = mustNot
	}
	if m != plain {
		sign := p.q[p.pos : p.pos+1]
		p.pos++
		r, _ := utf8.DecodeRuneInString(p.q[p.pos:])
		if p.end() || r == '+' || r == '-' || r == ')' || unicode.IsSpace(r) || p.keyword("NOT") || p.keyword("AND") || p.keyword("OR") {
			return nil, plain, p.expected(fmt.Sprintf("a term right behind %q (write \\%s for the character itself)", sign, sign))
		}
	}
	n, err := p.primary()
	return n, m, err
}

const aTerm = "a term, a phrase in quotes, a field or \"(\""

func (p *parser) primary() (Node, error) {
	p.start = p.pos
	if p.keyword("AND") || p.keyword("OR") {
		return nil, p.expected(aTerm)
	}
	if p.field != "" {
		switch p.peek() {
		case '[', '{', '<', '>', '=', '*':
			return p.value(p.field, false)
		}
	}
	if strings.HasPrefix(p.q[p.pos:], "*:*") && p.delimited(p.pos+3) {
		p.pos += 3
		return p.boosted(&All{})
	}
	switch p.peek() {
	case '(', '"':
		return p.value(p.field, false)
	case '*':
		if !p.delimited(p.pos + 1) {
			return nil, p.expected("letters before \"*\": a word may end in it, not begin with it")
		}
		p.pos++
		return p.boosted(&All{})
	case '[', '{':
		return nil, p.expected("a field before the range, as in year:[2000 TO 2010]")
	}
	start := p.pos
	w, err := p.word(false)
	if err != nil {
		return nil, err
	}
	if p.peek() != ':' || w.prefix {
		return p.leaf(p.field, w, start)
	}
	if w.text == "" {
		return nil, p.expected(aTerm)
	}
	p.pos++
	if w.text == "_exists_" && !w.escaped {
		return p.exists()
	}
	return p.value(w.text, true)
}

// exists reads the field's name behind "_exists_:".
func (p *parser) exists() (Node, error) {
	start := p.pos
	name := ""
	if p.peek() == '"' {
		text, err := p.quoted()
		if err != nil {
			return nil, err
		}
		name = text
	} else {
		w, err := p.word(false)
		if err != nil {
			return nil, err
		}
		if w.prefix {
			p.pos--
			return nil, p.expected("the end of the field name")
		}
		name = w.text
	}
	if name == "" {
		p.pos = start
		return nil, p.expected("a field name right behind \"_exists_:\"")
	}
	return p.boosted(&Exists{Field: name})
}

// value reads what can stand behind "field:". direct says that it does, and not in parentheses behind it.
func (p *parser) value(field string, direct bool) (Node, error) {
	switch p.peek() {
	case '(':
		if err := p.enter(); err != nil {
			return nil, err
		}
		p.pos++
		outer := p.field
		p.field = field
		p.space()
		n, err := p.items()
		if err != nil {
			return nil, err
		}
		p.field = outer
		p.depth--
		if p.peek() != ')' {
			return nil, p.expected("\")\"")
		}
		p.pos++
		return p.boosted(n)
	case '"':
		text, err := p.quoted()
		if err != nil {
			return nil, err
		}
		slop, err := p.slop()
		if err != nil {
			return nil, err
		}
		return p.boosted(&Phrase{Field: field, Text: text, Slop: slop})
	case '[', '{':
		return p.interval(field)
	case '<', '>':
		return p.comparison(field)
	case '=':
		return p.exact(field)
	case '*':
		if !p.delimited(p.pos + 1) {
			return nil, p.expected("letters before \"*\": a word may end in it, not begin with it")
		}
		p.pos++
		return p.boosted(&Exists{Field: field})
	}
	start := p.pos
	w, err := p.word(direct)
	if err != nil {
		return nil, err
	}
	if w.text == "" {
		return nil, p.expected(fmt.Sprintf("a value right behind %q", short(field)+":"))
	}
	return p.leaf(field, w, start)
}

func short(field string) string {
	if len(field) <= 40 {
		return field
	}
	cut := 40
	for !utf8.RuneStart(field[cut]) {
		cut--
	}
	return field[:cut] + "…"
}

// leaf makes a Term or Prefix of a word that began at start.
func (p *parser) leaf(field string, w wordText, start int) (Node, error) {
	if w.text == "" {
		p.pos = start
		return nil, p.expected(aTerm)
	}
	if want := foreign(w); want != "" {
		p.pos = start
		return nil, p.expected(want)
	}
	if w.prefix {
		return p.boosted(&Prefix{Field: field, Text: w.text})
	}
	return p.boosted(&Term{Field: field, Text: w.text})
}

// foreign tells what to write for a word that is an operator in other query languages and would silently be a word, often the opposite, here.
func foreign(w wordText) string {
	switch {
	case w.escaped:
	case w.text == "&&":
		return `AND (write \&& for the characters themselves)`
	case w.text == "||":
		return `OR (write \|| for the characters themselves)`
	case len(w.text) > 1 && w.text[0] == '!':
		return `"-" or NOT before what must not match (write \! for the character itself)`
	case wildcard(w.text):
		return `a word without "?" inside; only "*" at the end stands for other letters (write \? for the character itself)`
	}
	return ""
}

// wildcard tells whether a question mark stands between letters or digits, as in we?t.
func wildcard(text string) bool {
	i := strings.IndexByte(text, '?')
	if i <= 0 || i == len(text)-1 {
		return false
	}
	before, _ := utf8.DecodeLastRuneInString(text[:i])
	after, _ := utf8.DecodeRuneInString(text[i+1:])
	return letter(before) && letter(after)
}

func letter(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// boosted counts a node and wraps it in a Boost if ^ follows.
func (p *parser) boosted(n Node) (Node, error) {
	if _, ok := n.(*Bool); !ok { // lists are counted where they are made
		if err := p.count(); err != nil {
			return nil, err
		}
		if p.positions != nil {
			p.positions[n] = p.start
		}
	}
	if p.peek() == '~' {
		return nil, p.expected("~slop only behind a phrase in quotes (write \\~ for the character itself)")
	}
	if p.peek() != '^' {
		return n, nil
	}
	p.pos++
	start := p.pos
	for p.pos < len(p.q) && strings.IndexByte("0123456789.eE+-", p.q[p.pos]) >= 0 {
		p.pos++
	}
	f, err := strconv.ParseFloat(p.q[start:p.pos], 32)
	if err != nil && !errors.Is(err, strconv.ErrRange) || !p.delimited(p.pos) {
		p.pos = start
		return nil, p.expected("a number behind \"^\"")
	}
	if math.IsInf(f, 0) {
		p.pos = start
		return nil, p.expected("a boost in the range of a 32-bit float")
	}
	return &Boost{Query: n, Factor: float32(f)}, p.count()
}

// delimited says whether an operand may end at i.
func (p *parser) delimited(i int) bool {
	if i == len(p.q) {
		return true
	}
	r, _ := utf8.DecodeRuneInString(p.q[i:])
	return r == ')' || r == '(' || r == '^' || r == '"' || unicode.IsSpace(r)
}

// wordText is a word as read.
type wordText struct {
	text    string
	prefix  bool // it ended in *
	escaped bool // some of it was behind a backslash
}

// word reads up to a character that ends words. colons says that a colon is part of it.
func (p *parser) word(colons bool) (wordText, error) {
	start := p.pos
	var b []byte // only if there is an escape
	w := wordText{}
	for p.pos < len(p.q) {
		r, n := utf8.DecodeRuneInString(p.q[p.pos:])
		if r == '\\' {
			if !w.escaped {
				w.escaped = true
				b = append(b, p.q[start:p.pos]...)
			}
			p.pos++
			if p.end() {
				return w, p.expected("a character behind \"\\\"")
			}
			_, n = utf8.DecodeRuneInString(p.q[p.pos:])
			b = append(b, p.q[p.pos:p.pos+n]...)
			p.pos += n
			continue
		}
		if endsWord(r) && !(colons && r == ':') {
			break
		}
		if w.escaped {
			b = append(b, p.q[p.pos:p.pos+n]...)
		}
		p.pos += n
	}
	w.text = p.q[start:p.pos]
	if w.escaped {
		w.text = string(b)
	}
	if p.peek() == '*' && w.text != "" {
		if !p.delimited(p.pos + 1) {
			p.pos++
			return w, p.expected("the end of the word behind \"*\"")
		}
		p.pos++
		w.prefix = true
	}
	return w, nil
}

// quoted reads a text in quotes.
func (p *parser) quoted() (string, error) {
	p.pos++
	var b strings.Builder
	for p.pos < len(p.q) {
		i := strings.IndexAny(p.q[p.pos:], `"\`)
		if i < 0 {
			break
		}
		b.WriteString(p.q[p.pos : p.pos+i])
		p.pos += i
		if p.q[p.pos] == '"' {
			p.pos++
			return b.String(), nil
		}
		p.pos++
		_, n := utf8.DecodeRuneInString(p.q[p.pos:])
		b.WriteString(p.q[p.pos : p.pos+n])
		p.pos += n
	}
	p.pos = len(p.q)
	return "", p.expected("the closing quote")
}

// slop reads ~digits.
func (p *parser) slop() (uint32, error) {
	if p.peek() != '~' {
		return 0, nil
	}
	p.pos++
	start := p.pos
	for p.pos < len(p.q) && p.q[p.pos] >= '0' && p.q[p.pos] <= '9' {
		p.pos++
	}
	n, err := strconv.ParseUint(p.q[start:p.pos], 10, 32)
	if err != nil || !p.delimited(p.pos) {
		p.pos = start
		return 0, p.expected("a whole number of 32 bits behind \"~\"")
	}
	return uint32(n), nil
}

// interval reads a range in brackets.
func (p *parser) interval(field string) (Node, error) {
	low := p.peek() == '{'
	p.pos++
	lo, err := p.bound("the lower bound")
	if err != nil {
		return nil, err
	}
	p.space()
	if rest, ok := strings.CutPrefix(p.q[p.pos:], "TO"); !ok || rest != "" && strings.IndexByte("]}*\"", rest[0]) < 0 && !p.delimited(p.pos+len("TO")) {
		return nil, p.expected("\"TO\"")
	}
	p.pos += len("TO")
	hi, err := p.bound("the upper bound")
	if err != nil {
		return nil, err
	}
	p.space()
	high := p.peek() == '}'
	if !high && p.peek() != ']' {
		return nil, p.expected("\"]\" or \"}\"")
	}
	p.pos++
	if lo != nil {
		lo.Exclusive = low
	}
	if hi != nil {
		hi.Exclusive = high
	}
	return p.boosted(&Range{Field: field, Min: lo, Max: hi})
}

// bound reads one end of a range; nil is an open one.
func (p *parser) bound(what string) (*Bound, error) {
	p.space()
	if p.peek() == '"' {
		text, err := p.quoted()
		return &Bound{Value: text}, err
	}
	start := p.pos
	var b strings.Builder
	for p.pos < len(p.q) {
		r, n := utf8.DecodeRuneInString(p.q[p.pos:])
		if unicode.IsSpace(r) || r == ']' || r == '}' {
			break
		}
		if r == '\\' {
			p.pos++
			if p.end() {
				return nil, p.expected("a character behind \"\\\"")
			}
			_, n = utf8.DecodeRuneInString(p.q[p.pos:])
		}
		b.WriteString(p.q[p.pos : p.pos+n])
		p.pos += n
	}
	switch p.q[start:p.pos] {
	case "*":
		return nil, nil
	case "", "TO":
		p.pos = start
		return nil, p.expected(what + " of the range, or \"*\"")
	}
	return &Bound{Value: b.String()}, nil
}

// comparison reads >5 and the like.
func (p *parser) comparison(field string) (Node, error) {
	greater := p.peek() == '>'
	p.pos++
	b := &Bound{Exclusive: true}
	if p.peek() == '=' {
		p.pos++
		b.Exclusive = false
	}
	if p.peek() == '"' {
		text, err := p.quoted()
		if err != nil {
			return nil, err
		}
		b.Value = text
	} else {
		w, err := p.word(true)
		if err != nil {
			return nil, err
		}
		if w.prefix {
			p.pos--
			return nil, p.expected("the end of the value")
		}
		if w.text == "" {
			return nil, p.expected("a value to compare with")
		}
		b.Value = w.text
	}
	if greater {
		return p.boosted(&Range{Field: field, Min: b})
	}
	return p.boosted(&Range{Field: field, Max: b})
}

// exact reads what stands behind "field:=": one value, or several in parentheses.
func (p *parser) exact(field string) (Node, error) {
	p.pos++
	t := &Terms{Field: field}
	if p.peek() != '(' {
		if err := p.element(t, "a value right behind \"=\""); err != nil {
			return nil, err
		}
		return p.boosted(t)
	}
	p.pos++
	for p.space(); p.peek() != ')' || len(t.Values) == 0; p.space() {
		if err := p.element(t, "a value, a text in quotes or \")\""); err != nil {
			return nil, err
		}
	}
	p.pos++
	return p.boosted(t)
}

// element reads one value of Terms.
func (p *parser) element(t *Terms, want string) error {
	if p.exacts++; p.exacts > p.lim.Values {
		return &LimitError{What: LimitValues, Limit: p.lim.Values, Got: p.exacts, Position: p.pos}
	}
	if p.peek() == '"' {
		text, err := p.quoted()
		t.Values = append(t.Values, text)
		return err
	}
	w, err := p.word(true)
	switch {
	case err != nil:
		return err
	case w.text == "":
		return p.expected(want)
	case w.prefix:
		p.pos--
		return p.expected("the end of the value (write \\* for the character itself)")
	}
	t.Values = append(t.Values, w.text)
	return nil
}
