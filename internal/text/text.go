// Package text turns text into tokens: the tokenizers of the Summa schema language by name, weft's own two (alnum and
// standard), and lex(…) expressions.
//
// Contract: an Analyzer is a pure function of its input. The same spec and Version give the same tokens on every machine, so
// tokens may be stored. Any input is taken: bytes that are no UTF-8 count as separators or as U+FFFD, never as an error.
//
// Positions start at 0 in each value and never decrease. A stop word and an over-long token keep their position, so that later tokens are
// not renumbered and phrases keep their distances. Several tokens can share a position (variants, character n-grams); the
// length of a value, for BM25, is its number of positions with a token: see Length.
//
// Concurrency: Analyzers are immutable and safe for use at once. A Scratch belongs to one goroutine at a time.
package text

import (
	"fmt"
	"sort"
	"sync"
)

// MaxTokenBytes is the longest token of the tokenizers without a limit of their own. A longer one is dropped; its position
// stays empty. It is the longest term that the segment's dictionary takes.
const MaxTokenBytes = 32766

// MaxSpecBytes bounds a tokenizer spec, checked before it is read.
const MaxSpecBytes = 1024

// MaxValueBytes is the longest value whose offsets fit a Token. Of a longer value only the first MaxValueBytes are read.
const MaxValueBytes = 1<<32 - 1

// Token is one token of a value.
type Token struct {
	Text       []byte // the term; aliases the value or the Scratch: read only, valid until the Scratch is used again
	Pos        uint32 // position within the value, from 0, with gaps
	Start, End uint32 // byte offsets into the value of the text that the token stands for
}

// Scratch holds the memory of one tokenization at a time. The zero value is ready. Keep one for each goroutine and reuse it:
// in steady state no call allocates. A Scratch keeps the memory that its largest value needed.
type Scratch struct {
	toks []Token
	buf  []byte
}

// reset prepares the scratch for a value of n bytes.
func (s *Scratch) reset(n int) {
	s.toks = s.toks[:0]
	s.buf = s.buf[:0]
	if cap(s.buf) < n {
		s.buf = make([]byte, 0, n+n/8+64)
	}
}

// An algorithm appends the tokens of v to s.toks. Text may alias v or s.buf; when s.buf moves, earlier tokens keep the old array.
type algorithm func(s *Scratch, v string)

// Analyzer is a tokenizer. Get one with Lookup.
type Analyzer struct {
	name      string
	version   string
	index     algorithm
	query     algorithm
	normalize func(string) string
}

// Index returns the tokens of a stored value in order of position. The tokens and their text are valid until the next use of s.
func (a *Analyzer) Index(s *Scratch, value string) []Token { return a.run(s, value, a.index) }

// Query returns the tokens of query text, to be looked up among those that Index made. It differs from Index only where Index
// adds alternatives at a position (lex variants and the CJK modes). Tokens are valid until the next use of s.
func (a *Analyzer) Query(s *Scratch, text string) []Token { return a.run(s, text, a.query) }

func (a *Analyzer) run(s *Scratch, v string, f algorithm) []Token {
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
		spec = spec[:80] + "…"
	}
	return fmt.Sprintf("tokenizer %q: at byte %d: expected %s, found %s", spec, e.Offset, e.Expected, e.Found)
}

// cache holds analyzers by spec. It is bounded: specs come from schemas, which come from callers.
var cache struct {
	sync.Mutex
	m map[string]*Analyzer
}

const cacheSize = 1024

// Lookup returns the analyzer for a tokenizer name or a lex(…) expression. Errors are *SpecError.
func Lookup(spec string) (*Analyzer, error) {
	cache.Lock()
	a := cache.m[spec]
	cache.Unlock()
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

// Names returns every plain tokenizer name, sorted.
func Names() []string {
	out := make([]string, 0, len(named))
	for n := range named {
		out = append(out, n)
	}
	sort.Strings(out)
	return out
}
