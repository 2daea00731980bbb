package summa_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/corpus"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/summa"
)

// differing are the recorded schemas for which weft answers otherwise on purpose, with the line of differences.md and the answer.
var differing = map[string]struct{ line, text string }{
	"node/sdl/02": {"N3", "Invalid schema: Schema error: Failed to parse SDL: Schema error: Parse error:  --> 1:10\n  |\n1 | index a {}\n  |          ^---\n  |\n  = expected at least one field, found \"}\""},
	"node/sdl/19": {"N3", "Invalid schema: Schema error: Failed to parse SDL: Schema error: Parse error:  --> 1:33\n  |\n1 | index a { field x: dense_vector<0> }\n  |                                 ^---\n  |\n  = dense_vector dimension must be between 1 and 65536, got 0"},
	"node/sdl/23": {"N3", "Invalid schema: Schema error: Failed to parse SDL: Schema error: Parse error:  --> 1:31\n  |\n1 | index a { field x: text field x: u64 }\n  |                               ^---\n  |\n  = field 'x' is declared twice, first as field number 1"},
}

// TestRecordedSchemas replays what was declared and how the index then described itself.
func TestRecordedSchemas(t *testing.T) {
	declared := map[string]string{} // index → SDL as weft prints it
	fields := map[string][]*summapb.TextFieldInfo{}
	differ, infos := 0, 0
	for _, c := range append(cases(t, "node"), cases(t, "cluster")...) {
		reqs, err := c.Requests()
		if err != nil {
			t.Error(err)
			continue
		}
		switch c.RPC {
		case "CreateIndex":
			r := reqs[0].(*summapb.CreateIndexRequest)
			s, err := summa.ParseSchema(r.Schema)
			code, text := codes.OK, ""
			var e *summa.Error
			if errors.As(err, &e) {
				code, text = e.Code, e.Text
			}
			if d, ok := differing[c.Name]; ok {
				differ++
				if code != codes.InvalidArgument || text != d.text {
					t.Errorf("%s (%s):\n got %v %s\nwant %s", c.Name, d.line, code, text, d.text)
				}
				continue
			}
			if c.Code == "ALREADY_EXISTS" && code == codes.OK {
				continue
			}
			if codeName(code) != c.Code || text != c.Message {
				t.Errorf("%s:\n got %v %s\nwant %s %s", c.Name, code, text, c.Code, c.Message)
				continue
			}
			if s != nil {
				declared[r.IndexName], fields[r.IndexName] = summa.SDL(s), summa.TextFields(s)
			}
		case "GetIndexInfo":
			if c.Code != "OK" {
				continue
			}
			name := reqs[0].(*summapb.GetIndexInfoRequest).IndexName
			got, ok := declared[name]
			if !ok {
				continue
			}
			reply, err := c.Reply()
			if err != nil {
				t.Fatal(err)
			}
			want := reply.(*summapb.GetIndexInfoResponse)
			infos++
			if got != want.Schema {
				t.Errorf("%s:\n got %s\nwant %s", c.Name, got, want.Schema)
			}
			a, b := &summapb.GetIndexInfoResponse{TextFields: fields[name]}, &summapb.GetIndexInfoResponse{TextFields: want.TextFields}
			if !proto.Equal(a, b) {
				t.Errorf("%s:\n got %v\nwant %v", c.Name, a, b)
			}
		}
	}
	if differ != len(differing) || infos < 5 {
		t.Errorf("%d cases differ, of %d; %d descriptions were compared", differ, len(differing), infos)
	}
}

// What GetIndexInfo prints reads back to a schema that prints alike.
func TestPrintedSchemaReadsBack(t *testing.T) {
	for _, src := range []string{
		`index a { field a: dense_vector<8> [indexed, stored] field b: dense_vector<8, u8> [indexed<scann, nprobe: 5, num_clusters: 10>] }`,
		`index a { field a: dense_vector<8, f16> [indexed<tq>] field b: dense_vector<8> [indexed<index: flat, metric: l2>] field c: dense_vector<8> [indexed<ivf_tq, soar: off, routing: hnsw, nprobe: 64>] }`,
		`index a { field a: binary_dense_vector<64> [indexed, stored] field b: binary_dense_vector<64> [indexed<ivf, prefix_bits: 32, prefix_rerank: 9>] field c: binary_dense_vector<64> [stored] }`,
		`index a { field a: sparse_vector [indexed, stored] field b: sparse_vector<u16> [indexed<format: maxscore, quantization: f16, query<max_dims: 3>>, reorder] field c: sparse_vector [indexed<format: seismic, min_terms: 4, dims: 9>] }`,
		`index a { max_l1_phrase_terms: 9 reorder_on_merge: true field a: text [indexed<chunked, k1: 0.9, token_position>, stored] field d: text [indexed<chunked>] field b: text<raw> [primary] field c: text [indexed<common_grams: ["x"], positions, query<max_terms: 4>>] }`,
		`index a { dynamic: true field "x.y": date [indexed, fast] field z: text<standard> [indexed<token_position>, multi, fast<keyword_max: 256>, inferred] field v: dense_vector<4> [indexed<metric: cosine, m: 16>] }`,
	} {
		s, err := summa.ParseSchema(src)
		if err != nil {
			t.Errorf("%s: %v", src, err)
			continue
		}
		printed := summa.SDL(s)
		back, err := summa.ParseSchema(printed)
		if err != nil {
			t.Errorf("%s\nprints as %s\nand is refused: %v", src, printed, err)
			continue
		}
		if again := summa.SDL(back); again != printed {
			t.Errorf("%s\nprints as %s\nand then as %s", src, printed, again)
		}
		for i := range s.Fields {
			f, g := s.Fields[i], back.Fields[i]
			// Elements and options have several spellings, which print as one.
			f.Element, f.Options, g.Element, g.Options = "", nil, "", nil
			if !f.Equal(&g) || f.Inferred != g.Inferred {
				t.Errorf("%s\nreads back as %+v, was %+v", printed, g, f)
			}
		}
		if !strings.HasPrefix(printed, "index _ {\n    max_l1_phrase_terms: ") {
			t.Errorf("%s", printed)
		}
	}
	// What is printed for fields that say nothing, and in place of other spellings.
	s, err := summa.ParseSchema(`index a { field a: dense_vector<8> field b: binary_vector<8> field c: sparse_vector field d: vector<2, u8> [indexed<index: flat>] field e: text [indexed<chunked>, stored]
		field h: text [indexed<chunked>] field f: vector<2> [indexed<scann>] field g: sparse_vector [indexed<query<max_dims: 3, tokenizer: "a, \"b", weighting: one>, format: maxscore>] }`)
	if err != nil {
		t.Fatal(err)
	}
	const want = `index _ {
    max_l1_phrase_terms: 64
    field a: dense_vector<8> [indexed<ivf_tq, soar: selective>, stored]
    field b: binary_dense_vector<8> [indexed<ivf>, stored]
    field c: sparse_vector<u32> [indexed<format: bmp, bmp_block_size: 32, bmp_grid_bits: 4, bmp_forward_index: true>, stored]
    field d: dense_vector<2, uint8> [indexed<flat>]
    field e: text<simple> [indexed<chunked>, stored<multi>]
    field h: text<simple> [indexed<chunked>]
    field f: dense_vector<2> [indexed<scann>]
    field g: sparse_vector<u32> [indexed<format: maxscore, query<tokenizer: "a, \"b", max_dims: 3, seismic_cut: 10, seismic_factor: 0.85, exhaustive: false>>]
}`
	if got := summa.SDL(s); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// The schemas of the reference's developers print so that they are read back.
func TestSampleSchemasPrint(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(corpus.Dir(t, "sdl"), "cases.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	printed := 0
	for line := range strings.SplitSeq(strings.TrimSpace(string(b)), "\n") {
		var c struct{ Name, SDL string }
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatal(err)
		}
		s, err := summa.ParseSchema(c.SDL)
		if err != nil {
			continue
		}
		printed++
		first := summa.SDL(s)
		back, err := summa.ParseSchema(first)
		if err != nil {
			t.Errorf("%s prints as %s\nand is refused: %v", c.Name, first, err)
		} else if again := summa.SDL(back); again != first {
			t.Errorf("%s prints as %s\nand then as %s", c.Name, first, again)
		}
	}
	if printed < 20 {
		t.Errorf("only %d schemas were printed", printed)
	}
}

func TestRefusedSchemas(t *testing.T) {
	const sdl = `^Invalid schema: Schema error: Failed to parse SDL: Schema error: `
	for src, pattern := range map[string]string{
		"":                                  `^Schema is required$`,
		"x":                                 sdl + `Parse error:  --> 1:1\n  \|\n1 \| x\n  \| \^---\n  \|\n  = expected index_def$`,
		"index a {\n field : text }":        sdl + `Parse error:  --> 2:8\n  \|\n2 \|  field : text }\n  \|        \^---\n  \|\n  = expected identifier$`,
		"index a { nothing }":               sdl + `Parse error:  --> 1:11\n(.*\n)*  = expected max_l1_phrase_terms_def, reorder_on_merge_def, default_fields_def, query_router_def, or field_def$`,
		"index a { field x: foo }":          sdl + `Parse error:  --> 1:20\n(.*\n)*  = expected field_type$`,
		"index a { field x: text [fat] }":   sdl + `Parse error:  --> 1:26\n(.*\n)*  = expected attribute$`,
		"index a { field x: dense_vector }": sdl + `Parse error:  --> 1:33\n(.*\n)*  = expected "<" and the dimension of dense_vector, found "}"$`,
		strings.Repeat("\n", 11) + "x":      sdl + `Parse error:   --> 12:1\n   \|\n12 \| x\n   \| \^---\n   \|\n   = expected index_def$`,
		`{"fields": [{"name": "a"}]}`:       `^Invalid schema: .*type`,
		`{"fields": [{"name": "v", "type": "dense_vector", "dim": 0}]}`: `^Invalid schema: .*dimension`,
	} {
		_, err := summa.ParseSchema(src)
		var e *summa.Error
		if !errors.As(err, &e) || e.Code != codes.InvalidArgument || !regexp.MustCompile(pattern).MatchString(e.Text) {
			t.Errorf("%q:\n got %v\nwant %s", src, err, pattern)
		}
	}
}

// A schema in JSON (N10) is the same as one in SDL.
func TestSchemaInJSON(t *testing.T) {
	a, err := summa.ParseSchema(` {"fields": [{"name": "id", "type": "text", "tokenizer": "raw", "primary": true}, {"name": "year", "type": "u64"}]}`)
	if err != nil {
		t.Fatal(err)
	}
	const want = "index _ {\n    max_l1_phrase_terms: 64\n    field id: text<raw> [indexed, stored, fast, primary]\n    field year: u64 [indexed, stored, fast]\n}"
	if got := summa.SDL(a); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestTextFields(t *testing.T) {
	s, err := summa.ParseSchema(`index a { field langs: text<raw_ci> field n: u64
		field a: text<lex(by: langs, default: en, variants: false)> [indexed<chunked, token_position>] field b: text<lex(default: de)> [indexed<ordinal>] field c: text<en_stem> [stored] }`)
	if err != nil {
		t.Fatal(err)
	}
	got := &summapb.GetIndexInfoResponse{TextFields: summa.TextFields(s)}
	want := &summapb.GetIndexInfoResponse{TextFields: []*summapb.TextFieldInfo{
		{Field: "langs"},
		{Field: "a", Lexical: true, HintField: "langs", Positions: true, Chunked: true},
		{Field: "b", Lexical: true, Variants: true, Positions: true},
		{Field: "c"},
	}}
	if !proto.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

// TestRecordedAlters replays what AlterVectorIndex is asked, as far as the request and the schema decide.
func TestRecordedAlters(t *testing.T) {
	schemas, seen := map[string]*schema.Schema{}, 0
	for _, c := range cases(t, "node") {
		reqs, err := c.Requests()
		if err != nil {
			t.Fatal(err)
		}
		switch r := reqs0(reqs).(type) {
		case *summapb.CreateIndexRequest:
			if s, err := summa.ParseSchema(r.Schema); err == nil {
				schemas[r.IndexName] = s
			}
		case *summapb.AlterVectorIndexRequest:
			seen++
			f, err := summa.ParseAlter(r)
			if err == nil {
				id, ok := schemas[r.IndexName].Lookup(f.Name)
				if ok && schemas[r.IndexName].Fields[id].Type == f.Type {
					continue // the reference then wants vectors to train with
				}
				err = summa.UnknownVectorField()
			}
			want(t, c.Name, err, codes.InvalidArgument, c.Message)
		}
	}
	if seen < 4 {
		t.Errorf("%d cases", seen)
	}
	for _, text := range []string{"dense_vector<4> [stored]", "binary_dense_vector<8> [fast]", "sparse_vector", "u64"} {
		_, err := summa.ParseAlter(&summapb.AlterVectorIndexRequest{FieldName: "v", FieldSchema: text})
		want(t, text, err, codes.InvalidArgument, "field_schema must define a vector index")
	}
	_, err := summa.ParseAlter(&summapb.AlterVectorIndexRequest{FieldName: "v", FieldSchema: "dense_vector<4> [indexed<hnsw>]"})
	want(t, "syntax", err, codes.InvalidArgument, "Schema error: Parse error:  --> 1:26\n  |\n1 | dense_vector<4> [indexed<hnsw>]\n  |                          ^---\n  |\n  = expected index_config_param")
}
