package schema

import (
	"errors"
	"strings"

	"pgregory.net/rapid"
)

func pick[T any](t *rapid.T, what string, of ...T) T { return rapid.SampledFrom(of).Draw(t, what) }

func yes(t *rapid.T, what string) bool { return rapid.Bool().Draw(t, what) }

var nameGen = rapid.OneOf(
	rapid.StringMatching(`[A-Za-z_][A-Za-z0-9_]{0,8}`),
	rapid.SampledFrom([]string{"author.name", "with space", "quote\"d", `back\slash`, "日本", "field", "index", "r", "2x", "a-b"}),
)

// drawField makes a field that Validate takes, but for its place among others.
func drawField(t *rapid.T, name string) Field {
	f := Field{
		Name: name, Type: Type(rapid.IntRange(int(Text), int(BinaryVector)).Draw(t, "type")),
		Indexed: yes(t, "indexed"), Stored: yes(t, "stored"), Multi: yes(t, "multi"), Fast: yes(t, "fast"),
		ContentHash: yes(t, "hash"), Reorder: yes(t, "reorder"), Inferred: yes(t, "inferred"),
	}
	if !f.Indexed && !f.Fast {
		f.Stored = true
	}
	switch f.Type {
	case Text:
		f.Tokenizer = pick(t, "tokenizer", "simple", "raw", "en_stem", "lex(default: en, stem: snowball)", `lex(stop_words: "a, b", max_token_length: 40)`)
		f.K1, f.B = DefaultK1, DefaultB
		if f.Fast {
			f.KeywordMax = pick(t, "max", 0, 0, 256, 1<<31-1)
		}
	case DenseVector:
		f.Dim = rapid.IntRange(1, MaxDenseDims).Draw(t, "dim")
		f.Element = pick(t, "element", "", "f32", "f16", "int8", "uint8", "u8")
	case SparseVector:
		f.Element = pick(t, "element", "", "u16", "u32")
	case BinaryVector:
		f.Dim = 8 * rapid.IntRange(1, MaxBinaryBits/8).Draw(t, "dim")
	}
	if !f.Indexed {
		return f
	}
	f.Positions = pick(t, "positions", NoPositions, Ordinals, TokenPositions, FullPositions)
	switch f.Type {
	case Text:
		f.K1 = pick(t, "k1", float32(DefaultK1), 0.9, 0, 1.0/3)
		f.B = pick(t, "b", float32(DefaultB), 0.4, 0, 1e-7)
		if yes(t, "chunked") && (f.Positions == NoPositions || f.Positions == TokenPositions) {
			f.Chunked, f.Multi = true, true
		}
		if yes(t, "options") {
			f.Options = []Option{{"common_grams", `["a", "b\"c\\"]`}, {"query", "<max_terms: 5>"}}
		}
	case DenseVector:
		f.Metric = pick(t, "metric", "", "cosine", "dot", "l2")
		switch rapid.IntRange(0, 4).Draw(t, "kind") {
		case 4:
			f.Options = []Option{{"m", "24"}, {"ef_construction", "300"}}
		case 1:
			f.Options = []Option{{"flat", ""}}
		case 2:
			f.Options = []Option{{"index", "ivf_tq"}, {"nprobe", "64"}, {"soar", "selective"}}
		case 3:
			f.Options = []Option{{"scann", ""}, {"tree_levels", "2"}, {"target_vectors", "100"}}
		}
	case SparseVector:
		if yes(t, "options") {
			f.Options = []Option{{"format", "bmp"}, {"weight_threshold", "0.10"}, {"query", `<tokenizer: "a/b", weighting: idf, pruning: 0.2>`}}
		}
	}
	return f
}

// drawSchema makes a schema that Validate takes.
func drawSchema(t *rapid.T) *Schema {
	s := &Schema{Name: nameGen.Draw(t, "name"), Dynamic: yes(t, "dynamic"), Generation: 1}
	names := rapid.SliceOfNDistinct(nameGen, 1, 6, rapid.ID[string]).Draw(t, "names")
	for _, n := range names {
		s.Fields = append(s.Fields, drawField(t, n))
	}
	if f := &s.Fields[0]; yes(t, "primary") && f.Type == Text && !f.Multi {
		f.Primary, f.Indexed, f.Fast = true, true, true
	}
	if yes(t, "defaults") {
		s.DefaultFields = names[:1]
	}
	if yes(t, "l1") {
		s.MaxL1PhraseTerms = rapid.IntRange(1, 1<<32-1).Draw(t, "terms")
	}
	if yes(t, "reorder") {
		on := yes(t, "on")
		s.ReorderOnMerge = &on
	}
	if yes(t, "router") {
		s.Routers = []Router{{Pattern: pick(t, "pattern", `^pmid:(\d+)$`, "say \"x\"\n\tand", `a\nb`), Substitution: "x://{1}", TargetField: names[0], Mode: pick(t, "mode", "additional", "exclusive")}}
	}
	return s
}

// parseError fails the test unless err is a *ParseError inside src.
func parseError(t interface{ Fatalf(string, ...any) }, src string, err error) *ParseError {
	var pe *ParseError
	if !errors.As(err, &pe) {
		t.Fatalf("error of type %T: %v", err, err)
		return nil
	}
	lines := strings.Split(src, "\n")
	if pe.Offset < 0 || pe.Offset > len(src) || pe.Line < 1 || pe.Line > len(lines) || pe.Col < 1 || pe.Col > len(lines[pe.Line-1])+1 {
		t.Fatalf("error outside of the text: %+v", pe)
	}
	if pe.Msg == "" {
		t.Fatalf("error without a message")
	}
	return pe
}
