package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/weft-search/weft/internal/corpus"
)

// knownTokenizer stands in for the text package.
func knownTokenizer(spec string) error {
	if strings.Contains(spec, "klingon") {
		return errors.New("unknown tokenizer 'klingon_stem'")
	}
	return nil
}

// TestSDL runs testdata/sdl: each input gives its canonical form, or an error with its place.
func TestSDL(t *testing.T) {
	datadriven.RunTest(t, "testdata/sdl", func(t *testing.T, d *datadriven.TestData) string {
		s, err := ParseSDL(d.Input, knownTokenizer)
		if err != nil {
			parseError(t, d.Input, err)
			return err.Error() + "\n"
		}
		if d.Cmd == "json" {
			return marshal(t, s)
		}
		return s.SDL()
	})
}

// TestJSON runs testdata/json: each input gives its SDL, or an error with its place.
func TestJSON(t *testing.T) {
	datadriven.RunTest(t, "testdata/json", func(t *testing.T, d *datadriven.TestData) string {
		s, err := ParseJSON(d.Input, knownTokenizer)
		if err != nil {
			parseError(t, d.Input, err)
			return err.Error() + "\n"
		}
		return s.SDL()
	})
}

func marshal(t *testing.T, s *Schema) string {
	t.Helper()
	b, err := s.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return string(b) + "\n"
}

// TestSamples reads the schema strings of the reference's developers.
func TestSamples(t *testing.T) {
	f, err := os.ReadFile(filepath.Join(corpus.Dir(t, "sdl"), "cases.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	// More than one index block is for ParseSDLAll: a node takes exactly one (the recorded answers refuse two).
	several := map[string]bool{"test_multiple_indexes": true}
	for line := range strings.SplitSeq(strings.TrimSpace(string(f)), "\n") {
		var c struct{ Name, SDL, Expect string }
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatal(err)
		}
		t.Run(c.Name, func(t *testing.T) {
			all, err := ParseSDLAll(c.SDL, nil)
			if (err == nil) != (c.Expect == "ok") {
				t.Fatalf("expected %s, got %v", c.Expect, err)
			}
			if err != nil {
				parseError(t, c.SDL, err)
				return
			}
			_, err = ParseSDL(c.SDL, nil)
			if (err != nil) != several[c.Name] {
				t.Fatalf("as one index: %v", err)
			}
			for _, s := range all {
				again, err := ParseSDL(s.SDL(), nil)
				if err != nil {
					t.Fatalf("%v in\n%s", err, s.SDL())
				}
				if diff := cmp.Diff(s, again); diff != "" {
					t.Fatal(diff)
				}
			}
		})
	}
}

func TestWholeSamples(t *testing.T) {
	var files []string
	for _, set := range []string{"sdl", "summa-golden"} {
		m, err := filepath.Glob(filepath.Join(corpus.Dir(t, set), "*.sdl"))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, m...)
	}
	if len(files) < 5 {
		t.Fatalf("found only %v", files)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseSDL(string(b), nil); err != nil {
			t.Errorf("%s: %v", filepath.Base(name), err)
		}
	}
}

func TestPrintThenParse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSchema(t)
		if err := s.Validate(); err != nil {
			t.Fatal(err)
		}
		again, err := ParseSDL(s.SDL(), nil)
		if err != nil {
			t.Fatalf("%v in\n%s", err, s.SDL())
		}
		if diff := cmp.Diff(s, again); diff != "" {
			t.Fatalf("SDL: %s\n%s", diff, s.SDL())
		}
		if len(s.SDL()) > s.printed() {
			t.Fatalf("SDL of %d bytes, bounded by %d", len(s.SDL()), s.printed())
		}
		s.Generation = 7
		b, err := s.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if len(b) > s.printed() {
			t.Fatalf("JSON of %d bytes, bounded by %d", len(b), s.printed())
		}
		again, err = ParseJSON(string(b), nil)
		if err != nil {
			t.Fatalf("%v in\n%s", err, b)
		}
		if diff := cmp.Diff(s, again); diff != "" {
			t.Fatalf("JSON: %s\n%s", diff, b)
		}
		for _, f := range s.Fields {
			b, err := json.Marshal(f)
			if err != nil {
				t.Fatal(err)
			}
			var g Field
			if err := json.Unmarshal(b, &g); err != nil {
				t.Fatalf("%v in %s", err, b)
			}
			if diff := cmp.Diff(f, g); diff != "" {
				t.Fatal(diff)
			}
			h, err := ParseFieldType(f.Name, f.Declaration(), nil)
			if err != nil {
				t.Fatalf("%v in %s", err, f.Declaration())
			}
			if diff := cmp.Diff(f, h); diff != "" {
				t.Fatal(diff)
			}
		}
	})
}

func TestSourceLimits(t *testing.T) {
	long := "index a { field x: text } #" + strings.Repeat("x", MaxSourceBytes)
	if _, err := ParseSDL(long, nil); err == nil || !strings.Contains(err.Error(), "must not exceed 16777216 bytes") {
		t.Errorf("long SDL: %v", err)
	}
	if _, err := ParseJSON(long, nil); err == nil || !strings.Contains(err.Error(), "must not exceed 16777216 bytes") {
		t.Errorf("long JSON: %v", err)
	}
	var b strings.Builder
	b.WriteString("index a {")
	for i := range MaxFields + 1 {
		b.WriteString(" field f" + string(rune('a'+i%26)) + strings.Repeat("x", i/2600) + ": u64")
	}
	if _, err := ParseSDL(b.String()+"}", nil); err == nil || !strings.Contains(err.Error(), "at most 10000 fields") {
		t.Errorf("many fields: %v", err)
	}
	deep := strings.Repeat(`{"fields":[`, 50_000)
	if _, err := ParseJSON(deep, nil); err == nil || !strings.Contains(err.Error(), "nested at most 16 deep") {
		t.Errorf("deep JSON: %v", err)
	}
	if _, err := ParseSDL("index a { field x: text<"+strings.Repeat("lex(a: ", 100_000), nil); err == nil {
		t.Error("deep SDL is accepted")
	}
	_, err := ParseSDL("index a {\n field \xff", nil)
	if pe := parseError(t, "index a {\n field \xff", err); pe.Line != 2 || pe.Col != 8 {
		t.Errorf("invalid UTF-8: %v", err)
	}
}

// TestLargeSchemas prints and reads what is as large as a schema may be, and refuses what is larger.
func TestLargeSchemas(t *testing.T) {
	s := NewDynamic("large")
	for i := 1; i < MaxFields; i++ {
		f := Field{
			Name: fmt.Sprintf("%05d", i) + strings.Repeat(`"`, MaxFieldNameBytes-5), Type: Text, Tokenizer: "standard", Indexed: true, Stored: true, Multi: true, Fast: true,
			Positions: TokenPositions, K1: 1.0 / 3, B: 1.0 / 7, KeywordMax: 1<<31 - 1, Inferred: true,
		}
		s.Fields = append(s.Fields, f)
	}
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	again, err := ParseSDL(s.SDL(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(s, again) {
		t.Error("SDL reads back to something else")
	}
	b, err := s.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	if again, err = ParseJSON(string(b), nil); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(s, again) {
		t.Error("JSON reads back to something else")
	}
	for i := range s.Fields {
		s.Fields[i].Tokenizer = "lex(" + strings.Repeat("x", 300) + ")"
	}
	if err := s.Validate(); err == nil || !strings.Contains(err.Error(), "as they are printed") {
		t.Errorf("a schema that could not be read again: %v", err)
	}
}

func FuzzSDL(f *testing.F) {
	f.Add("index a { field x: text<lex(by: y)> [indexed<chunked, k1: 0.9, query<max_terms: 3>>, stored<multi>, fast, primary] }")
	f.Add("index a { default_fields: [x, \"y z\"] query_router { pattern: r\"x\" substitution: \"y\" target_field: x } field x: dense_vector<8, f16> [indexed<scann>] }")
	f.Fuzz(func(t *testing.T, src string) {
		all, err := ParseSDLAll(src, nil)
		if err != nil {
			parseError(t, src, err)
			return
		}
		for _, s := range all {
			again, err := ParseSDL(s.SDL(), nil)
			if err != nil {
				t.Fatalf("%v in\n%s", err, s.SDL())
			}
			if diff := cmp.Diff(s, again); diff != "" {
				t.Fatal(diff)
			}
			if err := s.Validate(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func FuzzJSON(f *testing.F) {
	f.Add(`{"name":"a","fields":[{"name":"x","type":"text","indexed":{"positions":"none","options":["query<max_terms: 3>"]},"primary":true}],"default_fields":["x"]}`)
	f.Add(`{"dynamic":true,"max_l1_phrase_terms":3,"query_routers":[{"pattern":"a","substitution":"b","target_field":"c"}]}`)
	f.Fuzz(func(t *testing.T, src string) {
		s, err := ParseJSON(src, nil)
		if err != nil {
			parseError(t, src, err)
			return
		}
		b, err := s.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseJSON(string(b), nil)
		if err != nil {
			t.Fatalf("%v in\n%s", err, b)
		}
		if again.SDL() != s.SDL() || again.Generation != s.Generation {
			t.Fatalf("%s\n%s", s.SDL(), again.SDL())
		}
		if len(s.Fields) == 0 && !s.Dynamic {
			return
		}
		same, err := ParseSDL(s.SDL(), nil)
		if err != nil {
			t.Fatalf("%v in\n%s", err, s.SDL())
		}
		if same.Generation = s.Generation; s.Name == "" {
			same.Name = ""
		}
		if diff := cmp.Diff(s, same, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("%s\n%s", diff, s.SDL())
		}
	})
}
