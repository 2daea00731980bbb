package clustertest

import (
	"net/http"
	"strconv"
	"testing"
)

// BenchmarkSearch compares a node with all documents with clusters of the same in one process.
func BenchmarkSearch(b *testing.B) {
	for _, shards := range []int{0, 3} {
		p := newPair(b, shards, 1)
		p.fill(3000)
		for name, target := range map[string]string{
			"term": "/search?index=m&q=title:warp", "terms": "/search?index=m&q=warp+weaving", "dfs": "/search?index=m&q=warp+weaving&dfs=true", "sort": "/search?index=m&sort=n",
		} {
			if shards == 0 {
				b.Run("node/"+name, func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						p.whole.do(http.MethodGet, target, "", "")
					}
				})
			}
			b.Run("cluster of "+strconv.Itoa(max(shards, 1))+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					p.searches(http.MethodGet, target, "")
				}
			})
		}
	}
}
