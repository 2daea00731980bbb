package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	pb "github.com/weft-search/weft/api/shard/v1"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
)

// Bounds of one message of a stream.
const (
	maxPageDocs  = 1_000     // documents of an Export or a Fetch
	maxPageBytes = 256 << 10 // their bytes, unless there is only one
	// maxShownBytes is the same of a Fetch. With the lengths of 1,000 documents the message fits a buffer of 256 KiB.
	maxShownBytes = 240 << 10
	bulkPiece     = 64 << 10 // bytes of a bulk load
)

func (s *Server) ids(c *call, m *pb.IDsRequest) error {
	req, err := unpackIDsRequest(m)
	if err != nil {
		return err
	}
	page := &pb.IDsReply{Ids: &pb.Texts{}}
	r, err := s.leaf.IDs(c.ctx, req, func(ids []string) error {
		for len(ids) > 0 {
			n := min(len(ids), leaf.MaxIDPage)
			page.Ids.Data, page.Ids.Lengths = page.Ids.Data[:0], page.Ids.Lengths[:0]
			for _, id := range ids[:n] {
				appendText(page.Ids, id)
			}
			if err := c.send(page); err != nil {
				return err
			}
			ids = ids[n:]
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.send(&pb.IDsReply{End: &pb.IDsEnd{Meta: packMeta(&r.Meta), Next: []byte(r.Next)}})
}

func (s *Server) export(c *call, m *pb.ExportRequest) error {
	req, err := unpackExport(m)
	if err != nil {
		return err
	}
	page := &pb.ExportReply{Ids: &pb.Texts{}, Sources: &pb.Texts{}}
	flush := func() error {
		if len(page.Ids.Lengths) == 0 {
			return nil
		}
		err := c.send(page)
		if cap(page.Sources.Data) > 2*maxPageBytes {
			page.Sources.Data = nil // one large document does not stay for the others
		}
		for _, t := range []*pb.Texts{page.Ids, page.Sources} {
			t.Data, t.Lengths = t.Data[:0], t.Lengths[:0]
		}
		return err
	}
	r, err := s.leaf.Export(c.ctx, req, func(doc leaf.ExportedDoc) error {
		if len(page.Ids.Lengths) == maxPageDocs || len(page.Sources.Data)+len(doc.Source) > maxPageBytes {
			if err := flush(); err != nil {
				return err
			}
		}
		appendText(page.Ids, doc.ID)
		page.Sources.Data = append(page.Sources.Data, doc.Source...)
		page.Sources.Lengths = append(page.Sources.Lengths, uint32(len(doc.Source)))
		return nil
	})
	if err != nil {
		return err
	}
	if err := flush(); err != nil {
		return err
	}
	return c.send(&pb.ExportReply{End: &pb.ExportEnd{Meta: packMeta(&r.Meta), Missing: packTexts(r.Missing)}})
}

func (s *Server) bulk(c *call, first *pb.BulkRequest) error {
	defer s.bulks.Add(-1)
	if n := s.bulks.Add(1); n > s.maxBulks {
		s.refused.Add(1)
		p := api.NewProblem(api.TooManyBulks, fmt.Sprintf("there are %d bulk loads already", s.maxBulks)).Within(s.maxBulks)
		p.RetryAfterMS = 1000
		return p
	}
	req, err := unpackBulk(first)
	if err != nil {
		return err
	}
	body := &bulkBody{c: c}
	body.take(first)
	r, err := s.leaf.Bulk(c.ctx, req, body)
	if err != nil {
		if p := c.ended.Load(); p != nil {
			if _, ok := errors.AsType[*api.Problem](err); !ok {
				return p
			}
		}
		return err
	}
	return c.send(packBulkReply(r))
}

// bulkBody is the body of a bulk load. It takes a message off the wire when the one before has been read to its end.
type bulkBody struct {
	c     *call
	rest  []byte
	begun bool
	late  time.Duration // how long was waited for the body beyond what its bytes are worth at minBulkRate
	err   error         // what ended it
}

// errBroken is the end of a body that the caller could not read.
var errBroken = fmt.Errorf("the caller could not read the body: %w", io.ErrUnexpectedEOF)

func (b *bulkBody) take(m *pb.BulkRequest) {
	b.rest = m.Data
	if m.Broken {
		b.err = errBroken
	}
}

// fetch takes the next message.
func (b *bulkBody) fetch() error {
	c := b.c
	var m pb.BulkRequest
	n, waited, err := c.receive(&m, c.s.o.largest(), c.s.o.StallTime)
	if err == nil {
		// Bytes pay for the time that was waited, but not ahead: the pace has to be kept from then on.
		if b.late = max(0, b.late+waited-pace(n, minBulkRate)); b.late > c.s.o.StallTime {
			err = c.end(errSenderStalled, &c.s.stalled)
		}
	}
	if err != nil {
		if cause := context.Cause(c.ctx); cause != nil && err != io.EOF {
			if _, ok := errors.AsType[*api.Problem](err); !ok {
				err = cause
			}
		}
		b.err = err
		return err
	}
	b.take(&m)
	return nil
}

// Read implements io.Reader.
func (b *bulkBody) Read(p []byte) (int, error) {
	if !b.begun {
		// The client sends nothing of the body before it has the headers. If they are on their way already, that is what they say.
		b.begun = true
		errors.Join(b.c.ss.SendHeader(nil))
	}
	for len(b.rest) == 0 {
		if b.err != nil {
			return 0, b.err
		}
		if err := b.fetch(); err != nil {
			return 0, err
		}
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}
