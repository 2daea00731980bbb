package subword

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
	maxMerges = 1 << 21
	maxPieces = 512  // bytes of one token
	maxWord   = 1000 // characters of a word
)

// Tokenizer is that of a file.
type Tokenizer struct {
	normal  []step // of the text
	split   []cut  // of the words
	vocab   map[string]uint32
	model   model
	special map[uint32]bool
	added   []added   // the longest first
	first   [256]bool // bytes that one of them begins with
}

// model cuts words into tokens.
type model interface {
	// word appends the numbers of the tokens of a word, those of unknown pieces among them where there is one that says so.
	word(w string, dst []uint32) []uint32
}

// added is a token that is looked for in the text itself.
type added struct {
	text       string
	id         uint32
	normalised bool // in what has become of the text
	alone      bool // not within a word
	left       bool // with the white space before it
	right      bool // with that behind it
}

// file is what is read of a tokenizer.json.
type file struct {
	Added        []addedToken   `json:"added_tokens"`
	Normalizer   jsontext.Value `json:"normalizer"`
	PreTokenizer jsontext.Value `json:"pre_tokenizer"`
	Model        fileModel      `json:"model"`
}

// fileModel has what any of the models has.
type fileModel struct {
	Type         string         `json:"type"`
	Vocab        jsontext.Value `json:"vocab"`
	Unknown      *string        `json:"unk_token"`
	Prefix       *string        `json:"continuing_subword_prefix"`
	Most         int            `json:"max_input_chars_per_word"`
	Merges       jsontext.Value `json:"merges"`
	Suffix       *string        `json:"end_of_word_suffix"`
	Dropout      *float64       `json:"dropout"`
	FuseUnknown  bool           `json:"fuse_unk"`
	ByteFallback bool           `json:"byte_fallback"`
	IgnoreMerges bool           `json:"ignore_merges"`
	UnknownID    *uint32        `json:"unk_id"`
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
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, broken(err)
	}
	if len(f.Added) > maxAdded {
		return nil, refuse("it adds %d tokens; at most %d are taken", len(f.Added), maxAdded)
	}
	t := &Tokenizer{special: map[uint32]bool{}}
	if err := t.readModel(&f.Model); err != nil {
		return nil, err
	}
	for _, a := range f.Added {
		if a.Special {
			t.special[a.ID] = true
		}
		if a.Content != "" {
			t.added = append(t.added, added{a.Content, a.ID, a.Normalized, a.SingleWord, a.Left, a.Right})
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
			if a.text, err = t.normalise(a.text, mostOf(a.text)); err != nil {
				return nil, err
			}
		}
	}
	t.added = slices.DeleteFunc(t.added, func(a added) bool { return a.text == "" })
	for _, a := range t.added {
		t.first[a.text[0]] = true
	}
	return t, nil
}

// readModel makes the model of a file.
func (t *Tokenizer) readModel(m *fileModel) (err error) {
	kind := m.Type
	if kind == "" { // it may be missing, and is told by what there is
		switch {
		case m.Vocab.Kind() == '[':
			kind = "Unigram"
		case m.Merges != nil:
			kind = "BPE"
		default:
			kind = "WordPiece"
		}
	}
	switch kind {
	case "Unigram":
		return t.readUnigram(m)
	case "WordPiece", "BPE":
	default:
		return refuse("its model is %q; only WordPiece, BPE and Unigram are known", kind)
	}
	if err := json.Unmarshal(m.Vocab, &t.vocab); err != nil {
		return refuse("/model/vocab is not what it should be")
	}
	longest, err := t.checkVocab()
	if err != nil {
		return err
	}
	if m.Unknown != nil {
		if id, ok := t.vocab[*m.Unknown]; ok {
			t.special[id] = true
		}
	}
	if kind == "BPE" {
		t.model, err = t.readBPE(m)
		return err
	}
	w := &wordPieces{vocab: t.vocab, prefix: "##", most: cmp.Or(m.Most, 100), longest: longest}
	if m.Prefix != nil {
		w.prefix = *m.Prefix
	}
	if w.most < 0 || w.most > maxWord {
		return refuse("words of %d characters are to be taken; at most %d are", w.most, maxWord)
	}
	t.model = w
	return nil
}

// checkVocab holds the vocabulary to the bounds, and returns the bytes of its longest token.
func (t *Tokenizer) checkVocab() (longest int, err error) {
	switch {
	case len(t.vocab) == 0:
		return 0, refuse("it has no vocabulary")
	case len(t.vocab) > maxVocab:
		return 0, refuse("its vocabulary has %d tokens; at most %d are taken", len(t.vocab), maxVocab)
	}
	for token := range t.vocab {
		longest = max(longest, len(token))
	}
	if longest > maxPieces {
		return 0, refuse("a token has %d bytes; at most %d are taken", longest, maxPieces)
	}
	return longest, nil
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

	Charsmap string         `json:"precompiled_charsmap"`
	Pattern  jsontext.Value `json:"pattern"`
	Content  string         `json:"content"`
	Prepend  string         `json:"prepend"`

	AddPrefix   *bool  `json:"add_prefix_space"`
	UseRegex    *bool  `json:"use_regex"`
	Replacement string `json:"replacement"`
	Scheme      string `json:"prepend_scheme"`
	Split       *bool  `json:"split"`
	Digits      *bool  `json:"individual_digits"`
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
			out = append(out, small(clean))
		}
		if is(p.Han, true) {
			out = append(out, small(spaceHan))
		}
		if is(p.Accents, lower) {
			out = append(out, small(decompose), small(stripAccents))
		}
		if lower {
			out = append(out, small(lowercase))
		}
		return out, nil
	case "Precompiled":
		m, err := parseCharsmap(p.Charsmap)
		if err != nil {
			return nil, err
		}
		return []step{m.apply}, nil
	case "Replace":
		f, err := replace(p.Pattern, p.Content)
		if err != nil {
			return nil, err
		}
		return []step{f}, nil
	case "Prepend":
		return []step{func(s string, most int) (string, bool) {
			switch {
			case s == "":
				return s, true
			case len(p.Prepend)+len(s) > most:
				return "", false
			}
			return p.Prepend + s, true
		}}, nil
	case "Strip":
		l, r := is(p.Left, true), is(p.Right, true)
		return []step{small(func(s string) string { return strip(s, l, r) })}, nil
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
			if len(out) > 0 && slices.ContainsFunc(more, func(c cut) bool { return c.first }) {
				return nil, refuse("its pre-tokenizer Metaspace is to prepend to the first word, behind another pre-tokenizer, which is not known")
			}
			out = append(out, more...)
		}
		return out, nil
	case "BertPreTokenizer":
		return plain(atSpace, atPunctuation), nil
	case "WhitespaceSplit":
		return plain(atSpace), nil
	case "Whitespace":
		return plain(wordsAndRest), nil
	case "Punctuation":
		if b := cmp.Or(p.Behavior, "Isolated"); !strings.EqualFold(b, "Isolated") {
			return nil, refuse("its pre-tokenizer Punctuation is to be %q; only Isolated is known", b)
		}
		return plain(atPunctuation), nil
	case "Digits":
		return plain(digits(is(p.Digits, false))), nil
	case "ByteLevel":
		return plain(byteLevel(is(p.AddPrefix, true), is(p.UseRegex, true))), nil
	case "Metaspace":
		c, err := metaspace(p)
		return []cut{c}, err
	}
	return nil, refuse("its pre-tokenizer %q is not known", p.Type)
}
