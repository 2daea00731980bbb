package shard

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/weft-search/weft/internal/invariant"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/segment"
	"github.com/weft-search/weft/internal/segment/bitset"
	"github.com/weft-search/weft/internal/store"
	"github.com/weft-search/weft/internal/vfs"
)

// replacement is what a flush or a merge puts in the place of parts.
type replacement struct {
	sources []*part
	from    []int        // of each source: deaths that the new segment already leaves out
	remaps  [][]uint32   // of each source
	file    *segmentFile // nil when no document is left
}

// since is when the last of the documents was written, or later.
func (r *replacement) since() time.Time {
	var last time.Time
	for _, p := range r.sources {
		if p.mem != nil {
			return time.Now()
		}
		if p.since.After(last) {
			last = p.since
		}
	}
	return last
}

// built is a new segment object; release ends its protection from collection.
type built struct {
	file    *segmentFile
	remaps  [][]uint32
	release func() error
}

const writeBuffer = 1 << 20

// build writes a segment object with write and opens it. A segment without documents is dropped again.
func (s *Shard) build(ctx context.Context, write func(w io.Writer) (segment.Info, [][]uint32, error)) (_ *built, err error) {
	ow, err := s.catalog.NewObject(ctx, s.name, store.KindSegment)
	if err != nil {
		return nil, fmt.Errorf("start segment: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, ow.Release())
		}
	}()
	bw := bufio.NewWriterSize(ow, writeBuffer)
	info, remaps, err := write(bw)
	if err == nil {
		err = bw.Flush()
	}
	if err != nil {
		return nil, fmt.Errorf("write segment: %w", err)
	}
	if info.Docs == 0 {
		return &built{remaps: remaps, release: ow.Release}, nil
	}
	o, err := ow.Commit(ctx)
	if err != nil {
		return nil, fmt.Errorf("write segment: %w", err)
	}
	meta := store.Segment{ID: ow.ID(), Object: o.Key, Docs: info.Docs, Bytes: o.Bytes, Checksum: o.Checksum, Tier: "hot"}
	file, err := s.openSegment(ctx, meta, segment.VerifySmall)
	if err != nil {
		return nil, err
	}
	if invariant.Enabled {
		if err := file.r.DeepVerify(ctx); err != nil && ctx.Err() == nil {
			invariant.Fail("a segment just written: %v", err)
		}
	}
	file.buildFilter(ctx)
	r := file.r
	file.meta.MinKey, file.meta.MaxKey = string(r.Key(0, nil)), string(r.Key(r.NumDocs()-1, nil))
	for d := range r.NumDocs() {
		file.meta.MaxCommitTS = max(file.meta.MaxCommitTS, r.CommitTS(d))
	}
	return &built{file: file, remaps: remaps, release: ow.Release}, nil
}

// openSegment opens the segment that the manifest names.
func (s *Shard) openSegment(ctx context.Context, meta store.Segment, verify segment.VerifyMode) (*segmentFile, error) {
	r, err := s.openReader(ctx, meta, verify)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, fmt.Errorf("segment %s: %s: %w", meta.ID, meta.Object, ErrMissingObject)
	case errors.Is(err, segment.ErrNewerFormat):
		return nil, fmt.Errorf("segment %s: %s: %w: %w", meta.ID, meta.Object, ErrNewerFormat, err)
	case err != nil:
		return nil, fmt.Errorf("segment %s: %w", meta.ID, err)
	}
	if r.NumDocs() != meta.Docs || r.Size() != meta.Bytes {
		err := fmt.Errorf("segment %s: %s has %d documents and %d bytes, the manifest says %d and %d: %w",
			meta.ID, meta.Object, r.NumDocs(), r.Size(), meta.Docs, meta.Bytes, ErrDamaged)
		return nil, errors.Join(err, r.Close())
	}
	return newSegmentFile(meta, r, s.log), nil
}

func (s *Shard) openReader(ctx context.Context, meta store.Segment, verify segment.VerifyMode) (_ *segment.Reader, err error) {
	if local, ok := s.objects.(store.Local); ok && s.cfg.FS == vfs.OS {
		if _, err := s.objects.Stat(ctx, meta.Object); err != nil {
			return nil, err
		}
		path, err := local.LocalPath(meta.Object)
		if err != nil {
			return nil, err
		}
		return segment.Open(path, segment.OpenOptions{Verify: verify})
	}
	b, err := s.readObject(ctx, meta.Object, meta.Bytes)
	if err != nil {
		return nil, err
	}
	return segment.FromBytes(meta.Object, b)
}

// readObject reads an object whose size is known.
func (s *Shard) readObject(ctx context.Context, key string, size int64) (b []byte, err error) {
	rc, info, err := s.objects.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rc.Close()) }()
	if info.Size != size {
		return nil, fmt.Errorf("%s has %d bytes, the manifest says %d: %w", key, info.Size, size, ErrDamaged)
	}
	b = make([]byte, size)
	if _, err := io.ReadFull(rc, b); err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	return b, nil
}

// entry is a segment of the manifest in the making.
type entry struct {
	p    *part // nil for the new segment
	meta store.Segment
	ref  store.DeleteRef // as committed; Count 0 when there is none
	dead bitset.Set      // set if the delete set has to be written anew
	n    int
}

// commit publishes a manifest in which the replacement's segment stands for its sources, at the given mark, and then installs
// the change. It needs manifestMu. flushing says that the mark is that of the frozen memtable; else it is the committed one.
func (s *Shard) commit(ctx context.Context, rep replacement, m mark, flushing bool) (err error) {
	entries, dropped := s.entries(rep, flushing)
	manifest, writers, err := s.nextManifest(ctx, entries, m)
	defer func() {
		for _, w := range writers {
			err = errors.Join(err, w.Release())
		}
	}()
	if err != nil {
		return err
	}
	v, err := s.publish(ctx, manifest)
	if err != nil {
		return err
	}
	s.version, s.committed = v, m
	s.manifest.Store(v.Manifest.Version)
	s.install(rep, entries, dropped, flushing)
	return nil
}

// entries lists the segments of the next manifest with their deaths, and those that have no document left.
func (s *Shard) entries(rep replacement, flushing bool) (entries []entry, dropped []*part) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.mu.segments {
		if slices.Contains(rep.sources, p) || p.staged != nil && !flushing {
			continue
		}
		n := p.committed
		if flushing {
			n = p.marked
		}
		if n == int(p.docs) {
			dropped = append(dropped, p)
			continue
		}
		e := entry{p: p, meta: p.seg.meta, ref: p.deletes, n: n}
		if n != p.committed {
			e.dead = p.deadSetLocked(n)
		}
		entries = append(entries, e)
	}
	if rep.file == nil {
		return entries, dropped
	}
	e := entry{meta: rep.file.meta}
	dead := bitset.New(int(rep.file.meta.Docs))
	for i, p := range rep.sources {
		if p.mem != nil {
			continue // a flush stands at the mark exactly
		}
		for _, d := range p.killed[rep.from[i]:p.committed] {
			dead.Add(rep.remaps[i][d])
			e.n++
		}
	}
	if e.n > 0 {
		e.dead = dead
	}
	return append(entries, e), dropped
}

// nextManifest writes the delete sets that changed and returns the manifest to publish, with the writers to release afterwards.
func (s *Shard) nextManifest(ctx context.Context, entries []entry, m mark) (*store.Manifest, []*store.ObjectWriter, error) {
	text, err := json.Marshal(m.schema)
	if err != nil {
		return nil, nil, fmt.Errorf("encode schema: %w", err)
	}
	man := &store.Manifest{
		Schema:   store.SchemaRef{Generation: m.schema.Generation, Format: "json", Text: string(text)},
		LogSeq:   m.seq,
		CommitTS: m.ts,
	}
	var writers []*store.ObjectWriter
	for i := range entries {
		e := &entries[i]
		if e.dead != nil {
			w, err := s.catalog.NewObject(ctx, s.name, store.KindDeletes)
			if err != nil {
				return nil, writers, fmt.Errorf("start delete set: %w", err)
			}
			writers = append(writers, w)
			b := store.EncodeDeletes(store.DeleteSet{Segment: e.meta.ID, Generation: e.ref.Generation + 1, Docs: e.meta.Docs, Dead: e.dead})
			if _, err := w.Write(b); err != nil {
				return nil, writers, fmt.Errorf("write delete set: %w", err)
			}
			o, err := w.Commit(ctx)
			if err != nil {
				return nil, writers, fmt.Errorf("write delete set: %w", err)
			}
			e.ref = store.DeleteRef{Segment: e.meta.ID, Generation: e.ref.Generation + 1, Object: o.Key, Count: uint32(e.n), Bytes: o.Bytes, Checksum: o.Checksum}
		}
		man.Segments = append(man.Segments, e.meta)
		if e.ref.Count > 0 {
			man.Deletes = append(man.Deletes, e.ref)
		}
	}
	return man, writers, nil
}

// uncertainTries bounds how often the head is read again after a write with an unknown outcome.
const uncertainTries = 5

// publish moves the head. A lost race makes the shard read-only: somebody else owns it now. So does an outcome that cannot be
// learnt, since going on from either version could undo the other. It needs manifestMu.
func (s *Shard) publish(ctx context.Context, m *store.Manifest) (*store.Version, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ctx = context.WithoutCancel(ctx) // a cancelled publication could leave the outcome open
	prev := s.version
	v, err := s.catalog.Publish(ctx, prev, m)
	for try := 0; errors.Is(err, store.ErrUncertain) && try < uncertainTries; try++ {
		now, rerr := s.catalog.Open(ctx, s.name)
		switch {
		case rerr != nil:
			err = fmt.Errorf("%w: %w", err, rerr)
		case now.Pointer == prev.Pointer:
			return nil, fmt.Errorf("commit did not take place: %w", errOf(err))
		case now.Manifest.Version == prev.Manifest.Version+1 && now.Manifest.LogSeq == m.LogSeq &&
			slices.Equal(now.Manifest.Segments, m.Segments) && slices.Equal(now.Manifest.Deletes, m.Deletes):
			return now, nil // object ids are random: it is ours
		default:
			err = store.ErrPrecondition
		}
	}
	switch {
	case err == nil:
		return v, nil
	case errors.Is(err, store.ErrPrecondition):
		err = fmt.Errorf("commit version %d: %w: %w", prev.Manifest.Version+1, ErrFenced, err)
	case !errors.Is(err, store.ErrUncertain):
		return nil, fmt.Errorf("commit version %d: %w", prev.Manifest.Version+1, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return nil, s.failLocked(err, false)
}

// discard drops a segment that could not be committed; cause says why. Where the outcome is not known the object stays.
func (s *Shard) discard(ctx context.Context, f *segmentFile, cause error) error {
	if f == nil {
		return nil
	}
	f.release()
	if errors.Is(cause, store.ErrUncertain) {
		return nil
	}
	if err := s.objects.Delete(context.WithoutCancel(ctx), f.meta.Object); err != nil {
		return fmt.Errorf("discard segment %s: %w", f.meta.ID, err)
	}
	return nil
}

// errOf drops the mark of uncertainty from an error whose outcome is known by now.
func errOf(err error) error { return errors.New(err.Error()) }

// install puts a committed replacement in place, carrying over the deaths that it does not know of.
func (s *Shard) install(rep replacement, entries []entry, dropped []*part, flushing bool) {
	var staged []func() error
	defer func() { // after the locks are given back
		for _, release := range staged {
			if err := release(); err != nil {
				s.backgroundErr("end the protection of a segment", err)
			}
		}
	}()
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()

	var segments []*part
	var released []*part
	for _, p := range s.mu.segments {
		if flushing {
			p.committed = p.marked
			if p.staged != nil {
				staged, p.staged = append(staged, p.staged), nil
			}
		}
		switch {
		case slices.Contains(rep.sources, p):
			released = append(released, p)
		case slices.Contains(dropped, p):
			p.gone = true
			released = append(released, p)
		default:
			segments = append(segments, p)
		}
	}
	for i := range entries {
		if e := &entries[i]; e.p != nil {
			e.p.deletes = e.ref
		}
	}
	if rep.file != nil {
		p := newSegmentPart(rep.file, rep.since())
		p.deletes = entries[len(entries)-1].ref
		s.carryOver(rep, p)
		segments = append(segments, p)
		for i, src := range rep.sources {
			src.next, src.remap = p, rep.remaps[i]
		}
	} else {
		for _, src := range rep.sources {
			src.gone = true
		}
	}
	s.mu.segments = segments
	if flushing {
		s.mu.frozen, s.mu.frozenReady, s.mu.frozenView = nil, false, nil
	}
	s.layout.Add(1)
	s.changedLocked()
	if flushing {
		s.unpinLocked(s.committed)
	}
	for _, p := range released {
		p.seg.release()
	}
}

// carryOver makes dead in p what died in its sources after they were read: first what the manifest has, then what the running
// flush will have, then the rest, so that the order of deaths stays that of the log. It needs both locks.
func (s *Shard) carryOver(rep replacement, p *part) {
	move := func(i, from, to int) {
		for _, d := range rep.sources[i].killed[from:to] {
			if n := rep.remaps[i][d]; n != segment.NoDoc {
				p.killLocked(n)
			}
		}
	}
	for i, src := range rep.sources {
		if src.mem == nil {
			move(i, rep.from[i], src.committed)
		}
	}
	p.committed = len(p.killed)
	for i, src := range rep.sources {
		if src.mem == nil {
			move(i, src.committed, max(src.marked, src.committed))
		}
	}
	p.marked = len(p.killed)
	for i, src := range rep.sources {
		if src.mem == nil {
			move(i, max(src.marked, src.committed), len(src.killed))
		} else {
			move(i, rep.from[i], len(src.killed))
		}
	}
	for i, src := range rep.sources {
		for d, n := range rep.remaps[i] {
			if n != segment.NoDoc && !src.applied.Has(uint32(d)) {
				p.applied.Remove(n)
			}
		}
	}
}

// backoff waits longer after each failure, up to half a minute.
type backoff struct{ d time.Duration }

func (b *backoff) wait(ctx context.Context) {
	b.d = min(max(2*b.d, 100*time.Millisecond), 30*time.Second)
	t := time.NewTimer(b.d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// parseSchema reads the schema of a manifest or log record.
func parseSchema(format, text string, generation uint64) (*schema.Schema, error) {
	var sch *schema.Schema
	var err error
	switch format {
	case "json":
		sch, err = schema.ParseJSON(text, checkTokenizer)
	case "sdl":
		sch, err = schema.ParseSDL(text, checkTokenizer)
	default:
		return nil, fmt.Errorf("schema format %q is unknown: %w", format, ErrDamaged)
	}
	if err != nil {
		return nil, fmt.Errorf("read schema: %w", err)
	}
	sch.Generation = generation
	return sch, nil
}
