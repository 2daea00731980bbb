package node

import (
	"strconv"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/api/bound"
	"github.com/weft-search/weft/internal/shard/exec"
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
		b = bound.AppendPlan(b, x.rank.plan)
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
