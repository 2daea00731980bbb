package read

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/schema"
)

// Info is leaf.Leaf.Info: documents, segments and bytes of one member of each shard, and the fields of all of them.
func (r *Reader) Info(ctx context.Context, req *leaf.InfoRequest) (*leaf.InfoReply, error) {
	return answer(ctx, r, func(c *running, p *plan) (*leaf.InfoReply, error) {
		g, err := everywhere(r, c, p, opInfo, req)
		if err != nil {
			return nil, err
		}
		out := &leaf.InfoReply{Node: r.o.Node, Version: r.o.Version}
		var infos []api.IndexInfo
		for i := range g.parts {
			if of := g.parts[i].reply; of != nil {
				infos = append(infos, of.Index)
				out.Version = cmp.Or(out.Version, of.Version)
			}
		}
		if len(infos) > 0 {
			out.Index = mergeInfos(infos)
		}
		out.Meta = describe(r, opInfo, g)
		return out, nil
	})
}

// Indexes is leaf.Member.Indexes: those that any shard has, each as Info describes it.
func (r *Reader) Indexes(ctx context.Context, req *leaf.IndexesRequest) (*leaf.IndexesReply, error) {
	return answer(ctx, r, func(c *running, p *plan) (*leaf.IndexesReply, error) {
		g, err := everywhere(r, c, p, opIndexes, req)
		if err != nil {
			return nil, err
		}
		byName := map[string][]api.IndexInfo{}
		for i := range g.parts {
			if of := g.parts[i].reply; of != nil {
				for _, info := range of.Indexes {
					byName[info.Name] = append(byName[info.Name], info)
				}
			}
		}
		out := &leaf.IndexesReply{}
		for _, name := range slices.Sorted(maps.Keys(byName)) {
			out.Indexes = append(out.Indexes, mergeInfos(byName[name]))
		}
		out.Meta = describe(r, opIndexes, g)
		out.Snapshot = leaf.Snapshot{}
		return out, nil
	})
}

// States of an index, by how little can be done with it.
var stateRank = map[string]int{"open": 0, "opening": 1}

// mergeInfos describes an index that stands on several shards. infos is not empty.
func mergeInfos(infos []api.IndexInfo) api.IndexInfo {
	out := infos[0]
	out.Docs, out.Segments, out.Bytes = 0, 0, 0
	var reason string
	for i := range infos {
		info := &infos[i]
		out.Docs += info.Docs
		out.Segments += info.Segments
		out.Bytes += info.Bytes
		out.Dynamic = out.Dynamic || info.Dynamic
		if rankOf(info.State) > rankOf(out.State) {
			out.State = info.State
		}
		reason = cmp.Or(reason, info.Reason)
	}
	var conflict error
	out.Schema, conflict = uniteSchemas(infos)
	if reason == "" && conflict != nil {
		reason = api.ClipDetail(fmt.Sprintf("the schemas of the shards differ: %v", conflict))
	}
	out.Reason = reason
	return out
}

func rankOf(state string) int {
	if rank, ok := stateRank[state]; ok {
		return rank
	}
	return len(stateRank)
}

// uniteSchemas is the first schema with the fields that only others have behind its own. Of a field that is declared in two ways the
// first declaration stands, and the error tells of it.
func uniteSchemas(infos []api.IndexInfo) (sdl string, conflict error) {
	alike := true
	for i := range infos {
		alike = alike && infos[i].Schema == infos[0].Schema
	}
	if alike {
		return infos[0].Schema, nil
	}
	// Schemas of which one has the fields of all others are the rule: the longest of them is it.
	var sum *schema.Schema
	order := make([]int, len(infos))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(len(infos[b].Schema), len(infos[a].Schema)) })
	for _, i := range order {
		if infos[i].Schema == "" {
			continue // an index that is not open
		}
		s, err := schema.ParseSDL(infos[i].Schema, nil)
		if err != nil {
			conflict = cmp.Or(conflict, error(fmt.Errorf("read the schema of a shard: %w", err)))
			continue
		}
		if sum == nil {
			sum = s
			continue
		}
		for _, f := range s.Fields {
			with, err := sum.AddFields([]schema.Field{f})
			if err != nil {
				if conflict == nil {
					conflict = err
				}
				continue
			}
			sum = with
		}
	}
	if sum == nil {
		return infos[0].Schema, conflict
	}
	return sum.SDL(), conflict
}
