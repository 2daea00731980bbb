package rpc

import (
	pb "github.com/weft-search/weft/api/shard/v1"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/query"
)

// packShow returns nil for nil.
func packShow(s *leaf.Show) (*pb.Show, error) {
	if s == nil {
		return nil, nil
	}
	m := &pb.Show{Source: s.Source, Fields: packFields(s.Fields), Explain: s.Explain}
	var err error
	if m.First, err = count("first", s.First); err != nil {
		return nil, err
	}
	h := s.Highlight
	if h == nil {
		return m, nil
	}
	m.Highlight = &pb.Highlight{Fields: h.Fields, Pre: h.Pre, Post: h.Post, Raw: h.Raw}
	if m.Highlight.FragmentSize, err = count("highlight", h.FragmentSize); err != nil {
		return nil, err
	}
	if m.Highlight.Fragments, err = count("highlight", h.Fragments); err != nil {
		return nil, err
	}
	return m, nil
}

// unpackShow returns nil for nil.
func unpackShow(m *pb.Show) (*leaf.Show, error) {
	if m == nil {
		return nil, nil
	}
	if m.First > maxCount {
		return nil, notInRange("first", maxCount)
	}
	s := &leaf.Show{Source: m.Source, Fields: unpackFields(m.Fields), Explain: m.Explain, First: int(m.First)}
	h := m.Highlight
	if h == nil {
		return s, nil
	}
	for _, n := range []uint32{h.FragmentSize, h.Fragments} {
		if n > maxCount {
			return nil, notInRange("highlight", maxCount)
		}
	}
	s.Highlight = &api.Highlight{
		Fields: h.Fields, FragmentSize: int(h.FragmentSize), Fragments: int(h.Fragments), Pre: h.Pre, Post: h.Post, Raw: h.Raw,
	}
	return s, nil
}

// shownParts are the bits of what may be shown of a document, in the order of texts and columns.
var shownParts = [...]byte{byte(pb.Part_PART_SOURCE), byte(pb.Part_PART_HIGHLIGHT), byte(pb.Part_PART_LEXICAL), byte(pb.Part_PART_VECTOR)}

// allParts are the bits that are known.
const allParts = byte(pb.Part_PART_MISSING | pb.Part_PART_SOURCE | pb.Part_PART_HIGHLIGHT | pb.Part_PART_LEXICAL | pb.Part_PART_VECTOR)

func shownTexts(d *leaf.Shown) [len(shownParts)]*[]byte {
	return [...]*[]byte{&d.Source, &d.Highlight, &d.Lexical, &d.Vector}
}

func shownColumns(m *pb.Shown) [len(shownParts)]**pb.Texts {
	return [...]**pb.Texts{&m.Sources, &m.Highlights, &m.Lexical, &m.Vectors}
}

// shownBytes is how much is shown of a document.
func shownBytes(d *leaf.Shown) int64 {
	return int64(len(d.Source)) + int64(len(d.Highlight)) + int64(len(d.Lexical)) + int64(len(d.Vector))
}

// packShown makes columns of documents. Of none it is nil.
func packShown(docs []leaf.Shown) *pb.Shown {
	if len(docs) == 0 {
		return nil
	}
	m := &pb.Shown{Parts: make([]byte, len(docs))}
	columns := shownColumns(m)
	for k, part := range shownParts {
		n, size := 0, 0
		for i := range docs {
			if b := *shownTexts(&docs[i])[k]; b != nil {
				n++
				size += len(b)
			}
		}
		if n == 0 {
			continue
		}
		t := &pb.Texts{Data: make([]byte, 0, size), Lengths: make([]uint32, 0, n)}
		for i := range docs {
			if b := *shownTexts(&docs[i])[k]; b != nil {
				m.Parts[i] |= part
				t.Data = append(t.Data, b...)
				t.Lengths = append(t.Lengths, uint32(len(b)))
			}
		}
		*columns[k] = t
	}
	for i := range docs {
		if docs[i].Missing {
			m.Parts[i] |= byte(pb.Part_PART_MISSING)
		}
	}
	return m
}

// unpackShown reads what is shown of n documents, nil for none. What it returns are parts of the message's bytes.
func unpackShown(m *pb.Shown, n int) ([]leaf.Shown, error) {
	parts := m.GetParts()
	if len(parts) != n {
		return nil, malformed("shown", "there are %d for %d documents", len(parts), n)
	}
	var counts [len(shownParts)]int
	for _, p := range parts {
		if p&^allParts != 0 {
			return nil, malformed("shown", "part %d is not known", p)
		}
		for k, part := range shownParts {
			if p&part != 0 {
				counts[k]++
			}
		}
	}
	if m == nil {
		return nil, nil
	}
	columns := shownColumns(m)
	for k := range columns {
		t := *columns[k]
		if len(t.GetLengths()) != counts[k] {
			return nil, malformed("shown", "there are %d texts for %d documents with such a part", len(t.GetLengths()), counts[k])
		}
		if err := checkTexts("shown", t); err != nil {
			return nil, err
		}
	}
	if n == 0 {
		return nil, nil
	}
	docs := make([]leaf.Shown, n)
	for k, part := range shownParts {
		c := openBytes(*columns[k])
		for i, p := range parts {
			if p&part != 0 {
				*shownTexts(&docs[i])[k] = c.next()
			}
		}
	}
	for i, p := range parts {
		docs[i].Missing = p&byte(pb.Part_PART_MISSING) != 0
	}
	return docs, nil
}

// page tells how many of some documents go into one message, and how much is shown of them.
func page(docs []leaf.Shown) (n int, size int64) {
	for n < len(docs) && n < maxPageDocs {
		more := shownBytes(&docs[n])
		if n > 0 && size+more > maxShownBytes {
			break
		}
		size += more
		n++
	}
	return n, size
}

func packFetch(r *leaf.FetchRequest) (*pb.FetchRequest, error) {
	if err := atMost("ids", len(r.IDs), leaf.MaxFetch); err != nil {
		return nil, err
	}
	if err := checkQueries(r.Query, r.Filters, query.Limits{}); err != nil {
		return nil, err
	}
	if err := statsLimit(r.Stats); err != nil {
		return nil, err
	}
	m := &pb.FetchRequest{
		Index: r.Index, Ids: packTexts(r.IDs), Query: packQuery(r.Query), Filters: packQueries(r.Filters), DefaultFields: packFields(r.DefaultFields),
		Stats: packStats(r.Stats),
	}
	var err error
	if m.View, err = packView(&r.View); err != nil {
		return nil, err
	}
	if m.Show, err = packShow(&r.Show); err != nil {
		return nil, err
	}
	if r.KNN != nil {
		if m.Knn, err = packVector(r.KNN); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func unpackFetch(m *pb.FetchRequest, lim query.Limits) (*leaf.FetchRequest, error) {
	if err := atMost("ids", len(m.Ids.GetLengths()), leaf.MaxFetch); err != nil {
		return nil, err
	}
	q, filters, err := unpackQueries(m.Query, m.Filters, lim)
	if err != nil {
		return nil, err
	}
	r := &leaf.FetchRequest{Index: m.Index, Query: q, Filters: filters, DefaultFields: unpackFields(m.DefaultFields)}
	if r.View, err = unpackView(m.View); err != nil {
		return nil, err
	}
	if r.IDs, err = unpackTexts("ids", m.Ids); err != nil {
		return nil, refuse(err)
	}
	show, err := unpackShow(m.Show)
	if err != nil {
		return nil, err
	}
	if show != nil {
		r.Show = *show
	}
	if err := statsFit(m.Stats); err != nil {
		return nil, err
	}
	if r.Stats, err = unpackStats("stats", m.Stats); err != nil {
		return nil, refuse(err)
	}
	if m.Knn != nil {
		if r.KNN, err = unpackVector(m.Knn); err != nil {
			return nil, err
		}
	}
	return r, nil
}
