package query

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// tree prints a tree in full, unlike String.
func tree(n Node) string {
	bound := func(b *Bound) string {
		switch {
		case b == nil:
			return "open"
		case b.Exclusive:
			return fmt.Sprintf("%q excl", b.Value)
		}
		return fmt.Sprintf("%q", b.Value)
	}
	switch n := n.(type) {
	case *Term:
		return fmt.Sprintf("term(%q %q)", n.Field, n.Text)
	case *Phrase:
		return fmt.Sprintf("phrase(%q %q ~%d)", n.Field, n.Text, n.Slop)
	case *Prefix:
		return fmt.Sprintf("prefix(%q %q)", n.Field, n.Text)
	case *Range:
		return fmt.Sprintf("range(%q %s, %s)", n.Field, bound(n.Min), bound(n.Max))
	case *Exists:
		return fmt.Sprintf("exists(%q)", n.Field)
	case *Terms:
		return fmt.Sprintf("terms(%q %q)", n.Field, n.Values)
	case *All:
		return "all"
	case *Boost:
		return fmt.Sprintf("boost(%s %v)", tree(n.Query), n.Factor)
	case *Bool:
		var parts []string
		for _, l := range []struct {
			name string
			list []Node
		}{{"must", n.Must}, {"should", n.Should}, {"not", n.MustNot}, {"filter", n.Filter}} {
			for _, c := range l.list {
				parts = append(parts, l.name+" "+tree(c))
			}
		}
		return "bool(" + strings.Join(parts, ", ") + ")"
	}
	return fmt.Sprintf("%T", n)
}

func checkError(t interface{ Fatalf(string, ...any) }, q string, err error) {
	var se *SyntaxError
	var le *LimitError
	switch {
	case errors.As(err, &se):
		if se.Position < 0 || se.Position > len(q) || se.Expected == "" || se.Found == "" || len(se.Found) > 200 {
			t.Fatalf("poor error for %q: %+v", q, se)
		}
		if se.Position < len(q) && utf8.ValidString(q) && !utf8.RuneStart(q[se.Position]) {
			t.Fatalf("error for %q inside of a character: %+v", q, se)
		}
	case errors.As(err, &le):
		if le.Position < -1 || le.Position > len(q) || le.Got <= le.Limit {
			t.Fatalf("poor error for %q: %+v", q, le)
		}
	default:
		t.Fatalf("error for %q of type %T: %v", q, err, err)
	}
}

// TestParse runs testdata/parse: each line is a query; the answer is its tree and its canonical form, or an error.
func TestParse(t *testing.T) {
	datadriven.RunTest(t, "testdata/parse", func(t *testing.T, d *datadriven.TestData) string {
		o := ParseOptions{}
		if d.Cmd == "and" {
			o.DefaultOp = And
		}
		var out strings.Builder
		for q := range strings.SplitSeq(d.Input, "\n") {
			n, err := Parse(q, o)
			if err != nil {
				checkError(t, q, err)
				fmt.Fprintf(&out, "%s\n  %s\n", q, err)
				continue
			}
			fmt.Fprintf(&out, "%s\n  %s\n", q, tree(n))
			if s := n.String(); s != q {
				fmt.Fprintf(&out, "  %s\n", s)
			}
			again, err := Parse(n.String(), ParseOptions{})
			if err != nil || cmp.Diff(n, again) != "" {
				t.Errorf("%s prints as %s: %v", q, n, err)
			}
		}
		return out.String()
	})
}

func TestDefaultOpAnd(t *testing.T) {
	// With And as the default, side by side is the same as AND, whatever the query.
	for _, c := range [][2]string{
		{"a b", "a AND b"}, {"a -b", "a AND -b"}, {"a b OR c d", "(a AND b) OR (c AND d)"}, {"f:(a b) c", "f:(a AND b) AND c"}, {"NOT a NOT b", "NOT a AND NOT b"},
	} {
		one, err := Parse(c[0], ParseOptions{DefaultOp: And})
		if err != nil {
			t.Fatal(err)
		}
		two, err := Parse(c[1], ParseOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(one, two); diff != "" {
			t.Errorf("%v: %s", c, diff)
		}
	}
}

func TestLimits(t *testing.T) {
	many := func(n int, s string) string { return strings.Repeat(s, n) }
	big := Limits{TextBytes: 64 << 20}
	for _, c := range []struct {
		name, q string
		lim     Limits
		what    string
		got     int
	}{
		{"10 MB", many(10<<20, "x"), Limits{}, LimitText, 10 << 20},
		{"parentheses", many(1_000_000, "("), big, LimitDepth, 33},
		{"closed parentheses", many(1_000_000, "(") + "a" + many(1_000_000, ")"), big, LimitDepth, 33},
		{"fields", many(1_000_000, "f:("), big, LimitDepth, 33},
		{"NOT", many(1_000_000, "NOT "), big, LimitDepth, 33},
		{"signs", many(1_000_000, "+("), big, LimitDepth, 33},
		{"words", many(1_000_000, "a "), big, LimitNodes, 257},
		{"values", "f:=(" + many(70_000, "a ") + ")", big, LimitValues, 65_537},
		{"value bytes", "f:=" + many(5<<20, "a"), big, LimitBytes, 5 << 20},
		{"AND", many(1_000_000, "a AND ") + "a", big, LimitNodes, 257},
		{"nodes", many(256, "a "), Limits{}, LimitNodes, 257}, // with the Bool above them
		{"clauses", many(255, "a "), Limits{Clauses: 254}, LimitClauses, 255},
		{"tree depth", many(16, "(NOT ") + "a^2" + many(16, ")"), Limits{Depth: 32}, "", 0},
		{"tree depth", many(16, "(b NOT (c^2)^3 AND ") + "a^2" + many(16, ")"), Limits{Depth: 32}, LimitDepth, 33},
		{"field names", strings.Repeat("f", 60_000) + ":(a b)", Limits{}, LimitText, 120_002},
	} {
		n, err := Parse(c.q, ParseOptions{Limits: c.lim})
		if c.what == "" {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		var le *LimitError
		if !errors.As(err, &le) || le.What != c.what || le.Got != c.got {
			t.Errorf("%s: %v, %v", c.name, n, err)
			continue
		}
		checkError(t, c.q, err)
	}
	for _, ok := range []string{many(255, "a "), many(32, "(") + "a" + many(32, ")"), many(32, "NOT ") + "a"} {
		if _, err := Parse(ok, ParseOptions{}); err != nil && ok[0] != 'N' {
			t.Errorf("%.20s: %v", ok, err)
		}
	}
}

func TestCheck(t *testing.T) {
	deep := Node(&All{})
	for range 100_000 {
		deep = &Boost{Query: deep, Factor: 1}
	}
	wide := &Bool{}
	for range 300 {
		wide.Should = append(wide.Should, &All{})
	}
	loop := &Bool{}
	loop.Must = []Node{loop}
	var limit *LimitError
	for name, n := range map[string]Node{"deep": deep, "wide": wide, "loop": loop, "text": &Term{Text: strings.Repeat("x", 65_537)}} {
		if err := Check(n, Limits{}); !errors.As(err, &limit) || limit.Position != -1 {
			t.Errorf("%s: %v", name, err)
		}
	}
	var none *Term
	for name, n := range map[string]Node{"nil": nil, "typed nil": none, "child": &Bool{Must: []Node{nil}}, "boost": &Boost{Factor: 1}, "infinite": &Boost{Query: &All{}, Factor: inf()}, "no field": &Terms{Values: []string{"a"}}, "no terms": (*Terms)(nil)} {
		if err := Check(n, Limits{}); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := Check(&Bool{Must: []Node{&Match{Field: "a", Text: "b"}}, Filter: []Node{&Range{Field: "n", Min: &Bound{Value: "1"}}}}, Limits{}); err != nil {
		t.Error(err)
	}
}

func inf() float32 { f := float32(3e38); return f * 10 }

func TestFields(t *testing.T) {
	n, err := Parse(`b:x a:(y c:z*) w "p" _exists_:d e:[1 TO 2] -b:q f:*^2 g:="h i"`, ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a", "b", "c", "d", "e", "f", "g"}, Fields(n)); diff != "" {
		t.Error(diff)
	}
	if got := (&Bool{Filter: []Node{&Match{Field: "m", Text: "x y", All: true, MaxTerms: 3}}}).String(); got != `#m:match("x y", all, max_terms 3)` {
		t.Error(got)
	}
}

// drawTree makes a tree of the form that Parse returns.
func drawTree(t *rapid.T, depth int) Node {
	text := rapid.OneOf(rapid.StringN(1, 6, -1), rapid.SampledFrom([]string{"AND", "OR", "NOT", "TO", "*", "-a", "+", ">=1", "=1", "_exists_", "a:b", `\`, `"`, "a b", "日本", "x*", "~2", "^"}))
	field := rapid.OneOf(rapid.Just(""), rapid.SampledFrom([]string{"title", "a.b", "_exists_", "AND", "-x", "with space", "c:d"}))
	named := rapid.SampledFrom([]string{"title", "a.b", "_exists_", "OR", "日"})
	kinds := 10
	if depth == 0 {
		kinds = 7
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return &Term{Field: field.Draw(t, "field"), Text: text.Draw(t, "text")}
	case 1:
		return &Prefix{Field: field.Draw(t, "field"), Text: text.Draw(t, "text")}
	case 2:
		return &Phrase{Field: field.Draw(t, "field"), Text: rapid.String().Draw(t, "text"), Slop: rapid.Uint32().Draw(t, "slop")}
	case 3:
		r := &Range{Field: named.Draw(t, "field")}
		if rapid.Bool().Draw(t, "min") {
			r.Min = &Bound{Value: rapid.OneOf(rapid.String(), text).Draw(t, "value"), Exclusive: rapid.Bool().Draw(t, "exclusive")}
		}
		if rapid.Bool().Draw(t, "max") {
			r.Max = &Bound{Value: rapid.OneOf(rapid.String(), text).Draw(t, "value"), Exclusive: rapid.Bool().Draw(t, "exclusive")}
		}
		return r
	case 4:
		return &Exists{Field: named.Draw(t, "field")}
	case 5:
		return &All{}
	case 6:
		return &Terms{Field: named.Draw(t, "field"), Values: rapid.SliceOfN(rapid.OneOf(rapid.String(), text), 1, 3).Draw(t, "values")}
	case 7:
		return &Boost{Query: drawTree(t, depth-1), Factor: rapid.Float32Range(-1e30, 1e30).Draw(t, "factor")}
	}
	b := &Bool{}
	list := func(what string) []Node {
		var l []Node
		for range rapid.IntRange(0, 3).Draw(t, what) {
			l = append(l, drawTree(t, depth-1))
		}
		return l
	}
	b.Must, b.Should, b.MustNot = list("must"), list("should"), list("not")
	if len(b.Must)+len(b.Should)+len(b.MustNot) < 2 {
		return &Bool{MustNot: []Node{drawTree(t, depth-1)}}
	}
	return b
}

func TestPrintThenParse(t *testing.T) {
	lim := Limits{Depth: 100, Nodes: 10_000, Clauses: 10_000, TextBytes: 1 << 20}
	rapid.Check(t, func(t *rapid.T) {
		n := drawTree(t, 3)
		again, err := Parse(n.String(), ParseOptions{Limits: lim})
		if err != nil {
			t.Fatalf("%v in %s", err, n)
		}
		if diff := cmp.Diff(n, again); diff != "" {
			t.Fatalf("%s: %s", n, diff)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, q := range []string{
		`title:(a OR "b c"~2 -d*)^2 AND NOT n:[1 TO *} _exists_:x f:* *:* \* n:>=5`, `f:="a b" g:=(x "y z" \*)^2 h:(=a OR [1 TO 2]) \=`, `a OR NOT b`, `+a -b c`, `((a))`, `f:{"x y" TO \]]`, `a^1e-7`, "a\u3000b",
	} {
		f.Add(q, false)
		f.Add(q, true)
	}
	f.Fuzz(func(t *testing.T, q string, and bool) {
		o := ParseOptions{}
		if and {
			o.DefaultOp = And
		}
		n, err := Parse(q, o)
		if err != nil {
			checkError(t, q, err)
			return
		}
		if err := Check(n, Limits{}); err != nil {
			t.Fatal(err)
		}
		wide := Limits{Depth: 200, TextBytes: 1 << 20} // the canonical form may be longer than the query
		again, err := Parse(n.String(), ParseOptions{Limits: wide})
		if err != nil {
			t.Fatalf("%v in %s", err, n)
		}
		if diff := cmp.Diff(n, again); diff != "" {
			t.Fatalf("%s: %s", n, diff)
		}
		Fields(n)
	})
}

func BenchmarkParse(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(`title:(go OR "http client"~2) +body:net* -tags:old year:[2000 TO 2010]^0.5`, ParseOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}

func TestPositionsOfLeaves(t *testing.T) {
	pos := map[Node]int{}
	n, err := Parse(`warp AND (field:weft^2 OR n:[1 TO 2]) "two words" _exists_:x pre*`, ParseOptions{Positions: pos})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for leaf, at := range pos {
		got[leaf.String()] = at
	}
	want := map[string]int{"warp": 0, "field:weft": 10, "n:[1 TO 2]": 26, `"two words"`: 38, "field:*": 0, "_exists_:x": 50, "x:*": 50, "pre*": 61}
	for s, at := range got {
		if w, ok := want[s]; !ok || w != at {
			t.Errorf("%s at %d, want %d", s, at, w)
		}
	}
	if len(got) != 6 {
		t.Errorf("%d leaves in %s: %v", len(got), n, got)
	}
}

// TestForeignOperatorsAreTold: what other query languages write must not silently become a word here.
func TestForeignOperatorsAreTold(t *testing.T) {
	for q, at := range map[string]int{"a && b": 2, "a || b": 2, "!warp": 0, "a f:!b": 4, "we?t": 0, "x we?ft*": 2} {
		_, err := Parse(q, ParseOptions{})
		var bad *SyntaxError
		if !errors.As(err, &bad) || bad.Position != at {
			t.Errorf("%s: %v, want a syntax error at %d", q, err, at)
		}
	}
	for q, text := range map[string]string{`\!warp`: "!warp", "!": "!", "why?": "why?", `we\?t`: "we?t", `\&&`: "&&", "a&&b": "a&&b", "c?.d": "c?.d"} {
		n, err := Parse(q, ParseOptions{})
		if term, ok := n.(*Term); err != nil || !ok || term.Text != text {
			t.Errorf("%s: %v %v, want the word %s", q, n, err, text)
		}
	}
}
