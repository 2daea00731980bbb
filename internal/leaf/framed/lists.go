package framed

import (
	"fmt"
	"strconv"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
)

// The operations that take or give ids and documents.
const (
	opIDs        = "ids"
	opExport     = "export"
	opHas        = "has"
	opDeleteMany = "delete_many"
)

var (
	idsMembers    = viewed("after", "limit")
	exportMembers = viewed("ids", "rest")
	hasMembers    = viewed("ids")
)

// appendIDsRequest writes a request for ids.
func appendIDsRequest(w *writer, r *leaf.IDsRequest) {
	w.view(&r.View)
	if r.After != "" {
		w.text("after", r.After)
	}
	if r.Limit != 0 {
		w.whole("limit", r.Limit)
	}
}

// readIDsRequest reads it.
func readIDsRequest(m *message) *leaf.IDsRequest {
	r := &leaf.IDsRequest{Index: m.index, After: m.text("after"), Limit: m.whole("limit", 0)}
	m.view(&r.View)
	return r
}

// idsPage is the reply to a request for ids.
type idsPage struct {
	leaf.IDsReply
	ids []string
}

// beginIDsReply and endIDsReply append the reply to a request for ids around the ids, which stand with commas between them.
func beginIDsReply(b []byte) []byte { return append(b, `{"ok":true,"ids":[`...) }

func endIDsReply(b []byte, r *leaf.IDsReply) []byte {
	b = append(b, `],"next":`...)
	if r.Next == "" {
		b = append(b, "null"...)
	} else {
		b = api.AppendString(b, r.Next)
	}
	return append(appendMeta(b, &r.Meta), '}')
}

// readIDsReply reads it.
func readIDsReply(b []byte, limit int) (*idsPage, *api.Problem, error) {
	out := &idsPage{}
	s := newScanner(b, true)
	prob, err := read(s, func(name []byte) bool {
		switch string(name) {
		case "ids":
			out.ids = s.ids(limit)
		case "next":
			if !s.null() {
				out.Next = s.str()
			}
		default:
			return s.meta(name, &out.Meta)
		}
		return true
	}, "ids", "next")
	return out, prob, err
}

// ids reads an array of at most most ids with room for as many as there can be; nil if there are none.
func (s *scanner) ids(most int) []string {
	var list []string
	s.expect('[')
	for first := true; s.next(&first, ']'); {
		if len(list) == most {
			s.fail("there are more ids than were asked for")
			return nil
		}
		if list == nil {
			list = make([]string, 0, min(most, (len(s.b)-s.i)/8+1))
		}
		list = append(list, s.str())
	}
	return list
}

// exportCall is a request for documents as it came.
type exportCall struct {
	leaf.ExportRequest
	rest bool // answer what fits, and list what does not
}

// appendExportRequest writes a request for documents that takes those that fit into a frame.
func appendExportRequest(w *writer, r *leaf.ExportRequest) {
	w.view(&r.View)
	w.texts("ids", r.IDs, leaf.MaxIDs)
	w.yes("rest", true)
}

// readExportRequest reads it.
func readExportRequest(m *message) *exportCall {
	c := &exportCall{leaf.ExportRequest{Index: m.index, IDs: m.ids(leaf.MaxIDs)}, m.yes("rest")}
	m.view(&c.View)
	return c
}

// exportPage is the reply to a request for documents.
type exportPage struct {
	leaf.ExportReply
	docs []leaf.ExportedDoc
	rest []string // ids that there was no room for
}

// appendExportReply appends the reply to a request for documents.
func appendExportReply(b []byte, p *exportPage) []byte {
	b = append(b, `{"ok":true,"docs":[`...)
	for i := range p.docs {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, p.docs[i].Source...)
	}
	b = append(b, `],"ids":[`...)
	for i := range p.docs {
		if i > 0 {
			b = append(b, ',')
		}
		b = api.AppendString(b, p.docs[i].ID)
	}
	b = append(b, `],"missing":`...)
	b = api.AppendStrings(b, p.Missing)
	if len(p.rest) > 0 {
		b = append(b, `,"rest":`...)
		b = api.AppendStrings(b, p.rest)
	}
	return append(appendMeta(b, &p.Meta), '}')
}

// readExportReply reads the reply to a request for so many ids.
func readExportReply(b []byte, asked int) (*exportPage, *api.Problem, error) {
	out := &exportPage{}
	var ids []string
	s := newScanner(b, false)
	prob, err := read(s, func(name []byte) bool {
		switch string(name) {
		case "docs":
			s.expect('[')
			for first := true; s.next(&first, ']'); {
				if len(out.docs) == asked {
					s.fail("there are more documents than were asked for")
					break
				}
				if s.peek() != '{' {
					s.fail("a document is not an object")
				}
				out.docs = append(out.docs, leaf.ExportedDoc{Source: append([]byte(nil), s.value()...)})
			}
		case "ids":
			ids = s.ids(asked)
		case "missing":
			out.Missing = s.ids(asked)
		case "rest":
			out.rest = s.ids(asked)
		default:
			return s.meta(name, &out.Meta)
		}
		return true
	}, "docs", "ids", "missing")
	if prob != nil || err != nil {
		return nil, prob, err
	}
	if len(ids) != len(out.docs) {
		return nil, nil, fmt.Errorf("%w: it has %d documents and %d ids", errMalformed, len(out.docs), len(ids))
	}
	for i := range ids {
		out.docs[i].ID = ids[i]
	}
	return out, nil, nil
}

// appendHasRequest writes the question whether ids are there.
func appendHasRequest(w *writer, r *leaf.HasRequest) {
	w.view(&r.View)
	w.texts("ids", r.IDs, leaf.MaxIDs)
}

// readHasRequest reads it.
func readHasRequest(m *message) *leaf.HasRequest {
	r := &leaf.HasRequest{Index: m.index, IDs: m.ids(leaf.MaxIDs)}
	m.view(&r.View)
	return r
}

// appendHasReply appends the reply to it.
func appendHasReply(b []byte, r *leaf.HasReply) []byte {
	b = append(b, `{"ok":true,"missing":`...)
	b = api.AppendStrings(b, r.Missing)
	return append(appendMeta(b, &r.Meta), '}')
}

// readHasReply reads it.
func readHasReply(b []byte, asked int) (*leaf.HasReply, *api.Problem, error) {
	out := &leaf.HasReply{}
	s := newScanner(b, true)
	prob, err := read(s, func(name []byte) bool {
		if string(name) == "missing" {
			out.Missing = s.ids(asked)
			return true
		}
		return s.meta(name, &out.Meta)
	}, "missing")
	return out, prob, err
}

// appendDeleteRequest writes a deletion of documents.
func appendDeleteRequest(w *writer, r *leaf.DeleteRequest) {
	w.view(&r.View)
	w.texts("ids", r.IDs, leaf.MaxIDs)
}

// readDeleteRequest reads it.
func readDeleteRequest(m *message) *leaf.DeleteRequest {
	r := &leaf.DeleteRequest{Index: m.index, IDs: m.ids(leaf.MaxIDs)}
	m.view(&r.View)
	return r
}

// appendDeleteReply appends the reply to it.
func appendDeleteReply(b []byte, r *leaf.DeleteReply) []byte {
	b = append(b, `{"ok":true,"deleted":`...)
	b = strconv.AppendUint(b, r.Deleted, 10)
	return append(appendMeta(b, &r.Meta), '}')
}

// readDeleteReply reads it.
func readDeleteReply(b []byte) (*leaf.DeleteReply, *api.Problem, error) {
	out := &leaf.DeleteReply{}
	s := newScanner(b, true)
	prob, err := read(s, func(name []byte) bool {
		if string(name) == "deleted" {
			out.Deleted = s.u64()
			return true
		}
		return s.meta(name, &out.Meta)
	}, "deleted")
	return out, prob, err
}
