package subword

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/go-json-experiment/json"
)

// TestTokensAreThoseOfTheLibrary compares with what the Python package tokenizers 0.23.3 made of the same files and texts, special tokens
// left out. The files were trained by it on data of this project.
func TestTokensAreThoseOfTheLibrary(t *testing.T) {
	b, err := os.ReadFile("testdata/tokens.golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []struct {
		File  string `json:"file"`
		Cases []struct {
			Text string   `json:"text"`
			IDs  []uint32 `json:"ids"`
		} `json:"cases"`
	}
	if err := json.Unmarshal(b, &all); err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		data, err := os.ReadFile(filepath.Join("testdata", f.File))
		if err != nil {
			t.Fatal(err)
		}
		tok, err := Parse(data)
		if err != nil {
			t.Fatalf("%s: %v", f.File, err)
		}
		for _, c := range f.Cases {
			if got, err := tok.Tokens(c.Text, nil); err != nil || !slices.Equal(got, c.IDs) {
				t.Errorf("%s: %q has %v, want %v: %v", f.File, c.Text, got, c.IDs, err)
			}
		}
	}
}
