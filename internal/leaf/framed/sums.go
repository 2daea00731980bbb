package framed

import (
	"encoding/hex"
	"fmt"
	"math"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
)

// The operations that hold copies of documents against each other, and make them the same.
const (
	opSums   = "sums"
	opDigest = "digest"
	opSync   = "sync"
)

var (
	sumsMembers   = viewed("ids", "range", "after", "limit", "fence", "mark")
	rangeMembers  = []string{"from", "to"}
	digestMembers = viewed("depth")
	syncMembers   = []string{"items", epochMember, "fence"}
)

// A checksum is 32 hexadecimal digits in a string, or null where there is no document.

// sumBytes is the length of a checksum in a list.
const sumBytes = 2*len(leaf.Sum{}) + 3

func appendSum(b []byte, sum leaf.Sum) []byte {
	if sum == (leaf.Sum{}) {
		return append(b, "null"...)
	}
	b = append(b, '"')
	b = hex.AppendEncode(b, sum[:])
	return append(b, '"')
}

func appendSums(b []byte, list []leaf.Sum) []byte {
	b = append(b, '[')
	for i := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendSum(b, list[i])
	}
	return append(b, ']')
}

// sum reads a checksum.
func (s *scanner) sum() (sum leaf.Sum) {
	if s.null() {
		return sum
	}
	raw, _ := s.token()
	if s.err != nil {
		return sum
	}
	if len(raw) == 2*len(sum)+2 {
		if _, err := hex.Decode(sum[:], raw[1:len(raw)-1]); err == nil {
			return sum
		}
	}
	s.fail("a checksum is 32 hexadecimal digits or null")
	return leaf.Sum{}
}

// sums reads an array of at most most checksums.
func (s *scanner) sums(most int) []leaf.Sum {
	const nullBytes = 5 // null,
	var list []leaf.Sum
	s.expect('[')
	for first := true; s.next(&first, ']'); {
		if len(list) == most {
			s.fail("there are more checksums than were asked for")
			return nil
		}
		if list == nil {
			list = make([]leaf.Sum, 0, min(most, (len(s.b)-s.i)/nullBytes+1))
		}
		list = append(list, s.sum())
	}
	return list
}

// places reads places in a list of so many, ascending.
func (s *scanner) places(most int) []int {
	s.expect('[')
	var list []int
	for first := true; s.next(&first, ']'); {
		at := s.count()
		if at >= most || len(list) > 0 && at <= list[len(list)-1] {
			s.fail(fmt.Sprintf("a place is a whole number below %d, above the one before it", most))
			return nil
		}
		list = append(list, at)
	}
	return list
}

// appendSumsRequest writes a request for checksums.
func appendSumsRequest(w *writer, r *leaf.SumsRequest) {
	w.view(&r.View)
	if r.Range == nil || len(r.IDs) > 0 {
		w.texts("ids", r.IDs, leaf.MaxIDs)
	}
	if r.Range == nil {
		if r.Fence {
			w.name("fence")
			w.b = append(w.b, "true"...)
		}
		w.long("mark", uint64(r.Mark))
		return
	}
	w.name("range")
	w.b = append(w.b, `{"from":`...)
	w.b = strconv.AppendUint(w.b, uint64(r.Range.From), 10)
	w.b = append(w.b, `,"to":`...)
	w.b = strconv.AppendUint(w.b, uint64(r.Range.To), 10)
	w.b = append(w.b, '}')
	if r.After != "" {
		w.text("after", r.After)
	}
	w.whole("limit", r.Limit)
}

// readSumsRequest reads it.
func readSumsRequest(m *message) *leaf.SumsRequest {
	r := &leaf.SumsRequest{Index: m.index}
	m.view(&r.View)
	if !m.has("range") {
		r.IDs = m.ids(leaf.MaxIDs)
		r.Fence, r.Mark = m.yes("fence"), leaf.Mark(m.long("mark"))
		for _, name := range []string{"after", "limit"} {
			if m.has(name) {
				m.fail(name, "it goes with range")
			}
		}
		return r
	}
	for _, name := range []string{"fence", "mark"} {
		if m.has(name) {
			m.fail(name, "it goes with ids")
		}
	}
	r.IDs = m.texts("ids", "ids", leaf.MaxIDs) // that there are both is for the leaf to refuse
	r.After = m.text("after")
	r.Limit = m.whole("limit", leaf.MaxIDs)
	if o := m.object("range", rangeMembers); o != nil {
		r.Range = &leaf.HashRange{From: o.hash("from"), To: o.hash("to")}
		m.failed(o.prob)
	}
	return r
}

// hash reads a hash, which has to be there.
func (m *message) hash(name string) uint32 {
	n, ok := parseU64(m.need(name))
	if !ok || n > math.MaxUint32 {
		m.fail(name, fmt.Sprintf("it is a whole number from 0 to %d", uint32(math.MaxUint32)))
		return 0
	}
	return uint32(n)
}

// appendSumsReply appends the reply to a request for checksums. ranged says that it was one for those of a range.
func appendSumsReply(b []byte, r *leaf.SumsReply, ranged bool) []byte {
	b = append(b, `{"ok":true`...)
	if ranged {
		b = append(b, `,"ids":`...)
		b = api.AppendStrings(b, r.IDs)
	}
	b = append(b, `,"sums":`...)
	b = appendSums(b, r.Sums)
	if ranged {
		b = append(b, `,"next":`...)
		if r.Next == "" {
			b = append(b, "null"...)
		} else {
			b = api.AppendString(b, r.Next)
		}
	}
	if r.Fence != 0 {
		b = appendLong(append(b, `,"fence":`...), r.Fence)
		if len(r.Synced) > 0 {
			b = append(b, `,"synced":[`...)
			for i, at := range r.Synced {
				if i > 0 {
					b = append(b, ',')
				}
				b = strconv.AppendInt(b, int64(at), 10)
			}
			b = append(b, ']')
		}
		if r.Last {
			b = append(b, `,"last":true`...)
		}
	}
	return append(appendMeta(b, &r.Meta), '}')
}

// A fence or a mark is a whole number in a string, since it has 64 bits.
func appendLong(b []byte, n uint64) []byte {
	b = append(b, '"')
	b = strconv.AppendUint(b, n, 10)
	return append(b, '"')
}

// long writes one, unless it is 0.
func (w *writer) long(name string, n uint64) {
	if n != 0 {
		w.name(name)
		w.b = appendLong(w.b, n)
	}
}

// long reads one of a message; absent: 0.
func (m *message) long(name string) uint64 {
	if !m.has(name) {
		return 0
	}
	n, err := strconv.ParseUint(m.text(name), 10, 64)
	if err != nil || n == 0 {
		m.fail(name, "it is a whole number from 1 in a string")
	}
	return n
}

// long reads one of a reply.
func (s *scanner) long(name []byte) uint64 {
	n, err := strconv.ParseUint(s.str(), 10, 64)
	if err != nil {
		s.fail(string(name) + " is a whole number in a string")
	}
	return n
}

// readSumsReply reads the reply to a request for those of so many ids, or, if ranged, of at most so many documents.
func readSumsReply(b []byte, most int, ranged bool) (*leaf.SumsReply, *api.Problem, error) {
	out := &leaf.SumsReply{}
	s := newScanner(b, ranged)
	prob, err := read(s, func(name []byte) bool {
		switch string(name) {
		case "ids":
			if !ranged {
				return false
			}
			out.IDs = s.ids(most)
		case "sums":
			out.Sums = s.sums(most)
		case "next":
			if !ranged {
				return false
			}
			if !s.null() {
				out.Next = s.str()
			}
		case "fence":
			out.Fence = s.long(name)
		case "last":
			if ranged {
				return false
			}
			out.Last = s.bool()
		case "synced":
			if ranged {
				return false
			}
			out.Synced = s.places(most)
		default:
			return s.meta(name, &out.Meta)
		}
		return true
	})
	if want := len(out.IDs); prob == nil && err == nil {
		if !ranged {
			want = most
		}
		if len(out.Sums) != want {
			err = fmt.Errorf("%w: it has %d checksums of %d documents", errMalformed, len(out.Sums), want)
		}
	}
	return out, prob, err
}

// appendDigestRequest writes a request for the digests of an index.
func appendDigestRequest(w *writer, r *leaf.DigestRequest) {
	w.view(&r.View)
	w.whole("depth", r.Depth)
}

// readDigestRequest reads it.
func readDigestRequest(m *message) *leaf.DigestRequest {
	m.need("depth")
	r := &leaf.DigestRequest{Index: m.index, Depth: m.whole("depth", 0)}
	m.view(&r.View)
	return r
}

// appendDigestReply appends the reply to it.
func appendDigestReply(b []byte, r *leaf.DigestReply) []byte {
	b = append(b, `{"ok":true,"docs":[`...)
	for i, n := range r.Docs {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, uint64(n), 10)
	}
	b = append(b, `],"sums":`...)
	b = appendSums(b, r.Sums)
	return append(appendMeta(b, &r.Meta), '}')
}

// readDigestReply reads the reply to a request of a depth.
func readDigestReply(b []byte, depth int) (*leaf.DigestReply, *api.Problem, error) {
	ranges := 0
	if depth >= 0 && depth <= leaf.MaxDepth {
		ranges = 1 << depth
	}
	out := &leaf.DigestReply{}
	s := newScanner(b, false)
	prob, err := read(s, func(name []byte) bool {
		switch string(name) {
		case "docs":
			s.expect('[')
			out.Docs = make([]uint32, 0, min(ranges, (len(s.b)-s.i)/2+1))
			for first := true; s.next(&first, ']'); {
				n := s.u64()
				if len(out.Docs) == ranges || n > math.MaxUint32 {
					s.fail("there are more documents or ranges than there can be")
					break
				}
				out.Docs = append(out.Docs, uint32(n))
			}
		case "sums":
			out.Sums = s.sums(ranges)
		default:
			return s.meta(name, &out.Meta)
		}
		return true
	})
	if prob == nil && err == nil && (len(out.Docs) != ranges || len(out.Sums) != ranges) {
		err = fmt.Errorf("%w: it has %d counts and %d checksums of %d ranges", errMalformed, len(out.Docs), len(out.Sums), ranges)
	}
	return out, prob, err
}

// appendSyncRequest writes documents to be put or deleted. Their text goes in strings, as it does for index and bulk.
func appendSyncRequest(w *writer, r *leaf.SyncRequest) {
	w.epoch(r.Epoch)
	w.long("fence", r.Fence)
	if len(r.Items) > leaf.MaxSync {
		w.fail(tooMany("items", len(r.Items), leaf.MaxSync))
		return
	}
	w.name("items")
	w.b = append(w.b, '[')
	for i := range r.Items {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		it := &r.Items[i]
		w.b = append(w.b, `{"id":`...)
		w.quote("items", it.ID)
		w.b = append(w.b, `,"expect":`...)
		w.b = appendSum(w.b, it.Expect)
		if it.Body != nil {
			w.b = append(w.b, `,"body":`...)
			b, err := jsontext.AppendQuote(w.b, it.Body)
			if err != nil {
				w.fail(&api.Problem{Code: api.InvalidUTF8, Field: "items", Detail: fmt.Sprintf("items: document %d is not valid UTF-8", i+1)})
			}
			w.b = b
		}
		w.b = append(w.b, '}')
	}
	w.b = append(w.b, ']')
}

// readSyncRequest reads it.
func readSyncRequest(m *message) *leaf.SyncRequest {
	const want = `each is an object {"id","expect","body"}, whose expect is 32 hexadecimal digits or null, and whose body is a text or null`
	r := &leaf.SyncRequest{Index: m.index}
	r.Epoch, r.Fence = m.epoch(), m.long("fence")
	m.need("items")
	m.list("items", "objects", leaf.MaxSync, func(s *scanner) {
		var it leaf.SyncItem
		var hasID, hasExpect bool
		unknown := ""
		s.object(func(name []byte) {
			switch string(name) {
			case "id":
				it.ID, hasID = s.str(), true
			case "expect":
				it.Expect, hasExpect = s.sum(), true
			case "body":
				if s.null() {
					return
				}
				if raw, _ := s.token(); s.err == nil {
					it.Body = unquote(raw)
				}
			default:
				if unknown == "" {
					unknown = api.Clip(string(name))
				}
				s.value()
			}
		})
		switch {
		case s.over != nil:
			m.failed(s.over)
		case s.err != nil:
			m.fail("items", want)
		case unknown != "":
			m.failed(unknownInside("items", unknown))
		case !hasID || !hasExpect:
			m.fail("items", want)
		}
		r.Items = append(r.Items, it)
	})
	return r
}

// appendSyncReply appends the reply to it.
func appendSyncReply(b []byte, r *leaf.SyncReply) []byte {
	b = append(b, `{"ok":true,"applied":[`...)
	for i, yes := range r.Applied {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendBool(b, yes)
	}
	b = append(b, `],"sums":`...)
	b = appendSums(b, r.Sums)
	if r.Problems != nil {
		b = append(b, `,"problems":[`...)
		for i, p := range r.Problems {
			if i > 0 {
				b = append(b, ',')
			}
			if p == nil {
				b = append(b, "null"...)
				continue
			}
			b = append(appendProblemMembers(append(b, '{'), p), '}')
		}
		b = append(b, ']')
	}
	return append(appendMeta(b, &r.Meta), '}')
}

// readSyncReply reads the reply to a request with so many items.
func readSyncReply(b []byte, asked int) (*leaf.SyncReply, *api.Problem, error) {
	out := &leaf.SyncReply{}
	s := newScanner(b, false)
	prob, err := read(s, func(name []byte) bool {
		switch string(name) {
		case "applied":
			s.expect('[')
			for first := true; s.next(&first, ']'); {
				if len(out.Applied) == asked {
					s.fail("there are more answers than items")
					break
				}
				out.Applied = append(out.Applied, s.bool())
			}
		case "sums":
			out.Sums = s.sums(asked)
		case "problems":
			out.Problems = s.problems(asked)
		default:
			return s.meta(name, &out.Meta)
		}
		return true
	})
	if prob == nil && err == nil && (len(out.Applied) != asked || len(out.Sums) != asked || out.Problems != nil && len(out.Problems) != asked) {
		err = fmt.Errorf("%w: it has %d answers, %d checksums and %d problems for %d items", errMalformed, len(out.Applied), len(out.Sums), len(out.Problems), asked)
	}
	return out, prob, err
}

// problems reads an array of at most most errors, null where there is none.
func (s *scanner) problems(most int) []*api.Problem {
	list := []*api.Problem{}
	s.expect('[')
	for first := true; s.next(&first, ']'); {
		if len(list) == most {
			s.fail("there are more errors than items")
			return nil
		}
		var p *api.Problem
		if !s.null() {
			raw := s.value()
			if s.err != nil {
				return nil
			}
			var err error
			if p, err = readProblem(raw); err != nil {
				s.fail("an error is none")
				return nil
			}
		}
		list = append(list, p)
	}
	return list
}
