package node

import (
	"strconv"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/shard/knn"
	"github.com/weft-search/weft/internal/vector"
)

// profile renders the statistics that the scores were made with, and how each part of the index was searched.
func (x *execution) profile() []byte {
	snap := x.snap
	b := append([]byte(nil), `{"segments":`...)
	b = strconv.AppendInt(b, int64(snap.Segments()), 10)
	b = append(b, `,"leaves":`...)
	b = strconv.AppendInt(b, int64(len(snap.Leaves())), 10)
	b = append(b, `,"statistics":{`...)
	b = append(api.AppendStatistics(b, x.stats), '}')
	if x.rank.plan != nil {
		b = append(b, `,"knn":`...)
		b = appendPlan(b, x.rank.plan)
	}
	if len(x.trace.Leaves) > 0 {
		b = append(b, `,"search":[`...)
		for i := range x.trace.Leaves {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendTrace(b, &x.trace.Leaves[i])
		}
		b = append(b, ']')
	}
	var cache exec.FilterCacheStats
	if x.node.filters != nil {
		cache = x.node.filters.Stats()
	}
	b = append(b, `,"filter_cache":{"hits":`...)
	b = strconv.AppendUint(b, cache.Hits, 10)
	b = append(b, `,"misses":`...)
	b = strconv.AppendUint(b, cache.Misses, 10)
	b = append(b, `,"evictions":`...)
	b = strconv.AppendUint(b, cache.Evictions, 10)
	b = append(b, `,"sets":`...)
	b = strconv.AppendInt(b, int64(cache.Sets), 10)
	b = append(b, `,"bytes":`...)
	b = strconv.AppendInt(b, cache.Bytes, 10)
	return append(b, "}}"...)
}

func appendTrace(b []byte, t *exec.LeafTrace) []byte {
	b = append(b, `{"memtable":`...)
	b = strconv.AppendBool(b, t.Memtable)
	b = append(b, `,"docs":`...)
	b = strconv.AppendUint(b, uint64(t.Docs), 10)
	b = append(b, `,"live":`...)
	b = strconv.AppendUint(b, uint64(t.Live), 10)
	b = append(b, `,"accepted":`...)
	b = strconv.AppendUint(b, uint64(t.Accepted), 10)
	b = append(b, `,"path":`...)
	b = api.AppendString(b, t.Path)
	b = append(b, `,"offered":`...)
	b = strconv.AppendUint(b, t.Offered, 10)
	b = append(b, `,"filters":[`...)
	for i, f := range t.Filters {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"how":`...)
		b = api.AppendString(b, f.How)
		b = append(b, `,"found":`...)
		b = strconv.AppendUint(b, uint64(f.Found), 10)
		b = append(b, '}')
	}
	return append(b, "]}"...)
}

func appendPlan(b []byte, p *knn.Plan) []byte {
	b = append(b, `{"path":`...)
	b = api.AppendString(b, string(p.Path))
	b = append(b, `,"docs":`...)
	b = strconv.AppendUint(b, p.Docs, 10)
	b = append(b, `,"matching":`...)
	b = strconv.AppendUint(b, p.Matching, 10)
	b = append(b, `,"selectivity":`...)
	b = strconv.AppendFloat(b, p.Selectivity, 'g', -1, 64)
	b = append(b, `,"approximate":`...)
	b = strconv.AppendBool(b, p.Approximate)
	b = appendWork(b, p.Work)
	b = append(b, `,"leaves":[`...)
	for i := range p.Leaves {
		l := &p.Leaves[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"path":`...)
		b = api.AppendString(b, string(l.Path))
		b = append(b, `,"docs":`...)
		b = strconv.AppendUint(b, uint64(l.Docs), 10)
		b = append(b, `,"matching":`...)
		b = strconv.AppendUint(b, uint64(l.Matching), 10)
		b = append(b, `,"vectors":`...)
		b = strconv.AppendInt(b, int64(l.Vectors), 10)
		b = append(b, `,"estimate":`...)
		b = strconv.AppendUint(b, l.Estimate, 10)
		b = append(b, `,"scan_cost":`...)
		b = strconv.AppendFloat(b, l.ScanCost, 'f', 0, 64)
		b = append(b, `,"graph_cost":`...)
		b = strconv.AppendFloat(b, l.GraphCost, 'f', 0, 64)
		b = append(b, `,"approximate":`...)
		b = strconv.AppendBool(b, l.Approximate)
		b = appendWork(b, l.Work)
		b = append(b, '}')
	}
	return append(b, "]}"...)
}

func appendWork(b []byte, w vector.Work) []byte {
	b = append(b, `,"work":{"visited":`...)
	b = strconv.AppendUint(b, w.Visited, 10)
	b = append(b, `,"distances":`...)
	b = strconv.AppendUint(b, w.Distances, 10)
	b = append(b, `,"rescored":`...)
	b = strconv.AppendUint(b, w.Rescored, 10)
	return append(b, '}')
}
