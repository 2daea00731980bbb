package framed

import (
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
)

// The operations that write documents.
const (
	opIndex  = "index"
	opBulk   = "bulk"
	opDelete = "delete"
)

const (
	keyMember      = "key"
	existingMember = "existing"
	repeatedMember = "repeated"
)

var (
	indexMembers  = viewed("body", existingMember, "mark")
	bulkMembers   = []string{"body", epochMember, keyMember, existingMember}
	deleteMembers = viewed("id")
)

// appendBody writes the body of a document.
func appendBody(w *writer, body []byte) {
	w.name("body")
	b, err := jsontext.AppendQuote(w.b, body)
	if err != nil {
		w.fail(api.NewProblem(api.InvalidUTF8, "the document is not valid UTF-8"))
	}
	w.b = b
}

// appendIndexRequest writes a write of one document.
func appendIndexRequest(w *writer, r *leaf.IndexRequest) {
	w.view(&r.View)
	w.yes(existingMember, r.Existing)
	w.long("mark", uint64(r.Mark))
	appendBody(w, r.Body)
}

// readIndexRequest reads it.
func readIndexRequest(m *message) *leaf.IndexRequest {
	m.need("body")
	r := &leaf.IndexRequest{Index: m.index}
	m.view(&r.View)
	r.Existing = m.yes(existingMember)
	r.Mark = leaf.Mark(m.long("mark"))
	r.Body = m.bytes("body")
	return r
}

// appendBulkRequest writes a bulk load, or a part of one.
func appendBulkRequest(w *writer, r *leaf.BulkRequest, body []byte) {
	w.epoch(r.Epoch)
	if r.Key != "" {
		w.text(keyMember, r.Key)
	}
	w.yes(existingMember, r.Existing)
	appendBody(w, body)
}

// readBulkRequest reads it but for its body, which is read where it stands.
func readBulkRequest(m *message) (r *leaf.BulkRequest, body io.Reader) {
	raw := m.need("body")
	if raw != nil && raw.Kind() != '"' {
		m.fail("body", "it is a string")
	}
	r = &leaf.BulkRequest{Index: m.index}
	r.Epoch = m.epoch()
	r.Existing = m.yes(existingMember)
	if key := m.get(keyMember); len(key) > longestKey {
		m.failed(longKey(len(key) - 2))
	} else if r.Key = m.text(keyMember); len(r.Key) > leaf.MaxBulkKey {
		m.failed(longKey(len(r.Key)))
	}
	if m.prob != nil {
		return r, nil
	}
	return r, &unquoter{raw: raw[1 : len(raw)-1]}
}

// longestKey is how long a key may be in a frame, every byte of it escaped.
const longestKey = 6*leaf.MaxBulkKey + 2

func longKey(have int) *api.Problem {
	return invalid(keyMember, fmt.Sprintf("it has %d bytes, %d are allowed", have, leaf.MaxBulkKey)).Within(leaf.MaxBulkKey)
}

// readDeleteOne reads a deletion of one document.
func readDeleteOne(m *message) *leaf.DeleteRequest {
	m.need("id")
	r := &leaf.DeleteRequest{Index: m.index, IDs: []string{m.text("id")}}
	m.view(&r.View)
	return r
}

// appendDeleteOne appends the reply to it, which is that of HTTP.
func appendDeleteOne(b []byte, r *leaf.DeleteReply) []byte {
	out := api.DeleteReply{OK: true, Deleted: int(r.Deleted), Members: api.Members{OK: 1, Total: 1}}
	b = out.AppendJSON(b)
	return append(appendMeta(b[:len(b)-1], &r.Meta), '}')
}

// appendIndexReply appends the reply to a write of one document, which is that of HTTP.
func appendIndexReply(b []byte, r *leaf.IndexReply) []byte {
	b = r.WriteReply.AppendJSON(b)
	b = b[:len(b)-1]
	if r.Fresh {
		b = append(b, `,"fresh":true`...)
	}
	if r.Behind != 0 {
		b = appendLong(append(b, `,"behind":`...), uint64(r.Behind))
	}
	return append(appendMeta(b, &r.Meta), '}')
}

// maxAddresses bounds the addresses in a reply.
const maxAddresses = 10_000

// membersMember reads a member of the accounting of a write.
func (s *scanner) membersMember(name []byte, m *api.Members) bool {
	switch string(name) {
	case "members_ok":
		m.OK = s.count()
	case "members":
		m.Total = s.count()
	case "failed_addresses":
		m.FailedAddresses = s.strings(maxAddresses)
	default:
		return false
	}
	return true
}

// inferred reads the fields that documents added to an index.
func (s *scanner) inferred() []api.InferredField {
	var list []api.InferredField
	s.expect('[')
	for first := true; s.next(&first, ']'); {
		var f api.InferredField
		s.object(func(name []byte) {
			switch string(name) {
			case "field":
				f.Name = s.str()
			case "type":
				f.Type = s.str()
			case "from":
				f.From = s.str()
			default:
				s.value()
			}
		})
		list = append(list, f)
	}
	return list
}

// readIndexReply reads the reply to a write of one document.
func readIndexReply(b []byte) (*leaf.IndexReply, *api.Problem, error) {
	out := &leaf.IndexReply{}
	s := newScanner(b, false)
	ok, prob, err := readReply(s, func(name []byte) bool {
		switch string(name) {
		case "id":
			out.ID = s.str()
		case "inferred":
			out.Inferred = s.inferred()
		case "fresh":
			out.Fresh = s.bool()
		case "behind":
			out.Behind = leaf.Mark(s.long(name))
		default:
			return s.membersMember(name, &out.Members) || s.meta(name, &out.Meta)
		}
		return true
	})
	out.OK = ok
	return out, prob, err
}

// appendBulkReply appends the reply to a bulk load, which is that of HTTP: one that nothing was applied of is an error there.
func appendBulkReply(b []byte, r *leaf.BulkReply) []byte {
	if !r.OK && r.Indexed == 0 {
		p := &api.Problem{Code: api.NothingApplied, Detail: fmt.Sprintf("none of the %d documents was applied; see errors", r.Failed)}
		p.Extra = appendMeta(api.AppendRepeated(r.AppendMembers(nil), r.Repeated), &r.Meta)
		return appendProblem(b, p)
	}
	b = r.BulkReply.AppendJSON(b, r.Repeated)
	return append(appendMeta(b[:len(b)-1], &r.Meta), '}')
}

// readBulkReply reads it. most is how many refused documents are taken from the list.
func readBulkReply(b []byte, most int) (*leaf.BulkReply, *api.Problem, error) {
	out := &leaf.BulkReply{}
	s := newScanner(b, false)
	counted := false
	ok, prob, err := readReply(s, func(name []byte) bool {
		switch string(name) {
		case "indexed":
			out.Indexed, counted = s.u64(), true
		case "failed":
			out.Failed = s.u64()
		case "duplicates":
			out.Duplicates = s.u64()
		case "duplicates_relation":
			out.DuplicatesAtLeast = s.str() == "gte"
		case "shards":
			out.Shards = s.count()
		case "took_ms":
			out.TookMicros = s.micros()
		case "errors":
			s.bulkErrors(out, most)
		case "errors_omitted":
			out.ErrorsOmitted += s.u64()
		case "inferred":
			out.Inferred = s.inferred()
		case repeatedMember:
			out.Repeated = s.bool()
		default:
			return s.membersMember(name, &out.Members) || s.meta(name, &out.Meta)
		}
		return true
	})
	out.OK = ok
	if prob != nil && prob.Code == api.NothingApplied && counted {
		return out, nil, nil // every document is listed with what is wrong with it
	}
	if prob == nil && err == nil && !counted {
		err = fmt.Errorf("%w: it does not say how many documents are in", errMalformed)
	}
	return out, prob, err
}

// bulkErrors reads the list of refused documents.
func (s *scanner) bulkErrors(out *leaf.BulkReply, most int) {
	s.expect('[')
	for first := true; s.next(&first, ']'); {
		var f api.DocFailure
		s.object(func(name []byte) {
			switch string(name) {
			case "line":
				f.Line = s.count()
			case "id":
				f.ID = s.str()
			case "code":
				f.Code = s.str()
			case "reason":
				f.Reason = s.str()
			default:
				s.value()
			}
		})
		if len(out.Errors) == most {
			out.ErrorsOmitted++
			continue
		}
		out.Errors = append(out.Errors, f)
	}
}
