package client

import (
	"context"
	"fmt"
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Search is one search. Absent members take the server's default.
type Search struct {
	Q             string     `json:"q,omitempty"`
	DefaultOp     string     `json:"default_op,omitempty"`
	DefaultFields []string   `json:"default_fields,omitempty"`
	Filter        []string   `json:"filter,omitempty"` // query strings that must all match and never score
	Limit         int        `json:"limit"`
	Offset        int        `json:"offset,omitzero"`
	After         string     `json:"after,omitempty"`   // SearchResult.Next of the page before
	Sort          []string   `json:"sort,omitempty"`    // key[:asc|:desc][:min|:max]
	Order         string     `json:"order,omitempty"`   // asc or desc, of keys that say none
	Missing       string     `json:"missing,omitempty"` // first or last
	Fields        []string   `json:"fields,omitzero"`   // members of the source; nil = all, empty = no source
	Facets        []string   `json:"facets,omitempty"`
	Aggs          string     `json:"aggs,omitempty"` // name:kind(arguments), …
	KNN           string     `json:"knn,omitempty"`  // field:v1,v2,… or field:i1=w1,… or field:0x…
	KNNK          int        `json:"knn_k,omitzero"`
	KNNExact      bool       `json:"knn_exact,omitzero"`
	Fusion        string     `json:"fusion,omitempty"`  // rrf or weighted
	Weights       string     `json:"weights,omitempty"` // of the lexical and the vector ranking
	Pool          int        `json:"pool,omitzero"`
	Highlight     *Highlight `json:"highlight,omitzero"`
	Explain       bool       `json:"explain,omitzero"`
	Profile       bool       `json:"profile,omitzero"`
	AllowPartial  bool       `json:"allow_partial,omitzero"`
	DFS           bool       `json:"dfs,omitzero"` // score with the statistics of all shards
	TimeoutMS     int64      `json:"timeout_ms,omitzero"`
	TrackTotal    string     `json:"track_total,omitempty"` // exact, none, or a number up to which the total is exact
	Index         string     `json:"-"`
}

// Highlight says which texts to show with what was found in them marked.
type Highlight struct {
	Fields []string `json:"fields"`
	Pre    string   `json:"pre"`
	Post   string   `json:"post"`
	Escape string   `json:"escape,omitempty"` // html or none
}

// Hit is one document of an answer.
type Hit struct {
	ID          string              `json:"id"`
	Score       float32             `json:"score"`
	Sort        []jsontext.Value    `json:"sort"`         // the value for each key of the order
	LexicalRank int                 `json:"lexical_rank"` // of a hybrid search, from 1; 0 outside the pool
	VectorRank  int                 `json:"vector_rank"`
	Source      jsontext.Value      `json:"source"`
	Highlight   map[string][]string `json:"highlight"`
	Explain     *Explanation        `json:"explain"`
}

// Explanation is how a score, or a part of one, was made.
type Explanation struct {
	Kind    string         `json:"kind"`
	Value   float32        `json:"value"`
	Match   *bool          `json:"match"` // nil: it does
	Field   string         `json:"field"`
	Text    string         `json:"text"`
	Factor  float32        `json:"factor"`
	BM25    *BM25          `json:"bm25"`
	Ranking string         `json:"ranking"`
	Rank    int            `json:"rank"`
	Metric  string         `json:"metric"`
	Parts   []*Explanation `json:"parts"`
	More    int            `json:"more"` // parts left out
}

// BM25 holds the numbers behind the score of a word.
type BM25 struct {
	TF   uint64  `json:"tf"`
	Len  uint64  `json:"len"`
	Avg  float32 `json:"avg"`
	Docs uint64  `json:"docs"`
	DF   uint64  `json:"df"`
	IDF  float32 `json:"idf"`
}

// Bucket is a value of a facet.
type Bucket struct {
	Value jsontext.Value `json:"value"`
	Count uint64         `json:"count"`
}

// SearchResult is the answer to a search. Raw is the reply as the server sent it.
type SearchResult struct {
	Total         uint64              `json:"total"`
	TotalRelation string              `json:"total_relation"`
	TookMS        float64             `json:"took_ms"`
	Hits          []Hit               `json:"hits"`
	Facets        map[string][]Bucket `json:"facets"`
	Aggs          jsontext.Value      `json:"aggs"`
	Next          string              `json:"next"` // for Search.After; empty on the last page
	Approximate   []string            `json:"approximate"`
	Coverage      struct {
		Shards      float64 `json:"shards"`
		DocsCovered uint64  `json:"docs_covered"`
		DocsTotal   uint64  `json:"docs_total"`
		Complete    bool    `json:"complete"`
	} `json:"coverage"`
	Notes   []string       `json:"notes"`
	Explain jsontext.Value `json:"explain"` // the plan
	Profile jsontext.Value `json:"profile"`
	Raw     jsontext.Value `json:"-"`
}

// Body is the JSON form of the search.
func (s *Search) Body() ([]byte, error) {
	body, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode search: %w", err)
	}
	return body, nil
}

// Search runs a search.
func (c *Client) Search(ctx context.Context, s Search) (*SearchResult, error) {
	body, err := s.Body()
	if err != nil {
		return nil, err
	}
	return c.SearchBody(ctx, s.Index, body)
}

// SearchBody runs a search that is given in JSON, with everything that POST /search takes. An empty index is the one that the body
// names.
func (c *Client) SearchBody(ctx context.Context, index string, body []byte) (*SearchResult, error) {
	raw, err := c.raw(ctx, http.MethodPost, "/search", indexParam(index), "application/json", body)
	if err != nil {
		return nil, err
	}
	out := &SearchResult{Raw: raw}
	if err := json.Unmarshal(raw, out); err != nil {
		return nil, fmt.Errorf("read reply of POST /search: %w", err)
	}
	return out, nil
}
