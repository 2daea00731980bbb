package route

import (
	"maps"
	"slices"
)

// tables say where indexes are. They hang on the identity of nodes, their order and their indexes, and not on what becomes of a node,
// so views share them for as long as only health and readiness change.
type tables struct {
	byShard  map[string]uint32 // position in shards
	shards   []shard           // by name
	shardOf  []uint32          // of the nodes, at the same positions
	byIndex  map[string]uint32 // position in entries
	entries  []entry
	names    []string // of the indexes, sorted
	order    []uint32 // positions in entries of these names
	position []uint32 // of nodes; entries have spans of it
	waste    int      // of it, that no entry has any more
}

// shard is a span of nodes.
type shard struct {
	name      string
	from, end uint32
	indexes   int // that its nodes have, each counted once
}

// entry is an index: a span of positions of nodes, which rise.
type entry struct {
	name      string
	from, end uint32
	rule      *Rule
}

// changedLists returns the positions of nodes that tell of other indexes than before. false: other nodes are there, or in other shards.
func changedLists(before, now []*Node) (changed []int, ok bool) {
	if len(before) != len(now) {
		return nil, false
	}
	for i, a := range before {
		b := now[i]
		switch {
		case a == b:
		case a.ID != b.ID || a.Shard != b.Shard:
			return nil, false
		case len(a.Indexes) == len(b.Indexes) && (len(a.Indexes) == 0 || &a.Indexes[0] == &b.Indexes[0] || slices.Equal(a.Indexes, b.Indexes)):
		default:
			changed = append(changed, i)
		}
	}
	return changed, true
}

// newTables makes tables for nodes in order. prev are those before, out of which comes what was worked out for names that stay.
func newTables(p *Placement, prev *tables, nodes []*Node) *tables {
	t := &tables{byShard: map[string]uint32{}, shardOf: make([]uint32, len(nodes))}
	pairs := 0
	for i, n := range nodes {
		if len(t.shards) == 0 || t.shards[len(t.shards)-1].name != n.Shard {
			t.byShard[n.Shard] = uint32(len(t.shards))
			t.shards = append(t.shards, shard{name: n.Shard, from: uint32(i)})
		}
		t.shards[len(t.shards)-1].end = uint32(i) + 1
		t.shardOf[i] = uint32(len(t.shards) - 1)
		pairs += len(n.Indexes)
	}

	// Each index gets a number as it is met; found has the numbers of all nodes' indexes, one after another, so that names are looked up
	// once only.
	t.byIndex = make(map[string]uint32, min(pairs, len(prev.names)))
	found := make([]uint32, 0, pairs)
	var fresh []string
	for _, n := range nodes {
		for _, name := range n.Indexes {
			number, ok := t.byIndex[name]
			if !ok {
				number = uint32(len(t.entries))
				t.byIndex[name] = number
				e := entry{name: name}
				if old, ok := prev.byIndex[name]; ok {
					e.rule = prev.entries[old].rule
				} else {
					e.rule = p.For(name)
					fresh = append(fresh, name)
				}
				t.entries = append(t.entries, e)
			}
			t.entries[number].end++ // a count for now
			found = append(found, number)
		}
	}
	t.entries = slices.Clip(t.entries)

	var from uint32
	for i := range t.entries {
		e := &t.entries[i]
		count := e.end
		e.from, e.end = from, from
		from += count
	}
	t.position = make([]uint32, pairs)
	for i, n := range nodes {
		for _, number := range found[:len(n.Indexes)] {
			e := &t.entries[number]
			switch {
			case e.end == e.from || t.shardOf[t.position[e.end-1]] != t.shardOf[i]:
				t.shards[t.shardOf[i]].indexes++
			case t.position[e.end-1] == uint32(i):
				continue // the node told of it twice
			}
			t.position[e.end] = uint32(i)
			e.end++
		}
		found = found[len(n.Indexes):]
	}

	slices.Sort(fresh)
	t.list(prev.names, func(i int) (uint32, bool) {
		n, ok := t.byIndex[prev.names[i]]
		return n, ok
	}, fresh)
	return t
}

// list fills names and order. number tells which entry the one at a position of old has now, or that it has none; fresh are the other
// names. Both lists are sorted.
func (t *tables) list(old []string, number func(i int) (uint32, bool), fresh []string) {
	t.names = make([]string, 0, len(t.byIndex))
	t.order = make([]uint32, 0, len(t.byIndex))
	add := func(name string, number uint32) {
		t.names = append(t.names, name)
		t.order = append(t.order, number)
	}
	for i, name := range old {
		for len(fresh) > 0 && fresh[0] < name {
			add(fresh[0], t.byIndex[fresh[0]])
			fresh = fresh[1:]
		}
		if n, ok := number(i); ok {
			add(name, n)
		}
	}
	for _, name := range fresh {
		add(name, t.byIndex[name])
	}
}

// spare is how much is changed, or wasted, without asking how much the whole is.
const spare = 64

// patch makes tables out of those before, where the same nodes stand at the same positions and only those at changed tell of other indexes.
// It costs copies of the tables, and work for the indexes that came or went on a node. Where that is much, tables are made from the start.
func patch(p *Placement, prev *tables, before, now []*Node, changed []int) *tables {
	moves := map[string][]uint32{} // by index, the positions where it came or went; they rise
	left := spare + len(prev.names)/8
	for _, at := range changed {
		if !sortedOnce(before[at].Indexes) || !sortedOnce(now[at].Indexes) {
			return newTables(p, prev, now)
		}
		differences(before[at].Indexes, now[at].Indexes, func(name string) {
			if left--; left >= 0 {
				moves[name] = append(moves[name], uint32(at))
			}
		})
	}
	// What nobody uses any more stays until it is as much as the rest.
	if left < 0 || prev.waste > spare+len(prev.position)/2 || len(prev.entries) > spare+2*len(prev.names) {
		return newTables(p, prev, now)
	}

	t := &tables{
		byShard: prev.byShard, shards: slices.Clone(prev.shards), shardOf: prev.shardOf,
		byIndex: maps.Clone(prev.byIndex), entries: slices.Clone(prev.entries), position: slices.Clip(prev.position), waste: prev.waste,
	}
	var fresh []string
	for name, moved := range moves {
		number, ok := t.byIndex[name]
		if !ok {
			number = uint32(len(t.entries))
			t.byIndex[name] = number
			t.entries = append(t.entries, entry{name: name, rule: p.For(name)})
			fresh = append(fresh, name)
		}
		e := &t.entries[number]
		had := t.position[e.from:e.end]
		t.count(had, -1)
		t.waste += len(had)
		e.from = uint32(len(t.position))
		for _, at := range had {
			for len(moved) > 0 && moved[0] < at { // it was not there, so it came
				t.position = append(t.position, moved[0])
				moved = moved[1:]
			}
			if len(moved) > 0 && moved[0] == at { // it was there, so it went
				moved = moved[1:]
				continue
			}
			t.position = append(t.position, at)
		}
		t.position = append(t.position, moved...)
		e.end = uint32(len(t.position))
		t.count(t.position[e.from:e.end], +1)
		if e.from == e.end {
			delete(t.byIndex, name)
			e.name = ""
		}
	}
	slices.Sort(fresh)
	t.list(prev.names, func(i int) (uint32, bool) {
		n := prev.order[i] // entries keep their numbers
		return n, t.entries[n].from < t.entries[n].end
	}, fresh)
	return t
}

// sortedOnce says whether names rise.
func sortedOnce(names []string) bool {
	for i := 1; i < len(names); i++ {
		if names[i-1] >= names[i] {
			return false
		}
	}
	return true
}

// differences tells what only one of two rising lists has.
func differences(a, b []string, tell func(name string)) {
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0] < b[0]:
			tell(a[0])
			a = a[1:]
		case len(a) == 0 || b[0] < a[0]:
			tell(b[0])
			b = b[1:]
		default:
			a, b = a[1:], b[1:]
		}
	}
}

// count adds an index with these positions to its shards, or takes it away.
func (t *tables) count(positions []uint32, by int) {
	for i, at := range positions {
		if i == 0 || t.shardOf[positions[i-1]] != t.shardOf[at] {
			t.shards[t.shardOf[at]].indexes += by
		}
	}
}
