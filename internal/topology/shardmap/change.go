package shardmap

import (
	"fmt"
	"maps"
	"slices"
)

// The methods of this file return the next map: m with one change and the next epoch. m stays as it is. What does not fit m is an
// ErrRefused; what would make a map that is none, such as an address that stands twice, an ErrInvalid.

func (m *Map) change(fn func(next *Map)) (*Map, error) {
	if m.Epoch >= MaxEpoch {
		return nil, refused("epoch %d is the last", m.Epoch)
	}
	next := m.Clone()
	next.Epoch++
	fn(next)
	next.forget()
	if err := next.Validate(); err != nil {
		return nil, err
	}
	return next, nil
}

// forget takes members out of Nodes that have left, or whose group holds no documents.
func (m *Map) forget() {
	in := map[string]bool{}
	for _, g := range m.Groups[:min(m.holding(), len(m.Groups))] {
		for _, addr := range g.Members {
			in[addr] = true
		}
	}
	maps.DeleteFunc(m.Nodes, func(addr, _ string) bool { return !in[addr] })
	if len(m.Nodes) == 0 {
		m.Nodes = nil
	}
}

// Regroup gives the map other groups. A member that is new in a group that held documents before holds none yet.
func (m *Map) Regroup(groups []Group) (*Map, error) {
	return m.change(func(next *Map) {
		was := map[string]bool{}
		for _, g := range m.Groups {
			for _, addr := range g.Members {
				was[addr] = true
			}
		}
		next.Groups = groups
		for _, g := range groups[:min(len(groups), len(m.Groups))] {
			for _, addr := range g.Members {
				if !was[addr] {
					next.name(addr, NoNode)
				}
			}
		}
	})
}

// WithNodes says of members in which data folder they hold the documents of their group; empty: that is not known. Members that hold none, or
// have left, are passed over.
func (m *Map) WithNodes(nodes map[string]string) (*Map, error) {
	return m.change(func(next *Map) {
		for addr, node := range nodes {
			next.name(addr, node)
		}
	})
}

func (m *Map) name(addr, node string) {
	if node == "" {
		delete(m.Nodes, addr)
		return
	}
	if m.Nodes == nil {
		m.Nodes = map[string]string{}
	}
	m.Nodes[addr] = node
}

func refused(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrRefused, fmt.Sprintf(format, args...))
}

// AddGroup adds a group behind the others. Documents come to it with a move.
func (m *Map) AddGroup(members ...string) (*Map, error) {
	return m.change(func(next *Map) { next.Groups = append(next.Groups, Group{Members: slices.Clone(members)}) })
}

// RemoveGroup removes the last group, which must have no documents: it lies beyond Placed and beyond To. While documents are cleaned away no group can be removed, since after AbortMove nobody knows how far copies went.
func (m *Map) RemoveGroup() (*Map, error) {
	last := len(m.Groups) - 1
	if last < m.Placed {
		return nil, refused("documents are placed on group %d, the last; move them to fewer groups first", last)
	}
	if m.Move != nil && m.Move.Phase != Cleaning && last < m.Move.To {
		return nil, refused("documents are being moved to group %d, the last", last)
	}
	if m.Move != nil && m.Move.Phase == Cleaning {
		return nil, refused("group %d, the last, may have copies yet that are being cleaned away", last)
	}
	return m.change(func(next *Map) { next.Groups = next.Groups[:last] })
}

// AddMember adds a member to a group, behind the others. Whoever adds it sees to it that it gets the group's documents, which it does not hold yet
// (NoNode).
func (m *Map) AddMember(group int, addr string) (*Map, error) {
	if group < 0 || group >= len(m.Groups) {
		return nil, refused("there is no group %d; there are %d", group, len(m.Groups))
	}
	return m.change(func(next *Map) {
		next.Groups[group].Members = append(next.Groups[group].Members, addr)
		next.name(addr, NoNode)
	})
}

// RemoveMember removes a member from its group. The last member of a group stays.
func (m *Map) RemoveMember(addr string) (*Map, error) {
	for i, g := range m.Groups {
		at := slices.Index(g.Members, addr)
		if at < 0 {
			continue
		}
		if len(g.Members) == 1 {
			return nil, refused("%s is the last member of group %d", addr, i)
		}
		return m.change(func(next *Map) { next.Groups[i].Members = slices.Delete(next.Groups[i].Members, at, at+1) })
	}
	return nil, refused("no group has a member %s", addr)
}

// BeginMove begins to move documents to where a placement over to groups wants them. job names who does it.
func (m *Map) BeginMove(to int, job string) (*Map, error) {
	switch {
	case m.Move != nil:
		return nil, refused("a move to %d groups is under way (job %s)", m.Move.To, m.Move.Job)
	case to < 1 || to > len(m.Groups):
		return nil, refused("a move to %d groups; there are %d", to, len(m.Groups))
	case to == m.Placed:
		return nil, refused("documents are placed over %d groups already", to)
	}
	return m.change(func(next *Map) { next.Move = &Move{To: to, Phase: Preparing, Job: job} })
}

// BeginCopying lets writers write by both placements. Every member must have taken this map, so that nobody looks at a group as a whole any
// more.
func (m *Map) BeginCopying() (*Map, error) {
	if err := m.inPhase(Preparing); err != nil {
		return nil, err
	}
	return m.change(func(next *Map) { next.Move.Phase = Copying })
}

// Cutover lets readers go by the new placement. Every document must have been copied.
func (m *Map) Cutover() (*Map, error) {
	if err := m.inPhase(Copying); err != nil {
		return nil, err
	}
	return m.change(func(next *Map) { next.Move.Phase = Switching })
}

// BeginCleaning lets writers go by the new placement alone, too. Every member must have taken this map, so that nobody reads by the old
// placement any more.
func (m *Map) BeginCleaning() (*Map, error) {
	if err := m.inPhase(Switching); err != nil {
		return nil, err
	}
	return m.change(func(next *Map) { next.Move.Phase = Cleaning })
}

// AbortMove gives a move up before its cutover. Readers and writers go by the old placement alone, and the copies have to be cleaned
// away: what follows is the phase of cleaning with To as Placed, and EndMove when it is done.
func (m *Map) AbortMove() (*Map, error) {
	if err := m.inPhase(Copying); err != nil && m.inPhase(Preparing) != nil {
		return nil, err
	}
	return m.change(func(next *Map) { next.Move.Phase, next.Move.To = Cleaning, next.Placed })
}

// EndMove ends a move. No group must have documents left that it does not own.
func (m *Map) EndMove() (*Map, error) {
	if err := m.inPhase(Cleaning); err != nil {
		return nil, err
	}
	return m.change(func(next *Map) { next.Placed, next.Move = next.Move.To, nil })
}

func (m *Map) inPhase(want Phase) error {
	if m.Move == nil {
		return refused("no move is under way")
	}
	if m.Move.Phase != want {
		return refused("the move to %d groups is %s, not %s", m.Move.To, m.Move.Phase, want)
	}
	return nil
}
