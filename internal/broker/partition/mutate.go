package partition

import (
	"cmp"
	"context"
	"math"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	summapb "github.com/weft-search/weft/api/summa"
)

// mark is a DocumentError of a reply on its way.
type mark struct {
	index uint32
	text  string // of an error of the broker
	rest  []byte // of one of a node: all its fields but the index
}

// BatchIndexDocuments splits a batch by key (section Writes). Documents of a partition keep their order, partitions without any are not
// asked, any that fails fails the call. A document without a key is refused at its position; the nodes' errors are mapped back to the
// request and checked (B4).
func BatchIndexDocuments(ctx context.Context, ix *Index, c Caller, p *Primaries, req []byte) ([]byte, error) {
	sum, err := ix.mutate(ctx, c, p, summapb.IndexService_BatchIndexDocuments_FullMethodName, req, true)
	if err != nil {
		return nil, err
	}
	out := appendUint(nil, 1, uint64(sum.good))
	out = appendUint(out, 2, uint64(add32(sum.bad, sum.refused)))
	return appendMarks(out, 3, sum.marks), nil
}

// UpsertDocuments splits an upsert by key, like BatchIndexDocuments. Each reply has to account for all that its partition was sent
// (section Writes).
func UpsertDocuments(ctx context.Context, ix *Index, c Caller, p *Primaries, req []byte) ([]byte, error) {
	if err := CheckUpsert(req); err != nil {
		return nil, err
	}
	return ix.account(ix.mutate(ctx, c, p, summapb.IndexService_UpsertDocuments_FullMethodName, req, true))
}

// DeleteDocuments splits a deletion by key, like UpsertDocuments. It does not ask for the primary field, since it is given keys; what is
// wrong with a key is for the node to say.
func DeleteDocuments(ctx context.Context, ix *Index, c Caller, req []byte) ([]byte, error) {
	if err := CheckDelete(req); err != nil {
		return nil, err
	}
	return ix.account(ix.mutate(ctx, c, nil, summapb.IndexService_DeleteDocuments_FullMethodName, req, false))
}

func (ix *Index) account(sum *tally, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	return appendMarks(appendUint(nil, 1, uint64(sum.good)), 2, sum.marks), nil
}

// tally is what the replies of a write add up to.
type tally struct {
	good, bad uint32 // as the nodes counted
	refused   uint32 // by the broker
	marks     []mark
}

// mutate splits, asks and adds up. A Batch reply counts in fields 1 and 2 and has its errors in 3, the others in 1 and 2.
func (ix *Index) mutate(ctx context.Context, c Caller, p *Primaries, method string, req []byte, documents bool) (*tally, error) {
	if err := ix.Whole(); err != nil {
		return nil, err
	}
	primary := ""
	if documents {
		var err error
		if primary, err = p.Of(ctx, ix, c); err != nil {
			return nil, err
		}
	}
	parts, err := ix.split(req, primary)
	if err != nil {
		return nil, err
	}
	outs := together(ctx, c, parts.asked(), method, func(part int) []byte { return parts.groups[part].req })
	if err := ix.failed(outs); err != nil {
		return nil, err
	}
	sum := &tally{refused: uint32(len(parts.refused)), marks: parts.refused}
	batch := method == summapb.IndexService_BatchIndexDocuments_FullMethodName
	for _, o := range outs {
		if err := sum.add(ix, o, parts.groups[o.part].positions, batch); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(sum.marks, func(a, b mark) int { return cmp.Compare(a.index, b.index) })
	return sum, nil
}

// add takes one reply in. Its errors become those of the positions that its partition got.
func (t *tally) add(ix *Index, o outcome, positions []uint32, batch bool) error {
	numErrors := protowire.Number(2)
	if batch {
		numErrors = 3
	}
	good, bad := uint64(0), uint64(0)
	seen := make([]bool, len(positions))
	over, twice := false, false
	for reply := o.reply; len(reply) > 0; {
		f, rest, err := next(reply)
		if err != nil {
			return ix.Fault(o.part, err)
		}
		reply = rest
		switch {
		case f.is(1, protowire.VarintType):
			good = f.uint() & math.MaxUint32
		case batch && f.is(2, protowire.VarintType):
			bad = f.uint() & math.MaxUint32
		case f.is(numErrors, protowire.BytesType):
			index, rest, err := errorOf(f.val)
			if err != nil {
				return ix.Fault(o.part, err)
			}
			switch {
			case over || twice:
			case int64(index) >= int64(len(positions)):
				over = true
			case seen[index]:
				twice = true
			default:
				seen[index] = true
				t.marks = append(t.marks, mark{index: positions[index], rest: rest})
			}
			if !batch {
				bad++
			}
		}
	}
	switch {
	case !batch && good+bad != uint64(len(positions)):
		return ix.blame(o.part, status.Error(codes.DataLoss, "backend mutation response does not account for every input"))
	case over:
		return ix.blame(o.part, status.Error(codes.DataLoss, "backend mutation error index is out of bounds"))
	case twice:
		return ix.blame(o.part, status.Error(codes.DataLoss, "backend mutation response repeats an error index"))
	}
	t.good = add32(t.good, uint32(good))
	t.bad = add32(t.bad, uint32(bad))
	return nil
}

// errorOf takes the index out of a DocumentError. What is left shares memory with it where the index comes first or not at all.
func errorOf(b []byte) (index uint32, rest []byte, err error) {
	rest = b
	apart := false // rest is a copy
	for begin := true; len(b) > 0; begin = false {
		f, after, err := next(b)
		if err != nil {
			return 0, nil, err
		}
		switch {
		case !f.is(1, protowire.VarintType):
			if apart {
				rest = append(rest, f.raw...)
			}
		case begin:
			index, rest = uint32(f.uint()), after
		default:
			index = uint32(f.uint())
			if !apart {
				rest, apart = slices.Clone(rest[:len(rest)-len(b)]), true
			}
		}
		b = after
	}
	return index, rest, nil
}

func appendMarks(dst []byte, num protowire.Number, marks []mark) []byte {
	for _, m := range marks {
		size := len(m.rest)
		if m.index != 0 {
			size += 1 + protowire.SizeVarint(uint64(m.index))
		}
		if m.text != "" {
			size += 1 + protowire.SizeBytes(len(m.text))
		}
		dst = protowire.AppendTag(dst, num, protowire.BytesType)
		dst = protowire.AppendVarint(dst, uint64(size))
		dst = appendUint(dst, 1, uint64(m.index))
		if m.text != "" {
			dst = protowire.AppendString(protowire.AppendTag(dst, 2, protowire.BytesType), m.text)
		}
		dst = append(dst, m.rest...)
	}
	return dst
}
