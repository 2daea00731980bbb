package route

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Role is how a node is labelled.
type Role uint8

// The roles.
const (
	Unlabeled Role = iota
	Master
	Follower
)

// ParseRole reads a label. false: it is not that of a role, which makes the node unlabelled.
func ParseRole(label string) (Role, bool) {
	switch label {
	case "master":
		return Master, true
	case "follower":
		return Follower, true
	}
	return Unlabeled, false
}

// String returns the name that admin calls give the role.
func (r Role) String() string { return [...]string{"unlabeled", "master", "follower"}[r] }

// Health is what polls have shown of a node ("Topology and health").
type Health uint8

// The states of health. A new node is suspect.
const (
	Suspect Health = iota
	Healthy
	Evicted
)

// String returns the name that admin calls and metrics give the state.
func (h Health) String() string { return [...]string{"suspect", "healthy", "evicted"}[h] }

// Node is a Summa server as it is known at one moment. Nothing of it changes once it stands in a View.
type Node struct {
	ID, Address, Shard string
	Role               Role
	Ready              bool // as discovery says
	Health             Health
	Indexes            []string  // that it told of last, sorted, each once
	Learned            time.Time // when it told; zero: never
	Failures           uint64    // polls that failed since the last that did not
}

// Routable says whether calls may go to the node: it is ready and not evicted.
func (n *Node) Routable() bool { return n.Ready && n.Health != Evicted }

// MapAge is how long ago the node told of its indexes, in milliseconds; 2^64-1 where it never did ("Diagnostics and control").
func (n *Node) MapAge(now time.Time) uint64 {
	if n.Learned.IsZero() {
		return math.MaxUint64
	}
	return uint64(max(0, now.Sub(n.Learned).Milliseconds()))
}

// View is the fleet at one moment. It does not change; any number of callers may read it at once.
type View struct {
	placement *Placement
	nodes     []*Node // by shard, then id
	use       []use   // of nodes, at the same positions
	counts    Counts
	listed    *atomic.Pointer[[]string] // the answer of Indexes, once somebody asked; shared by views that have the same
	*tables
}

// use is what a node is good for.
type use uint8

const (
	unusable use = iota
	lastResort
	usable
)

// Counts are numbers of nodes by state. A node that is not ready counts as that, whatever its health.
type Counts struct {
	Healthy, Suspect, Evicted, Unready int
}

// New returns the view of a fleet. The view keeps the nodes, whose ids must differ; they may not be changed any more.
func New(p *Placement, nodes []*Node) *View {
	return (&View{placement: p, listed: &atomic.Pointer[[]string]{}, tables: &tables{}}).Next(nodes)
}

// Next returns the view of the fleet as it is now, under the same placement. It costs little where nodes only changed their health,
// readiness, role or address, for then the tables are the same, and not much where some indexes came or went.
func (v *View) Next(nodes []*Node) *View {
	byPlace := func(a, b *Node) int { return cmp.Or(strings.Compare(a.Shard, b.Shard), strings.Compare(a.ID, b.ID)) }
	if !slices.IsSortedFunc(nodes, byPlace) {
		nodes = slices.SortedFunc(slices.Values(nodes), byPlace)
	}
	next := &View{placement: v.placement, nodes: nodes, use: make([]use, len(nodes)), tables: v.tables}
	if changed, ok := changedLists(v.nodes, nodes); !ok {
		next.tables = newTables(v.placement, v.tables, nodes)
	} else if len(changed) > 0 {
		next.tables = patch(v.placement, v.tables, v.nodes, nodes, changed)
	}
	for i, n := range nodes {
		switch {
		case !n.Ready:
			next.counts.Unready++
		case n.Health == Healthy:
			next.use[i] = usable
			next.counts.Healthy++
		case n.Health == Suspect:
			next.use[i] = lastResort
			next.counts.Suspect++
		default:
			next.counts.Evicted++
		}
	}
	next.listed = v.listed
	if next.tables != v.tables || !slices.EqualFunc(v.use, next.use, func(a, b use) bool { return (a == unusable) == (b == unusable) }) {
		next.listed = &atomic.Pointer[[]string]{}
	}
	return next
}

// Nodes returns all nodes, by shard and id. The slice is the view's own.
func (v *View) Nodes() []*Node { return v.nodes }

// Placement returns the rules that the view goes by.
func (v *View) Placement() *Placement { return v.placement }

// Counts returns how many nodes are in which state.
func (v *View) Counts() Counts { return v.counts }

// Serving says whether any ready node is healthy, which is what the broker's own health tells ("Topology and health").
func (v *View) Serving() bool { return v.counts.Healthy > 0 }

// SameIndexes says whether nodes tell of the same indexes as in another view. It may say no where they do.
func (v *View) SameIndexes(o *View) bool { return v.tables == o.tables }

// Known returns the name of an index as the view has it, which may be kept and used as a label. false: no node told of it.
func (v *View) Known(index string) (string, bool) {
	number, ok := v.byIndex[index]
	if !ok {
		return "", false
	}
	return v.entries[number].name, true
}
