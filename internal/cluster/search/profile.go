package search

import (
	"strconv"

	"github.com/weft-search/weft/internal/api"
)

// profile renders the statistics of the query, whether scores were made with them, how many searches it took, and how long each shard
// took. How a shard went about it is not known here.
func (x *execution) profile(reply *api.SearchReply) []byte {
	b := append([]byte(nil), `{"rounds":`...)
	b = strconv.AppendInt(b, int64(x.rounds), 10)
	b = append(b, `,"statistics_of":`...)
	stats := x.stats
	if stats != nil {
		b = append(b, `"whole"`...)
	} else {
		stats = x.whole
		b = append(b, `"each_shard"`...)
	}
	if stats != nil {
		b = append(b, `,"statistics":{`...)
		b = append(api.AppendStatistics(b, stats), '}')
	}
	b = append(b, `,"shards":`...)
	b = reply.Shards.AppendJSON(b)
	return append(b, '}')
}
