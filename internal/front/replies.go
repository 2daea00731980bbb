package front

import "github.com/weft-search/weft/internal/admit"

// ReplyMemory is the memory that is charged for the sources of a reply, in steps: how large they are is known only when they are
// there. The first step belongs to the place of the search. The zero value holds nothing.
type ReplyMemory struct {
	places  []*admit.Place
	charged int64
}

const (
	replyStep   = 1 << 20
	replyCopies = 3 // as read, rendered, and in the reply
)

// Grow charges sources of so many bytes in all. What it has charged stays so after an error, which is a *admit.Refusal.
func (m *ReplyMemory) Grow(gate *admit.Gate, bytes int64) error {
	for m.charged+replyStep < bytes {
		p, err := gate.TryEnter(replyCopies * replyStep)
		if err != nil {
			return err
		}
		m.places = append(m.places, p)
		m.charged += replyStep
	}
	return nil
}

// Release gives the memory back.
func (m *ReplyMemory) Release() {
	for _, p := range m.places {
		p.Release()
	}
}
