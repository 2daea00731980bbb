package route

import (
	"slices"
	"strings"
)

// IndexTopology is where an index is, for GetTopology ("Diagnostics and control").
type IndexTopology struct {
	Index       string
	Partitioned bool
	Ambiguous   bool            // as Route.Ambiguous
	Shards      []ShardReplicas // those that have a routable copy, by name
}

// MergePolicy is how the answers of several shards become one.
func (t *IndexTopology) MergePolicy() string {
	if t.Partitioned {
		return "score"
	}
	return "passthrough"
}

// ShardReplicas are the copies of an index on a shard.
type ShardReplicas struct {
	Shard  string
	Weight uint32  // of the rule, as it was given; 0 where the index is not partitioned over the shard
	Nodes  []*Node // by id, also those that are not routable: their state tells
}

// Topology returns where the named index is; all indexes by name for "". Where a shard has a routable copy, its other copies are shown, too; a
// shard that has none, and an index that has no such shard, are left out.
func (v *View) Topology(index string) []IndexTopology {
	if index != "" {
		number, ok := v.byIndex[index]
		if !ok {
			return nil
		}
		return v.topology(nil, v.entries[number])
	}
	out := make([]IndexTopology, 0, len(v.order))
	for _, number := range v.order {
		out = v.topology(out, v.entries[number])
	}
	return out
}

// topology appends where an index is, if it is anywhere.
func (v *View) topology(out []IndexTopology, e entry) []IndexTopology {
	t := IndexTopology{Index: e.name, Partitioned: e.rule.Partitioned()}
	if h, err := v.find(e.name); err == nil && !t.Partitioned {
		t.Ambiguous = h.shards > 1 && !h.pinned
	}
	for _, at := range v.position[e.from:e.end] {
		n := v.nodes[at]
		if len(t.Shards) == 0 || t.Shards[len(t.Shards)-1].Shard != n.Shard {
			t.Shards = append(t.Shards, ShardReplicas{Shard: n.Shard, Weight: e.rule.weight(n.Shard)})
		}
		s := &t.Shards[len(t.Shards)-1]
		s.Nodes = append(s.Nodes, n)
	}
	t.Shards = slices.DeleteFunc(t.Shards, func(s ShardReplicas) bool { return !slices.ContainsFunc(s.Nodes, (*Node).Routable) })
	if len(t.Shards) == 0 {
		return out
	}
	return append(out, t)
}

// Backends returns all nodes by id, for GetBackends ("Diagnostics and control").
func (v *View) Backends() []*Node {
	return slices.SortedFunc(slices.Values(v.nodes), func(a, b *Node) int { return strings.Compare(a.ID, b.ID) })
}

// Acts is what a node of the view counts as: an unlabelled node that is alone on its shard is the master, as writes have it.
func (v *View) Acts(n *Node) Role {
	if at, ok := v.byShard[n.Shard]; ok && n.Role == Unlabeled && v.shards[at].end-v.shards[at].from == 1 {
		return Master
	}
	return n.Role
}
