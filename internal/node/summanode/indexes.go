package summanode

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/summa"
	"github.com/weft-search/weft/internal/vector"
)

// use checks the name of an index and takes the index.
func (s *Server) use(ctx context.Context, name string) (*Index, error) {
	if err := summa.CheckIndexName(name); err != nil {
		return nil, err
	}
	return s.cfg.Host.Use(ctx, name)
}

func (s *Server) createIndex(ctx context.Context, m *summapb.CreateIndexRequest) (*summapb.CreateIndexResponse, error) {
	if err := summa.CheckIndexName(m.IndexName); err != nil {
		return nil, err
	}
	sch, err := summa.ParseSchema(m.Schema)
	if err != nil {
		return nil, err
	}
	named := *sch
	named.Name = m.IndexName
	made, err := s.cfg.Host.Create(ctx, m.IndexName, &named, true)
	if err != nil {
		return nil, err
	}
	if !made {
		return nil, summa.IndexExists(m.IndexName)
	}
	return &summapb.CreateIndexResponse{Success: true}, nil
}

func (s *Server) deleteIndex(ctx context.Context, m *summapb.DeleteIndexRequest) (*summapb.DeleteIndexResponse, error) {
	if err := summa.CheckIndexName(m.IndexName); err != nil {
		return nil, err
	}
	if err := s.cfg.Host.Delete(ctx, m.IndexName); err != nil {
		return nil, err
	}
	return &summapb.DeleteIndexResponse{Success: true}, nil
}

func (s *Server) listIndexes(context.Context, *summapb.ListIndexesRequest) (*summapb.ListIndexesResponse, error) {
	// HTTP has names that no call here can say.
	names := slices.DeleteFunc(s.cfg.Host.Names(), func(name string) bool { return summa.CheckIndexName(name) != nil })
	return &summapb.ListIndexesResponse{IndexNames: names}, nil
}

// publish shows what is staged. It goes on when the caller leaves, and ends with the index.
func (s *Server) publish(i *Index) error {
	if !i.OnCommit {
		return nil
	}
	if err := i.Engine.Commit(i.Context); err != nil {
		if cause := context.Cause(i.Context); cause != nil {
			return cause
		}
		return err
	}
	return nil
}

func (s *Server) commit(ctx context.Context, m *summapb.CommitRequest) (*summapb.CommitResponse, error) {
	i, err := s.use(ctx, m.IndexName)
	if err != nil {
		return nil, err
	}
	defer i.Release()
	if err := s.publish(i); err != nil {
		return nil, err
	}
	snap := i.Engine.Snapshot()
	defer snap.Release()
	return &summapb.CommitResponse{Success: true, NumDocs: clamp(snap.Docs())}, nil
}

func clamp(n uint64) uint32 { return uint32(min(n, 1<<32-1)) }

// segments counts the parts of an index as GetIndexInfo does.
func segments(i *Index) uint32 {
	snap := i.Engine.Snapshot()
	defer snap.Release()
	return uint32(len(snap.Leaves()))
}

// forceMerge commits and makes one segment. Whoever asks for it, dead documents are left out: a segment is never written with them.
func (s *Server) forceMerge(ctx context.Context, m *summapb.ForceMergeRequest) (*summapb.ForceMergeResponse, error) {
	i, err := s.use(ctx, m.IndexName)
	if err != nil {
		return nil, err
	}
	defer i.Release()
	if err := s.publish(i); err != nil {
		return nil, err
	}
	if err := i.Engine.Merge(i.Context, 1); err != nil {
		if cause := context.Cause(i.Context); cause != nil {
			return nil, cause
		}
		return nil, err
	}
	return &summapb.ForceMergeResponse{Success: true, NumSegments: segments(i)}, nil
}

// reorder has nothing to do: the documents of a segment stand in the order of their keys from its beginning.
func (s *Server) reorder(ctx context.Context, m *summapb.ReorderRequest) (*summapb.ReorderResponse, error) {
	i, err := s.use(ctx, m.IndexName)
	if err != nil {
		return nil, err
	}
	defer i.Release()
	if err := s.publish(i); err != nil {
		return nil, err
	}
	return &summapb.ReorderResponse{Success: true, NumSegments: segments(i)}, nil
}

// retrainVectorIndex has nothing to train: vectors are found by scanning or by graphs, which flushes and merges build. It shows what is
// staged, as a retrained index would, and builds the graphs anew that are not as the options of their fields say.
func (s *Server) retrainVectorIndex(ctx context.Context, m *summapb.RetrainVectorIndexRequest) (*summapb.RetrainVectorIndexResponse, error) {
	i, err := s.use(ctx, m.IndexName)
	if err != nil {
		return nil, err
	}
	defer i.Release()
	if err := s.publish(i); err != nil {
		return nil, err
	}
	if err := i.Engine.Rebuild(i.Context); err != nil {
		if cause := context.Cause(i.Context); cause != nil {
			return nil, cause
		}
		return nil, err
	}
	return &summapb.RetrainVectorIndexResponse{Success: true}, nil
}

// alterVectorIndex changes the options of a field that say how its vectors are found. They hold for what is written from then on; segments that are
// there are found by what they have.
func (s *Server) alterVectorIndex(ctx context.Context, m *summapb.AlterVectorIndexRequest) (*summapb.AlterVectorIndexResponse, error) {
	i, err := s.use(ctx, m.IndexName)
	if err != nil {
		return nil, err
	}
	defer i.Release()
	want, err := summa.ParseAlter(m)
	if err != nil {
		return nil, err
	}
	sch := i.Engine.Schema()
	id, ok := sch.Lookup(m.FieldName)
	if !ok || sch.Fields[id].Type != schema.DenseVector && sch.Fields[id].Type != schema.BinaryVector {
		return nil, summa.UnknownVectorField()
	}
	have := &sch.Fields[id]
	if want.Type != have.Type || want.Dim != have.Dim || element(&want) != element(have) || want.Metric != "" && want.Metric != have.Metric {
		return nil, refusal(codes.InvalidArgument, "Schema error: field '%s' holds other vectors: its type, dimension, element and metric stay as they are", m.FieldName)
	}
	if !have.Indexed {
		return nil, refusal(codes.FailedPrecondition, "field '%s' is stored and not indexed, and a live index keeps that; make a new index", m.FieldName)
	}
	if trained(&want) && vectors(i, id) == 0 {
		return nil, refusal(codes.InvalidArgument, "Schema error: cannot train vector centroids: no committed vectors for field(s) [%d]", id)
	}
	f := *have
	f.Options = want.Options
	then, err := vector.ParamsOf(&f)
	if err != nil {
		return nil, refusal(codes.InvalidArgument, "Schema error: %s", err)
	}
	if !i.OnCommit && !slices.Equal(f.Options, have.Options) {
		return nil, refusal(codes.FailedPrecondition, "index '%s' shows writes at once and may be part of a cluster, whose members have one schema; make a new index", m.IndexName)
	}
	if _, err := i.Engine.AlterVectors(i.Context, &f); err != nil {
		if bad, ok := errors.AsType[*schema.FieldError](err); ok {
			return nil, refusal(codes.InvalidArgument, "Schema error: %s", bad)
		}
		if bad, ok := errors.AsType[*schema.ConflictError](err); ok {
			return nil, refusal(codes.InvalidArgument, "Schema error: %s", bad)
		}
		if cause := context.Cause(i.Context); cause != nil {
			return nil, cause
		}
		return nil, err
	}
	out := &summapb.AlterVectorIndexResponse{PublicationGeneration: i.Engine.Stats().Manifest, State: summapb.VectorIndexAlterState_VECTOR_INDEX_ALTER_STATE_PARAMETERS_ONLY}
	if then.Graph && flat(i, id) {
		out.State = summapb.VectorIndexAlterState_VECTOR_INDEX_ALTER_STATE_DEFERRED_FLAT
	}
	return out, nil
}

// flat tells whether there are segments that were written without a graph of the field's vectors because it was not asked for.
func flat(i *Index, field int) bool {
	snap := i.Engine.Snapshot()
	defer snap.Release()
	return slices.ContainsFunc(snap.Leaves(), func(l exec.Leaf) bool {
		x := l.Vectors(field)
		return x != nil && !x.Params().Graph
	})
}

// shownSchema is the schema of a snapshot with the options that its vector fields have now: those are not staged.
func shownSchema(shown, now *schema.Schema) *schema.Schema {
	if shown.Generation == now.Generation {
		return shown
	}
	out := *shown
	out.Fields = slices.Clone(shown.Fields)
	for i := range out.Fields {
		f := &out.Fields[i]
		if id, ok := now.Lookup(f.Name); ok && (f.Type == schema.DenseVector || f.Type == schema.BinaryVector) {
			f.Options = now.Fields[id].Options
		}
	}
	return &out
}

func element(f *schema.Field) string {
	if f.Element == "" && f.Type == schema.DenseVector {
		return "f32"
	}
	return f.Element
}

// trained tells whether the declared kind of index has centroids.
func trained(f *schema.Field) bool {
	return slices.ContainsFunc(f.Options, func(o schema.Option) bool {
		kind := o.Name
		if kind == "index" {
			kind = o.Value
		}
		return kind == "ivf" || kind == "ivf_tq" || kind == "ivf_pq" || kind == "scann"
	})
}

func vectors(i *Index, field int) int {
	snap := i.Engine.Snapshot()
	defer snap.Release()
	n := 0
	for _, l := range snap.Leaves() {
		if x := l.Vectors(field); x != nil {
			n += x.Len()
		}
	}
	return n
}

func refusal(code codes.Code, format string, args ...any) *summa.Error {
	return &summa.Error{Code: code, Text: fmt.Sprintf(format, args...)}
}
