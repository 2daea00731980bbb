package shard

import (
	"context"
	"errors"
	"fmt"

	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/segment"
	"github.com/weft-search/weft/internal/segment/bitset"
	"github.com/weft-search/weft/internal/shard/exec"
)

// Check verifies the invariants of the shard as of now: every live key is there exactly once and can be found, live counts and
// statistics equal a recount, document frequencies equal a count over live postings for a sample of terms, every segment passes DeepVerify.
// It returns all violations joined. It reads everything: for tests and repair tools.
func (s *Shard) Check(ctx context.Context) error {
	err := s.checkStates()
	sn := s.Snapshot()
	defer sn.Release()
	return errors.Join(err, sn.Check(ctx))
}

// checkStates compares the applied state with the visible one while no write is between them.
func (s *Shard) checkStates() error {
	s.lead <- struct{}{}
	defer func() { <-s.lead }()
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	s.commitQueue()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.readOnly != nil {
		return nil // what was applied and never became visible stays so
	}
	var errs []error
	report := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for i, p := range append(s.memtablesLocked(), s.mu.segments...) {
		if !sameMembers(p.applied, p.live) {
			report("part %d: %d documents are applied, %d visible", i, p.applied.Count(), p.live.Count())
		}
		if p.live.Count() != int(p.aliveLocked()) || p.docs != uint32(p.live.Count()+len(p.killed)) {
			report("part %d: %d of %d documents are live, %d dead", i, p.live.Count(), p.docs, len(p.killed))
		}
		if p.committed > p.marked || p.marked > len(p.killed) || uint32(p.committed) != p.deletes.Count {
			report("part %d: %d deaths committed, %d marked, %d in all, %d in the manifest", i, p.committed, p.marked, len(p.killed), p.deletes.Count)
		}
	}
	if s.writeMu.schema.Generation != s.mu.schema.Generation {
		report("schema generation %d is applied, %d visible", s.writeMu.schema.Generation, s.mu.schema.Generation)
	}
	return errors.Join(errs...)
}

// sameMembers compares two sets of any capacity.
func sameMembers(a, b bitset.Set) bool {
	for i := range max(len(a), len(b)) {
		var x, y uint64
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if x != y {
			return false
		}
	}
	return true
}

// maxViolations ends a check that finds nothing but faults.
const maxViolations = 20

// Check is Shard.Check for the snapshot.
func (sn *Snapshot) Check(ctx context.Context) error {
	var errs []error
	report := func(format string, args ...any) {
		if len(errs) < maxViolations {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	for _, f := range sn.files {
		if err := f.r.DeepVerify(ctx); err != nil {
			report("segment %s: %w", f.meta.ID, err)
		}
	}
	keys := make(map[string]int, sn.docs)
	var docs uint64
	for i, l := range sn.leaves {
		docs += uint64(l.LiveDocs())
		if err := checkLeaf(ctx, sn, i, l, keys, report); err != nil {
			return errors.Join(append(errs, err)...)
		}
	}
	if docs != sn.docs {
		report("leaves hold %d live documents, the snapshot counts %d", docs, sn.docs)
	}
	return errors.Join(errs...)
}

func checkLeaf(ctx context.Context, sn *Snapshot, i int, l exec.Leaf, keys map[string]int, report func(string, ...any)) error {
	live := l.Live()
	n := uint32(0)
	var prev string
	var key []byte
	for d := range l.NumDocs() {
		if d%4096 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		key = l.Key(d, key[:0])
		k := string(key)
		if l.KeyOrdered() && d > 0 && k <= prev {
			report("leaf %d: key %q of document %d does not follow %q", i, k, d, prev)
		}
		prev = k
		if live != nil && !live.Has(d) {
			continue
		}
		n++
		if other, ok := keys[k]; ok {
			report("key %q is live in leaf %d and in leaf %d", k, other, i)
		}
		keys[k] = i
		if leaf, doc, ok := sn.Find(k); !ok || leaf != i || doc != d {
			report("key %q of leaf %d document %d is found in leaf %d document %d (%v)", k, i, d, leaf, doc, ok)
		}
	}
	if n != l.LiveDocs() {
		report("leaf %d: %d documents are live, it counts %d", i, n, l.LiveDocs())
	}
	for field := range sn.schema.Fields {
		lens := l.Lengths(field)
		var want score.FieldStats
		for d := range l.NumDocs() {
			if lens != nil && lens[d] > 0 && (live == nil || live.Has(d)) {
				want.Add(score.FieldStats{SumLen: uint64(lens[d]), Docs: 1})
			}
		}
		if got := l.FieldStats(field); got != want {
			report("leaf %d field %q: statistics %+v, recounted %+v", i, sn.schema.Fields[field].Name, got, want)
		}
		if err := checkTerms(ctx, i, l, field, live, report); err != nil {
			return err
		}
	}
	if err := l.Err(); err != nil {
		report("leaf %d: %w", i, err)
	}
	return nil
}

// maxCheckedTerms bounds the terms of a field whose postings are counted.
const maxCheckedTerms = 20000

func checkTerms(ctx context.Context, i int, l exec.Leaf, field int, live bitset.Set, report func(string, ...any)) error {
	var terms []string
	var dfs []uint32
	if err := l.ScanPostings(field, nil, func(term []byte, p segment.Postings) bool {
		terms, dfs = append(terms, string(term)), append(dfs, uint32(p.DocFreq()))
		return len(terms) < maxCheckedTerms
	}); err != nil {
		report("leaf %d field %d: scan terms: %w", i, field, err)
	}
	var buf [128]uint32
	for t, term := range terms {
		if t%256 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		p, ok := l.Postings(field, []byte(term))
		if !ok || uint32(p.DocFreq()) != dfs[t] {
			report("leaf %d field %d term %q: %d postings (%v), the dictionary says %d", i, field, term, p.DocFreq(), ok, dfs[t])
			continue
		}
		want := uint64(0)
		for b := range p.Blocks() {
			for _, d := range buf[:p.Docs(b, &buf)] {
				if live == nil || live.Has(d) {
					want++
				}
			}
		}
		if got, err := l.DocFreq(field, []byte(term), func(int) error { return ctx.Err() }); err != nil || got != want {
			report("leaf %d field %d term %q: document frequency %d (%v), counted %d", i, field, term, got, err, want)
		}
	}
	return nil
}
