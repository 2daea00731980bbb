package framed

import (
	"strconv"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
)

// The operations that tell of a node and its indexes.
const (
	opPing = "ping"
	opDocs = "docs"
	opInfo = "info"
)

var docsMembers = viewed()

// appendDocsRequest writes a request for the number of documents.
func appendDocsRequest(w *writer, r *leaf.DocsRequest) { w.view(&r.View) }

// readDocsRequest reads it.
func readDocsRequest(m *message) *leaf.DocsRequest {
	r := &leaf.DocsRequest{Index: m.index}
	m.view(&r.View)
	return r
}

// appendPingReply appends the reply to a ping.
func appendPingReply(b []byte, r *leaf.PingReply) []byte {
	b = append(b, `{"ok":true`...)
	if r.Node != "" {
		b = append(b, `,"node":`...)
		b = api.AppendString(b, r.Node)
	}
	return append(b, '}')
}

// readPingReply reads it.
func readPingReply(b []byte) (*leaf.PingReply, *api.Problem, error) {
	out := &leaf.PingReply{}
	s := newScanner(b, true)
	prob, err := read(s, func(name []byte) bool {
		if string(name) != "node" {
			return false
		}
		out.Node = s.str()
		return true
	})
	return out, prob, err
}

// appendDocsReply appends the number of documents.
func appendDocsReply(b []byte, r *leaf.DocsReply) []byte {
	b = append(b, `{"ok":true,"docs":`...)
	b = strconv.AppendUint(b, r.Docs, 10)
	return append(appendMeta(b, &r.Meta), '}')
}

// readDocsReply reads it.
func readDocsReply(b []byte) (*leaf.DocsReply, *api.Problem, error) {
	out := &leaf.DocsReply{}
	s := newScanner(b, true)
	prob, err := read(s, func(name []byte) bool {
		if string(name) == "docs" {
			out.Docs = s.u64()
			return true
		}
		return s.meta(name, &out.Meta)
	}, "docs")
	return out, prob, err
}

// appendInfoReply appends the description of an index.
func appendInfoReply(b []byte, r *leaf.InfoReply) []byte {
	b = append(b, `{"ok":true,"node":`...)
	b = api.AppendString(b, r.Node)
	b = append(b, `,"version":`...)
	b = api.AppendString(b, r.Version)
	b = append(b, `,"index":`...)
	b = r.Index.AppendJSON(b)
	return append(appendMeta(b, &r.Meta), '}')
}

// readInfoReply reads it.
func readInfoReply(b []byte) (*leaf.InfoReply, *api.Problem, error) {
	out := &leaf.InfoReply{}
	s := newScanner(b, true)
	prob, err := read(s, func(name []byte) bool {
		switch string(name) {
		case "node":
			out.Node = s.str()
		case "version":
			out.Version = s.str()
		case "index":
			s.indexInfo(&out.Index)
		default:
			return s.meta(name, &out.Meta)
		}
		return true
	}, "node", "index")
	return out, prob, err
}

func (s *scanner) indexInfo(i *api.IndexInfo) {
	s.object(func(name []byte) {
		switch string(name) {
		case "name":
			i.Name = s.str()
		case "docs":
			i.Docs = s.u64()
		case "segments":
			i.Segments = s.count()
		case "bytes":
			i.Bytes = int64(s.count())
		case "schema":
			i.Schema = s.str()
		case "dynamic":
			i.Dynamic = s.bool()
		case "state":
			i.State = s.str()
		case "reason":
			i.Reason = s.str()
		default:
			s.value()
		}
	})
}
