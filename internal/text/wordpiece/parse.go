package wordpiece

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// FormatError says what is wrong with a file, or what it asks for that is not known here.
type FormatError struct{ Reason string }

func (e *FormatError) Error() string { return e.Reason }

func refuse(format string, args ...any) error { return &FormatError{fmt.Sprintf(format, args...)} }

// Bounds of a file.
const (
	maxVocab  = 1 << 21 // tokens
	maxParts  = 32      // of a sequence, over all levels
	maxAdded  = 1024    // added tokens
	maxDepth  = 8
	maxPieces = 512  // bytes of one token
	maxWord   = 1000 // characters of a word
)

// Tokenizer is that of a file.
type Tokenizer struct {
	normal  []step // of the text
	split   []cut  // of the words
	vocab   map[string]uint32
	prefix  string // of a piece that does not begin its word
	most    int    // characters of a word; one that has more is unknown
	longest int    // bytes of the longest token
	special map[uint32]bool
	added   []added   // the longest first
	first   [256]bool // bytes that one of them begins with
}

// added is a token that is looked for in the text itself.
type added struct {
	text       string
	id         uint32
	normalised bool // in what has become of the text
}

// file is what is read of a tokenizer.json.
type file struct {
	Added        []addedToken   `json:"added_tokens"`
	Normalizer   jsontext.Value `json:"normalizer"`
	PreTokenizer jsontext.Value `json:"pre_tokenizer"`
	Model        struct {
		Type    string            `json:"type"`
		Unknown string            `json:"unk_token"`
		Prefix  *string           `json:"continuing_subword_prefix"`
		Most    int               `json:"max_input_chars_per_word"`
		Vocab   map[string]uint32 `json:"vocab"`
	} `json:"model"`
}

type addedToken struct {
	ID         uint32 `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	Left       bool   `json:"lstrip"`
	Right      bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// Parse reads a tokenizer.json.
func Parse(data []byte) (*Tokenizer, error) {
	var kind struct {
		Model struct {
			Type  string         `json:"type"`
			Vocab jsontext.Value `json:"vocab"`
		} `json:"model"`
	}
	if err := json.Unmarshal(data, &kind); err != nil {
		return nil, broken(err)
	}
	// The type may be missing: then a vocabulary of words that have numbers is one of this kind.
	if t := cmp.Or(kind.Model.Type, "WordPiece"); t != "WordPiece" {
		return nil, refuse("its model is %q; only WordPiece is known", t)
	}
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, broken(err)
	}
	m := &f.Model
	t := &Tokenizer{vocab: m.Vocab, prefix: "##", most: cmp.Or(m.Most, 100), special: map[uint32]bool{}}
	switch {
	case len(m.Vocab) == 0:
		return nil, refuse("it has no vocabulary")
	case len(m.Vocab) > maxVocab:
		return nil, refuse("its vocabulary has %d tokens; at most %d are taken", len(m.Vocab), maxVocab)
	case len(f.Added) > maxAdded:
		return nil, refuse("it adds %d tokens; at most %d are taken", len(f.Added), maxAdded)
	}
	if m.Prefix != nil {
		t.prefix = *m.Prefix
	}
	for token := range m.Vocab {
		t.longest = max(t.longest, len(token))
	}
	if t.longest > maxPieces {
		return nil, refuse("a token has %d bytes; at most %d are taken", t.longest, maxPieces)
	}
	if t.most < 0 || t.most > maxWord {
		return nil, refuse("words of %d characters are to be taken; at most %d are", t.most, maxWord)
	}
	if id, ok := m.Vocab[m.Unknown]; ok {
		t.special[id] = true
	}
	for _, a := range f.Added {
		if a.SingleWord || a.Left || a.Right {
			return nil, refuse("the added token %q is to be looked for in a way that is not known", a.Content)
		}
		if a.Special {
			t.special[a.ID] = true
		}
		if a.Content != "" {
			t.added = append(t.added, added{a.Content, a.ID, a.Normalized})
		}
	}
	slices.SortStableFunc(t.added, func(a, b added) int { return cmp.Compare(len(b.text), len(a.text)) })
	left := maxParts
	var err error
	if t.normal, err = steps(f.Normalizer, 0, &left); err != nil {
		return nil, err
	}
	if t.split, err = cuts(f.PreTokenizer, 0, &left); err != nil {
		return nil, err
	}
	for i := range t.added {
		if a := &t.added[i]; a.normalised {
			a.text = t.normalise(a.text)
		}
	}
	t.added = slices.DeleteFunc(t.added, func(a added) bool { return a.text == "" })
	for _, a := range t.added {
		t.first[a.text[0]] = true
	}
	return t, nil
}

func broken(err error) error {
	if at, ok := errors.AsType[*json.SemanticError](err); ok {
		return refuse("%s is not what it should be", cmp.Or(string(at.JSONPointer), "it"))
	}
	if at, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		return refuse("it is no JSON at byte %d", at.ByteOffset)
	}
	return refuse("it is no JSON")
}

// part is a member of a sequence, or the whole of a normalizer or pre-tokenizer.
type part struct {
	Type        string           `json:"type"`
	Normalizers []jsontext.Value `json:"normalizers"`
	Pres        []jsontext.Value `json:"pretokenizers"`

	Clean   *bool `json:"clean_text"`
	Han     *bool `json:"handle_chinese_chars"`
	Accents *bool `json:"strip_accents"`
	Lower   *bool `json:"lowercase"`

	Left  *bool `json:"strip_left"`
	Right *bool `json:"strip_right"`

	Behavior string `json:"behavior"`
}

func partOf(v jsontext.Value, depth int, left *int) (*part, error) {
	if v == nil || v.Kind() == 'n' {
		return nil, nil
	}
	if *left--; *left < 0 || depth > maxDepth {
		return nil, refuse("it has too many parts")
	}
	var p part
	if err := json.Unmarshal(v, &p); err != nil {
		return nil, broken(err)
	}
	return &p, nil
}

func is(b *bool, missing bool) bool {
	if b == nil {
		return missing
	}
	return *b
}

// steps are those of a normalizer.
func steps(v jsontext.Value, depth int, left *int) (out []step, err error) {
	p, err := partOf(v, depth, left)
	if p == nil || err != nil {
		return nil, err
	}
	switch p.Type {
	case "Sequence":
		for _, one := range p.Normalizers {
			more, err := steps(one, depth+1, left)
			if err != nil {
				return nil, err
			}
			out = append(out, more...)
		}
		return out, nil
	case "BertNormalizer":
		lower := is(p.Lower, true)
		if is(p.Clean, true) {
			out = append(out, clean)
		}
		if is(p.Han, true) {
			out = append(out, spaceHan)
		}
		if is(p.Accents, lower) {
			out = append(out, decompose, stripAccents)
		}
		if lower {
			out = append(out, lowercase)
		}
		return out, nil
	case "Strip":
		l, r := is(p.Left, true), is(p.Right, true)
		return []step{func(s string) string { return strip(s, l, r) }}, nil
	}
	if s, ok := namedSteps[p.Type]; ok {
		return []step{s}, nil
	}
	return nil, refuse("its normalizer %q is not known", p.Type)
}

// cuts are those of a pre-tokenizer.
func cuts(v jsontext.Value, depth int, left *int) (out []cut, err error) {
	p, err := partOf(v, depth, left)
	if p == nil || err != nil {
		return nil, err
	}
	switch p.Type {
	case "Sequence":
		for _, one := range p.Pres {
			more, err := cuts(one, depth+1, left)
			if err != nil {
				return nil, err
			}
			out = append(out, more...)
		}
		return out, nil
	case "BertPreTokenizer":
		return []cut{atSpace, atPunctuation}, nil
	case "WhitespaceSplit":
		return []cut{atSpace}, nil
	case "Whitespace":
		return []cut{wordsAndRest}, nil
	case "Punctuation":
		if b := cmp.Or(p.Behavior, "Isolated"); !strings.EqualFold(b, "Isolated") {
			return nil, refuse("its pre-tokenizer Punctuation is to be %q; only Isolated is known", b)
		}
		return []cut{atPunctuation}, nil
	}
	return nil, refuse("its pre-tokenizer %q is not known", p.Type)
}
