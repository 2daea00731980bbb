package jsonscan

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

var texts = []string{
	``, ` `, `{}`, `[]`, ` { } `, `{"a":1}`, `{"a":1,}`, `{,}`, `[,]`, `[1,]`, `[1 2]`, `{"a" 1}`, `{"a":}`, `{a:1}`, `{"a":1 "b":2}`, `[}`, `{]`,
	`{"a":[1,{"b":null,"c":[true,false,[]]},"x"],"d":{}}`, `{"a":1,"a":2}`, `"a`, `"a"`, `"\u00e9\n\/"`, `"\u12"`, `"\ud800"`, `"\ud83d\ude00"`, `"\ud83d\u0041"`,
	`"\x"`, "\"\x01\"", "\"\x7f\"", "\"\xff\"", "{\"\xff\":1}", `"é漢😀"`, `0`, `-0`, `01`, `-`, `1.`, `.5`, `1e`, `1e+`, `1.5E-7`, `+1`, `1 1`, `tru`, `true`, `truex`, `nul`,
	`null`, `NaN`, `[[[[[[]]]]]]`, `{"a":{"b":{"c":{"d":1}}}}`, `[1]]`, `{}{}`, "\ufeff{}", `{"a":1}x`, `{"` + strings.Repeat("long name ", 30) + `":"` + strings.Repeat(`value \" `, 40) + `"}`,
	"\t\r\n[\t1\r,\n2 ]\n", "\v1", `{"a":"b\` + "\n" + `"}`, `["` + strings.Repeat("x", 7) + `\"` + strings.Repeat("y", 9) + "\x1f" + `"]`,
}

// valid is what Valid is held against.
func valid(b []byte) bool { return jsontext.Value(b).IsValid(jsontext.AllowDuplicateNames(true)) }

func TestValidIsWhatAParserSays(t *testing.T) {
	for _, s := range texts {
		if got, want := Valid([]byte(s)), valid([]byte(s)); got != want {
			t.Errorf("%q: %v, it is %v", s, got, want)
		}
	}
	deep := func(n int) []byte { return []byte(strings.Repeat("[", n) + strings.Repeat("]", n)) }
	for n, want := range map[int]bool{31: true, 32: true, 33: true, MaxDepth: true, MaxDepth + 1: false} {
		if got := Valid(deep(n)); got != want || want != valid(deep(n)) {
			t.Errorf("%d levels: %v", n, got)
		}
	}
}

func TestValueTellsItsEndAndShape(t *testing.T) {
	for _, c := range []struct {
		text   string
		from   int
		most   int
		end    int
		is     Shape
		reason string
	}{
		{`  [1,2] `, 2, 9, 7, Shape{1, 0}, ""},
		{`{"a":{"b":1,"c":[2]},"d":3}`, 0, 9, 27, Shape{3, 2}, ""},
		{`{"a":{"b":1,"c":[2]},"d":3}`, 0, 3, 27, Shape{3, 2}, ""},
		{`{"a":{"b":1,"c":[2]},"d":3}`, 0, 2, 16, Shape{}, tooDeep},
		{`[{"a":1},{"a":1,"b":2,"c":3},{}]`, 0, 9, 32, Shape{2, 3}, ""},
		{`12,`, 0, 9, 2, Shape{}, ""},
		{`true]`, 0, 9, 4, Shape{}, ""},
		{`"a" `, 0, 9, 3, Shape{}, ""},
		{`[1 2]`, 0, 9, 3, Shape{}, noArrayEnd},
		{`{"a":1 2}`, 0, 9, 7, Shape{}, noEnding},
		{`{"a"}`, 0, 9, 4, Shape{}, noColon},
		{`{1:2}`, 0, 9, 1, Shape{}, noString},
		{`[`, 0, 9, 1, Shape{}, noNumber},
		{``, 0, 9, 0, Shape{}, noNumber},
		{`x`, 5, 9, 5, Shape{}, noNumber},
	} {
		if end, is, reason := Value([]byte(c.text), c.from, c.most); end != c.end || is != c.is || reason != c.reason {
			t.Errorf("%q: %d, %+v, %q; want %d, %+v, %q", c.text, end, is, reason, c.end, c.is, c.reason)
		}
	}
}

// parts is a text taken apart by a parser: names and values; ok is false if it is no object or array.
func parts(b []byte, kind jsontext.Kind) (out []string, ok bool) {
	d := jsontext.NewDecoder(bytes.NewBuffer(b), jsontext.AllowDuplicateNames(true))
	if tok, err := d.ReadToken(); err != nil || tok.Kind() != kind {
		return nil, false
	}
	for d.PeekKind() != '}' && d.PeekKind() != ']' {
		v, err := d.ReadValue()
		if err != nil {
			return nil, false
		}
		out = append(out, string(v))
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, false
	}
	if _, err := d.ReadToken(); err != io.EOF {
		return nil, false
	}
	return out, true
}

func checkParts(t *testing.T, b []byte) {
	t.Helper()
	for _, kind := range []jsontext.Kind{'{', '['} {
		p := Elements(b)
		if kind == '{' {
			p = Members(b)
		}
		var got []string
		for p.Next() {
			if kind == '{' {
				got = append(got, string(p.Name))
				if plain := !bytes.Contains(p.Name, []byte{'\\'}); plain != p.Plain {
					t.Errorf("%q: name %s: plain %v", b, p.Name, p.Plain)
				}
			}
			got = append(got, string(p.Value))
		}
		want, ok := parts(b, kind)
		if ok != (p.Err() == nil) || ok && !slices.Equal(got, want) {
			t.Errorf("%q as %c: %q, %v; it is %q, %v", b, kind, got, p.Err(), want, ok)
		}
		if p.Next() || p.Name != nil || p.Value != nil {
			t.Errorf("%q: it goes on behind the end", b)
		}
	}
}

func TestPartsAreThoseThatAParserSees(t *testing.T) {
	for _, s := range texts {
		if strings.ContainsRune(s, '\uFFFD') || !bytes.Equal([]byte(s), bytes.ToValidUTF8([]byte(s), nil)) {
			continue // the encoding is not looked at
		}
		checkParts(t, []byte(s))
	}
}

// random is a text that is JSON, or nearly.
func random(r *rand.Rand, depth int) string {
	space := []string{"", "", "", " ", "\n\t"}[r.IntN(5)]
	switch k := r.IntN(9); {
	case k < 2 && depth > 0:
		var b []string
		for range r.IntN(4) {
			b = append(b, fmt.Sprintf("%q%s:%s", []string{"a", "b c", "é"}[r.IntN(3)], space, random(r, depth-1)))
		}
		return space + "{" + strings.Join(b, ",") + space + "}"
	case k < 4 && depth > 0:
		var b []string
		for range r.IntN(4) {
			b = append(b, random(r, depth-1))
		}
		return "[" + space + strings.Join(b, ",") + "]" + space
	}
	return space + []string{"1", "-0.5e7", "true", "false", "null", `"x"`, `"\u00e9\\"`, `"漢字 and more of them"`, `""`}[r.IntN(9)] + space
}

func TestRandomTextsAreWhatAParserSays(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	good := 0
	for range 20_000 {
		b := []byte(random(r, 5))
		if r.IntN(2) == 0 {
			at := r.IntN(len(b))
			b[at] = `{}[],:"\ 1e-t`[r.IntN(13)]
		}
		got, want := Valid(b), valid(b)
		if got != want {
			t.Fatalf("%q: %v, it is %v", b, got, want)
		}
		if got {
			good++
		}
		if bytes.Equal(b, bytes.ToValidUTF8(b, nil)) {
			checkParts(t, b)
		}
	}
	if good < 5_000 || good > 19_000 {
		t.Errorf("%d of the texts are JSON", good)
	}
}

func FuzzValid(f *testing.F) {
	for _, s := range texts {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, want := Valid(b), valid(b); got != want {
			t.Errorf("%q: %v, it is %v", b, got, want)
		}
		if bytes.Equal(b, bytes.ToValidUTF8(b, nil)) {
			checkParts(t, b)
		}
	})
}

func TestAllocNothing(t *testing.T) {
	b := []byte(`{"id":"17","title":"a title","body":"` + strings.Repeat("some text ", 100) + `","tags":["a","b"],"n":{"x":1.5,"y":null}}`)
	if n := testing.AllocsPerRun(100, func() {
		if !Valid(b) {
			t.Error("it is valid")
		}
		p := Members(b)
		for p.Next() {
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkValid(b *testing.B) {
	text := []byte(`{"id":"17","title":"a title","body":"` + strings.Repeat("some text ", 40) + `","tags":["a","b"],"n":{"x":1.5,"y":null}}`)
	for name, f := range map[string]func([]byte) bool{"jsonscan": Valid, "jsontext": valid} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if !f(text) {
					b.Fatal("it is valid")
				}
			}
		})
	}
}
