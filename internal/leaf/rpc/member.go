package rpc

import (
	"fmt"

	pb "github.com/weft-search/weft/api/shard/v1"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
)

// sumSize is the length of a checksum.
const sumSize = len(leaf.Sum{})

// maxSyncProblem is the size in bytes above which a problem of one document loses its further members, so that those of a whole Sync
// always fit into its reply.
const maxSyncProblem = 16 << 10

// tooLong is the problem of a part of a request with more than most bytes.
func tooLong(param string, most int) error {
	return api.NewProblem(api.InvalidParameter, fmt.Sprintf("%s: it has more than %d bytes", param, most)).On(param).Within(int64(most))
}

func packSums(list []leaf.Sum) []byte {
	if len(list) == 0 {
		return nil
	}
	b := make([]byte, 0, sumSize*len(list))
	for i := range list {
		b = append(b, list[i][:]...)
	}
	return b
}

// unpackSums reads n checksums, nil for none.
func unpackSums(part string, b []byte, n int) ([]leaf.Sum, error) {
	if len(b) != sumSize*n {
		return nil, malformed(part, "there are %d bytes for %d checksums of %d", len(b), n, sumSize)
	}
	if n == 0 {
		return nil, nil
	}
	list := make([]leaf.Sum, n)
	for i := range list {
		list[i] = leaf.Sum(b[sumSize*i:])
	}
	return list, nil
}

func packIndexes(r *leaf.IndexesReply) *pb.IndexesReply {
	m := &pb.IndexesReply{Meta: packMeta(&r.Meta)}
	for i := range r.Indexes {
		m.Indexes = append(m.Indexes, packIndexInfo(&r.Indexes[i]))
	}
	return m
}

func unpackIndexes(m *pb.IndexesReply) (*leaf.IndexesReply, error) {
	r := &leaf.IndexesReply{}
	var err error
	if r.Meta, err = unpackMeta(m.Meta); err != nil {
		return nil, err
	}
	for _, i := range m.Indexes {
		r.Indexes = append(r.Indexes, unpackIndexInfo(i))
	}
	return r, nil
}

func packPutIndexReply(r *leaf.PutIndexReply) *pb.PutIndexReply {
	return &pb.PutIndexReply{Meta: packMeta(&r.Meta), Made: r.Made, Info: packIndexInfo(&r.Info)}
}

func unpackPutIndexReply(m *pb.PutIndexReply) (*leaf.PutIndexReply, error) {
	r := &leaf.PutIndexReply{Made: m.Made, Info: unpackIndexInfo(m.Info)}
	var err error
	r.Meta, err = unpackMeta(m.Meta)
	return r, err
}

func packDropIndexReply(r *leaf.DropIndexReply) *pb.DropIndexReply {
	return &pb.DropIndexReply{Meta: packMeta(&r.Meta), Info: packIndexInfo(&r.Info)}
}

func unpackDropIndexReply(m *pb.DropIndexReply) (*leaf.DropIndexReply, error) {
	r := &leaf.DropIndexReply{Info: unpackIndexInfo(m.Info)}
	var err error
	r.Meta, err = unpackMeta(m.Meta)
	return r, err
}

func packSumsRequest(r *leaf.SumsRequest) (*pb.SumsRequest, error) {
	if err := atMost("ids", len(r.IDs), leaf.MaxIDs); err != nil {
		return nil, err
	}
	if r.Limit < 0 || r.Limit > leaf.MaxIDs {
		return nil, notInRange("limit", leaf.MaxIDs)
	}
	m := &pb.SumsRequest{Index: r.Index, Ids: packTexts(r.IDs), After: []byte(r.After), Limit: uint32(r.Limit), Fence: r.Fence, Mark: uint64(r.Mark)}
	if r.Range != nil {
		m.Range = &pb.HashRange{From: r.Range.From, To: r.Range.To}
	}
	var err error
	m.View, err = packView(&r.View)
	return m, err
}

func unpackSumsRequest(m *pb.SumsRequest) (*leaf.SumsRequest, error) {
	if m.Limit > leaf.MaxIDs {
		return nil, notInRange("limit", leaf.MaxIDs)
	}
	r := &leaf.SumsRequest{Index: m.Index, After: string(m.After), Limit: int(m.Limit), Fence: m.Fence, Mark: leaf.Mark(m.Mark)}
	if m.Range != nil {
		r.Range = &leaf.HashRange{From: m.Range.From, To: m.Range.To}
	}
	var err error
	if r.View, err = unpackView(m.View); err != nil {
		return nil, err
	}
	r.IDs, err = unpackIDs(m.Ids)
	return r, err
}

func packSumsReply(r *leaf.SumsReply) *pb.SumsReply {
	m := &pb.SumsReply{Meta: packMeta(&r.Meta), Ids: packTexts(r.IDs), Sums: packSums(r.Sums), Next: []byte(r.Next), Fence: r.Fence, Last: r.Last}
	if len(r.Synced) > 0 {
		m.Synced = make([]uint32, len(r.Synced))
		for i, at := range r.Synced {
			m.Synced[i] = uint32(at)
		}
	}
	return m
}

func unpackSumsReply(m *pb.SumsReply, req *leaf.SumsRequest) (*leaf.SumsReply, error) {
	n, most := len(req.IDs), 0
	if req.Range != nil {
		n, most = len(m.Ids.GetLengths()), req.Limit
	}
	if err := fits("ids", len(m.Ids.GetLengths()), most); err != nil {
		return nil, err
	}
	r := &leaf.SumsReply{Next: string(m.Next), Fence: m.Fence, Last: m.Last}
	var err error
	if r.Meta, err = unpackMeta(m.Meta); err != nil {
		return nil, err
	}
	if r.IDs, err = unpackTexts("ids", m.Ids); err != nil {
		return nil, err
	}
	if r.Sums, err = unpackSums("sums", m.Sums, n); err != nil {
		return nil, err
	}
	for i, at := range m.Synced {
		if int(at) >= n || i > 0 && at <= m.Synced[i-1] {
			return nil, malformed("synced", "place %d of %d, the %dth of them, is out of order or range", at, n, i+1)
		}
		r.Synced = append(r.Synced, int(at))
	}
	return r, nil
}

func packDigestRequest(r *leaf.DigestRequest) (*pb.DigestRequest, error) {
	if r.Depth < 0 || r.Depth > leaf.MaxDepth {
		return nil, notInRange("depth", leaf.MaxDepth)
	}
	m := &pb.DigestRequest{Index: r.Index, Depth: uint32(r.Depth)}
	var err error
	m.View, err = packView(&r.View)
	return m, err
}

func unpackDigestRequest(m *pb.DigestRequest) (*leaf.DigestRequest, error) {
	if m.Depth > leaf.MaxDepth {
		return nil, notInRange("depth", leaf.MaxDepth)
	}
	r := &leaf.DigestRequest{Index: m.Index, Depth: int(m.Depth)}
	var err error
	r.View, err = unpackView(m.View)
	return r, err
}

func packDigestReply(r *leaf.DigestReply) *pb.DigestReply {
	return &pb.DigestReply{Meta: packMeta(&r.Meta), Docs: r.Docs, Sums: packSums(r.Sums)}
}

// unpackDigestReply reads the reply to a request with such a depth.
func unpackDigestReply(m *pb.DigestReply, depth int) (*leaf.DigestReply, error) {
	n := 1 << depth
	if len(m.Docs) != n {
		return nil, malformed("docs", "there are %d for %d ranges", len(m.Docs), n)
	}
	r := &leaf.DigestReply{Docs: m.Docs}
	var err error
	if r.Meta, err = unpackMeta(m.Meta); err != nil {
		return nil, err
	}
	r.Sums, err = unpackSums("sums", m.Sums, n)
	return r, err
}

func packSync(r *leaf.SyncRequest) (*pb.SyncRequest, error) {
	n := len(r.Items)
	if err := atMost("items", n, leaf.MaxSync); err != nil {
		return nil, err
	}
	m := &pb.SyncRequest{Index: r.Index, Fence: r.Fence}
	var err error
	if m.View, err = packView(&r.View); err != nil || n == 0 {
		return m, err
	}
	puts, size := 0, 0
	for i := range r.Items {
		if b := r.Items[i].Body; b != nil {
			puts++
			size += len(b)
		}
	}
	m.Ids, m.Expect, m.Ops = &pb.Texts{Lengths: make([]uint32, 0, n)}, make([]byte, 0, sumSize*n), make([]byte, n)
	if puts > 0 {
		m.Bodies = &pb.Texts{Data: make([]byte, 0, size), Lengths: make([]uint32, 0, puts)}
	}
	for i := range r.Items {
		item := &r.Items[i]
		appendText(m.Ids, item.ID)
		m.Expect = append(m.Expect, item.Expect[:]...)
		if item.Body != nil {
			m.Ops[i] = byte(pb.SyncOp_SYNC_PUT)
			m.Bodies.Data = append(m.Bodies.Data, item.Body...)
			m.Bodies.Lengths = append(m.Bodies.Lengths, uint32(len(item.Body)))
		}
	}
	return m, nil
}

// unpackSync reads a request whose documents are parts of its message's bytes.
func unpackSync(m *pb.SyncRequest) (*leaf.SyncRequest, error) {
	n := len(m.Ids.GetLengths())
	if err := atMost("items", max(n, len(m.Ops), len(m.Bodies.GetLengths())), leaf.MaxSync); err != nil {
		return nil, err
	}
	puts := 0
	for _, op := range m.Ops {
		switch pb.SyncOp(op) {
		case pb.SyncOp_SYNC_DELETE:
		case pb.SyncOp_SYNC_PUT:
			puts++
		default:
			return nil, refuse(malformed("items", "operation %d is not known", op))
		}
	}
	if len(m.Ops) != n || len(m.Expect) != sumSize*n || len(m.Bodies.GetLengths()) != puts {
		return nil, refuse(malformed("items", "there are %d ids, %d operations, %d bytes of checksums, and %d documents for %d puts",
			n, len(m.Ops), len(m.Expect), len(m.Bodies.GetLengths()), puts))
	}
	if err := checkTexts("items", m.Bodies); err != nil {
		return nil, refuse(err)
	}
	ids, err := openTexts("items", m.Ids)
	if err != nil {
		return nil, refuse(err)
	}
	r := &leaf.SyncRequest{Index: m.Index, Fence: m.Fence}
	if r.View, err = unpackView(m.View); err != nil || n == 0 {
		return r, err
	}
	bodies := openBytes(m.Bodies)
	r.Items = make([]leaf.SyncItem, n)
	for i, op := range m.Ops {
		item := &r.Items[i]
		item.ID, item.Expect = ids.next(), leaf.Sum(m.Expect[sumSize*i:])
		if pb.SyncOp(op) == pb.SyncOp_SYNC_PUT {
			item.Body = bodies.next()
		}
	}
	return r, nil
}

func packSyncReply(r *leaf.SyncReply) *pb.SyncReply {
	m := &pb.SyncReply{Meta: packMeta(&r.Meta), Sums: packSums(r.Sums)}
	if len(r.Applied) > 0 {
		m.Applied = make([]byte, len(r.Applied))
	}
	for i, applied := range r.Applied {
		if applied {
			m.Applied[i] = 1
		}
	}
	for i, p := range r.Problems {
		if p != nil {
			m.Refused, m.Problems = append(m.Refused, uint32(i)), append(m.Problems, problemMessage(p, maxSyncProblem))
		}
	}
	return m
}

// unpackSyncReply reads the reply to a request with n items.
func unpackSyncReply(m *pb.SyncReply, n int) (*leaf.SyncReply, error) {
	if len(m.Applied) != n || len(m.Problems) != len(m.Refused) || len(m.Refused) > n {
		return nil, malformed("applied", "there are %d for %d items, and %d problems of %d", len(m.Applied), n, len(m.Problems), len(m.Refused))
	}
	r := &leaf.SyncReply{}
	var err error
	if r.Meta, err = unpackMeta(m.Meta); err != nil {
		return nil, err
	}
	if r.Sums, err = unpackSums("sums", m.Sums, n); err != nil || n == 0 {
		return r, err
	}
	r.Applied = make([]bool, n)
	for i, applied := range m.Applied {
		if applied > 1 {
			return nil, malformed("applied", "%d is neither 0 nor 1", applied)
		}
		r.Applied[i] = applied == 1
	}
	if len(m.Refused) == 0 {
		return r, nil
	}
	r.Problems = make([]*api.Problem, n)
	for i, place := range m.Refused {
		if place >= uint32(n) || i > 0 && place <= m.Refused[i-1] {
			return nil, malformed("refused", "place %d does not follow", place)
		}
		r.Problems[place] = problemOf(m.Problems[i])
	}
	return r, nil
}

func packPlace(r *leaf.PlaceRequest) (*pb.PlaceRequest, error) {
	if len(r.Map) > leaf.MaxMap {
		return nil, tooLong("map", leaf.MaxMap)
	}
	return &pb.PlaceRequest{Epoch: r.Epoch, Map: r.Map}, nil
}

func unpackPlace(m *pb.PlaceRequest) (*leaf.PlaceRequest, error) {
	if len(m.Map) > leaf.MaxMap {
		return nil, tooLong("map", leaf.MaxMap)
	}
	return &leaf.PlaceRequest{Epoch: m.Epoch, Map: m.Map}, nil
}

func packPlaceReply(r *leaf.PlaceReply) *pb.PlaceReply {
	return &pb.PlaceReply{Node: r.Node, Epoch: r.Epoch, Map: r.Map}
}

func unpackPlaceReply(m *pb.PlaceReply) (*leaf.PlaceReply, error) {
	if len(m.Map) > leaf.MaxMap {
		return nil, malformed("map", "it has %d bytes, and at most %d were given", len(m.Map), leaf.MaxMap)
	}
	return &leaf.PlaceReply{Node: m.Node, Epoch: m.Epoch, Map: m.Map}, nil
}
