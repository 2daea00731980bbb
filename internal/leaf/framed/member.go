package framed

import (
	"encoding/base64"
	"fmt"
	"strconv"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
)

// The operations that keep members of a cluster alike: their indexes, and the shard map that they are part of.
const (
	opIndexes   = "indexes"
	opPutIndex  = "put_index"
	opDropIndex = "drop_index"
	opPlace     = "place"
	opPlaced    = "placed"
)

const (
	schemaMember = "schema"
	mapMember    = "map"
	indexesMost  = 100_000 // indexes in a reply
)

var (
	putIndexMembers  = []string{schemaMember, epochMember}
	dropIndexMembers = []string{epochMember}
	placeMembers     = []string{epochMember, mapMember}
)

// appendIndexesReply appends the list of indexes.
func appendIndexesReply(b []byte, r *leaf.IndexesReply) []byte {
	b = append(b, `{"ok":true,"indexes":[`...)
	for i := range r.Indexes {
		if i > 0 {
			b = append(b, ',')
		}
		b = r.Indexes[i].AppendJSON(b)
	}
	return append(appendMeta(append(b, ']'), &r.Meta), '}')
}

// indexesBytes is about what the list takes.
func indexesBytes(list []api.IndexInfo) int {
	n := hitHead * len(list)
	for i := range list {
		n += len(list[i].Schema) + len(list[i].Reason)
	}
	return n
}

// readIndexesReply reads it.
func readIndexesReply(b []byte) (*leaf.IndexesReply, *api.Problem, error) {
	out := &leaf.IndexesReply{}
	s := newScanner(b, true)
	prob, err := read(s, func(name []byte) bool {
		if string(name) != "indexes" {
			return s.meta(name, &out.Meta)
		}
		s.expect('[')
		for first := true; s.next(&first, ']'); {
			if len(out.Indexes) == indexesMost {
				s.fail("there are too many indexes")
				break
			}
			var info api.IndexInfo
			s.indexInfo(&info)
			out.Indexes = append(out.Indexes, info)
		}
		return true
	}, "indexes")
	return out, prob, err
}

// appendPutIndexRequest writes the declaration of an index.
func appendPutIndexRequest(w *writer, r *leaf.PutIndexRequest) {
	w.epoch(r.Epoch)
	if r.Schema != "" {
		w.text(schemaMember, r.Schema)
	}
}

// readPutIndexRequest reads it.
func readPutIndexRequest(m *message) *leaf.PutIndexRequest {
	return &leaf.PutIndexRequest{Index: m.index, Epoch: m.epoch(), Schema: m.text(schemaMember)}
}

// appendPutIndexReply appends the reply to it.
func appendPutIndexReply(b []byte, r *leaf.PutIndexReply) []byte {
	b = append(b, `{"ok":true,"made":`...)
	b = strconv.AppendBool(b, r.Made)
	b = append(b, `,"index":`...)
	b = r.Info.AppendJSON(b)
	return append(appendMeta(b, &r.Meta), '}')
}

// readPutIndexReply reads it.
func readPutIndexReply(b []byte) (*leaf.PutIndexReply, *api.Problem, error) {
	out := &leaf.PutIndexReply{}
	s := newScanner(b, true)
	prob, err := read(s, func(name []byte) bool {
		switch string(name) {
		case "made":
			out.Made = s.bool()
		case "index":
			s.indexInfo(&out.Info)
		default:
			return s.meta(name, &out.Meta)
		}
		return true
	}, "index")
	return out, prob, err
}

// appendDropIndexRequest writes the deletion of an index.
func appendDropIndexRequest(w *writer, r *leaf.DropIndexRequest) { w.epoch(r.Epoch) }

// readDropIndexRequest reads it.
func readDropIndexRequest(m *message) *leaf.DropIndexRequest {
	return &leaf.DropIndexRequest{Index: m.index, Epoch: m.epoch()}
}

// appendDropIndexReply appends the reply to it.
func appendDropIndexReply(b []byte, r *leaf.DropIndexReply) []byte {
	b = append(b, `{"ok":true,"index":`...)
	b = r.Info.AppendJSON(b)
	return append(appendMeta(b, &r.Meta), '}')
}

// readDropIndexReply reads it.
func readDropIndexReply(b []byte) (*leaf.DropIndexReply, *api.Problem, error) {
	out := &leaf.DropIndexReply{}
	s := newScanner(b, true)
	prob, err := read(s, func(name []byte) bool {
		if string(name) == "index" {
			s.indexInfo(&out.Info)
			return true
		}
		return s.meta(name, &out.Meta)
	}, "index")
	return out, prob, err
}

// A shard map is bytes that nobody on the way looks into, and travels in base64.

// appendPlaceRequest writes a shard map for a member to keep.
func appendPlaceRequest(w *writer, r *leaf.PlaceRequest) {
	if len(r.Map) > leaf.MaxMap {
		w.fail(longMap(len(r.Map)))
		return
	}
	w.epoch(r.Epoch)
	w.name(mapMember)
	w.b = appendBase64(w.b, r.Map)
}

func appendBase64(b, data []byte) []byte {
	b = append(b, '"')
	b = base64.StdEncoding.AppendEncode(b, data)
	return append(b, '"')
}

func longMap(have int) *api.Problem {
	return invalid(mapMember, fmt.Sprintf("it has %d bytes, %d are allowed", have, leaf.MaxMap)).Within(leaf.MaxMap)
}

// readPlaceRequest reads it.
func readPlaceRequest(m *message) *leaf.PlaceRequest {
	r := &leaf.PlaceRequest{Epoch: m.epoch()}
	m.need(mapMember)
	text := m.bytes(mapMember)
	if have := base64.StdEncoding.DecodedLen(len(text)); have > leaf.MaxMap+2 { // at most 2 of them are padding
		m.failed(longMap(have))
		return r
	}
	data, err := base64.StdEncoding.Strict().AppendDecode(nil, text)
	switch {
	case err != nil:
		m.fail(mapMember, "it is a shard map in base64")
	case len(data) > leaf.MaxMap:
		m.failed(longMap(len(data)))
	}
	r.Map = data
	return r
}

// appendPlaceReply appends the reply that says which map a member has.
func appendPlaceReply(b []byte, r *leaf.PlaceReply) []byte {
	b = append(b, `{"ok":true,"node":`...)
	b = api.AppendString(b, r.Node)
	b = append(b, `,"epoch":`...)
	b = appendEpoch(b, r.Epoch)
	if len(r.Map) > 0 {
		b = append(b, `,"map":`...)
		b = appendBase64(b, r.Map)
	}
	return append(b, '}')
}

// readPlaceReply reads it.
func readPlaceReply(b []byte) (*leaf.PlaceReply, *api.Problem, error) {
	out := &leaf.PlaceReply{}
	s := newScanner(b, false)
	prob, err := read(s, func(name []byte) bool {
		switch string(name) {
		case "node":
			out.Node = s.str()
		case "epoch":
			var ok bool
			if out.Epoch, ok = parseEpoch(s.value()); !ok {
				s.fail("expected an epoch")
			}
		case mapMember:
			raw, _ := s.token()
			if s.err != nil {
				return true
			}
			var err error
			if out.Map, err = base64.StdEncoding.Strict().AppendDecode(nil, raw[1:len(raw)-1]); err != nil || len(out.Map) > leaf.MaxMap {
				s.fail("a shard map is base64, and not longer than it may be")
			}
		default:
			return false
		}
		return true
	})
	return out, prob, err
}
