package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/api/bound"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/query"
)

// printed is what a search over HTTP prints.
type printed struct {
	Hits []struct {
		ID                         string
		Source, Highlight, Explain json.RawMessage
	}
	Explain json.RawMessage
	Notes   []string
}

// ranking of an explanation of a hit of two rankings.
type rankedPart struct {
	Ranking string
	Parts   []json.RawMessage
}

// TestShownIsWhatASearchPrints holds what a leaf shows against the hits of searches over HTTP, byte by byte.
func TestShownIsWhatASearchPrints(t *testing.T) {
	s := newServer(t, Config{})
	m := s.node.Leaf()
	s.do("PUT", "/indexes/a", "text/plain", `index a {
		field id: text<raw> [indexed, stored, fast, primary]
		field title: text [indexed<token_position>, stored]
		field body: text [indexed<token_position>, stored]
		field hidden: text [indexed]
		field "o.x": i64 [stored<multi>, fast]
		field v: dense_vector<3> [indexed<metric: cosine>, stored<multi>]
		field s: sparse_vector [indexed, stored]
	}`).want(201)
	r := rand.New(rand.NewPCG(5, 8))
	words := func() string {
		list := make([]string, 1+r.IntN(6))
		for i := range list {
			list[i] = []string{"warp", "weft", "<loom>", "reed", "織物"}[r.IntN(5)]
		}
		return strings.Join(list, " ")
	}
	for range 2 {
		var docs strings.Builder
		for i := range 80 {
			fmt.Fprintf(&docs, `{"id":"d%d","title":%q, "body":%q,"hidden":%q,"o":{"x":[%d, %d]}`, r.IntN(200), words(), words(), words(), i, r.IntN(9))
			if i%3 > 0 {
				fmt.Fprintf(&docs, `,"v":[[1,%d,%d],[%d,1,0.5]],"s":{"indices":[1,%d],"values":[1,0.25]}`, r.IntN(9), r.IntN(9), r.IntN(5), 2+r.IntN(5))
			}
			docs.WriteString("}\n")
		}
		s.bulk("a", docs.String()).want(200)
		l, err := s.node.catalog.use(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if err := l.eng.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.release()
	}
	s.put("a", `{"id":"late","title":"warp","body":"weft weft"}`)

	var compared int
	for _, q := range []string{"", "warp", "title:warp^2 body:loom -reed", `"warp weft"~2`, "title:w*", "o.x:[2 TO 50]", "hidden:reed AND title:warp", "織物 OR _exists_:v"} {
		for _, more := range []string{
			``, `,"fields":["title","o"]`, `,"fields":[]`, `,"highlight":["*"],"fields":["v"]`, `,"explain":true,"highlight":{"fields":["title","body"],"fragment_size":20,"pre":"[","escape":"none"}`,
			`,"explain":true,"sort":["-o.x"],"filter":"o.x:>1"`, `,"explain":true,"sort":["title"]`, `,"default_fields":["body"],"explain":true`,
			`,"explain":true,"fields":[],"knn":{"field":"v","vector":[1,2,0.5],"k":12}`, `,"explain":true,"knn":{"field":"s","indices":[1,3],"values":[1,2],"k":12,"combiner":"max"},"filter":["title:warp"]`,
			`,"explain":true,"highlight":["title"],"knn":{"field":"v","vector":[1,2,0.5],"combiner":"log_sum_exp","temperature":2},"fusion":"weighted"`,
		} {
			body := fmt.Sprintf(`{"index":"a","limit":15,"q":%q%s}`, q, more)
			a := s.do("POST", "/search", "application/json", body)
			req, prob := api.ParseSearchBody([]byte(body), "", api.SearchLimits{Hits: 1000})
			if a.status == 400 && prob == nil {
				continue // an order by text without a column
			}
			if prob != nil {
				t.Fatalf("%s: %v", body, prob)
			}
			var want printed
			if err := json.Unmarshal(a.want(200).body, &want); err != nil {
				t.Fatal(err)
			}
			parsed, err := bound.Parse(req)
			if err != nil {
				t.Fatal(err)
			}
			show := leaf.Show{Source: true, Fields: req.Fields, Highlight: req.Highlight, Explain: req.Explain}
			fetch := &leaf.FetchRequest{Index: "a", Show: show, Query: parsed.Root, Filters: req.Filters, DefaultFields: req.DefaultFields, KNN: req.KNN}
			for _, h := range want.Hits {
				fetch.IDs = append(fetch.IDs, h.ID)
			}
			got, err := m.Fetch(t.Context(), fetch)
			if err != nil {
				t.Fatalf("%s: %v", body, err)
			}
			plan := want.Explain
			if req.KNN != nil && plan != nil { // what the search for the nearest took is not known to a fetch
				plan = append(bytes.Split(plan, []byte(`,"knn":`))[0], '}')
			}
			if !bytes.Equal(got.Plan, plan) {
				t.Errorf("%s: plan %s, want %s", body, got.Plan, plan)
			}
			for i, h := range want.Hits {
				d := got.Docs[i]
				if d.Missing || !bytes.Equal(d.Source, h.Source) || !bytes.Equal(d.Highlight, h.Highlight) {
					t.Errorf("%s: %s: source %s, highlight %s; want %s and %s", body, h.ID, d.Source, d.Highlight, h.Source, h.Highlight)
				}
				lexical, vector := h.Explain, json.RawMessage(nil)
				switch {
				case req.KNN != nil && parsed.Everything:
					lexical, vector = nil, h.Explain
				case req.KNN != nil:
					var fused struct{ Parts []rankedPart }
					if err := json.Unmarshal(h.Explain, &fused); err != nil {
						t.Fatal(err)
					}
					lexical, vector = nil, nil
					for _, p := range fused.Parts {
						if p.Ranking == "lexical" {
							lexical = p.Parts[0]
						} else {
							vector = p.Parts[0]
						}
					}
					if lexical == nil { // it is in one ranking, and explained for both
						d.Lexical = nil
					}
					if vector == nil {
						d.Vector = nil
					}
				}
				if !bytes.Equal(d.Lexical, lexical) || !bytes.Equal(d.Vector, vector) {
					t.Errorf("%s: %s: explained as %s and %s, want %s and %s", body, h.ID, d.Lexical, d.Vector, lexical, vector)
				}
				compared++
			}
			if req.KNN != nil {
				continue
			}
			sch := s.node.catalog.list()[0].eng.Schema()
			order, prob := bound.BindSort(sch, req.Sort)
			if prob != nil {
				t.Fatal(prob)
			}
			found, err := m.Search(t.Context(), &leaf.SearchRequest{
				Index: "a", Query: parsed.Root, Filters: req.Filters, DefaultFields: req.DefaultFields, Limit: req.Limit, Sort: order.Keys, Show: &show,
			})
			if err != nil {
				t.Fatalf("%s: %v", body, err)
			}
			for i, h := range want.Hits {
				d := found.Shown[i]
				if found.Hits[i].ID != h.ID || !bytes.Equal(d.Source, h.Source) || !bytes.Equal(d.Highlight, h.Highlight) || !bytes.Equal(d.Lexical, h.Explain) || d.Vector != nil {
					t.Errorf("%s: hit %d is %s with %s, %s, %s; want %s with %s, %s, %s", body, i, found.Hits[i].ID, d.Source, d.Highlight, d.Lexical, h.ID, h.Source, h.Highlight, h.Explain)
				}
			}
			if !bytes.Equal(found.Plan, want.Explain) {
				t.Errorf("%s: plan %s, want %s", body, found.Plan, want.Explain)
			}
		}
	}
	if compared < 500 {
		t.Errorf("%d hits compared", compared)
	}
}

// TestShownIsBounded shows more than a reply may have, and more than there is memory for.
func TestShownIsBounded(t *testing.T) {
	s := newServer(t, Config{Limits: Limits{ReplyBytes: 4 << 20, RequestBytes: 48 << 20}})
	m := s.node.Leaf()
	ctx := t.Context()
	s.do("PUT", "/indexes/a", "text/plain", `index a { field id: text<raw> [indexed, stored, fast, primary] field t: text [indexed, stored] }`).want(201)
	var ids []string
	for i := range 12 {
		ids = append(ids, fmt.Sprint(i))
		s.put("a", fmt.Sprintf(`{"id":"%d","t":"warp %s"}`, i, strings.Repeat("weft ", 1<<18-100)))
	}
	everything := &query.All{}
	mark := &api.Highlight{Fields: []string{"t"}, FragmentSize: 10_000, Fragments: 100}
	for name, c := range map[string]struct {
		ids  []string
		show leaf.Show
		most int64
		code api.Code
	}{
		"sources that fit":             {ids[:3], leaf.Show{Source: true}, 0, ""},
		"sources that do not":          {ids, leaf.Show{Source: true}, 0, api.ReplyTooLarge},
		"no sources":                   {ids, leaf.Show{}, 0, ""},
		"sources, and no memory":       {ids[:3], leaf.Show{Source: true}, 44 << 20, api.RequestMemoryFull},
		"fragments that fit":           {ids[:2], leaf.Show{Highlight: mark}, 0, ""},
		"fragments that do not":        {ids[:5], leaf.Show{Highlight: mark}, 0, api.ReplyTooLarge},
		"fragments, and no memory":     {ids[:2], leaf.Show{Highlight: mark}, 44 << 20, api.RequestMemoryFull},
		"one document, and no memory":  {ids[:1], leaf.Show{Fields: []string{"t"}}, 47 << 20, ""},
		"one small part and no memory": {ids[:1], leaf.Show{Highlight: &api.Highlight{Fields: []string{"t"}}}, 47 << 20, ""},
	} {
		t.Run(name, func(t *testing.T) {
			place, err := s.node.memory.Enter(ctx, max(1, c.most))
			if err != nil {
				t.Fatal(err)
			}
			defer place.Release()
			before := s.node.memory.Used()
			var q query.Node = everything
			if c.show.Highlight != nil {
				q = &query.Term{Field: "t", Text: "weft"}
			}
			_, fetched := m.Fetch(ctx, &leaf.FetchRequest{Index: "a", IDs: c.ids, Show: c.show, Query: q})
			_, found := m.Search(ctx, &leaf.SearchRequest{Index: "a", Limit: len(c.ids), Show: &c.show, Query: q})
			for _, err := range []error{fetched, found} {
				if c.code == "" {
					if err != nil {
						t.Error(err)
					}
					continue
				}
				wantProblem(t, name, err, c.code)
			}
			if now := s.node.memory.Used(); now != before {
				t.Errorf("%d bytes are charged still", now-before)
			}
		})
	}
	past, cancel := context.WithTimeout(ctx, 0)
	defer cancel()
	if _, err := m.Fetch(past, &leaf.FetchRequest{Index: "a", IDs: ids[:1], Show: leaf.Show{Source: true}}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after the deadline: %v", err)
	}
	many := make([]string, mostExplained+1)
	for i := range many {
		many[i] = ids[0]
	}
	if _, err := m.Fetch(ctx, &leaf.FetchRequest{Index: "a", IDs: many[:mostExplained], Show: leaf.Show{Explain: true}}); err != nil {
		t.Errorf("explanations of as many as there may be: %v", err)
	}
	_, err := m.Fetch(ctx, &leaf.FetchRequest{Index: "a", IDs: many, Show: leaf.Show{Explain: true}})
	wantProblem(t, "explanations of more", err, api.InvalidParameter)
	_, err = m.Search(ctx, &leaf.SearchRequest{Index: "a", Limit: mostExplained + 1, Show: &leaf.Show{Explain: true}})
	wantProblem(t, "explanations of more hits", err, api.InvalidParameter)
}
