package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/weft-search/weft/internal/client"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/text"
)

// printer prints an answer as a table: a line for each hit, and below it the part of the document that fits the query best.
type printer struct {
	w      io.Writer
	offset int
	color  bool
	marks  *marks
	facets []string // in the order asked
	// fragments says that the server was asked for what was found; then no part of a document is chosen here.
	fragments bool
	paging    bool // say how to go on
	begun     bool // something is printed, from which the next part stands off
	err       error
}

func (p *printer) printf(format string, args ...any) {
	p.begun = true
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

// gap prints an empty line between two parts.
func (p *printer) gap() {
	if p.begun {
		p.printf("\n")
	}
}

func (p *printer) print(res *client.SearchResult) {
	p.hits(res)
	p.buckets(res)
	if len(res.Aggs) > 0 {
		text := res.Aggs.Clone()
		if err := text.Indent(); err == nil {
			p.gap()
			p.printf("%s\n", harmless(string(text)))
		}
	}
	total := thousands(int64(res.Total))
	switch {
	case res.TotalRelation == "gte":
		total = "at least " + total
	case res.TotalRelation == "" || res.TotalRelation == "none":
		total = "an uncounted number of"
	}
	p.gap()
	p.plan(res.Explain)
	p.printf("%s of %s hits in %s ms\n", thousands(int64(len(res.Hits))), total, strconv.FormatFloat(res.TookMS, 'f', -1, 64))
	switch {
	case !res.Coverage.Complete && res.Coverage.DocsTotal > 0:
		p.printf("INCOMPLETE: %s of %s documents were searched; there may be better hits\n",
			thousands(int64(res.Coverage.DocsCovered)), thousands(int64(res.Coverage.DocsTotal)))
	case !res.Coverage.Complete:
		p.printf("INCOMPLETE: not all documents were searched; there may be better hits\n")
	case res.TotalRelation == "gte":
		p.printf("The total is a lower bound; --track-total exact counts every hit.\n")
	}
	if slices.Contains(res.Approximate, "knn") {
		p.printf("The nearest were found by a graph, which may miss some; --knn-exact compares with every vector.\n")
	}
	for _, n := range res.Notes {
		p.printf("note: %s\n", clean(n))
	}
	if res.Next != "" && p.paging {
		p.printf("next page: --after %s\n", clean(res.Next))
	}
}

// hits prints the table.
func (p *printer) hits(res *client.SearchResult) {
	width, ranks := 5, false
	for _, h := range res.Hits {
		width = max(width, len(scoreText(h.Score)))
		ranks = ranks || h.LexicalRank > 0 || h.VectorRank > 0
	}
	indent := width + 6
	if len(res.Hits) > 0 {
		if ranks {
			p.printf("%4s  %*s  %5s  %5s  %s\n", "#", width, "SCORE", "WORDS", "KNN", "ID")
			indent += 14
		} else {
			p.printf("%4s  %*s  %s\n", "#", width, "SCORE", "ID")
		}
	}
	for i, h := range res.Hits {
		p.printf("%4d  %*s  ", p.offset+i+1, width, scoreText(h.Score))
		if ranks {
			p.printf("%5s  %5s  ", rankText(h.LexicalRank), rankText(h.VectorRank))
		}
		p.printf("%s%s\n", clean(h.ID), sortText(h.Sort))
		if len(h.Highlight) > 0 {
			for _, name := range slices.Sorted(maps.Keys(h.Highlight)) {
				for _, text := range h.Highlight[name] {
					p.printf("%*s  %s: %s\n", indent, "", clean(name), p.marked(text))
				}
			}
		} else if !p.fragments {
			if s := p.snippet(h.Source); s != "" {
				p.printf("%*s  %s\n", indent, "", s)
			}
		}
		if h.Explain != nil {
			p.explanation(h.Explain, indent+2)
		}
	}
}

// rankText is a place in a ranking.
func rankText(rank int) string {
	if rank == 0 {
		return "-"
	}
	return strconv.Itoa(rank)
}

// sortText shows the values that a hit stands in order by.
func sortText(values []jsontext.Value) string {
	if len(values) == 0 {
		return ""
	}
	parts := make([]string, len(values))
	for i, v := range values {
		parts[i] = valueText(v)
	}
	return "  (" + strings.Join(parts, ", ") + ")"
}

// valueText is a scalar of a reply without quotes.
func valueText(v jsontext.Value) string {
	switch v.Kind() {
	case '"':
		if b, err := jsontext.AppendUnquote(nil, v); err == nil {
			return clean(string(b))
		}
	case 'n':
		return "-"
	}
	return clean(string(v))
}

// The marks that the server is asked to put around what was found: control characters, which no text that is printed has.
const (
	markOpen  = "\x02"
	markClose = "\x03"
)

// marked prints a fragment of the server with its marks in colour or brackets.
func (p *printer) marked(text string) string {
	open, end := "[", "]"
	if p.color {
		open, end = "\x1b[1;33m", "\x1b[0m"
	}
	var b strings.Builder
	for len(text) > 0 {
		at := strings.IndexAny(text, markOpen+markClose)
		if at < 0 {
			at = len(text)
		}
		b.WriteString(clean(text[:at]))
		if at < len(text) {
			if text[at] == markOpen[0] {
				b.WriteString(open)
			} else {
				b.WriteString(end)
			}
			at++
		}
		text = text[at:]
	}
	return b.String()
}

// explanation prints a tree of scores, a line for each part.
func (p *printer) explanation(e *client.Explanation, indent int) {
	p.printf("%*s%s  %s", indent, "", scoreText(e.Value), clean(e.Kind))
	switch {
	case e.Ranking != "":
		p.printf(" %s, place %d", clean(e.Ranking), e.Rank)
	case e.Field != "" && e.Text != "":
		p.printf(" %s:%s", clean(e.Field), clean(e.Text))
	case e.Field != "" || e.Text != "":
		p.printf(" %s", clean(e.Field+e.Text))
	}
	if e.Metric != "" {
		p.printf(", %s", clean(e.Metric))
	}
	if e.Kind == "boost" {
		p.printf(" ×%s", scoreText(e.Factor))
	}
	if b := e.BM25; b != nil {
		p.printf("  (tf %d, length %d of %s on average; in %s of %s documents, idf %s)", b.TF, b.Len, scoreText(b.Avg), thousands(int64(b.DF)), thousands(int64(b.Docs)), scoreText(b.IDF))
	}
	if e.Match != nil && !*e.Match {
		p.printf("  no match")
	}
	p.printf("\n")
	for _, part := range e.Parts {
		p.explanation(part, indent+2)
	}
	if e.More > 0 {
		p.printf("%*sand %s more\n", indent+2, "", thousands(int64(e.More)))
	}
}

// plan prints which way the vector search went.
func (p *printer) plan(raw jsontext.Value) {
	var e struct {
		KNN *struct {
			Path     string `json:"path"`
			Docs     uint64 `json:"docs"`
			Matching uint64 `json:"matching"`
		} `json:"knn"`
	}
	if len(raw) == 0 || json.Unmarshal(raw, &e) != nil || e.KNN == nil {
		return
	}
	p.printf("knn by %s; %s of %s documents match the filters (--json has the whole plan)\n",
		clean(e.KNN.Path), thousands(int64(e.KNN.Matching)), thousands(int64(e.KNN.Docs)))
}

// facetLines is how many values of a facet are printed.
const facetLines = 10

// buckets prints the facets.
func (p *printer) buckets(res *client.SearchResult) {
	names := p.facets
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(res.Facets))
	}
	for _, name := range names {
		list, ok := res.Facets[name]
		if !ok {
			continue
		}
		p.gap()
		p.printf("%s, %s\n", clean(name), counted(int64(len(list)), "value", "values"))
		for i, b := range list {
			if i == facetLines {
				p.printf("%10s  (%s more; --json has all)\n", "…", thousands(int64(len(list)-i)))
				break
			}
			p.printf("%10s  %s\n", thousands(int64(b.Count)), valueText(b.Value))
		}
	}
}

// scoreText has three decimals, or two digits of a score that would have none of its own left.
func scoreText(s float32) string {
	if s != 0 && s > -0.001 && s < 0.001 {
		return strconv.FormatFloat(float64(s), 'g', 2, 32)
	}
	return strconv.FormatFloat(float64(s), 'f', 3, 32)
}

// snippetRunes is the length of the part of a document that is shown.
const snippetRunes = 160

// longestAnalysed bounds the bytes of a value that are looked through for the query's words.
const longestAnalysed = 64 << 10

// snippet finds the member of a document that has most of the query in it and returns it, or the part around what was found.
func (p *printer) snippet(source jsontext.Value) string {
	best, bestSpans, bestField, bestRank := "", []span(nil), "", -1
	for name, value := range textMembers(source) {
		if name == "id" {
			continue
		}
		value = strings.ToValidUTF8(value[:min(len(value), longestAnalysed)], "")
		spans := p.marks.find(name, value)
		// Text tells more than a keyword, whatever was found there.
		rank := distinct(value, spans)
		if !p.marks.keyword(name) {
			rank += 1000
		}
		if rank > bestRank {
			best, bestSpans, bestField, bestRank = value, spans, name, rank
		}
	}
	if best == "" {
		return ""
	}
	return bestField + ": " + cut(best, bestSpans, p.color)
}

// textMembers yields the texts at the top level of an object in their order.
func textMembers(source jsontext.Value) func(yield func(string, string) bool) {
	return func(yield func(string, string) bool) {
		d := jsontext.NewDecoder(bytes.NewReader(source))
		if tok, err := d.ReadToken(); err != nil || tok.Kind() != '{' {
			return
		}
		for d.PeekKind() == '"' {
			name, err := d.ReadToken()
			if err != nil {
				return
			}
			key := name.String()
			v, err := d.ReadValue()
			if err != nil {
				return
			}
			var texts []string
			switch v.Kind() {
			case '"':
				texts = make([]string, 1)
				err = json.Unmarshal(v, &texts[0])
			case '[':
				// An array of anything but texts has no text to show.
				if json.Unmarshal(v, &texts) != nil {
					texts = nil
				}
			}
			if err != nil {
				return
			}
			for _, t := range texts {
				if !yield(key, t) {
					return
				}
			}
		}
	}
}

// span is a part of a text that the query found.
type span struct{ start, end int }

// distinct counts the different words among the spans.
func distinct(value string, spans []span) int {
	var seen []string
	for _, s := range spans {
		if w := strings.ToLower(value[s.start:s.end]); !slices.Contains(seen, w) {
			seen = append(seen, w)
		}
	}
	return len(seen)
}

// cut returns the part of the value around its first cluster of spans, on one line, with the spans marked.
func cut(value string, spans []span, color bool) string {
	start, end := 0, len(value)
	if utf8.RuneCountInString(value) > snippetRunes {
		at := 0
		if len(spans) > 0 {
			at = spans[densest(spans)].start
		}
		start = back(value, at, snippetRunes/4)
		end = forth(value, start, snippetRunes)
	}
	var b strings.Builder
	if start > 0 {
		b.WriteString("… ")
	}
	pos := start
	for _, s := range spans {
		if s.start < pos || s.end > end {
			continue
		}
		b.WriteString(clean(value[pos:s.start]))
		if color {
			b.WriteString("\x1b[1;33m")
		}
		b.WriteString(clean(value[s.start:s.end]))
		if color {
			b.WriteString("\x1b[0m")
		}
		pos = s.end
	}
	b.WriteString(clean(value[pos:end]))
	if end < len(value) {
		b.WriteString(" …")
	}
	return strings.TrimSpace(b.String())
}

// densest is the span that begins the stretch of snippetRunes bytes with most spans in it.
func densest(spans []span) int {
	best, most := 0, 0
	for i := range spans {
		n := 0
		for j := i; j < len(spans) && spans[j].end-spans[i].start < snippetRunes; j++ {
			n++
		}
		if n > most {
			best, most = i, n
		}
	}
	return best
}

// back goes n runes back from byte at, then on to the beginning of a word.
func back(s string, at, n int) int {
	for ; at > 0 && n > 0; n-- {
		_, w := utf8.DecodeLastRuneInString(s[:at])
		at -= w
	}
	if at == 0 {
		return 0
	}
	if sp := strings.IndexFunc(s[at:], unicode.IsSpace); sp >= 0 && sp < 20 {
		at += sp + 1
	}
	return at
}

// forth goes n runes on from byte at.
func forth(s string, at, n int) int {
	for ; at < len(s) && n > 0; n-- {
		_, w := utf8.DecodeRuneInString(s[at:])
		at += w
	}
	return at
}

// harmless keeps the lines of a text and takes out what would steer a terminal.
func harmless(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || unicode.IsPrint(r) {
			return r
		}
		if unicode.IsSpace(r) {
			return ' '
		}
		return '\uFFFD'
	}, s)
}

// clean puts text on one line and takes out what would steer a terminal.
func clean(s string) string {
	var b strings.Builder
	space := false
	for _, r := range s {
		switch {
		case unicode.IsSpace(r):
			if !space {
				b.WriteByte(' ')
			}
			space = true
			continue
		case !unicode.IsPrint(r):
			r = '\uFFFD'
		}
		space = false
		b.WriteRune(r)
	}
	return b.String()
}

// marks finds the words of a query in the fields of documents, with the tokenizer of each field, so that what is marked is what
// the index matched.
type marks struct {
	schema *schema.Schema
	wanted []wanted
	fields map[string]*fieldMarks
}

// wanted is a text of the query that documents are found by.
type wanted struct {
	field  string // empty: any
	text   string
	prefix bool
}

type fieldMarks struct {
	analyzer *text.Analyzer // nil: words
	tokens   map[string]bool
	prefixes []string
	scratch  text.Scratch
}

// newMarks reads the query and asks the server for the index's schema. Marks are for the eye: where either cannot be had, words
// are compared as they are.
func newMarks(ctx context.Context, c *client.Client, index, q string) *marks {
	m := &marks{fields: map[string]*fieldMarks{}}
	if n, err := query.Parse(q, query.ParseOptions{}); err == nil {
		m.collect(n)
	}
	if len(m.wanted) == 0 {
		return m
	}
	if info, err := c.Index(ctx, index); err == nil {
		if s, err := readSchema(info.Schema); err == nil {
			m.schema = s
		}
	}
	return m
}

// readSchema reads the schema of a description of an index: SDL in a string, or JSON.
func readSchema(v jsontext.Value) (*schema.Schema, error) {
	switch v.Kind() {
	case '"':
		var sdl string
		if err := json.Unmarshal(v, &sdl); err != nil {
			return nil, fmt.Errorf("read schema: %w", err)
		}
		return schema.ParseSDL(sdl, nil)
	case '{':
		return schema.ParseJSON(string(v), nil)
	}
	return nil, errors.New("the server tells no schema")
}

func (m *marks) collect(n query.Node) {
	switch n := n.(type) {
	case *query.Term:
		m.wanted = append(m.wanted, wanted{n.Field, n.Text, false})
	case *query.Match:
		m.wanted = append(m.wanted, wanted{n.Field, n.Text, false})
	case *query.Phrase:
		m.wanted = append(m.wanted, wanted{n.Field, n.Text, false})
	case *query.Prefix:
		m.wanted = append(m.wanted, wanted{n.Field, n.Text, true})
	case *query.Boost:
		m.collect(n.Query)
	case *query.Bool:
		for _, list := range [][]query.Node{n.Must, n.Should, n.Filter} {
			for _, c := range list {
				m.collect(c)
			}
		}
	}
}

// find returns the parts of a value that the query found, in order.
func (m *marks) find(field, value string) []span {
	if m == nil || len(m.wanted) == 0 {
		return nil
	}
	f := m.field(field)
	if len(f.tokens) == 0 && len(f.prefixes) == 0 {
		return nil
	}
	var out []span
	add := func(token string, start, end int) {
		ok := f.tokens[token]
		for _, p := range f.prefixes {
			ok = ok || strings.HasPrefix(token, p)
		}
		if ok && start < end && (len(out) == 0 || start >= out[len(out)-1].end) {
			out = append(out, span{start, end})
		}
	}
	if f.analyzer != nil {
		for _, t := range f.analyzer.Index(&f.scratch, value) {
			add(string(t.Text), int(t.Start), int(t.End))
		}
		return out
	}
	for start, end := range wordSpans(value) {
		add(strings.ToLower(value[start:end]), start, end)
	}
	return out
}

// keyword tells whether the values of a field are single tokens.
func (m *marks) keyword(name string) bool {
	if m == nil || m.schema == nil {
		return false
	}
	id, ok := m.schema.Lookup(name)
	return ok && strings.HasPrefix(m.schema.Fields[id].Tokenizer, "raw")
}

// searched tells whether a term without a field looks into the field.
func (m *marks) searched(name string) bool {
	if m.schema == nil {
		return true
	}
	if len(m.schema.DefaultFields) > 0 {
		return slices.Contains(m.schema.DefaultFields, name)
	}
	id, ok := m.schema.Lookup(name)
	return ok && m.schema.Fields[id].Indexed
}

// field prepares the query for a field.
func (m *marks) field(name string) *fieldMarks {
	if f, ok := m.fields[name]; ok {
		return f
	}
	f := &fieldMarks{tokens: map[string]bool{}}
	m.fields[name] = f
	if m.schema != nil {
		if id, ok := m.schema.Lookup(name); ok && m.schema.Fields[id].Type == schema.Text {
			if a, err := text.Lookup(m.schema.Fields[id].Tokenizer); err == nil {
				f.analyzer = a
			}
		}
	}
	for _, w := range m.wanted {
		switch {
		case w.field != "" && w.field != name, w.field == "" && !m.searched(name):
		case w.prefix && f.analyzer != nil:
			f.prefixes = append(f.prefixes, f.analyzer.Normalize(w.text))
		case w.prefix:
			f.prefixes = append(f.prefixes, strings.ToLower(w.text))
		case f.analyzer != nil:
			for _, t := range f.analyzer.Query(&f.scratch, w.text) {
				f.tokens[string(t.Text)] = true
			}
		default:
			for _, word := range words(w.text) {
				f.tokens[strings.ToLower(word)] = true
			}
		}
	}
	return f
}

// words are the runs of letters and digits in s.
func words(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}

// wordSpans yields where the words of s begin and end.
func wordSpans(s string) func(yield func(start, end int) bool) {
	return func(yield func(start, end int) bool) {
		start := -1
		for i, r := range s {
			in := unicode.IsLetter(r) || unicode.IsDigit(r)
			if in && start < 0 {
				start = i
			}
			if !in && start >= 0 {
				if !yield(start, i) {
					return
				}
				start = -1
			}
		}
		if start >= 0 {
			yield(start, len(s))
		}
	}
}
