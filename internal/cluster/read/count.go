package read

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/serve"
)

// Docs is leaf.Leaf.Docs.
func (r *Reader) Docs(ctx context.Context, req *leaf.DocsRequest) (*leaf.DocsReply, error) {
	return answer(ctx, r, func(c *running, p *plan) (*leaf.DocsReply, error) {
		g, err := everywhere(r, c, p, opDocs, req)
		if err != nil {
			return nil, err
		}
		out := &leaf.DocsReply{}
		for i := range g.parts {
			if of := g.parts[i].reply; of != nil {
				out.Docs += of.Docs
			}
		}
		out.Meta = describe(r, opDocs, g)
		return out, nil
	})
}

// Stats is leaf.Leaf.Stats: the sum over the shards, with all words that any of them has of a prefix.
func (r *Reader) Stats(ctx context.Context, req *leaf.StatsRequest) (*leaf.StatsReply, error) {
	return answer(ctx, r, func(c *running, p *plan) (*leaf.StatsReply, error) {
		g, err := everywhere(r, c, p, opStats, req)
		if err != nil {
			return nil, err
		}
		out := &leaf.StatsReply{}
		for i := range g.parts {
			if of := g.parts[i].reply; of != nil {
				out.Stats.Add(&of.Stats)
			}
		}
		out.Meta = describe(r, opStats, g)
		return out, nil
	})
}

// Aggregate is leaf.Leaf.Aggregate. Values stand in the order of the shards, which is not that of one node.
func (r *Reader) Aggregate(ctx context.Context, req *leaf.AggregateRequest) (*leaf.AggregateReply, error) {
	return answer(ctx, r, func(c *running, p *plan) (*leaf.AggregateReply, error) {
		g, err := everywhere(r, c, p, opAggregate, req)
		if err != nil {
			return nil, err
		}
		out := &leaf.AggregateReply{Values: make([]leaf.FieldValues, len(req.Values))}
		for i, name := range req.Values {
			out.Values[i].Field = name
		}
		estimated := false
		for i := range g.parts {
			of := g.parts[i].reply
			if of == nil {
				continue
			}
			out.Docs += of.Docs
			out.Matched += of.Matched
			if err := addValues(out.Values, of.Values); err != nil {
				return nil, err
			}
			switch {
			case of.State == nil:
			case out.State == nil:
				out.State = of.State
			default:
				if err := out.State.Merge(c.caller, of.State); err != nil {
					if p := api.AggProblem("aggs", err); p != nil {
						return nil, p
					}
					return nil, fmt.Errorf("merge aggregations: %w", err)
				}
			}
		}
		out.Meta = describe(r, opAggregate, g)
		// A number of values may be estimated only where those of several shards come together.
		if estimated = out.State != nil && out.State.Estimated(); estimated {
			out.Approximate = unite(out.Approximate, []string{leaf.ApproximateDistinct})
		}
		return out, nil
	})
}

// addValues appends the values that one shard has.
func addValues(to, from []leaf.FieldValues) error {
	count := 0
	for i := range to {
		count += len(to[i].Numbers) + len(to[i].Texts)
	}
	for i := range from {
		if i == len(to) {
			break
		}
		have, more := &to[i], &from[i]
		if more.Type == 0 {
			continue
		}
		if have.Type != 0 && have.Type != more.Type {
			return &api.Problem{
				Code: api.InvalidField, Field: have.Field,
				Detail: fmt.Sprintf("values: field %q is %s in one part of the index and %s in another", have.Field, have.Type, more.Type),
			}
		}
		if count += len(more.Numbers) + len(more.Texts); count > leaf.MaxRawCount {
			return api.NewProblem(api.AggregationLimit, fmt.Sprintf("values: the matching documents have more than %d values; filter them", leaf.MaxRawCount)).
				On("values").Within(leaf.MaxRawCount)
		}
		have.Type = more.Type
		have.Numbers = append(have.Numbers, more.Numbers...)
		have.Texts = append(have.Texts, more.Texts...)
	}
	return nil
}

// Digest is leaf.Member.Digest. It fails where a shard is missing.
func (r *Reader) Digest(ctx context.Context, req *leaf.DigestRequest) (*leaf.DigestReply, error) {
	if req.Depth < 0 || req.Depth > leaf.MaxDepth {
		return nil, outside("depth", req.Depth, 0, leaf.MaxDepth)
	}
	return answer(ctx, r, func(c *running, p *plan) (*leaf.DigestReply, error) {
		g, err := everywhere(r, c, p, opDigest, req)
		if err != nil {
			return nil, err
		}
		n := 1 << req.Depth
		out := &leaf.DigestReply{Docs: make([]uint32, n), Sums: make([]leaf.Sum, n)}
		for i := range g.parts {
			of := g.parts[i].reply
			if of == nil {
				continue
			}
			if len(of.Docs) != n || len(of.Sums) != n {
				g.parts[i].fail(fmt.Errorf("the digest has %d and %d of %d ranges", len(of.Docs), len(of.Sums), n))
				return nil, uncovered(r, c, opDigest, g)
			}
			for k := range n {
				out.Docs[k] += of.Docs[k]
				out.Sums[k] = addSums(out.Sums[k], of.Sums[k])
			}
		}
		out.Meta = describe(r, opDigest, g)
		return out, nil
	})
}

// fail makes a part one that did not answer.
func (of *part[R]) fail(err error) {
	of.reply, of.outcome, of.err = nil, serve.Failed, err
}

// addSums adds two numbers modulo 2^128.
func addSums(a, b leaf.Sum) (sum leaf.Sum) {
	lo, carry := bits.Add64(binary.BigEndian.Uint64(a[8:]), binary.BigEndian.Uint64(b[8:]), 0)
	hi, _ := bits.Add64(binary.BigEndian.Uint64(a[:8]), binary.BigEndian.Uint64(b[:8]), carry)
	binary.BigEndian.PutUint64(sum[:8], hi)
	binary.BigEndian.PutUint64(sum[8:], lo)
	return sum
}

// outside is the refusal of a number that is not in a range.
func outside(field string, have, least, most int) *api.Problem {
	return api.NewProblem(api.InvalidParameter, fmt.Sprintf("%s: it is a number from %d to %d (got %d)", field, least, most, have)).On(field).Within(int64(most))
}

// tooMany is the refusal of a list over its limit.
func tooMany(field string, have, limit int) *api.Problem {
	return api.NewProblem(api.InvalidParameter, fmt.Sprintf("%s: %d are given, %d are allowed", field, have, limit)).On(field).Within(int64(limit))
}
