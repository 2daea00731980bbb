package rpc

import (
	"fmt"

	pb "github.com/weft-search/weft/api/shard/v1"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/query"
)

// packQuery turns a tree into messages. nil becomes nil. The tree has passed query.Check, which bounds the recursion.
func packQuery(n query.Node) *pb.Query {
	if n == nil {
		return nil
	}
	q := &pb.Query{}
	switch n := n.(type) {
	case *query.Term:
		q.Node = &pb.Query_Term_{Term: &pb.Query_Term{Field: n.Field, Text: n.Text}}
	case *query.Match:
		// Fewer than no terms means as many as there are, like 0.
		q.Node = &pb.Query_Match_{Match: &pb.Query_Match{Field: n.Field, Text: n.Text, All: n.All, MaxTerms: uint32(min(max(n.MaxTerms, 0), maxCount))}}
	case *query.Phrase:
		q.Node = &pb.Query_Phrase_{Phrase: &pb.Query_Phrase{Field: n.Field, Text: n.Text, Slop: n.Slop}}
	case *query.Prefix:
		q.Node = &pb.Query_Prefix_{Prefix: &pb.Query_Prefix{Field: n.Field, Text: n.Text}}
	case *query.Range:
		q.Node = &pb.Query_Range_{Range: &pb.Query_Range{Field: n.Field, Min: packBound(n.Min), Max: packBound(n.Max)}}
	case *query.Terms:
		q.Node = &pb.Query_Terms_{Terms: &pb.Query_Terms{Field: n.Field, Values: packTexts(n.Values)}}
	case *query.Exists:
		q.Node = &pb.Query_Exists_{Exists: &pb.Query_Exists{Field: n.Field}}
	case *query.All:
		q.Node = &pb.Query_All_{All: &pb.Query_All{}}
	case *query.Bool:
		q.Node = &pb.Query_Bool_{Bool: &pb.Query_Bool{
			Must: packQueries(n.Must), Should: packQueries(n.Should), MustNot: packQueries(n.MustNot), Filter: packQueries(n.Filter),
		}}
	case *query.Boost:
		q.Node = &pb.Query_Boost_{Boost: &pb.Query_Boost{Query: packQuery(n.Query), Factor: n.Factor}}
	}
	return q
}

func packQueries(list []query.Node) []*pb.Query {
	if len(list) == 0 {
		return nil
	}
	out := make([]*pb.Query, len(list))
	for i, n := range list {
		out[i] = packQuery(n)
	}
	return out
}

func packBound(b *query.Bound) *pb.Query_Bound {
	if b == nil {
		return nil
	}
	return &pb.Query_Bound{Value: b.Value, Exclusive: b.Exclusive}
}

// tree turns messages into a tree and stops at the limits while it does, so that what it makes is bounded by them and not by what was
// sent.
type tree struct {
	lim    query.Limits // every field that is looked at is set
	nodes  int
	values int // of all Terms
	bytes  int // of those
}

// unpackQuery returns nil for nil. Errors are *query.LimitError or wrap query.ErrMalformed.
func unpackQuery(q *pb.Query, lim query.Limits) (query.Node, error) {
	if q == nil {
		return nil, nil
	}
	if lim.Depth <= 0 {
		lim.Depth = defaultDepth
	}
	if lim.Nodes <= 0 {
		lim.Nodes = defaultNodes
	}
	if lim.Values <= 0 {
		lim.Values = defaultValues
	}
	if lim.ValueBytes <= 0 {
		lim.ValueBytes = defaultValueBytes
	}
	t := tree{lim: lim}
	n, err := t.node(q, 1)
	if err != nil {
		return nil, err
	}
	return n, query.Check(n, lim)
}

// The defaults of query.Limits, which package query keeps to itself; a test holds them together.
const (
	defaultDepth      = 32
	defaultNodes      = 256
	defaultValues     = 65_536
	defaultValueBytes = 4 << 20
)

func (t *tree) node(q *pb.Query, depth int) (query.Node, error) {
	if depth > t.lim.Depth {
		return nil, &query.LimitError{What: query.LimitDepth, Limit: t.lim.Depth, Got: depth, Position: -1}
	}
	if t.nodes++; t.nodes > t.lim.Nodes {
		return nil, &query.LimitError{What: query.LimitNodes, Limit: t.lim.Nodes, Got: t.nodes, Position: -1}
	}
	switch n := q.GetNode().(type) {
	case *pb.Query_Term_:
		return &query.Term{Field: n.Term.GetField(), Text: n.Term.GetText()}, nil
	case *pb.Query_Match_:
		return &query.Match{Field: n.Match.GetField(), Text: n.Match.GetText(), All: n.Match.GetAll(), MaxTerms: int(min(n.Match.GetMaxTerms(), maxCount))}, nil
	case *pb.Query_Phrase_:
		return &query.Phrase{Field: n.Phrase.GetField(), Text: n.Phrase.GetText(), Slop: n.Phrase.GetSlop()}, nil
	case *pb.Query_Prefix_:
		return &query.Prefix{Field: n.Prefix.GetField(), Text: n.Prefix.GetText()}, nil
	case *pb.Query_Range_:
		return &query.Range{Field: n.Range.GetField(), Min: unpackBound(n.Range.GetMin()), Max: unpackBound(n.Range.GetMax())}, nil
	case *pb.Query_Terms_:
		if t.values += len(n.Terms.GetValues().GetLengths()); t.values > t.lim.Values {
			return nil, &query.LimitError{What: query.LimitValues, Limit: t.lim.Values, Got: t.values, Position: -1}
		}
		if t.bytes += len(n.Terms.GetValues().GetData()); t.bytes > t.lim.ValueBytes {
			return nil, &query.LimitError{What: query.LimitBytes, Limit: t.lim.ValueBytes, Got: t.bytes, Position: -1}
		}
		values, err := unpackTexts("values", n.Terms.GetValues())
		if err != nil {
			return nil, fmt.Errorf("%w: %w", query.ErrMalformed, err)
		}
		return &query.Terms{Field: n.Terms.GetField(), Values: values}, nil
	case *pb.Query_Exists_:
		return &query.Exists{Field: n.Exists.GetField()}, nil
	case *pb.Query_All_:
		return &query.All{}, nil
	case *pb.Query_Bool_:
		var b query.Bool
		for _, part := range []struct {
			from []*pb.Query
			to   *[]query.Node
		}{{n.Bool.GetMust(), &b.Must}, {n.Bool.GetShould(), &b.Should}, {n.Bool.GetMustNot(), &b.MustNot}, {n.Bool.GetFilter(), &b.Filter}} {
			for _, q := range part.from {
				child, err := t.node(q, depth+1)
				if err != nil {
					return nil, err
				}
				*part.to = append(*part.to, child)
			}
		}
		return &b, nil
	case *pb.Query_Boost_:
		child, err := t.node(n.Boost.GetQuery(), depth+1)
		if err != nil {
			return nil, err
		}
		return &query.Boost{Query: child, Factor: n.Boost.GetFactor()}, nil
	}
	return nil, fmt.Errorf("%w: a query is missing", query.ErrMalformed)
}

func unpackBound(b *pb.Query_Bound) *query.Bound {
	if b == nil {
		return nil
	}
	return &query.Bound{Value: b.Value, Exclusive: b.Exclusive}
}

// Names of parts of requests in problems, as over HTTP.
const (
	paramQuery  = "q"
	paramFilter = "filter"
)

// checkQueries is query.Check of the trees of a request.
func checkQueries(q query.Node, filters []query.Node, lim query.Limits) error {
	if q != nil {
		if err := query.Check(q, lim); err != nil {
			return queryProblem(paramQuery, -1, err)
		}
	}
	if len(filters) > api.MaxFilters {
		return tooManyFilters()
	}
	for i, f := range filters {
		if err := query.Check(f, lim); err != nil {
			return queryProblem(paramFilter, i, err)
		}
	}
	return nil
}

func unpackQueries(q *pb.Query, filters []*pb.Query, lim query.Limits) (query.Node, []query.Node, error) {
	n, err := unpackQuery(q, lim)
	if err != nil {
		return nil, nil, queryProblem(paramQuery, -1, err)
	}
	if len(filters) > api.MaxFilters {
		return nil, nil, tooManyFilters()
	}
	var list []query.Node
	for i, q := range filters {
		f, err := unpackQuery(q, lim)
		if err != nil {
			return nil, nil, queryProblem(paramFilter, i, err)
		}
		list = append(list, f)
	}
	return n, list, nil
}

func queryProblem(param string, item int, err error) error {
	if p := api.QueryProblem(param, item, err); p != nil {
		return p
	}
	return err
}

func tooManyFilters() error {
	return api.NewProblem(api.InvalidParameter, fmt.Sprintf("filter: there are more than %d", api.MaxFilters)).On(paramFilter).Within(api.MaxFilters)
}
