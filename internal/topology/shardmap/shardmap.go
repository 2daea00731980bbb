// Package shardmap is the map of a cluster: which members stand in which group, over how many groups documents are placed, and how
// far a move to another number of groups is. All coordinators go by one map; every change makes a new one with a higher epoch.
//
// # A move
//
// Documents move while they are read and written, in phases that every coordinator and member sees in the same order:
//
//	none       documents stand where Placed says.
//	preparing  readers and writers go by Placed, and readers see of each group only what it owns by it.
//	copying    readers still do; writers write by Placed and by To.
//	switching  readers go by To, and see of each group only what it owns by it; writers write by To and by Placed.
//	cleaning   readers and writers go by To, readers see of each group only what it owns by it; the job deletes what else there is.
//	none       Placed is To.
//
// A map takes force at one member after the other, and whoever still goes by the one before may read from those that have not taken it. So
// every member has to take each map before the next is made, and of any two that follow each other, who writes by one writes wherever
// who reads by the other looks, and nowhere else that they see: nobody writes to new owners before all readers look at what groups
// own, and nobody leaves old owners out before all readers look at the new ones.
//
// A move is given up by cleaning, too: AbortMove sets To back to Placed and the phase to cleaning, since the copies that were made
// have to go before readers may look at whole groups again.
//
// # Where it is kept
//
// A Source keeps one map and replaces it by compare and swap; StoreSource is one over an object store. A Map is not changed once it is
// shared: the methods that change something return another. Everything here is safe for concurrent use then.
package shardmap

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/weft-search/weft/internal/topology/placement"
)

// Limits of a map.
const (
	MaxMembers = 64      // of a group
	MaxAddr    = 160     // bytes of an address; it has to fit into the name of a file, with its punctuation escaped
	MaxJob     = 128     // bytes of the id of a job
	MaxNode    = 64      // bytes of the name of a data folder
	MaxBytes   = 1 << 20 // of an encoded map
	MaxEpoch   = 1<<53 - 1
)

// The kinds of error that callers tell apart with errors.Is.
var (
	// ErrInvalid: not a map that a cluster could go by.
	ErrInvalid = errors.New("invalid shard map")
	// ErrNewerFormat: the map was written by a newer version.
	ErrNewerFormat = errors.New("shard map written by a newer version")
	// ErrRefused: the change does not fit the map as it is.
	ErrRefused = errors.New("change of the shard map refused")
	// ErrNotFound: there is no map yet.
	ErrNotFound = errors.New("no shard map")
	// ErrConflict: another map is there by now; nothing was written.
	ErrConflict = errors.New("shard map changed by another coordinator")
	// ErrUncertain: the map may or may not have been written. Load tells, once it can.
	ErrUncertain = errors.New("outcome of the change of the shard map unknown")
)

// Map says who stands where.
type Map struct {
	Epoch  uint64         // 1 to MaxEpoch; grows with every change
	Rule   placement.Rule // how documents are placed
	VNodes int            // of each group on a ring; 0: placement.DefaultVNodes. Other rules have none
	Groups []Group        // 1 to placement.MaxShards; a group's ordinal is its place here
	// Placed is how many groups, from the first, documents are placed over: all, but for groups that were added and not moved to yet,
	// or moved away from and not removed yet.
	Placed int
	Move   *Move // nil: none is under way
	// Stored says that a Source keeps the map. Who has it from the members alone may go by it, and may not change it.
	Stored bool
	// Nodes says, by address, in which data folder a member holds the documents of its group: the UUID that stands in the folder, 1 to MaxNode
	// bytes, or NoNode. Of members that are not in it that is not known. Only members of groups that may hold documents are.
	Nodes map[string]string
}

// NoNode stands in Map.Nodes for a member that holds the documents of its group in no folder yet: it is new in the group, or what is in its
// folder is an older state.
const NoNode = "-"

// Group is the members that hold the same documents, in order of preference. The first is the primary.
type Group struct {
	Members []string // addresses, 1 to MaxMembers
}

// Move is a move of documents from Placed to another number of groups.
type Move struct {
	To    int // groups
	Phase Phase
	Job   string // who carries it out; 1 to MaxJob bytes
}

// Phase is how far a move is.
type Phase string

// The phases, see the package comment.
const (
	Preparing Phase = "preparing"
	Copying   Phase = "copying"
	Switching Phase = "switching"
	Cleaning  Phase = "cleaning"
)

// New returns the first map of a cluster: epoch 1, documents placed over all groups.
func New(rule placement.Rule, vnodes int, groups []Group) (*Map, error) {
	m := &Map{Epoch: 1, Rule: rule, VNodes: vnodes, Groups: groups, Placed: len(groups)}
	m = m.Clone()
	m.VNodes = m.spec(1).Normal().VNodes
	if err := m.Validate(); err != nil {
		return nil, err
	}
	return m, nil
}

// Clone returns a copy that shares nothing with m.
func (m *Map) Clone() *Map {
	c := *m
	c.Groups = slices.Clone(m.Groups)
	for i := range c.Groups {
		c.Groups[i].Members = slices.Clone(c.Groups[i].Members)
	}
	if m.Move != nil {
		move := *m.Move
		c.Move = &move
	}
	c.Nodes = maps.Clone(m.Nodes)
	return &c
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

// Validate returns an ErrInvalid that names the first thing that is wrong.
func (m *Map) Validate() error {
	if m.Epoch < 1 || m.Epoch > MaxEpoch {
		return invalid("epoch %d; epochs are 1 to %d", m.Epoch, uint64(MaxEpoch))
	}
	if err := m.spec(len(m.Groups)).Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	where := make(map[string]int)
	for i, g := range m.Groups {
		if len(g.Members) < 1 || len(g.Members) > MaxMembers {
			return invalid("group %d has %d members; a group has 1 to %d", i, len(g.Members), MaxMembers)
		}
		for _, addr := range g.Members {
			if err := checkAddr(addr); err != nil {
				return fmt.Errorf("group %d: %w", i, err)
			}
			if other, ok := where[addr]; ok && other == i {
				return invalid("address %s stands twice, in group %d", addr, i)
			} else if ok {
				return invalid("address %s stands twice, in groups %d and %d", addr, other, i)
			}
			where[addr] = i
		}
	}
	for addr, node := range m.Nodes {
		g, ok := where[addr]
		switch {
		case !ok:
			return invalid("a data folder of %s, which stands in no group", addr)
		case !plain(node, MaxNode):
			return invalid("the data folder of %s is 1 to %d bytes of printable text, not %q", addr, MaxNode, node)
		case g >= m.holding():
			return invalid("a data folder of %s, whose group %d holds no documents", addr, g)
		}
	}
	if m.Placed < 1 || m.Placed > len(m.Groups) {
		return invalid("documents are placed over %d groups of %d", m.Placed, len(m.Groups))
	}
	if v := m.Move; v != nil {
		switch {
		case !slices.Contains(phases, v.Phase):
			return invalid("a move is preparing, copying, switching or cleaning, not %q", v.Phase)
		case v.To < 1 || v.To > len(m.Groups):
			return invalid("a move to %d groups of %d", v.To, len(m.Groups))
		case v.To == m.Placed && v.Phase != Cleaning:
			return invalid("a move from %d groups to as many", v.To)
		case !plain(v.Job, MaxJob):
			return invalid("the job of a move is 1 to %d bytes of printable text, not %q", MaxJob, v.Job)
		}
	}
	return nil
}

// holding is how many groups, from the first, may hold documents.
func (m *Map) holding() int {
	if m.Move != nil {
		return max(m.Placed, m.Move.To)
	}
	return m.Placed
}

// checkAddr refuses what cannot be an address, or could not be written in a list of addresses on a command line.
func checkAddr(addr string) error {
	if !plain(addr, MaxAddr) || strings.ContainsAny(addr, " ,|") {
		return invalid("an address is 1 to %d bytes of printable text without spaces, commas and bars, not %q", MaxAddr, addr)
	}
	return nil
}

func plain(s string, most int) bool {
	return s != "" && len(s) <= most && utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// spec places over so many groups.
func (m *Map) spec(groups int) placement.Spec {
	return placement.Spec{Rule: m.Rule, Shards: groups, VNodes: m.VNodes}
}

// Visible is the placement by which readers find documents. While there is a Move, they have to look at each group through what it
// owns by this.
func (m *Map) Visible() placement.Spec {
	if m.Move != nil && m.Move.after(Copying) {
		return m.spec(m.Move.To).Normal()
	}
	return m.spec(m.Placed).Normal()
}

// Writes are the placements by which writers have to write each document: one, or two from when documents are copied until
// every member knows that readers go by the new one, Visible first.
func (m *Map) Writes() []placement.Spec {
	if m.Move != nil {
		switch m.Move.Phase {
		case Copying:
			return []placement.Spec{m.Visible(), m.spec(m.Move.To).Normal()}
		case Switching:
			return []placement.Spec{m.Visible(), m.spec(m.Placed).Normal()}
		}
	}
	return []placement.Spec{m.Visible()}
}

// CutOver tells whether a move is under way that readers go by already. It is not given up any more.
func (m *Map) CutOver() bool {
	return m.Move != nil && m.Move.after(Copying) && m.Move.To != m.Placed
}

// after tells whether a phase has ended. Cleaning never has.
func (v *Move) after(p Phase) bool { return slices.Index(phases, v.Phase) > slices.Index(phases, p) }

// phases are all phases in their order.
var phases = []Phase{Preparing, Copying, Switching, Cleaning}
