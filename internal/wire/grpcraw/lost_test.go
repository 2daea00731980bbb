package grpcraw

import (
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/weft-search/weft/internal/wire/h2"
)

// TestAConnectionThatEndsWithinAReplyIsLost: the end of the connection is not that of the reply, wherever it comes.
func TestAConnectionThatEndsWithinAReplyIsLost(t *testing.T) {
	whole := message("the reply")
	for sent := -1; sent <= len(whole); sent++ {
		n := newNode(t, serve(t, func(p *peer) {
			p.hello()
			id, ok := p.call()
			if !ok {
				return
			}
			p.next(h2.Data) // nothing of ours is unread, so that the connection ends in good order
			if sent >= 0 {
				p.head(id)
				p.frame(h2.Data, 0, id, whole[:sent])
			}
		}), Options{})
		_, err := do(t, n, 0)
		want(t, "a reply that ends", err, codes.Unavailable, "the connection to the node is lost")
		if e, ok := err.(*Error); !ok || !e.Transport {
			t.Errorf("after %d bytes: %#v", sent, err)
		}
	}
}
