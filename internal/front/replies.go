package front

import "github.com/weft-search/weft/internal/admit"

// ReplyMemory is the memory that is charged for the sources of a reply, in steps: how large they are is known only when they are
// there. The first step belongs to the place of the search. The zero value holds nothing.
type ReplyMemory struct {
	places  []*admit.Place
	charged int64
}

// ReplyCopies is how many times the sources of a reply are in memory: as read, rendered, and in the reply.
const ReplyCopies = 3

const replyStep = 1 << 20 // bytes

// Grow charges sources of so many bytes in all. What it has charged stays so after an error, which is a *admit.Refusal.
func (m *ReplyMemory) Grow(gate *admit.Gate, bytes int64) error {
	for m.charged+replyStep < bytes {
		p, err := gate.TryEnter(ReplyCopies * replyStep)
		if err != nil {
			return err
		}
		m.places = append(m.places, p)
		m.charged += replyStep
	}
	return nil
}

// Places are what the memory holds, for a caller that gives them back in place of Release.
func (m *ReplyMemory) Places() []*admit.Place { return m.places }

// Release gives the memory back.
func (m *ReplyMemory) Release() {
	for _, p := range m.places {
		p.Release()
	}
}
