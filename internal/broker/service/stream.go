package service

import (
	"context"
	"io"

	"github.com/weft-search/weft/internal/broker/partition"
	"github.com/weft-search/weft/internal/broker/relay"
	"github.com/weft-search/weft/internal/broker/route"
)

// stream serves IndexDocuments: documents are gathered by index and sent on as batches ("Writes").
func (b *Broker) stream(c *relay.Call) error {
	s := &partition.Stream{
		Send: func(ctx context.Context, index string, batch []byte) ([]byte, error) {
			b.metrics.Flushed(b.picture.Load().labelOf(index)) // also one that is refused, as the reference counts
			return b.sendRun(ctx, c, index, batch)
		},
	}
	for {
		err := c.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		msg, err := c.Plain()
		if err != nil {
			return err
		}
		// The run grows by what is in the message, and a buffer that grows stands beside the old one.
		if err := c.Need(int64(c.Size()+len(msg)) + 2*int64(s.Held()) + 2*int64(len(msg))); err != nil {
			return err
		}
		if err := s.Add(c.Context(), msg); err != nil {
			return err
		}
	}
	reply, err := s.Close(c.Context())
	if err != nil {
		return err
	}
	return c.Reply(bytesOf(reply))
}

// sendRun sends a run of documents to the master of an index, or to those of its partitions. A run is routed for itself: the fleet may have
// changed since the one before.
func (b *Broker) sendRun(ctx context.Context, c *relay.Call, index string, batch []byte) ([]byte, error) {
	p := b.picture.Load()
	r, err := p.Write(index)
	if err != nil {
		b.metrics.WriteRejected(p.labelOf(index), codeName(err))
		return nil, err
	}
	if r.Partitioned {
		g := b.gather(c, p, index, &r)
		defer g.end()
		return partition.BatchIndexDocuments(ctx, g.ix, g, &b.primaries, batch)
	}
	one := route.Route{Parts: []route.Target{r.Target}}
	g := b.gather(c, p, index, &one)
	defer g.end()
	return g.Call(ctx, 0, "/summa.IndexService/BatchIndexDocuments", batch)
}
