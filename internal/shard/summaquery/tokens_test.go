package summaquery_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/corpus"
	"github.com/weft-search/weft/internal/shard/summaquery"
	"github.com/weft-search/weft/internal/summa"
)

// The bound of the words of a text is that of the limits, wherever a text stands; one past it is refused, whether the words are the same or not.
func TestWordsOfATextAreBounded(t *testing.T) {
	ix := recorded(t, corpus.Dir(t, "summa-golden"), "plain")
	kinds := map[string]func(text string) *summapb.Query{
		"TermQuery": func(text string) *summapb.Query {
			return &summapb.Query{Query: &summapb.Query_Term{Term: &summapb.TermQuery{Field: "note", Term: text}}}
		},
		"MatchQuery": func(text string) *summapb.Query {
			return &summapb.Query{Query: &summapb.Query_Match{Match: &summapb.MatchQuery{Field: "note", Text: text}}}
		},
		"PhraseQuery": func(text string) *summapb.Query {
			return &summapb.Query{Query: &summapb.Query_Phrase{Phrase: &summapb.PhraseQuery{Field: "note", Text: text}}}
		},
	}
	for _, most := range []int{0, 3, 2000} {
		lim := summa.Limits{MaxTextQueryTokens: most}.WithDefaults()
		for kind, of := range kinds {
			for _, n := range []int{lim.MaxTextQueryTokens, lim.MaxTextQueryTokens + 1} {
				same, different := strings.Repeat("boat ", n), ""
				for i := range n {
					different += fmt.Sprint("w", i, " ")
				}
				for _, text := range []string{same, different} {
					req := &summapb.SearchRequest{IndexName: "plain", Query: of(text)}
					w, err := lim.CheckSearch(req)
					if err != nil {
						t.Fatal(err)
					}
					_, searched := summaquery.Search(t.Context(), ix, req, w, lim)
					_, counted := summaquery.TextStats(t.Context(), ix, req.Query, lim)
					for call, err := range map[string]error{"Search": searched, "GetTextStats": counted} {
						want := ""
						if n > lim.MaxTextQueryTokens {
							want = fmt.Sprintf("Invalid query: %s expands to %d tokens; maximum is %d", kind, n, lim.MaxTextQueryTokens)
						}
						got := ""
						if bad, ok := errors.AsType[*summa.Error](err); ok {
							got = bad.Text
						} else if err != nil {
							t.Fatal(err)
						}
						if got != want {
							t.Errorf("%s of a %s with %d words: %q, want %q", call, kind, n, got, want)
						}
					}
				}
			}
		}
	}
}
