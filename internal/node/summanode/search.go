package summanode

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"google.golang.org/grpc/codes"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/admit"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/shard"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/summa"
	"github.com/weft-search/weft/internal/wire/grpcmsg"
)

// What GetIndexInfo says of the rules that scores of candidates and searches of vectors of bits go by.
const (
	candidateScoring = 4
	binaryRetrieval  = 1
)

func sortErrors(list []*summapb.DocumentError) {
	slices.SortStableFunc(list, func(a, b *summapb.DocumentError) int { return cmp.Compare(a.Index, b.Index) })
}

// view makes the view of a snapshot: leaves by their names.
func view(i *Index, snap *shard.Snapshot) (*View, error) {
	v := &View{Schema: snap.Schema()}
	var err error
	if v.Analyzers, err = i.Analyzers(v.Schema); err != nil {
		return nil, err
	}
	leaves := snap.Leaves()
	order := make([]int, len(leaves))
	names := make([]string, len(leaves))
	for k := range leaves {
		order[k], names[k] = k, snap.SegmentID(k)
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(names[a], names[b]) })
	for _, k := range order {
		v.Leaves, v.Segments = append(v.Leaves, leaves[k]), append(v.Segments, names[k])
	}
	return v, nil
}

var (
	errSearchFull = &summa.Error{Code: codes.ResourceExhausted, Text: "Search capacity is full; retry with backoff"}
	errNoSearcher = &summa.Error{Code: codes.Unimplemented, Text: "this node answers no searches over Summa yet"}
)

// admitted runs a search or a call for statistics: a place, the index, a view of it.
func (s *Server) admitted(ctx context.Context, name string, run func(ctx context.Context, v *View) error) (err error) {
	began, index := time.Now(), "unknown"
	place, err := s.searches.TryEnter(1)
	if err != nil {
		s.metrics.Rejected()
		return errSearchFull
	}
	defer place.Release()
	defer func() { s.metrics.Searched(index, err == nil, time.Since(began)) }()
	i, err := s.use(ctx, name)
	if err != nil {
		return err
	}
	defer i.Release()
	index = i.Name
	if s.cfg.Searcher == nil {
		return errNoSearcher
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	unhook := context.AfterFunc(i.Context, func() { cancel(context.Cause(i.Context)) })
	defer unhook()
	snap := i.Engine.Snapshot()
	defer snap.Release()
	v, err := view(i, snap)
	if err != nil {
		return err
	}
	// A search that waits until other replies are read does not keep others from searching.
	c := callOf(ctx)
	v.Charge = func(bytes int) error { return c.hydrate(bytes, place.Release) }
	return run(ctx, v)
}

func (s *Server) search(ctx context.Context, m *summapb.SearchRequest) (out *summapb.SearchResponse, err error) {
	w, err := s.cfg.Limits.Query.CheckSearch(m)
	if err != nil {
		return nil, err
	}
	err = s.admitted(ctx, m.IndexName, func(ctx context.Context, v *View) (err error) {
		out, err = s.cfg.Searcher.Search(ctx, v, m, w, s.cfg.Limits.Query)
		return err
	})
	return out, err
}

func (s *Server) getTextStats(ctx context.Context, m *summapb.GetTextStatsRequest) (*summapb.GetTextStatsResponse, error) {
	if err := s.cfg.Limits.Query.CheckTextStats(m); err != nil {
		return nil, err
	}
	out := &summapb.GetTextStatsResponse{}
	err := s.admitted(ctx, m.IndexName, func(ctx context.Context, v *View) (err error) {
		out.Stats, err = s.cfg.Searcher.TextStats(ctx, v, m.Query, s.cfg.Limits.Query)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (s *Server) getDocument(ctx context.Context, m *summapb.GetDocumentRequest) (*summapb.GetDocumentResponse, error) {
	i, err := s.use(ctx, m.IndexName)
	if err != nil {
		return nil, err
	}
	defer i.Release()
	segment, doc, err := summa.CheckAddress(m.Address)
	if err != nil {
		return nil, err
	}
	snap := i.Engine.Snapshot()
	defer snap.Release()
	for k, l := range snap.Leaves() {
		if snap.SegmentID(k) != segment || doc >= l.NumDocs() {
			continue
		}
		if live := l.Live(); live != nil && !live.Has(doc) {
			break
		}
		return s.readDocument(ctx, snap.Schema(), l, doc)
	}
	return nil, &summa.Error{Code: codes.NotFound, Text: "Document not found"}
}

// sourceRoom is what the reply with a document takes in multiples of its source: the source, its values and their bytes.
const sourceRoom = 3

// readDocument reads the values of a document. How long it is is known only when it is read, and a few are at once. One that finds no room
// for its reply is given up, so that nothing is held and others are read while room is waited for, and then read once more.
func (s *Server) readDocument(ctx context.Context, sch *schema.Schema, l exec.Leaf, doc uint32) (*summapb.GetDocumentResponse, error) {
	c := callOf(ctx)
	out, long, err := s.tryDocument(ctx, sch, l, doc, 0)
	if long > 0 && errors.Is(err, grpcmsg.ErrUnread) {
		if err := c.room.Take(ctx, long, s.cfg.Limits.Wait, nil); err != nil {
			return nil, err
		}
		out, _, err = s.tryDocument(ctx, sch, l, doc, long)
	}
	return out, err
}

// tryDocument reads a document with the room that was taken for it, or what it finds at once. long is what it wants where there is none.
func (s *Server) tryDocument(ctx context.Context, sch *schema.Schema, l exec.Leaf, doc uint32, has int64) (out *summapb.GetDocumentResponse, long int64, err error) {
	place, err := s.documents.Enter(ctx, 1)
	if errors.Is(err, admit.ErrRefused) {
		return nil, 0, grpcmsg.ErrUnread
	}
	if err != nil {
		return nil, 0, err
	}
	defer place.Release()
	buf, ok := s.sources.Get().(*[]byte)
	if !ok {
		buf = new([]byte)
	}
	defer s.sources.Put(buf)
	source, err := l.Source(doc, (*buf)[:0])
	if err != nil {
		return nil, 0, err
	}
	*buf = source[:0]
	c := callOf(ctx)
	if want := sourceRoom * int64(len(source)); has < want {
		if err := c.room.Take(ctx, want-has, 0, nil); err != nil {
			return nil, want - has, err
		}
	}
	c.made = int64(len(source))
	room := s.cfg.Limits.Query.Room().Shared(func(bytes int) error { return c.hydrate(bytes, place.Release) })
	fields, err := summa.StoredFields(sch).Read(source, room)
	if err != nil {
		return nil, 0, err
	}
	return &summapb.GetDocumentResponse{Fields: fields}, 0, nil
}

func (s *Server) getIndexInfo(ctx context.Context, m *summapb.GetIndexInfoRequest) (*summapb.GetIndexInfoResponse, error) {
	i, err := s.use(ctx, m.IndexName)
	if err != nil {
		return nil, err
	}
	defer i.Release()
	snap := i.Engine.Snapshot()
	defer snap.Release()
	sch, leaves := snap.Schema(), snap.Leaves()
	out := &summapb.GetIndexInfoResponse{
		IndexName: i.Name, NumDocs: clamp(snap.Docs()), NumSegments: uint32(len(leaves)), Schema: summa.SDL(shownSchema(sch, i.Engine.Schema())),
		TextFields: summa.TextFields(sch), CandidateScoringVersion: candidateScoring, BinaryRetrievalVersion: binaryRetrieval,
	}
	// There are no caches of terms or of stored values: segments are mapped, and read where they lie.
	memory := &summapb.SegmentReaderStats{NumSegmentsLoaded: uint32(len(leaves)), TotalBytes: uint64(snap.Bytes())}
	out.MemoryStats = &summapb.MemoryStats{TotalBytes: memory.TotalBytes, SegmentReader: memory}
	for _, l := range leaves {
		out.PhysicalNumDocs += uint64(l.NumDocs())
		out.NumDeletedDocs += uint64(l.NumDocs() - l.LiveDocs())
	}
	if out.PhysicalNumDocs > 0 {
		out.DeletedRatio = float64(out.NumDeletedDocs) / float64(out.PhysicalNumDocs)
	}
	for id := range sch.Fields {
		f := &sch.Fields[id]
		st := &summapb.VectorFieldStats{FieldName: f.Name, VectorType: "dense", Dimension: uint32(f.Dim)}
		terms := 0
		for _, l := range leaves {
			switch f.Type {
			case schema.DenseVector, schema.BinaryVector:
				if x := l.Vectors(id); x != nil {
					st.TotalVectors += uint64(x.Len())
					memory.DenseIndexBytes += uint64(x.Bytes())
				} else if !f.Indexed {
					n, err := having(ctx, l, id)
					if err != nil {
						return nil, err
					}
					st.TotalVectors += n
				}
			case schema.SparseVector:
				st.VectorType = "sparse"
				if x := l.SparseVectors(id); x != nil {
					st.TotalVectors += uint64(x.Len())
					memory.SparseIndexBytes += uint64(x.Bytes())
					for ord := range x.Len() {
						if ord%4096 == 4095 && ctx.Err() != nil {
							return nil, context.Cause(ctx)
						}
						terms += x.Terms(ord)
					}
				}
			}
		}
		if st.TotalVectors == 0 {
			continue
		}
		if st.VectorType == "sparse" {
			st.AvgTermsPerVector = float32(terms) / float32(st.TotalVectors)
		}
		out.VectorStats = append(out.VectorStats, st)
	}
	slices.SortFunc(out.VectorStats, func(a, b *summapb.VectorFieldStats) int { return cmp.Compare(a.FieldName, b.FieldName) })
	return out, nil
}

// having counts the documents, dead ones too, with a value for a field whose vectors are stored only.
func having(ctx context.Context, l exec.Leaf, field int) (n uint64, err error) {
	has := l.Present(field)
	if has == nil {
		return 0, nil
	}
	for doc := range l.NumDocs() {
		if doc%(1<<16) == 1<<16-1 && ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		if has(doc) {
			n++
		}
	}
	return n, nil
}
