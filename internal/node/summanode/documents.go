package summanode

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/shard"
	"github.com/weft-search/weft/internal/summa"
)

const (
	// runDocs and runBytes bound what is converted and applied at once.
	runDocs  = 512
	runBytes = 4 << 20
	// errorCost is about what the error of a document takes beside its text, in memory and in a reply.
	errorCost = 96
)

// How a batch stops that finds no room.
const queueFull = "Indexing queue full — apply backpressure"

// shortText stands for the text of an error for which a reply has no room, and leastError is what an error with it takes in a reply:
// a batch of as many documents as a request can have can be answered.
const (
	shortText  = "refused"
	leastError = 18
	// otherReply is more than a reply takes beside its errors.
	otherReply = 64
)

// writer converts documents and applies them in runs, and keeps what was refused by the place it had in the request.
type writer struct {
	s       *Server
	ctx     context.Context
	index   *Index
	convert *summa.Documents
	keyed   bool // the index has a primary key
	upsert  bool
	total   int // documents of the request; 0 of a stream
	encode  int // longest reply

	ops   []shard.Op
	at    []int // ops[k] is the document at[k] of the request
	bytes int

	accepted, deleted int
	errors            []*summapb.DocumentError
	errorBytes        int    // of their texts and errorCost
	replyBytes        int    // that they take in the reply, at most
	stopped           string // why nothing more is tried; empty while it is
}

func (s *Server) writer(ctx context.Context, i *Index, upsert bool) *writer {
	sch := i.Engine.Schema()
	return &writer{s: s, ctx: ctx, index: i, convert: summa.NewDocuments(sch, s.cfg.Limits.Documents), keyed: sch.PrimaryField() >= 0, upsert: upsert, encode: s.cfg.Limits.IndexEncode}
}

// refuse keeps the error of a document. It takes no more memory than the document did, which is given up and stays charged. So that what is
// in can be told, room for an error is kept for every document behind.
func (w *writer) refuse(at int, text string) {
	const most = leastError - len(shortText)
	behind := w.total - len(w.errors) - 1 - w.accepted
	if w.total > 0 && w.replyBytes+most+len(text)+leastError*behind > w.encode-otherReply {
		text = shortText
	}
	w.replyBytes += most + len(text)
	w.errors = append(w.errors, &summapb.DocumentError{Index: uint32(at), Error: text})
	w.errorBytes += errorCost + len(text)
}

// add takes one document of the request.
func (w *writer) add(at int, fields []*summapb.FieldEntry) error {
	if w.stopped != "" {
		w.refuse(at, w.stopped)
		return nil
	}
	doc, dropped, err := w.convert.Convert(fields)
	if err != nil {
		bad, ok := errors.AsType[*summa.DocumentError](err)
		if !ok {
			return err
		}
		w.refuse(at, bad.Text)
		return nil
	}
	if len(dropped) > 0 {
		w.s.cfg.Log.Debug("numbers for fields that take none were left out", "index", w.index.Name, "fields", dropped)
	}
	if !w.keyed {
		doc.Key = w.s.keys.next()
	}
	w.put(at, doc)
	if len(w.ops) >= runDocs || w.bytes >= runBytes {
		return w.flush(max(0, w.total-1-at))
	}
	return nil
}

func (w *writer) put(at int, doc *schema.Document) {
	w.ops, w.at = append(w.ops, shard.Op{Doc: doc, Create: !w.upsert}), append(w.at, at)
	w.bytes += len(doc.Source)
}

// flush applies what was taken. behind is how many documents of the request are still to come.
func (w *writer) flush(behind int) error {
	if len(w.ops) == 0 {
		return nil
	}
	res, err := w.s.cfg.Host.Write(w.ctx, w.index, w.ops, w.bytes)
	switch {
	case err == nil:
	case errors.Is(err, shard.ErrTooLarge) && len(w.ops) == 1:
		w.refuse(w.at[0], "Document error: the document is larger than the memory that an index may take for new ones")
	case w.s.cfg.Host.Full(err):
		w.stopped = "Indexing backpressure (" + queueFull + ")"
		w.refuse(w.at[0], fmt.Sprintf("%s — %d remaining documents skipped", w.stopped, len(w.ops)-1+behind))
		for _, at := range w.at[1:] {
			w.refuse(at, w.stopped)
		}
	case w.accepted > 0 && w.ctx.Err() == nil && w.index.Context.Err() == nil:
		// What is in stays in, so the caller is told of the rest document by document.
		w.stopped = w.s.cfg.Host.Refusal(w.ctx, err).Text
		for _, at := range w.at {
			w.refuse(at, w.stopped)
		}
	default:
		return err
	}
	for k, r := range res {
		switch bad, ok := errors.AsType[*shard.InvalidError](r.Err); {
		case r.Err == nil:
			w.accepted++
			if w.ops[k].Delete && r.Existed {
				w.deleted++
			}
		case errors.Is(r.Err, shard.ErrExists):
			w.refuse(w.at[k], summa.DuplicateKey(w.ops[k].Doc.Key))
		case ok:
			w.refuse(w.at[k], "Document error: "+bad.Reason)
		default:
			return r.Err
		}
	}
	clear(w.ops)
	w.ops, w.at, w.bytes = w.ops[:0], w.at[:0], 0
	return nil
}

// sorted returns the errors by position: those of conversion came before those of the run around them.
func (w *writer) sorted() []*summapb.DocumentError {
	sortErrors(w.errors)
	return w.errors
}

func (w *writer) count() {
	w.s.cfg.Host.Counted(w.accepted, len(w.errors), 0)
}

func (s *Server) batchIndexDocuments(ctx context.Context, m *summapb.BatchIndexDocumentsRequest) (*summapb.BatchIndexDocumentsResponse, error) {
	i, err := s.use(ctx, m.IndexName)
	if err != nil {
		return nil, err
	}
	defer i.Release()
	w := s.writer(ctx, i, false)
	if n := len(m.Documents); leastError*n > s.cfg.Limits.IndexEncode-otherReply {
		return nil, refusal(codes.ResourceExhausted, "a batch of %d documents cannot be answered in %d bytes", n, s.cfg.Limits.IndexEncode)
	}
	if err := w.all(m.Documents); err != nil {
		return nil, err
	}
	return &summapb.BatchIndexDocumentsResponse{IndexedCount: uint32(w.accepted), ErrorCount: uint32(len(w.errors)), Errors: w.sorted()}, nil
}

// all takes the documents of a request. They are given up one by one, so that what they are made into takes their place.
func (w *writer) all(docs []*summapb.NamedDocument) error {
	defer w.count()
	w.total = len(docs)
	for at, d := range docs {
		if at%64 == 63 && w.ctx.Err() != nil {
			return context.Cause(w.ctx)
		}
		if err := w.add(at, d.GetFields()); err != nil {
			return err
		}
		docs[at] = nil
	}
	return w.flush(0)
}

// mutate takes one of the few places of deletions and upserts.
func (s *Server) mutate() (release func(), err error) {
	place, err := s.mutations.TryEnter(1)
	if err != nil {
		return nil, &summa.Error{Code: codes.ResourceExhausted, Text: "document mutation capacity exhausted; retry later"}
	}
	return place.Release, nil
}

func (s *Server) deleteDocuments(ctx context.Context, m *summapb.DeleteDocumentsRequest) (*summapb.DocumentMutationResponse, error) {
	if err := summa.CheckDelete(m); err != nil {
		return nil, err
	}
	release, err := s.mutate()
	if err != nil {
		return nil, err
	}
	defer release()
	i, err := s.use(ctx, m.IndexName)
	if err != nil {
		return nil, err
	}
	defer i.Release()
	w := s.writer(ctx, i, true)
	if !w.keyed {
		return nil, summa.NoPrimaryKey()
	}
	w.total = len(m.PrimaryKeys)
	absent := 0
	for at, key := range m.PrimaryKeys {
		switch fault := summa.DeleteKeyFault(key); {
		case fault != "":
			w.refuse(at, fault)
		case len(key) > shard.MaxKeyBytes:
			absent++ // no document can have it
		default:
			w.ops, w.at = append(w.ops, shard.Op{Delete: true, Key: key}), append(w.at, at)
			w.bytes += len(key)
		}
	}
	if err := w.flush(0); err != nil {
		return nil, err
	}
	s.cfg.Host.Counted(0, 0, w.deleted)
	return &summapb.DocumentMutationResponse{AcceptedCount: uint32(w.accepted + absent), Errors: w.sorted()}, nil
}

func (s *Server) upsertDocuments(ctx context.Context, m *summapb.UpsertDocumentsRequest) (*summapb.DocumentMutationResponse, error) {
	if err := summa.CheckUpsert(m); err != nil {
		return nil, err
	}
	release, err := s.mutate()
	if err != nil {
		return nil, err
	}
	defer release()
	i, err := s.use(ctx, m.IndexName)
	if err != nil {
		return nil, err
	}
	defer i.Release()
	w := s.writer(ctx, i, true)
	if !w.keyed {
		return nil, summa.NoPrimaryKey()
	}
	if err := w.all(m.Documents); err != nil {
		return nil, err
	}
	return &summapb.DocumentMutationResponse{AcceptedCount: uint32(w.accepted), Errors: w.sorted()}, nil
}

// keyMaker makes keys for documents of an index without a primary key: 26 characters that ascend in the order in which they were made,
// over restarts as far as the clock does, and that nobody makes again.
type keyMaker struct {
	mu   sync.Mutex
	last [16]byte // 48 bits of milliseconds, 80 of chance
}

var keyDigits = base32.HexEncoding.WithPadding(base32.NoPadding)

func (k *keyMaker) next() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var now [8]byte
	binary.BigEndian.PutUint64(now[:], uint64(max(0, time.Now().UnixMilli()))<<16)
	if string(now[:6]) > string(k.last[:6]) {
		copy(k.last[:6], now[:6])
		rand.Read(k.last[6:])
		k.last[6] &= 0x7f // so that counting on has room
	} else {
		for i := 15; i >= 0; i-- {
			if k.last[i]++; k.last[i] != 0 {
				break
			}
		}
	}
	return keyDigits.EncodeToString(k.last[:])
}
