package members

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weft-search/weft/internal/topology/shardmap"
)

// differs warns once, when the first map is in force, where a map that is kept in a store is not the one that the coordinator was told: its
// operator may think that what he wrote counts.
func (c *Cluster) differs(m *shardmap.Map) {
	told := c.o.Initial
	if !m.Stored || told == nil || sameShards(m, told) {
		return
	}
	c.o.Log.Warn("the shards that the coordinator was started with are not those of the shard map in the store, which counts: weft topology shows and changes it",
		"shards", shardsOf(told), "map", shardsOf(m), "epoch", m.Epoch)
}

// sameShards tells whether two maps name the same members and place documents by the same rule.
func sameShards(a, b *shardmap.Map) bool {
	return a.Rule == b.Rule && a.Visible().VNodes == b.Visible().VNodes &&
		slices.EqualFunc(a.Groups, b.Groups, func(a, b shardmap.Group) bool { return slices.Equal(a.Members, b.Members) })
}

// shardsOf writes the members of a map as --shards takes them, with the rule.
func shardsOf(m *shardmap.Map) string {
	groups := make([]string, len(m.Groups))
	for i, g := range m.Groups {
		groups[i] = strings.Join(g.Members, "|")
	}
	out := strings.Join(groups, ",") + " by " + string(m.Rule)
	if n := m.Visible().VNodes; n > 0 {
		out += fmt.Sprintf(" with %d virtual nodes", n)
	}
	return out
}
