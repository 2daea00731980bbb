// Package text turns text into tokens: the tokenizers of the Summa schema language by name, weft's own two (alnum and
// standard), and lex(…) expressions. README.md beside this file tells what each one does and why.
//
// Contract: an Analyzer is a pure function of its input. The same spec and Version give the same tokens on every machine, so
// tokens may be stored. Any input is taken: bytes that are no UTF-8 separate words or count as U+FFFD, and are never an error.
//
// Positions start at 0 in each value and never decrease. A stop word and an over-long token keep their position, so that later
// tokens are not renumbered and phrases keep their distances. Several tokens can share a position (variants, character
// n-grams); the length of a value, for BM25, is its number of positions with a token: see Length.
//
// Concurrency: Analyzers are immutable and safe for use at once. A Scratch belongs to one goroutine at a time.
package text

import (
	"fmt"
	"sort"
	"strings"
	"sync"

	"github.com/clipperhouse/uax29/v2/words"

	"github.com/weft-search/weft/internal/text/stem"
)

// MaxTokenBytes is the longest token, in bytes, of the tokenizers without a shorter limit of their own. A longer one is dropped
// and its position stays empty. It is the longest term that a segment's dictionary takes.
const MaxTokenBytes = 32766

// MaxStandardBytes is the longest token of standard and unicode_word, in bytes. Nobody types longer words; they are hashes and encoded data.
const MaxStandardBytes = 255

// MaxSpecBytes bounds a tokenizer spec, checked before it is read.
const MaxSpecBytes = 1024

// MaxValueBytes is the longest value whose offsets fit a Token. Of a longer value only the first MaxValueBytes are read.
const MaxValueBytes = 1<<31 - 1

// Token is one token of a value.
type Token struct {
	Text       []byte // the term, in memory of the Scratch: read only, valid until the Scratch is used again
	Pos        uint32 // position within the value, from 0, with gaps
	Start, End uint32 // byte offsets into the value of the text that the token stands for
}

// Scratch holds the memory of one tokenization at a time. The zero value is ready. Keep one for each goroutine and reuse it:
// in steady state ASCII text is split, lower-cased and (English) stemmed without allocating. A Scratch keeps the memory that its
// largest value needed.
type Scratch struct {
	toks []Token
	low  []byte // text of ASCII tokens, at the offset where they stand in the value
	buf  []byte // text of all other tokens
	norm []byte // a word being normalised
	alt  []byte // the same word in a second form
	run  []char // characters of a run without spaces
	stem stem.Buf
	seg  *words.Iterator[string] // made when first needed
}

// reset prepares the scratch for a value of n bytes.
func (s *Scratch) reset(n int) {
	s.toks = s.toks[:0]
	s.buf = s.buf[:0]
	s.run = s.run[:0]
	if cap(s.low) < n {
		s.low = make([]byte, n+n/4+64)
	}
}

// Shrink lets go of the memory if it is more than n bytes, so that one large value does not stay for ever. Tokens of the last call
// remain valid.
func (s *Scratch) Shrink(n int) {
	const tokenBytes = 40
	if cap(s.toks)*tokenBytes+cap(s.low)+cap(s.buf)+cap(s.norm)+cap(s.alt)+cap(s.run)*16 > n {
		*s = Scratch{}
	}
}

// emit appends a token. The fields are written one by one: a Token made on the stack and copied stalls on the copy, which reads in wider
// pieces than were written (twice the time of the whole loop).
func (s *Scratch) emit(text []byte, pos uint32, start, end int) {
	n := len(s.toks)
	if n == cap(s.toks) {
		s.grow()
	}
	s.toks = s.toks[:n+1]
	t := &s.toks[n]
	t.Text = text
	t.Pos, t.Start, t.End = pos, uint32(start), uint32(end)
}

//go:noinline
func (s *Scratch) grow() {
	s.toks = append(s.toks, Token{})[:len(s.toks)]
}

// keep copies b into memory that lives as long as the tokens.
func (s *Scratch) keep(b []byte) []byte {
	from := len(s.buf)
	s.buf = append(s.buf, b...)
	return s.buf[from:len(s.buf):len(s.buf)]
}

// An algorithm appends the tokens of v to s.toks.
type algorithm func(s *Scratch, v string)

// Analyzer is a tokenizer. Get one with Lookup.
type Analyzer struct {
	name      string
	version   string
	index     algorithm
	query     algorithm
	exact     algorithm
	normalize func(string) string
	lex       *lex
}

// Index returns the tokens of a stored value in order of position. The tokens and their text are valid until the next use of s.
func (a *Analyzer) Index(s *Scratch, value string) []Token { return run(s, value, a.index) }

// Query returns the tokens of the text of a match query, to be looked up among those that Index made. It differs from Index
// only where Index puts alternatives at a position: lex gives the stem of each word, and a run of characters without spaces
// gives its bigrams. Tokens are valid until the next use of s.
func (a *Analyzer) Query(s *Scratch, text string) []Token { return run(s, text, a.query) }

// Exact returns the tokens of the text of a phrase or term query. It differs from Query for lex with variants alone: the words as written
// instead of their stems.
func (a *Analyzer) Exact(s *Scratch, text string) []Token { return run(s, text, a.exact) }

func run(s *Scratch, v string, f algorithm) []Token {
	if len(v) > MaxValueBytes {
		v = v[:MaxValueBytes]
	}
	s.reset(len(v))
	f(s, v)
	return s.toks
}

// Normalize folds the prefix of a prefix query as the tokenizer folds terms, without stemming, stop words or splitting.
func (a *Analyzer) Normalize(prefix string) string { return a.normalize(prefix) }

// Name returns the spec that the analyzer was looked up with.
func (a *Analyzer) Name() string { return a.name }

// Version names the rules and tables that the tokens depend on, for the schema's record. Equal versions give equal tokens.
func (a *Analyzer) Version() string { return a.version }

// Variants reports whether Exact differs from Query: the index holds the words as written beside their stems (Summa's TextFieldInfo.variants).
func (a *Analyzer) Variants() bool { return a.lex != nil && a.lex.variants }

// Lexical reports whether the analyzer is a lex(…) expression (Summa's TextFieldInfo.lexical).
func (a *Analyzer) Lexical() bool { return a.lex != nil }

// HintField returns the field whose values name the language of a document, for lex(by: …), else "".
func (a *Analyzer) HintField() string {
	if a.lex == nil {
		return ""
	}
	return a.lex.by
}

// WithHint returns the analyzer for a document or query whose language is known: hint is a list of codes or English names
// separated by commas, as in "ru,en". Where the analyzer takes no hint, or knows none of the languages, it is a itself.
func (a *Analyzer) WithHint(hint string) *Analyzer {
	if a.lex == nil || a.lex.by == "" || hint == "" {
		return a
	}
	return a.lex.hinted(a, hint)
}

// Length returns the number of positions with a token in tokens: what BM25 counts as the length of the value.
func Length(tokens []Token) int {
	n := 0
	for i := range tokens {
		if i == 0 || tokens[i].Pos != tokens[i-1].Pos {
			n++
		}
	}
	return n
}

// SpecError says what is wrong with a tokenizer spec and where.
type SpecError struct {
	Spec     string
	Offset   int    // byte offset into Spec
	Expected string // what would have been right there
	Found    string // what stands there
}

// Error implements error.
func (e *SpecError) Error() string {
	spec := e.Spec
	if len(spec) > 80 {
		spec = strings.ToValidUTF8(spec[:80], "") + "…"
	}
	return fmt.Sprintf("tokenizer %q: at byte %d: expected %s, found %s", spec, e.Offset, e.Expected, e.Found)
}

// cache holds analyzers by spec. It is bounded: specs come from schemas, which come from callers.
var cache struct {
	sync.RWMutex
	m map[string]*Analyzer
}

const cacheSize = 1024

// Lookup returns the analyzer for a tokenizer name or a lex(…) expression. Errors are *SpecError. Analyzers are cached: looking one up
// again costs a map access.
func Lookup(spec string) (*Analyzer, error) {
	cache.RLock()
	a := cache.m[spec]
	cache.RUnlock()
	if a != nil {
		return a, nil
	}
	a, err := build(spec)
	if err != nil {
		return nil, err
	}
	cache.Lock()
	defer cache.Unlock()
	if old := cache.m[spec]; old != nil {
		return old, nil
	}
	if cache.m == nil || len(cache.m) >= cacheSize {
		cache.m = make(map[string]*Analyzer)
	}
	cache.m[spec] = a
	return a, nil
}

// Check reports whether Lookup would take spec. Errors are *SpecError.
func Check(spec string) error {
	_, err := Lookup(spec)
	return err
}

// Canonical returns spec as Summa prints it in a schema: a lex expression with its options that are not defaults, in a fixed
// order; a name as it is. Errors are *SpecError.
func Canonical(spec string) (string, error) {
	a, err := Lookup(spec)
	if err != nil {
		return "", err
	}
	if a.lex != nil {
		return a.lex.String(), nil
	}
	return a.name, nil
}

// Names returns every plain tokenizer name, sorted.
func Names() []string {
	out := make([]string, 0, len(named))
	for n := range named {
		out = append(out, n)
	}
	sort.Strings(out)
	return out
}
