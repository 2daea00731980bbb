package partition

import (
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// Bounds of deletions and upserts (summa-wire.md, Node: indexes and documents): those of package summa, asked of the bytes.
const (
	maxDeleteKeys     = 100_000
	maxDeleteBytes    = 8 << 20
	maxUpsertDocs     = 1_000
	maxUpsertBytes    = 32 << 20
	maxUpsertOneBytes = 200 << 20
)

// maxErrorBytes bounds the errors that a broker makes itself for one reply: a document without a key may take two bytes on the wire, and its
// error a hundred. It is what a reply may have at most by default (--index-max-encode-mb).
const maxErrorBytes = 64 << 20

// CheckDelete bounds an encoded DeleteDocumentsRequest, before its index is looked up (section Writes).
func CheckDelete(req []byte) error {
	n, size := 0, 0
	for len(req) > 0 {
		f, rest, err := next(req)
		if err != nil {
			return err
		}
		if req = rest; !f.is(2, protowire.BytesType) {
			continue
		}
		if n, size = n+1, size+len(f.val); n > maxDeleteKeys || size > maxDeleteBytes {
			return status.Error(codes.ResourceExhausted, "deletion request exceeds 100000 keys or 8 MiB of key bytes")
		}
	}
	return nil
}

// CheckUpsert bounds an encoded UpsertDocumentsRequest, before its index is looked up (section Writes).
func CheckUpsert(req []byte) error {
	n, most, size := 0, maxUpsertOneBytes, len(req)
	for len(req) > 0 && n <= maxUpsertDocs {
		f, rest, err := next(req)
		if err != nil {
			return err
		}
		if req = rest; f.is(2, protowire.BytesType) {
			n++
		}
	}
	if n != 1 {
		most = maxUpsertBytes
	}
	if n > maxUpsertDocs || size > most {
		return status.Error(codes.ResourceExhausted, "upsert request exceeds 1000 documents or 32 MiB encoded bytes")
	}
	return nil
}

// group is what one partition gets of a request.
type group struct {
	req       []byte
	common    int      // bytes of what all partitions get that req has
	positions []uint32 // in the request, ascending
}

// parting is a request taken apart.
type parting struct {
	groups  []group // for each partition
	refused []mark  // inputs that no partition can take
}

// asked are the partitions that get something.
func (p *parting) asked() []int {
	var out []int
	for i := range p.groups {
		if len(p.groups[i].positions) > 0 {
			out = append(out, i)
		}
	}
	return out
}

// split takes a request with inputs in its field 2 apart: documents, whose key is in the primary field, or with primary "" keys themselves.
// Each partition gets its inputs in their order with everything else that the request has.
func (ix *Index) split(req []byte, primary string) (*parting, error) {
	p := &parting{groups: make([]group, len(ix.Shards))}
	refusal := fmt.Sprintf("document has no '%s' primary key value; a partitioned index cannot route it", primary)
	var common, buf []byte
	position, refusals := uint32(0), 0
	for len(req) > 0 {
		f, rest, err := next(req)
		if err != nil {
			return nil, err
		}
		req = rest
		if !f.is(2, protowire.BytesType) {
			common = append(common, f.raw...)
			continue
		}
		key := f.val
		if primary != "" {
			if key, err = keyOf(f.val, primary, buf); err != nil {
				return nil, err
			}
			if len(key) == 0 {
				if refusals += len(refusal); refusals > maxErrorBytes {
					return nil, status.Error(codes.ResourceExhausted, "too many documents without a primary key value")
				}
				p.refused = append(p.refused, mark{index: position, text: refusal})
				position++
				continue
			}
			if cap(buf) == 0 {
				buf = make([]byte, 0, 32)
			}
		}
		part := ix.Locate(key)
		if part < 0 || part >= len(p.groups) {
			return nil, status.Errorf(codes.Internal, "index '%s' has no partition %d", ix.Name, part)
		}
		g := &p.groups[part]
		if len(g.positions) == 0 {
			g.req, g.common = slices.Clone(common), len(common)
		}
		g.req = append(g.req, f.raw...)
		g.positions = append(g.positions, position)
		position++
	}
	for i := range p.groups {
		if g := &p.groups[i]; len(g.positions) > 0 {
			g.req = append(g.req, common[g.common:]...)
		}
	}
	return p, nil
}
