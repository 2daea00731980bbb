package shard

import (
	"fmt"
	"testing"

	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

// TestLanguageOfTheDocumentDecidesHowItIsIndexed: with lex(by: lang) a word is stemmed by the rules of the language that the document's
// own field names, in memory, after recovery and in segments alike.
func TestLanguageOfTheDocumentDecidesHowItIsIndexed(t *testing.T) {
	disk := memfs.New(nil)
	cfg := config(t, disk)
	cfg.Schema, cfg.NoFlushOnClose = schema.NewDynamic("t"), true
	s := open(t, cfg)
	// Added while the shard is open, so that the log has them.
	if err := s.AddFields(t.Context(), []schema.Field{
		{
			Name: "body", Type: schema.Text, Tokenizer: "lex(by: lang, default: en, stem: snowball, variants: false, fold: false)", Indexed: true,
			Positions: schema.TokenPositions, K1: schema.DefaultK1, B: schema.DefaultB,
		},
		{Name: "lang", Type: schema.Text, Tokenizer: "raw", Stored: true, Multi: true},
	}); err != nil {
		t.Fatal(err)
	}
	apply := func(key string, lang ...string) {
		t.Helper()
		d := &schema.Document{Key: key, Fields: []schema.Values{
			{Field: 0, Text: []string{key}},
			{Field: 1, Text: []string{"viele Häuser"}},
		}}
		if len(lang) > 0 {
			d.Fields = append(d.Fields, schema.Values{Field: 2, Text: lang})
		}
		res, err := s.Apply(t.Context(), []Op{put(d)})
		if err != nil || res[0].Err != nil {
			t.Fatal(err, res)
		}
	}
	find := func(word string) string {
		t.Helper()
		sn := s.Snapshot()
		defer sn.Release()
		if err := sn.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		return keysOf(t, sn, &query.Match{Field: "body", Text: word})
	}
	apply("de", "de")
	apply("en", "en")
	apply("list", "ru", "German")
	apply("none")
	apply("unknown", "klingon")
	apply("long", fmt.Sprintf("%0300d", 0))
	check := func(when string) {
		t.Helper()
		if got := find("Haus"); got != "de list" {
			t.Errorf("%s: Haus finds %q", when, got)
		}
		if got := find("Häuser"); got != "en long none unknown" {
			t.Errorf("%s: Häuser finds %q", when, got)
		}
	}
	check("memtable")
	closeShard(t, s)
	s = open(t, cfg)
	check("recovered")
	if err := s.Merge(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	check("segment")
	apply("de", "en")
	apply("none", "de")
	if got := find("Haus"); got != "list none" {
		t.Errorf("after the languages changed: Haus finds %q", got)
	}
}
