package shard

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/zeebo/xxh3"

	"github.com/weft-search/weft/internal/shard/exec"
)

// Sum is the checksum of a document: the 128-bit xxh3 of its source, big-endian. No source has the zero Sum but with a chance of 2^-128.
type Sum = [16]byte

// SumOf is the checksum of a source.
func SumOf(source []byte) Sum { return xxh3.Hash128(source).Bytes() }

// ErrNoSources is the error of what needs sources on a shard that keeps none.
var ErrNoSources = errors.New("the shard keeps no sources")

// MaxSumBytes bounds the checksums that are remembered of the documents of all segments in the process, 16 bytes for each document.
// Those of further segments are made of the sources whenever they are asked for.
const MaxSumBytes = 128 << 20

// sumBytes is what is remembered.
var sumBytes atomic.Int64

// Sum returns the checksum of a document of a leaf. Unless the checksum is remembered it reads the source, into buf, which it leaves as
// large as it had to make it.
func (sn *Snapshot) Sum(leaf int, doc uint32, buf *[]byte) (Sum, error) {
	l := sn.leaves[leaf]
	if s, ok := l.(*segmentLeaf); ok {
		if sums := s.f.sums.Load(); sums != nil {
			return (*sums)[doc], nil
		}
	}
	source, err := l.Source(doc, (*buf)[:0])
	if err != nil {
		return Sum{}, err
	}
	if source == nil {
		return Sum{}, ErrNoSources
	}
	*buf = source
	return SumOf(source), nil
}

// EachSum calls fn with every live document, leaf by leaf in the order of documents, until it returns an error, which EachSum returns.
// The bytes of the key die when fn returns. The checksums of a segment are remembered, as far as there is room.
func (sn *Snapshot) EachSum(ctx context.Context, fn func(key []byte, sum Sum) error) error {
	check := maskChecker(ctx)
	for _, l := range sn.leaves {
		if err := eachSum(ctx, l, check, fn); err != nil {
			return err
		}
		if err := l.Err(); err != nil {
			return err
		}
	}
	return nil
}

func eachSum(ctx context.Context, l exec.Leaf, check func(n int) error, fn func(key []byte, sum Sum) error) error {
	live := l.Live()
	var key []byte
	if s, ok := l.(*segmentLeaf); ok {
		sums, err := s.f.rememberSums(ctx)
		if err != nil {
			return err
		}
		if sums == nil {
			return s.f.eachSum(check, func(doc uint32, sum Sum) error {
				if live != nil && !live.Has(doc) {
					return nil
				}
				key = l.Key(doc, key[:0])
				return fn(key, sum)
			})
		}
		return s.f.r.EachKey(0, func(d uint32, key []byte) error {
			if err := check(1); err != nil {
				return err
			}
			if live != nil && !live.Has(d) {
				return nil
			}
			return fn(key, sums[d])
		})
	}
	var source []byte
	for d := range l.NumDocs() {
		if err := check(1); err != nil {
			return err
		}
		if live != nil && !live.Has(d) {
			continue
		}
		var err error
		if source, err = l.Source(d, source[:0]); err != nil {
			return err
		}
		if source == nil {
			return ErrNoSources
		}
		key = l.Key(d, key[:0])
		if err := fn(key, SumOf(source)); err != nil {
			return err
		}
	}
	return nil
}

// rememberSums returns the checksums of all documents, dead or not; nil when there is no room for them.
func (f *segmentFile) rememberSums(ctx context.Context) ([]Sum, error) {
	if sums := f.sums.Load(); sums != nil {
		return *sums, nil
	}
	if err := f.summing.lock(ctx); err != nil {
		return nil, context.Cause(ctx)
	}
	defer f.summing.unlock()
	if sums := f.sums.Load(); sums != nil {
		return *sums, nil
	}
	size := int64(f.r.NumDocs()) * int64(len(Sum{}))
	if sumBytes.Add(size) > MaxSumBytes {
		sumBytes.Add(-size)
		return nil, nil
	}
	sums := make([]Sum, f.r.NumDocs())
	err := f.eachSum(maskChecker(ctx), func(doc uint32, sum Sum) error {
		sums[doc] = sum
		return nil
	})
	if err != nil {
		sumBytes.Add(-size)
		return nil, err
	}
	f.sums.Store(&sums)
	return sums, nil
}

// forgetSums gives the room for checksums back when the segment is closed.
func (f *segmentFile) forgetSums() {
	if sums := f.sums.Swap(nil); sums != nil {
		sumBytes.Add(-int64(len(*sums)) * int64(len(Sum{})))
	}
}

// eachSum makes the checksums of all documents, dead or not, of their sources.
func (f *segmentFile) eachSum(check func(n int) error, fn func(doc uint32, sum Sum) error) error {
	if !f.r.HasSources() {
		return ErrNoSources
	}
	err := f.r.EachSource(func(doc uint32, source []byte) error {
		if err := check(8); err != nil { // making one takes many times as long as looking at it
			return err
		}
		return fn(doc, SumOf(source))
	})
	if err != nil {
		return fmt.Errorf("segment %s: checksums of documents: %w", f.meta.ID, err)
	}
	return nil
}
