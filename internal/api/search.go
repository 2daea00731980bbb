package api

import (
	"bytes"
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/weft-search/weft/internal/agg"
	"github.com/weft-search/weft/internal/api/cursor"
	"github.com/weft-search/weft/internal/query"
)

// DefaultIndex is the index of a call that names none.
const DefaultIndex = "default"

// TotalMode says how exactly the number of matches is wanted.
type TotalMode uint8

// Total modes.
const (
	TotalExact   TotalMode = iota // count every match
	TotalAtLeast                  // count exactly up to SearchRequest.TotalFloor, then a lower bound will do
	TotalNone                     // no total
)

// Choice is a yes, a no, or nothing said.
type Choice uint8

// Choices.
const (
	Unsaid Choice = iota
	Yes
	No
)

// SearchRequest is a search as its caller asked for it. Whether its fields exist and fit is seen only against an index.
type SearchRequest struct {
	Index         string
	Q             string // empty: all documents
	DefaultOp     query.Op
	DefaultFields []string // nil: those of the schema, else every indexed text field but the key
	Limit         int
	Offset        int
	After         string // cursor of the page before; empty: the first page
	Total         TotalMode
	TotalFloor    uint64
	Filters       []query.Node       // all must match; they never score
	FilterPlaces  map[query.Node]int // byte offset of parts of a filter in its query string
	Sort          []SortKey          // nil: score descending; id ascending follows in any case
	Fields        []string           // members of the source to return; nil: all, empty: no source
	Facets        []string           // fields whose values are counted over the matching documents
	Aggs          []agg.Spec
	KNN           *KNN // nil: no vector search. With a Q that is not for all documents the search is hybrid
	Fusion        Fusion
	Weights       [2]float32 // of the lexical and the vector ranking
	Pool          int        // depth of each of the two rankings
	Highlight     *Highlight // nil: none
	Timeout       time.Duration
	AllowPartial  Choice
	MinCoverage   float64 // least share of the documents that an answer must cover, 0 to 1
	DFS           bool
	Explain       bool
	Profile       bool

	Idle []string // parameters of vector searches that were given without knn, sorted
}

// Defaults of a search that does not say.
const (
	DefaultLimit = 10
	DefaultK     = 10
	DefaultPool  = 200
)

// SearchLimits bound what a search may ask for.
type SearchLimits struct {
	Hits    int           // offset + limit, knn_k, pool
	Timeout time.Duration // timeout_ms
	Pool    int           // of a request that gives none; 0: DefaultPool
}

// Limits of the parts of one search.
const (
	MaxFilters   = 64 // entries of filter
	MaxSortKeys  = 8  // keys of sort
	MaxFacets    = 64 // fields of facets
	MaxHighlight = 64 // fields of highlight, and fields that are highlighted in one hit
)

// kind is the type of a parameter.
type kind uint8

const (
	kindString kind = iota
	kindInt
	kindFloat
	kindBool
	kindList   // comma list in a URL, array of strings in JSON
	kindTotal  // exact, none or a number
	kindOwn    // one text in a URL, any value in JSON: the parameter reads it itself
	kindRepeat // the same, and a URL may have it several times
)

// param is a parameter of search, the same in a URL and in a JSON body.
type param struct {
	name string
	kind kind
	set  func(p *parsing, v value) *Problem
}

// value is a parameter's value, checked for its kind.
type value struct {
	text  string
	num   int64
	float float64
	yes   bool
	list  []string
	texts []string       // kindOwn and kindRepeat in a URL
	raw   jsontext.Value // kindOwn and kindRepeat in JSON; nil in a URL
}

// parsing is a request under construction with what can be finished only when every parameter is known.
type parsing struct {
	*SearchRequest
	lim SearchLimits

	filters      []filterText
	sort         []sortText
	desc         Choice // order
	missingFirst bool
	knnK         int // -1: not given
	knnExact     bool
	besideKNN    []string // parameters given that mean nothing without knn
}

func newParsing(l SearchLimits) *parsing {
	return &parsing{
		SearchRequest: &SearchRequest{Index: DefaultIndex, Limit: DefaultLimit, Pool: min(cmp.Or(l.Pool, DefaultPool), l.Hits), Weights: [2]float32{0.5, 0.5}},
		lim:           l, knnK: -1,
	}
}

// searchParams are all parameters that search knows.
var searchParams = []param{
	{"index", kindString, func(p *parsing, v value) *Problem {
		p.Index = v.text
		return CheckIndexName(v.text)
	}},
	{"q", kindString, func(p *parsing, v value) *Problem { p.Q = v.text; return nil }},
	{"default_op", kindString, func(p *parsing, v value) *Problem {
		switch v.text {
		case "or", "OR":
			p.DefaultOp = query.Or
		case "and", "AND":
			p.DefaultOp = query.And
		default:
			return badParam("default_op", "it is or, or and")
		}
		return nil
	}},
	{"default_fields", kindList, func(p *parsing, v value) *Problem {
		if len(v.list) == 0 {
			return badParam("default_fields", "it names no field; leave it out to search those of the schema, or every indexed text field")
		}
		p.DefaultFields = v.list
		return nil
	}},
	{"limit", kindInt, func(p *parsing, v value) *Problem { return setCount(&p.Limit, "limit", 0, p.lim.Hits, v.num) }},
	{"offset", kindInt, func(p *parsing, v value) *Problem { return setCount(&p.Offset, "offset", 0, p.lim.Hits, v.num) }},
	{"after", kindString, func(p *parsing, v value) *Problem {
		if len(v.text) > cursor.MaxText {
			return &Problem{Code: InvalidCursor, Field: "after", Detail: fmt.Sprintf("after: it is longer than %d characters", cursor.MaxText), Limit: cursor.MaxText, HasLimit: true}
		}
		p.After = v.text
		return nil
	}},
	{"track_total", kindTotal, func(p *parsing, v value) *Problem {
		switch v.text {
		case "exact":
			p.Total = TotalExact
		case "none":
			p.Total = TotalNone
		default:
			n, err := strconv.ParseUint(v.text, 10, 63)
			if err != nil {
				return badParam("track_total", "it is exact, none, or a number from 0")
			}
			p.Total, p.TotalFloor = TotalAtLeast, n
		}
		return nil
	}},
	{"filter", kindRepeat, (*parsing).setFilter},
	{"sort", kindOwn, (*parsing).setSort},
	{"order", kindString, func(p *parsing, v value) *Problem {
		switch v.text {
		case "asc":
			p.desc = No
		case "desc":
			p.desc = Yes
		default:
			return badParam("order", "it is asc or desc")
		}
		return nil
	}},
	{"missing", kindString, func(p *parsing, v value) *Problem {
		if v.text != "first" && v.text != "last" {
			return badParam("missing", "it is first or last")
		}
		p.missingFirst = v.text == "first"
		return nil
	}},
	{"fields", kindList, func(p *parsing, v value) *Problem { p.Fields = v.list; return nil }},
	{"facets", kindList, func(p *parsing, v value) *Problem {
		if len(v.list) > MaxFacets {
			return badParam("facets", fmt.Sprintf("it names %d fields, at most %d are allowed", len(v.list), MaxFacets)).Within(MaxFacets)
		}
		p.Facets = v.list
		return nil
	}},
	{"aggs", kindOwn, (*parsing).setAggs},
	{"knn", kindOwn, (*parsing).setKNN},
	{"knn_k", kindInt, func(p *parsing, v value) *Problem { return setCount(&p.knnK, "knn_k", 1, p.lim.Hits, v.num) }},
	{"knn_exact", kindBool, func(p *parsing, v value) *Problem { p.knnExact = v.yes; return nil }},
	{"fusion", kindString, func(p *parsing, v value) *Problem {
		switch v.text {
		case "rrf":
			p.Fusion = RRF
		case "weighted":
			p.Fusion = Weighted
		default:
			return badParam("fusion", "it is rrf or weighted")
		}
		return nil
	}},
	{"weights", kindOwn, (*parsing).setWeights},
	{"pool", kindInt, func(p *parsing, v value) *Problem { return setCount(&p.Pool, "pool", 1, p.lim.Hits, v.num) }},
	{"highlight", kindOwn, (*parsing).setHighlight},
	{"timeout_ms", kindInt, func(p *parsing, v value) *Problem {
		if most := p.lim.Timeout.Milliseconds(); v.num < 1 || v.num > most {
			return badParam("timeout_ms", fmt.Sprintf("it is a number of milliseconds from 1 to %d", most)).Within(most)
		}
		p.Timeout = time.Duration(v.num) * time.Millisecond
		return nil
	}},
	{"allow_partial", kindBool, func(p *parsing, v value) *Problem {
		p.AllowPartial = No
		if v.yes {
			p.AllowPartial = Yes
		}
		return nil
	}},
	{"min_coverage", kindFloat, func(p *parsing, v value) *Problem {
		if !(v.float >= 0 && v.float <= 1) {
			return badParam("min_coverage", "it is a share from 0 to 1")
		}
		p.MinCoverage = v.float
		return nil
	}},
	{"dfs", kindBool, func(p *parsing, v value) *Problem { p.DFS = v.yes; return nil }},
	{"explain", kindBool, func(p *parsing, v value) *Problem { p.Explain = v.yes; return nil }},
	{"profile", kindBool, func(p *parsing, v value) *Problem { p.Profile = v.yes; return nil }},
}

// The functions of the table lead back to it, so it is filled when the program starts.
var searchParamByName = make(map[string]*param, len(searchParams))

func init() {
	for i := range searchParams {
		searchParamByName[searchParams[i].name] = &searchParams[i]
	}
}

func setCount(p *int, name string, least, most int, n int64) *Problem {
	if n < int64(least) || n > int64(most) {
		return badParam(name, fmt.Sprintf("it is a number from %d to %d", least, most)).Within(int64(most))
	}
	*p = int(n)
	return nil
}

func badParam(name, detail string) *Problem {
	return &Problem{Code: InvalidParameter, Field: name, Detail: name + ": " + detail}
}

// ParseSearch reads the parameters of GET /search.
func ParseSearch(v url.Values, l SearchLimits) (*SearchRequest, *Problem) {
	r := newParsing(l)
	for _, name := range sortedKeys(v) {
		p, ok := searchParamByName[name]
		if !ok {
			return nil, UnknownParam(name)
		}
		if len(v[name]) > 1 && p.kind != kindRepeat {
			return nil, repeated(name)
		}
		val, prob := p.fromURL(v[name])
		if prob == nil {
			prob = r.take(p, val)
		}
		if prob != nil {
			return nil, prob
		}
	}
	if prob := r.finish(); prob != nil {
		return nil, prob
	}
	return r.SearchRequest, nil
}

// ParseSearchBody reads the JSON body of POST /search. index is the index that the URL names, empty if it names none.
func ParseSearchBody(body []byte, index string, l SearchLimits) (*SearchRequest, *Problem) {
	r := newParsing(l)
	if index != "" {
		r.Index = index
	}
	d := jsontext.NewDecoder(bytes.NewReader(body))
	tok, err := d.ReadToken()
	if err != nil {
		return nil, JSONProblem(body, err)
	}
	if tok.Kind() != '{' {
		return nil, atByte(body, NewProblem(InvalidJSON, "the body is not a JSON object"), len(body)-len(bytes.TrimLeft(body, " \t\r\n")))
	}
	for {
		tok, err := d.ReadToken()
		if err != nil {
			return nil, JSONProblem(body, err)
		}
		if tok.Kind() == '}' {
			break
		}
		name := tok.String()
		p, ok := searchParamByName[name]
		if !ok {
			return nil, UnknownParam(name).At(int(d.InputOffset()))
		}
		raw, err := d.ReadValue()
		if err != nil {
			return nil, JSONProblem(body, err)
		}
		at := int(d.InputOffset()) - len(raw)
		// raw lives until the next read: a parameter keeps nothing of it.
		val, prob := p.fromJSON(raw)
		if prob == nil {
			prob = r.take(p, val)
		}
		if prob != nil {
			if prob.HasPosition { // within the value
				at += prob.Position
			}
			return nil, prob.At(at)
		}
	}
	if tok, err := d.ReadToken(); err == nil {
		return nil, atByte(body, NewProblem(InvalidJSON, "more follows after the JSON object"), int(d.InputOffset())-len(tok.String()))
	} else if d.InputOffset() != int64(len(body)) && strings.TrimSpace(string(body[d.InputOffset():])) != "" {
		return nil, JSONProblem(body, err)
	}
	if index != "" && r.Index != index {
		return nil, &Problem{Code: RepeatedParameter, Field: "index", Detail: "the URL and the body name different indexes"}
	}
	if prob := r.finish(); prob != nil {
		return nil, prob
	}
	return r.SearchRequest, nil
}

// finish completes the request when every parameter is known, and checks what concerns several of them.
func (p *parsing) finish() *Problem {
	if p.Offset+p.Limit > p.lim.Hits {
		return badParam("offset", fmt.Sprintf("offset + limit is more than %d; go on behind it with after", p.lim.Hits)).Within(int64(p.lim.Hits))
	}
	if p.After != "" && p.Offset > 0 {
		return badParam("offset", "it cannot be used with after, which says where the page begins").Within(0)
	}
	if prob := p.finishFilters(); prob != nil {
		return prob
	}
	p.finishSort()
	if p.KNN != nil {
		return p.finishKNN()
	}
	slices.Sort(p.besideKNN)
	p.Idle = p.besideKNN
	return nil
}

// take sets a parameter to a value.
func (p *parsing) take(param *param, v value) *Problem {
	switch param.name {
	case "knn_k", "knn_exact", "fusion", "weights", "pool":
		p.besideKNN = append(p.besideKNN, param.name)
	}
	return param.set(p, v)
}

// UnknownParam is the problem of a parameter or JSON member that a call does not know.
func UnknownParam(name string) *Problem {
	return &Problem{Code: UnknownParameter, Field: Clip(name), Detail: "there is no parameter " + strconv.Quote(Clip(name))}
}

func repeated(name string) *Problem {
	return &Problem{Code: RepeatedParameter, Field: name, Detail: name + " is given more than once"}
}
