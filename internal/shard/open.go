package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/segment"
	"github.com/weft-search/weft/internal/shard/wal"
	"github.com/weft-search/weft/internal/store"
	"github.com/weft-search/weft/internal/text"
	"github.com/weft-search/weft/internal/vfs"
)

// Names inside Config.Dir.
const (
	lockName  = "LOCK"
	logName   = "log"
	storeName = "store"
)

func checkTokenizer(spec string) error { return text.Check(spec) }

// Open opens the shard of cfg.Dir, recovering what its log holds, or creates it with cfg.Schema.
//
// Errors: vfs.ErrLocked (another process has it), ErrNoSchema, ErrNewerFormat, ErrMissingObject, ErrDamaged,
// segment.ErrCorrupt, wal.ErrCorrupt, each with the thing and its place; nothing is repaired or skipped but a torn end of the log,
// which was never acknowledged.
func Open(ctx context.Context, cfg Config) (_ *Shard, err error) {
	cfg = cfg.ensureDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("open shard: %w", err)
	}
	s := &Shard{
		cfg: cfg, name: store.Name{Namespace: cfg.Namespace, Collection: cfg.Collection}, log: cfg.Log,
		flushMu: newCtxMutex(), mergeMu: newCtxMutex(), manifestMu: newCtxMutex(), lead: make(chan struct{}, 1),
		flushC: make(chan struct{}, 1), mergeC: make(chan struct{}, 1), healC: make(chan struct{}, 1),
	}
	var undo []func() error
	defer func() {
		if err == nil {
			return
		}
		err = fmt.Errorf("open shard %s/%s: %w", cfg.Namespace, cfg.Collection, err)
		for i := len(undo) - 1; i >= 0; i-- {
			err = errors.Join(err, undo[i]())
		}
	}()

	if err := vfs.MkdirAll(cfg.FS, cfg.Dir); err != nil {
		return nil, err
	}
	lock, err := cfg.FS.Lock(path.Join(cfg.Dir, lockName))
	if err != nil {
		return nil, err
	}
	s.unlock = lock.Close
	undo = append(undo, s.unlock)
	if s.objects = cfg.Store; s.objects == nil {
		folder, err := store.OpenFolder(path.Join(cfg.Dir, storeName), store.FolderOptions{FS: cfg.FS})
		if err != nil {
			return nil, err
		}
		s.objects = folder
		s.unlock = func() error { return errors.Join(folder.Close(), lock.Close()) }
		undo[0] = s.unlock
	}
	s.catalog = store.NewCatalog(s.objects, store.CatalogOptions{})
	s.sweep(ctx)
	if err := s.loadVersion(ctx); err != nil {
		return nil, err
	}
	undo = append(undo, func() error {
		for _, p := range s.mu.segments {
			p.seg.release()
		}
		return nil
	})
	if err := s.loadSegments(ctx); err != nil {
		return nil, err
	}
	if err := s.openLog(); err != nil {
		return nil, err
	}
	undo = append(undo, s.wal.Close)
	if err := s.replay(ctx); err != nil {
		return nil, err
	}
	if s.writeMu.lastTS > 0 || cfg.Disturbed {
		s.writeMu.disturbed.all(time.Now())
	}
	s.start()
	return s, nil
}

// sweep removes the half-made files that a crash in a flush or merge left: with the lock held nobody is writing them. What cannot
// be removed is in nobody's way but takes room, so it is told and not an error.
func (s *Shard) sweep(ctx context.Context) {
	folder, ok := s.objects.(*store.Folder)
	if !ok {
		return
	}
	forEver := time.Unix(1<<40, 0)
	if err := folder.Sweep(ctx, s.name.Prefix(), forEver, nil); err != nil && ctx.Err() == nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn("remove half-made files", "err", err)
	}
}

// loadVersion loads the committed version, or creates the first one.
func (s *Shard) loadVersion(ctx context.Context) error {
	v, err := s.catalog.Open(ctx, s.name)
	_, gone := errors.AsType[*store.MissingError](err)
	switch {
	case gone:
		err = fmt.Errorf("%w: %w", ErrMissingObject, err)
	case errors.Is(err, store.ErrNewerFormat):
		err = fmt.Errorf("%w: %w", ErrNewerFormat, err)
	case errors.Is(err, store.ErrNotFound):
		v, err = s.create(ctx)
	}
	if err != nil {
		return err
	}
	m := v.Manifest
	sch, err := parseSchema(m.Schema.Format, m.Schema.Text, m.Schema.Generation)
	if err != nil {
		return fmt.Errorf("manifest version %d: %w", m.Version, err)
	}
	s.version = v
	s.manifest.Store(m.Version)
	s.committed = mark{seq: m.LogSeq, ts: m.CommitTS, schema: sch}
	s.mu.mark = s.committed
	s.mu.seq, s.mu.ts, s.mu.schema = m.LogSeq, m.CommitTS, sch
	s.writeMu.schema, s.writeMu.lastTS = sch, m.CommitTS
	s.mu.active = newMemPart()
	s.writeMu.active = s.mu.active
	return nil
}

// create publishes the first version of a new shard.
func (s *Shard) create(ctx context.Context) (*store.Version, error) {
	// A log without a head is a shard that lost its head, not a new one.
	names, err := s.cfg.FS.ReadDir(path.Join(s.cfg.Dir, logName))
	if err == nil && len(names) > 0 {
		return nil, fmt.Errorf("there is a log but no head: %w", ErrDamaged)
	}
	if s.cfg.Schema == nil {
		return nil, ErrNoSchema
	}
	sch := *s.cfg.Schema
	sch.Generation = max(sch.Generation, 1)
	if err := sch.Validate(); err != nil {
		return nil, err
	}
	for i := range sch.Fields {
		if f := &sch.Fields[i]; f.Type == schema.Text && f.Indexed {
			if err := text.Check(f.Tokenizer); err != nil {
				return nil, fmt.Errorf("field %q: %w", f.Name, err)
			}
		}
	}
	b, err := json.Marshal(&sch)
	if err != nil {
		return nil, fmt.Errorf("encode schema: %w", err)
	}
	return s.catalog.Create(ctx, s.name, &store.Manifest{Schema: store.SchemaRef{Generation: sch.Generation, Format: "json", Text: string(b)}})
}

// loadSegments opens the segments of the version with their delete sets.
func (s *Shard) loadSegments(ctx context.Context) error {
	m := s.version.Manifest
	refs := map[string]store.DeleteRef{}
	for _, d := range m.Deletes {
		refs[d.Segment] = d
	}
	verify := segment.VerifyAll
	if s.cfg.QuickOpen {
		verify = segment.VerifySmall
	}
	now := time.Now()
	for _, meta := range m.Segments {
		if err := ctx.Err(); err != nil {
			return err
		}
		f, err := s.openSegment(ctx, meta, verify)
		if err != nil {
			return err
		}
		p := newSegmentPart(f, now)
		s.mu.segments = append(s.mu.segments, p)
		ref, ok := refs[meta.ID]
		if !ok {
			continue
		}
		delete(refs, meta.ID)
		if err := s.loadDeletes(ctx, p, ref); err != nil {
			return err
		}
	}
	for id := range refs {
		return fmt.Errorf("manifest version %d has a delete set for segment %s, which it does not have: %w", m.Version, id, ErrDamaged)
	}
	return nil
}

func (s *Shard) loadDeletes(ctx context.Context, p *part, ref store.DeleteRef) error {
	d, err := s.catalog.LoadDeletes(ctx, p.seg.meta, ref)
	if _, gone := errors.AsType[*store.MissingError](err); gone || errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("delete set of segment %s: %w: %w", ref.Segment, ErrMissingObject, err)
	}
	if err != nil {
		return fmt.Errorf("delete set of segment %s: %w", ref.Segment, err)
	}
	if d.Segment != ref.Segment || d.Docs != p.docs || d.Dead.Count() != int(ref.Count) || len(d.Dead) != len(p.live) {
		return fmt.Errorf("delete set %s is not the one that the manifest names: %w", ref.Object, ErrDamaged)
	}
	for doc := range p.docs {
		if d.Dead.Has(doc) {
			p.killLocked(doc)
			p.applied.Remove(doc)
		}
	}
	p.committed, p.marked, p.deletes = len(p.killed), len(p.killed), ref
	return nil
}

// openLog opens the log and checks that it goes on where the version ends.
func (s *Shard) openLog() error {
	dir := path.Join(s.cfg.Dir, logName)
	high := s.committed.seq
	begun, err := s.logBegun(dir)
	if err != nil {
		return err
	}
	l, err := wal.Open(s.cfg.FS, dir, wal.Options{FirstSeq: high + 1})
	if err != nil {
		if errors.Is(err, wal.ErrNewerFormat) {
			err = fmt.Errorf("%w: %w", ErrNewerFormat, err)
		}
		return err
	}
	if l.FirstSeq() > high+1 || l.LastSeq() < high {
		err := fmt.Errorf("log in %s holds records %d to %d, the manifest ends at %d: %w", dir, l.FirstSeq(), l.LastSeq(), high, ErrDamaged)
		return errors.Join(err, l.Close())
	}
	if t := l.Recovery(); t != nil {
		s.log.Warn("cut the torn end of the log", "file", t.File, "offset", t.Offset, "bytes", t.Bytes, "reason", t.Reason)
	}
	if !begun {
		if err := vfs.WriteFile(s.cfg.FS, path.Join(s.cfg.Dir, LogBegun), []byte("This shard has a log. Without one it is damaged.\n")); err != nil {
			return errors.Join(fmt.Errorf("note that there is a log: %w", err), l.Close())
		}
	}
	s.wal = l
	return nil
}

// LogBegun is the file in a shard's folder that says that it ever had a log. From then on a missing log is damage: acknowledged
// writes may have been in it.
const LogBegun = "log-begun"

// logBegun tells whether the shard ever had a log, and fails if that is gone.
func (s *Shard) logBegun(dir string) (bool, error) {
	if _, err := s.cfg.FS.Stat(path.Join(s.cfg.Dir, LogBegun)); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("look for the log: %w", err)
	}
	names, err := s.cfg.FS.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("look for the log: %w", err)
	}
	for _, n := range names {
		if strings.HasSuffix(n.Name, ".log") {
			return true, nil
		}
	}
	return false, fmt.Errorf("the log in %s is gone: %w", dir, ErrDamaged)
}

// replay applies the log records that the version does not cover.
func (s *Shard) replay(ctx context.Context) error {
	return s.wal.Replay(s.committed.seq+1, func(seq uint64, payload []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if seq != s.mu.seq+1 {
			return fmt.Errorf("log record %d follows record %d: %w", seq, s.mu.seq, ErrDamaged)
		}
		r, err := decodeRecord(payload)
		if err == nil {
			err = s.redo(r)
		}
		if err == nil && s.cfg.OnCommit && s.mu.active.mem.Size() >= s.cfg.MemtableBytes {
			// The log from the last Commit on has no bound, memory has.
			if err := s.flush(ctx, flushAll); err != nil {
				return fmt.Errorf("make room: %w", err)
			}
		}
		if errors.Is(err, errRecord) {
			err = fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		if err != nil {
			return fmt.Errorf("log record %d: %w", seq, err)
		}
		return nil
	})
}

// redo applies one record that is durable already.
func (s *Shard) redo(r *record) error {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	var wr *write
	if r.kind == recordSchema {
		sch, err := parseSchema("json", r.schemaText, r.generation)
		if err != nil {
			return err
		}
		s.writeMu.schema = sch
		wr = &write{mem: s.writeMu.active, schema: sch}
	} else {
		w, err := s.worker(s.writeMu.schema)
		if err != nil {
			return err
		}
		defer s.giveBack(w)
		for i := range r.ops {
			if err := s.prepare(w, s.writeMu.schema, &r.ops[i], true); err != nil {
				return fmt.Errorf("operation %d: %w: %w", i, errRecord, err)
			}
			w.ends = append(w.ends, len(w.record))
		}
		results := make([]OpResult, len(r.ops))
		s.lookUp(w, r.ops, results)
		s.writeMu.lastTS = max(s.writeMu.lastTS, r.commitTS)
		wr = s.effect(w, r.ops, results, r.commitTS, nil)
	}
	wr.payload = []byte{r.kind} // it takes its number even if it changes nothing any more
	s.mu.Lock()
	defer s.mu.Unlock()
	s.publishLocked(wr)
	return nil
}

// start begins the background work.
func (s *Shard) start() {
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	run := func(loop func(context.Context)) {
		s.background.Add(1)
		go func() {
			defer s.background.Done()
			loop(ctx)
		}()
	}
	run(s.healLoop)
	run(s.buildFilters)
	if s.cfg.NoBackground {
		return
	}
	run(s.flushLoop)
	run(s.mergeLoop)
	if s.cfg.IdleFlush > 0 {
		run(s.idleLoop)
	}
	signal(s.mergeC)
}

// buildFilters makes the key filters of the segments that Open found; until then writes look into each segment.
func (s *Shard) buildFilters(ctx context.Context) {
	s.mu.Lock()
	segments := s.mu.segments
	for _, p := range segments {
		p.seg.retain()
	}
	s.mu.Unlock()
	for _, p := range segments {
		p.seg.buildFilter(ctx)
		p.seg.release()
	}
}
