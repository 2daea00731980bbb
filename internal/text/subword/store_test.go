package subword

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

func put(t *testing.T, path, data string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
}

const smallFile = `{"model": {"type": "WordPiece", "unk_token": "[UNK]", "vocab": {"[UNK]": 0, "sea": 5, "##s": 7}}, "pre_tokenizer": {"type": "BertPreTokenizer"}}`

func TestModelsOfAFolder(t *testing.T) {
	dir := t.TempDir()
	out := t.TempDir()
	put(t, filepath.Join(dir, "org/model/tokenizer.json"), smallFile)
	put(t, filepath.Join(dir, "org/model/idf.json"), `{"sea": 2.5, "[UNK]": 9, "nowhere": 1}`)
	put(t, filepath.Join(dir, "bare/tokenizer.json"), smallFile)
	put(t, filepath.Join(dir, "bad/tokenizer.json"), `{"model": {"type": "WordLevel", "vocab": {}}}`)
	put(t, filepath.Join(out, "model/tokenizer.json"), smallFile)
	if err := os.Symlink(filepath.Join(out, "model"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	s := NewStore(dir)
	for _, name := range []string{"org/model", filepath.Join(dir, "org/model"), filepath.Join(dir, "org/model/tokenizer.json")} {
		tok, err := s.Tokenizer(name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got, err := tok.Tokens("seas sea what", nil); err != nil || !slices.Equal(got, []uint32{5, 7, 5}) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	w, err := s.Weights("org/model")
	if err != nil || w.Of(5) != 2.5 || w.Of(0) != 9 || w.Of(7) != 1 {
		t.Errorf("%v, %v", w, err)
	}
	for _, name := range []string{"", ".", "..", "../x", "org", "org/model/", "org//model", "nowhere", "link", filepath.Join(out, "model"), "index://org/model", "/", "org/model/tokenizer.json", "\x00"} {
		tok, err := s.Tokenizer(name)
		if _, ok := errors.AsType[*NotFoundError](err); !ok {
			t.Errorf("%q: %v, %v", name, tok, err)
		}
	}
	if _, err := s.Weights("bare"); err == nil {
		t.Error("weights of a model without any")
	}
	if _, err := s.Tokenizer("bad"); err == nil || !strings.Contains(err.Error(), "WordLevel") {
		t.Error(err)
	}
	if _, err := NewStore(filepath.Join(dir, "no folder")).Tokenizer("org/model"); err == nil {
		t.Error("a tokenizer of no folder")
	}
}

// A file that is replaced counts from then on, with the weights by its numbers.
func TestModelsAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "m/tokenizer.json")
	put(t, path, smallFile)
	put(t, filepath.Join(dir, "m/idf.json"), `{"sea": 2.5}`)
	s := NewStore(dir)
	first, err := s.Tokenizer("m")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := s.Tokenizer("m"); again != first || err != nil {
		t.Error("a file that is the same was read again", err)
	}
	if w, err := s.Weights("m"); err != nil || w.Of(5) != 2.5 {
		t.Error(w, err)
	}
	put(t, path, strings.ReplaceAll(smallFile, "5", "66"))
	if err := os.Chtimes(path, time.Time{}, time.Unix(1e9, 0)); err != nil {
		t.Fatal(err)
	}
	tok, err := s.Tokenizer("m")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := tok.Tokens("sea", nil); err != nil || !slices.Equal(got, []uint32{66}) {
		t.Error(got, err)
	}
	if w, err := s.Weights("m"); err != nil || w.Of(66) != 2.5 || w.Of(5) != 1 {
		t.Error(w, err)
	}
	put(t, path, "{")
	if _, err := s.Tokenizer("m"); err == nil {
		t.Error("a broken file was read")
	}
}

func TestFilesThatAreRefused(t *testing.T) {
	vocab := `"vocab": {"a": 1}`
	for name, c := range map[string]struct{ file, want string }{
		"no JSON":                {"{", "no JSON"},
		"another model":          {`{"model": {"type": "WordLevel", "vocab": {"a": 1}}}`, "WordLevel"},
		"no vocabulary":          {`{"model": {"type": "WordPiece", "vocab": {}}}`, "vocabulary"},
		"numbers of no kind":     {`{"model": {"vocab": {"a": -1}}}`, "/model/vocab"},
		"a long token":           {`{"model": {"vocab": {"` + strings.Repeat("a", 1000) + `": 1}}}`, "1000 bytes"},
		"long words":             {`{"model": {"max_input_chars_per_word": 100000, ` + vocab + `}}`, "characters"},
		"a normalizer":           {`{"normalizer": {"type": "Precompiled"}, "model": {` + vocab + `}}`, "Precompiled"},
		"one within":             {`{"normalizer": {"type": "Sequence", "normalizers": [{"type": "Nmt"}]}, "model": {` + vocab + `}}`, "Nmt"},
		"a pre-tokenizer":        {`{"pre_tokenizer": {"type": "Split"}, "model": {` + vocab + `}}`, "Split"},
		"a way of punctuation":   {`{"pre_tokenizer": {"type": "Punctuation", "behavior": "Removed"}, "model": {` + vocab + `}}`, "Removed"},
		"no merges":              {`{"model": {"type": "BPE", "vocab": {"a": 1}}}`, "/model/merges"},
		"a merge of one":         {`{"model": {"type": "BPE", "vocab": {"a": 1}, "merges": ["a"]}}`, "merge 0"},
		"a merge of no token":    {`{"model": {"type": "BPE", "vocab": {"a": 1, "b": 2}, "merges": ["a b"]}}`, "merge 0"},
		"a merge of numbers":     {`{"model": {"type": "BPE", "vocab": {"a": 1}, "merges": [[1, 2]]}}`, "/model/merges/0"},
		"an unknown of no token": {`{"model": {"type": "BPE", "unk_token": "u", "vocab": {"a": 1}, "merges": []}}`, "unknown token"},
		"chance":                 {`{"model": {"type": "BPE", "dropout": 0.1, "vocab": {"a": 1}, "merges": []}}`, "chance"},
		"an end of words":        {`{"model": {"type": "BPE", "end_of_word_suffix": "</w>", "vocab": {"a": 1}, "merges": []}}`, "suffix"},
		"scores of no kind":      {`{"model": {"type": "Unigram", "vocab": [["a", "b"]]}}`, "/model/vocab/0"},
		"scores alone":           {`{"model": {"type": "Unigram", "vocab": [1]}}`, "/model/vocab"},
		"a token twice":          {`{"model": {"type": "Unigram", "vocab": [["a", 1], ["a", 2]]}}`, "twice"},
		"an unknown beyond all":  {`{"model": {"type": "Unigram", "unk_id": 1, "vocab": [["a", 1]]}}`, "number 1"},
		"an expression":          {`{"normalizer": {"type": "Replace", "pattern": {"Regex": "\\s+"}, "content": " "}, "model": {` + vocab + `}}`, "Replace"},
		"no pattern":             {`{"normalizer": {"type": "Replace"}, "model": {` + vocab + `}}`, "Replace"},
		"a table cut off":        {`{"normalizer": {"type": "Precompiled", "precompiled_charsmap": "EAAAAAAA"}, "model": {` + vocab + `}}`, "cut off"},
		"a long mark":            {`{"pre_tokenizer": {"type": "Metaspace", "replacement": "__"}, "model": {` + vocab + `}}`, "one character"},
		"a first word behind":    {`{"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Whitespace"}, {"type": "Metaspace", "prepend_scheme": "first"}]}, "model": {` + vocab + `}}`, "first word"},
		"many levels": {
			`{"normalizer": ` + strings.Repeat(`{"type": "Sequence", "normalizers": [`, 20) + `{"type": "NFC"}` + strings.Repeat(`]}`, 20) + `, "model": {` + vocab + `}}`, "too many parts",
		},
	} {
		if _, err := Parse([]byte(c.file)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// A file of a few bytes can make any length of a text. It is refused before that is made.
func TestTextsThatBecomeLong(t *testing.T) {
	const model = `"model": {"type": "WordPiece", "vocab": {"[UNK]": 0, "a": 1, "##a": 2}}`
	again := func(kind, one string) string {
		return `{"type": "Sequence", "` + kind + `": [` + strings.Repeat(one+", ", 30) + one + `]}`
	}
	// A table in which "a" becomes 32 KiB: a trie of two steps.
	units := make([]byte, 4*('a'+2))
	binary.LittleEndian.PutUint32(units[0:], 1<<10)                  // the root: offset 1
	binary.LittleEndian.PutUint32(units[4*('a'^1):], 'a'|1<<8|1<<10) // 'a', with a leaf at 1 beside it
	binary.LittleEndian.PutUint32(units[4*('a'^1^1):], 1<<31)
	table := binary.LittleEndian.AppendUint32(nil, uint32(len(units)))
	table = append(append(table, units...), bytes.Repeat([]byte("b"), 32<<10)...)
	for name, file := range map[string]string{
		"a long content":              `{"normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": "` + strings.Repeat("b", 1<<20) + `"}, ` + model + `}`,
		"one of an expression":        `{"normalizer": {"type": "Replace", "pattern": {"Regex": "a+"}, "content": "` + strings.Repeat("b", 1<<20) + `"}, ` + model + `}`,
		"one between all characters":  `{"normalizer": {"type": "Replace", "pattern": {"Regex": "b*"}, "content": "` + strings.Repeat("b", 1<<10) + `"}, ` + model + `}`,
		"doubled again and again":     `{"normalizer": ` + again("normalizers", `{"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}`) + `, ` + model + `}`,
		"a long beginning":            `{"normalizer": {"type": "Prepend", "prepend": "` + strings.Repeat("b", 1<<20) + `"}, ` + model + `}`,
		"a table":                     `{"normalizer": {"type": "Precompiled", "precompiled_charsmap": "` + base64.StdEncoding.EncodeToString(table) + `"}, ` + model + `}`,
		"characters of characters":    `{"normalizer": ` + again("normalizers", `{"type": "ByteLevel"}`) + `, ` + model + `}`,
		"the same of words":           `{"pre_tokenizer": ` + again("pretokenizers", `{"type": "ByteLevel"}`) + `, ` + model + `}`,
		"pieces between added tokens": `{"normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": "` + strings.Repeat("b", 4000) + `"}, "added_tokens": [{"id": 7, "content": "+"}], ` + model + `}`,
	} {
		tok, err := Parse([]byte(file))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, s := range []string{strings.Repeat("é a", 100), strings.Repeat("aé+", 150)} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err = tok.Tokens(s, nil)
			runtime.ReadMemStats(&after)
			if _, ok := errors.AsType[*FormatError](err); !ok {
				t.Errorf("%s: %q: %v", name, s[:5], err)
			}
			if took := after.TotalAlloc - before.TotalAlloc; took > 16<<20 { // without bounds it is a gigabyte
				t.Errorf("%s: %q took %d bytes", name, s[:5], took)
			}
		}
	}
	// An added token is made of its text by the same steps.
	long := `{"normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": "` + strings.Repeat("b", 1<<20) + `"}, "added_tokens": [{"id": 7, "content": "a", "normalized": true}], ` + model + `}`
	if _, err := Parse([]byte(long)); err == nil || !strings.Contains(err.Error(), "times as long") {
		t.Error(err)
	}
}

func FuzzTokens(f *testing.F) {
	var toks []*Tokenizer
	for _, name := range []string{"uncased", "plain", "split", "unigram", "unigram-bytes", "bytelevel", "pairs", "pairs-bytes"} {
		b, err := os.ReadFile("testdata/" + name + ".json")
		if err != nil {
			f.Fatal(err)
		}
		tok, err := Parse(b)
		if err != nil {
			f.Fatal(err)
		}
		toks = append(toks, tok)
	}
	f.Add("Über [CLS] 日本\xff\x00 ́")
	f.Fuzz(func(t *testing.T, s string) {
		for _, tok := range toks {
			ids, err := tok.Tokens(s, nil)
			if err != nil {
				t.Errorf("%q: %v", s, err)
			}
			for _, id := range ids {
				if tok.special[id] {
					t.Errorf("%q has the special token %d", s, id)
				}
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(smallFile))
	for _, name := range []string{"unigram", "unigram-bytes", "bytelevel", "pairs", "pairs-bytes"} {
		b, err := os.ReadFile("testdata/" + name + ".json")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(_ *testing.T, b []byte) {
		tok, err := Parse(b)
		if (tok == nil) == (err == nil) {
			panic("neither")
		}
		if tok != nil {
			_, err := tok.Tokens("Some Text [UNK] ̈ 日本 x", nil)
			if _, ok := errors.AsType[*FormatError](err); err != nil && !ok {
				panic(err)
			}
		}
	})
}
