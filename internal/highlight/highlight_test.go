package highlight

import (
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/text"
)

func testSchema(tb testing.TB) (*schema.Schema, func(int) *text.Analyzer) {
	tb.Helper()
	s, err := schema.ParseSDL(`index t {
		field id: text<raw> [primary, stored]
		field title: text<standard> [indexed<positions>, stored<multi>]
		field body: text<en_stem_stop> [indexed<positions>, stored<multi>]
		field tag: text<raw> [fast, stored<multi>]
		field n: u64 [fast, stored]
	}`, text.Check)
	if err != nil {
		tb.Fatal(err)
	}
	return s, func(f int) *text.Analyzer {
		if s.Fields[f].Type != schema.Text {
			return nil
		}
		a, err := text.Lookup(s.Fields[f].Tokenizer)
		if err != nil {
			tb.Fatal(err)
		}
		return a
	}
}

func source(tb testing.TB, members map[string]any) []byte {
	tb.Helper()
	if _, ok := members["id"]; !ok {
		members["id"] = "d"
	}
	b, err := json.Marshal(members)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// show prints fields as "name: text | text; …".
func show(fields []Field) string {
	var parts []string
	for _, f := range fields {
		var t []string
		for _, x := range f.Fragments {
			t = append(t, x.Text)
		}
		s := f.Name + ": " + strings.Join(t, " | ")
		if f.Truncated {
			s += " …"
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, "; ")
}

func parse(tb testing.TB, q string) query.Node {
	tb.Helper()
	n, err := query.Parse(q, query.ParseOptions{})
	if err != nil {
		tb.Fatalf("%s: %v", q, err)
	}
	return n
}

func TestWhatIsMarked(t *testing.T) {
	s, an := testSchema(t)
	for _, c := range []struct {
		name string
		q    query.Node
		doc  map[string]any
		opts Options
		want string
	}{
		{"a term in the default fields", parse(t, "weft"), map[string]any{"title": "Warp and Weft", "body": "The weft runs."}, Options{}, "title: Warp and <em>Weft</em>; body: The <em>weft</em> runs."},
		{"stems", parse(t, "body:running"), map[string]any{"body": "He runs and ran, running."}, Options{}, "body: He <em>runs</em> and ran, <em>running</em>."},
		{"a field of the query only", parse(t, "title:weft"), map[string]any{"title": "Weft", "body": "The weft runs."}, Options{}, "title: <em>Weft</em>"},
		{"a field of the options only", parse(t, "weft"), map[string]any{"title": "Weft", "body": "The weft runs."}, Options{Fields: []string{"body"}}, "body: The <em>weft</em> runs."},
		{"a field without matches", parse(t, "weft"), map[string]any{"title": "Weft", "body": "The warp."}, Options{}, "title: <em>Weft</em>"},
		{"a phrase where it stands", parse(t, `title:"red fox"`), map[string]any{"title": "A fox, red. The red fox sees a red hen and a fox."}, Options{}, "title: A fox, red. The <em>red</em> <em>fox</em> sees a red hen and a fox."},
		{"a phrase with slop", &query.Phrase{Field: "title", Text: "red fox", Slop: 1}, map[string]any{"title": "red old fox, red very old fox"}, Options{}, "title: <em>red</em> old <em>fox</em>, red very old fox"},
		{"no phrase across values", parse(t, `title:"red fox" OR title:hen`), map[string]any{"title": []string{"red", "fox", "hen"}}, Options{}, "title: <em>hen</em>"},
		{"a phrase with a gap for a stop word", parse(t, `body:"queen of hearts"`), map[string]any{"body": "hearts queen hearts, queen; queen of hearts"}, Options{}, "body: hearts queen hearts, queen; <em>queen</em> of <em>hearts</em>"},
		{"a prefix", parse(t, "title:we*"), map[string]any{"title": "Weft, weave, WEB; sweet"}, Options{}, "title: <em>Weft</em>, <em>weave</em>, <em>WEB</em>; sweet"},
		{"any word of a match", &query.Match{Field: "title", Text: "a b"}, map[string]any{"title": "b c"}, Options{}, "title: <em>b</em> c"},
		{"all words of a match, not there", &query.Bool{Should: []query.Node{&query.Match{Field: "title", Text: "a b", All: true}, &query.Term{Field: "title", Text: "c"}}}, map[string]any{"title": "b c"}, Options{}, "title: b <em>c</em>"},
		{"never what is excluded", parse(t, "title:red -title:fox"), map[string]any{"title": "red hen"}, Options{}, "title: <em>red</em> hen"},
		{"an excluded field is no field to show", parse(t, "title:red -body:fox"), map[string]any{"title": "red", "body": "hen"}, Options{}, "title: <em>red</em>"},
		{"parts that do not match", parse(t, "(title:a AND title:b) OR title:c"), map[string]any{"title": "a c"}, Options{}, "title: a <em>c</em>"},
		{"an inner exclusion that holds", parse(t, "(title:a -title:b) OR title:c"), map[string]any{"title": "a b c"}, Options{}, "title: a b <em>c</em>"},
		{"parts about other fields count as matching", parse(t, "(title:a AND n:[1 TO 2]) OR title:c"), map[string]any{"title": "a c", "n": 9}, Options{}, "title: <em>a</em> <em>c</em>"},
		{"a boost changes nothing", parse(t, "title:a^3"), map[string]any{"title": "a c"}, Options{}, "title: <em>a</em> c"},
		{"filters mark", &query.Bool{Filter: []query.Node{&query.Term{Field: "title", Text: "a"}}}, map[string]any{"title": "a c"}, Options{}, "title: <em>a</em> c"},
		{"exact values", &query.Terms{Field: "tag", Values: []string{"x y", "z"}}, map[string]any{"tag": []string{"x", "x y", "z"}}, Options{}, "tag: <em>x y</em> | <em>z</em>"},
		{"the value of a column", parse(t, `tag:"x y"`), map[string]any{"tag": []string{"x", "x y"}}, Options{}, "tag: <em>x y</em>"},
		{"several values", parse(t, "title:a"), map[string]any{"title": []string{"b a", "c", "a d"}}, Options{InOrder: true}, "title: b <em>a</em> | <em>a</em> d"},
		{"a number as text", parse(t, "title:1984"), map[string]any{"title": 1984}, Options{}, "title: <em>1984</em>"},
		{"Chinese and Japanese", parse(t, "title:日本語"), map[string]any{"title": "これは日本語の文です。英語ではない。"}, Options{}, "title: これは<em>日本語</em>の文です。英語ではない。"},
		{"one character", parse(t, "title:語"), map[string]any{"title": "日本語と英語"}, Options{}, "title: 日本<em>語</em>と英<em>語</em>"},
		{"accents and full width", parse(t, "title:café OR title:abc"), map[string]any{"title": "Café «ＡＢＣ» thé"}, Options{}, "title: <em>Café</em> «<em>ＡＢＣ</em>» thé"},
		{"markup is escaped", parse(t, "title:script"), map[string]any{"title": `<script>"x" & 'y'</script>`}, Options{}, "title: &lt;<em>script</em>&gt;&#34;x&#34; &amp; &#39;y&#39;&lt;/<em>script</em>&gt;"},
		{"unless it is not wanted", parse(t, "title:script"), map[string]any{"title": "<script>"}, Options{Raw: true, Pre: "[", Post: "]"}, "title: <[script]>"},
		{"only Post", parse(t, "title:a"), map[string]any{"title": "a"}, Options{Post: "!"}, "title: a!"},
		{"a word of nothing", parse(t, "body:the OR body:cat"), map[string]any{"body": "the cat"}, Options{}, "body: the <em>cat</em>"},
		{"punctuation of a keyword", parse(t, "tag:\"C++\" OR body:\"(C++)\""), map[string]any{"tag": "C++", "body": "In (C++), now."}, Options{}, "body: In (<em>C</em>++), now.; tag: <em>C++</em>"},
		{"all", &query.All{}, map[string]any{"title": "a"}, Options{}, ""},
		{"unknown field", &query.Term{Field: "nope", Text: "a"}, map[string]any{"title": "a"}, Options{}, ""},
		{"nothing there", parse(t, "title:a"), map[string]any{"n": 1}, Options{}, ""},
	} {
		h, err := New(s, an, c.q, c.opts)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		for range 2 { // the second time with memory from the first
			got, err := h.Fragments(source(t, c.doc))
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			if show(got) != c.want {
				t.Errorf("%s: %s\n got %s\nwant %s", c.name, c.q, show(got), c.want)
			}
		}
	}
}

func TestFragmentsAreChosenByWords(t *testing.T) {
	s, an := testSchema(t)
	filler := strings.Repeat("Some words of no interest at all. ", 20)
	body := "A cat sat here. " + filler + "The cat chased a mouse past the dog. " + filler + "Cat, cat, cat and cat. " + filler + "A dog came by."
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Bytes: 40}, "body: The <em>cat</em> chased a <em>mouse</em> past the <em>dog</em>. | <em>Cat</em>, <em>cat</em>, <em>cat</em> and <em>cat</em>. Some words of no | A <em>cat</em> sat here. Some words of no"},
		{Options{Bytes: 40, Fragments: 1}, "body: The <em>cat</em> chased a <em>mouse</em> past the <em>dog</em>."},
		{Options{Bytes: 40, Fragments: 2, InOrder: true}, "body: The <em>cat</em> chased a <em>mouse</em> past the <em>dog</em>. | <em>Cat</em>, <em>cat</em>, <em>cat</em> and <em>cat</em>. Some words of no"},
	} {
		h, err := New(s, an, parse(t, "body:(cat OR dog OR mouse)"), c.o)
		if err != nil {
			t.Fatal(err)
		}
		got, err := h.Fragments(source(t, map[string]any{"body": body}))
		if err != nil || show(got) != c.want {
			t.Errorf("%+v: %v\n got %s\nwant %s", c.o, err, show(got), c.want)
		}
	}
}

func TestLongValues(t *testing.T) {
	s, an := testSchema(t)
	h, err := New(s, an, parse(t, "+title:needle +title:haystack"), Options{ScanBytes: 1000})
	if err != nil {
		t.Fatal(err)
	}
	got, err := h.Fragments(source(t, map[string]any{"title": "needle " + strings.Repeat("hay ", 1000) + "haystack"}))
	if err != nil || len(got) != 1 || !got[0].Truncated || len(got[0].Fragments) != 1 || !strings.HasPrefix(got[0].Fragments[0].Text, "<em>needle</em> hay") {
		t.Errorf("%+v, %v", got, err) // whether haystack is there is not known, so needle is marked
	}
	got, err = h.Fragments(source(t, map[string]any{"title": strings.Repeat("hay ", 249) + "needle haystack"}))
	if err != nil || len(got) != 1 || !got[0].Truncated || len(got[0].Fragments) != 0 {
		t.Errorf("half a word at the limit is no match: %+v, %v", got, err)
	}
	// A key of 30,000 bytes is shown in part.
	long := strings.Repeat("ключ", 4000)
	h, err = New(s, an, &query.Terms{Field: "tag", Values: []string{long}}, Options{Bytes: 101})
	if err != nil {
		t.Fatal(err)
	}
	got, err = h.Fragments(source(t, map[string]any{"tag": long}))
	if err != nil || show(got) != "tag: <em>"+long[:100]+"</em>" {
		t.Errorf("%s, %v", show(got), err)
	}
	// More matches than are counted.
	h, err = New(s, an, parse(t, `title:"a a" OR title:a`), Options{ScanBytes: 1 << 18})
	if err != nil {
		t.Fatal(err)
	}
	got, err = h.Fragments(source(t, map[string]any{"title": strings.Repeat("a ", MaxMarks+10)}))
	if err != nil || !got[0].Truncated || len(got[0].Fragments) != 3 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestOptionErrors(t *testing.T) {
	s, an := testSchema(t)
	for _, c := range []struct {
		o      Options
		option string
	}{
		{Options{Fields: []string{"nope"}}, "fields"},
		{Options{Fields: []string{"n"}}, "fields"},
		{Options{DefaultFields: []string{"nope"}}, "default_fields"},
		{Options{Fragments: 101}, "fragments"},
		{Options{Fragments: -1}, "fragments"},
		{Options{Bytes: 19}, "bytes"},
		{Options{Bytes: 1<<16 + 1}, "bytes"},
		{Options{ScanBytes: -1}, "scan_bytes"},
		{Options{ScanBytes: 1<<24 + 1}, "scan_bytes"},
		{Options{Pre: strings.Repeat("x", 257)}, "pre"},
		{Options{Post: strings.Repeat("x", 257)}, "post"},
	} {
		_, err := New(s, an, &query.All{}, c.o)
		var e *OptionError
		if !errors.As(err, &e) || e.Option != c.option || !strings.HasPrefix(err.Error(), "highlight "+c.option+" ") {
			t.Errorf("%+v: %v", c.o, err)
		}
	}
	many := make([]query.Node, 0, 3)
	for range 3 {
		many = append(many, &query.Match{Field: "title", Text: strings.Repeat("a ", 30_000)})
	}
	_, err := New(s, an, &query.Bool{Should: many}, Options{})
	var e *OptionError
	if !errors.As(err, &e) || e.Option != "query" {
		t.Errorf("a query of 90,000 words: %v", err)
	}
}

func TestBadSource(t *testing.T) {
	s, an := testSchema(t)
	h, err := New(s, an, parse(t, "title:a"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if f, err := h.Fragments(nil); f != nil || err != nil {
		t.Errorf("no source: %v, %v", f, err)
	}
	for _, src := range []string{"{", "[]", `{"title":{"x":1}}`} {
		if _, err := h.Fragments([]byte(src)); err == nil {
			t.Errorf("%s is taken", src)
		}
	}
	if f, err := h.Fragments([]byte(`{"id":"x","title":"a"}`)); err != nil || show(f) != "title: <em>a</em>" {
		t.Errorf("after a bad one: %v, %v", f, err)
	}
}

// check holds the laws of fragments for any document: text without marks is the piece of the value, pieces do not overlap and keep the limits,
// they are cut between characters, and every token of a marked word list is marked.
func check(t *testing.T, values []string, o Options, f Field) {
	t.Helper()
	if len(f.Fragments) > o.Fragments {
		t.Fatalf("%d fragments, at most %d", len(f.Fragments), o.Fragments)
	}
	for i, x := range f.Fragments {
		v := values[x.Value]
		if x.Start < 0 || x.Start >= x.End || x.End > len(v) || x.End-x.Start > o.Bytes {
			t.Fatalf("piece %d:%d of %d bytes, at most %d", x.Start, x.End, len(v), o.Bytes)
		}
		piece := v[x.Start:x.End]
		plain := strings.NewReplacer("\x01", "", "\x02", "").Replace(x.Text)
		if !o.Raw {
			if strings.ContainsAny(x.Text, `<>"'`) {
				t.Fatalf("%q is not escaped", x.Text)
			}
			plain = html.UnescapeString(plain)
		}
		if plain != strings.NewReplacer("\x01", "", "\x02", "").Replace(piece) {
			t.Fatalf("%q shows %q of %q", x.Text, plain, piece)
		}
		if utf8.ValidString(v) && !utf8.ValidString(piece) {
			t.Fatalf("%q is cut inside a character", piece)
		}
		if !strings.Contains(x.Text, "\x01") {
			t.Fatalf("%q has no mark", x.Text)
		}
		for _, y := range f.Fragments[:i] {
			if y.Value == x.Value && y.Start < x.End && x.Start < y.End {
				t.Fatalf("pieces %d:%d and %d:%d overlap", x.Start, x.End, y.Start, y.End)
			}
		}
		if o.InOrder && i > 0 && (f.Fragments[i-1].Value > x.Value || f.Fragments[i-1].Value == x.Value && f.Fragments[i-1].Start >= x.Start) {
			t.Fatal("not in order")
		}
	}
}

var vocabulary = []string{"red", "Fox", "hen", "日本語", "語", "本", "é", "naïve", "Straße", "👩‍👩‍👧", "a", "b", "<b>", "&", "don't", "3.14", "e\u0301e", "🇩🇪🇫🇷", "\u200d"}

func randomText(r *rand.Rand) string {
	var b strings.Builder
	for range r.IntN(60) {
		b.WriteString(vocabulary[r.IntN(len(vocabulary))])
		b.WriteString([]string{" ", " ", " ", "", ". ", "\n", ", ", "。"}[r.IntN(8)])
	}
	return b.String()
}

func randomQuery(r *rand.Rand, depth int) query.Node {
	word := func() string { return vocabulary[r.IntN(len(vocabulary))] }
	f := []string{"title", "title", "body", "tag", ""}[r.IntN(5)]
	k := r.IntN(7)
	if depth == 0 {
		k = r.IntN(5)
	}
	switch k {
	case 0:
		return &query.Term{Field: f, Text: word()}
	case 1:
		return &query.Match{Field: f, Text: word() + " " + word(), All: r.IntN(2) == 0}
	case 2:
		return &query.Phrase{Field: f, Text: word() + " " + word(), Slop: uint32(r.IntN(3))}
	case 3:
		return &query.Prefix{Field: f, Text: string([]rune(word())[:1])}
	case 4:
		return &query.Terms{Field: "tag", Values: []string{word()}}
	}
	b := &query.Bool{}
	for _, l := range []*[]query.Node{&b.Must, &b.Should, &b.Should, &b.MustNot, &b.Filter} {
		for range r.IntN(2) {
			*l = append(*l, randomQuery(r, depth-1))
		}
	}
	return b
}

func TestRandomDocuments(t *testing.T) {
	s, an := testSchema(t)
	r := rand.New(rand.NewPCG(7, 7))
	some := 0
	for range 1000 {
		o := Options{Pre: "\x01", Post: "\x02", Fragments: 1 + r.IntN(4), Bytes: MinBytes + r.IntN(60), Raw: r.IntN(3) == 0, InOrder: r.IntN(2) == 0}
		q := randomQuery(r, 2)
		h, err := New(s, an, q, o)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			doc := &schema.Document{}
			for f := 1; f <= 3; f++ {
				var v []string
				for range 1 + r.IntN(3) {
					v = append(v, randomText(r))
				}
				doc.Fields = append(doc.Fields, schema.Values{Field: f, Text: v})
			}
			for _, f := range h.Document(doc) {
				id, _ := s.Lookup(f.Name)
				check(t, doc.Fields[id-1].Text, o, f)
				some++
			}
		}
	}
	if some < 500 {
		t.Errorf("only %d fields had fragments", some)
	}
}

// TestEveryWordIsMarked compares with the obvious way: in one fragment that holds the value as a whole, the marked pieces are the tokens that
// the query's tokens are among.
func TestEveryWordIsMarked(t *testing.T) {
	s, an := testSchema(t)
	r := rand.New(rand.NewPCG(9, 9))
	var a, b text.Scratch
	for range 1000 {
		v := randomText(r)
		words := vocabulary[r.IntN(len(vocabulary))] + " " + vocabulary[r.IntN(len(vocabulary))]
		h, err := New(s, an, &query.Match{Field: "title", Text: words}, Options{Pre: "\x01", Post: "\x02", Raw: true, Bytes: MaxBytes})
		if err != nil {
			t.Fatal(err)
		}
		got := h.Document(&schema.Document{Fields: []schema.Values{{Field: 1, Text: []string{v}}}})
		marked := make([]bool, len(v))
		any := false
		for _, w := range an(1).Query(&b, words) {
			for _, tok := range an(1).Index(&a, v) {
				if string(tok.Text) == string(w.Text) {
					any = true
					for i := tok.Start; i < tok.End; i++ {
						marked[i] = true
					}
				}
			}
		}
		if any != (len(got) == 1) {
			t.Fatalf("%q in %q: %s", words, v, show(got))
		}
		if !any {
			continue
		}
		x := got[0].Fragments[0]
		i, on := x.Start, false
		for _, c := range []byte(x.Text) {
			switch c {
			case 1:
				on = true
				continue
			case 2:
				on = false
				continue
			}
			if marked[i] != on {
				t.Fatalf("%q in %q: %q: byte %d", words, v, x.Text, i)
			}
			i++
		}
		if slices.Contains(marked[:x.Start], true) || slices.Contains(marked[x.End:], true) {
			t.Fatalf("%q in %q: %q leaves matches out", words, v, x.Text)
		}
	}
}

func FuzzHighlight(f *testing.F) {
	f.Add(`title:"red fox" OR we*`, "The red fox.", "", 3, 40)
	f.Add("日本 -x", "これは日本語", "<b>&", 1, 20)
	f.Add("a OR (b AND c)", strings.Repeat("a b ", 50), "\xff\xfe", 5, 30)
	f.Fuzz(func(t *testing.T, q, one, two string, fragments, size int) {
		n, err := query.Parse(q, query.ParseOptions{})
		if err != nil {
			return
		}
		s, an := testSchema(t)
		o := Options{Pre: "\x01", Post: "\x02", Fragments: fragments, Bytes: size}
		h, err := New(s, an, n, o)
		if err != nil {
			var e *OptionError
			if !errors.As(err, &e) {
				t.Fatalf("error of type %T", err)
			}
			return
		}
		if o.Fragments == 0 {
			o.Fragments = DefaultFragments
		}
		if o.Bytes == 0 {
			o.Bytes = DefaultBytes
		}
		v := []string{one, two}
		for _, got := range h.Document(&schema.Document{Fields: []schema.Values{{Field: 1, Text: v}, {Field: 2, Text: v}, {Field: 3, Text: v}}}) {
			if !strings.ContainsAny(one+two, "\x01\x02") {
				check(t, v, o, got)
			}
		}
	})
}

func BenchmarkFragments(b *testing.B) {
	s, an := testSchema(b)
	r := rand.New(rand.NewPCG(1, 1))
	var t strings.Builder
	for t.Len() < 4000 {
		fmt.Fprintf(&t, "%s word%d of it, ", vocabulary[r.IntN(3)], r.IntN(1000))
	}
	src := source(b, map[string]any{"title": "Of weft and warp", "body": t.String()})
	h, err := New(s, an, parse(b, `red fox "word1 of" we*`), Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := h.Fragments(src); err != nil {
			b.Fatal(err)
		}
	}
}
