package rpc

import (
	"fmt"
	"slices"
	"strings"

	pb "github.com/weft-search/weft/api/shard/v1"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/shard/exec"
)

// malformedError says which part of a message does not fit its others.
type malformedError struct{ part, reason string }

func (e *malformedError) Error() string { return e.part + ": " + e.reason }

func malformed(part, format string, args ...any) error {
	return &malformedError{part, fmt.Sprintf(format, args...)}
}

// packTexts puts strings one behind the other. Of none it is nil.
func packTexts(list []string) *pb.Texts {
	if len(list) == 0 {
		return nil
	}
	size := 0
	for _, s := range list {
		size += len(s)
	}
	t := &pb.Texts{Data: make([]byte, 0, size), Lengths: make([]uint32, 0, len(list))}
	for _, s := range list {
		appendText(t, s)
	}
	return t
}

func appendText(t *pb.Texts, s string) {
	t.Data = append(t.Data, s...)
	t.Lengths = append(t.Lengths, uint32(len(s)))
}

// textCursor takes strings out of a Texts, all of them parts of one.
type textCursor struct {
	all     string
	lengths []uint32
}

// checkTexts checks that the lengths add up.
func checkTexts(part string, t *pb.Texts) error {
	var sum uint64
	for _, n := range t.GetLengths() {
		sum += uint64(n)
	}
	if sum != uint64(len(t.GetData())) {
		return malformed(part, "the lengths add up to %d and there are %d bytes", sum, len(t.GetData()))
	}
	return nil
}

// openTexts is checkTexts, and a cursor of the texts.
func openTexts(part string, t *pb.Texts) (textCursor, error) {
	if err := checkTexts(part, t); err != nil {
		return textCursor{}, err
	}
	return textCursor{string(t.GetData()), t.GetLengths()}, nil
}

func (c *textCursor) len() int { return len(c.lengths) }

// next takes one; the caller has seen to it that there is one.
func (c *textCursor) next() string {
	n := c.lengths[0]
	s := c.all[:n]
	c.all, c.lengths = c.all[n:], c.lengths[1:]
	return s
}

// bytesCursor takes texts out of a Texts that has passed checkTexts, as parts of its bytes. None of them is nil.
type bytesCursor struct {
	all     []byte
	lengths []uint32
}

func openBytes(t *pb.Texts) bytesCursor {
	return bytesCursor{orEmpty(t.GetData()), t.GetLengths()}
}

// next takes one; the caller has seen to it that there is one.
func (c *bytesCursor) next() []byte {
	n := c.lengths[0]
	b := c.all[:n:n]
	c.all, c.lengths = c.all[n:], c.lengths[1:]
	return b
}

// unpackTexts returns the strings, nil for none.
func unpackTexts(part string, t *pb.Texts) ([]string, error) {
	c, err := openTexts(part, t)
	if err != nil || c.len() == 0 {
		return nil, err
	}
	list := make([]string, c.len())
	for i := range list {
		list[i] = c.next()
	}
	return list, nil
}

func packTerms(list []score.Term) *pb.TermList {
	if len(list) == 0 {
		return nil
	}
	t := &pb.TermList{Field: make([]uint32, len(list)), Texts: &pb.Texts{Lengths: make([]uint32, 0, len(list))}, Fields: &pb.Texts{}}
	places := make(map[string]uint32)
	for i := range list {
		place, ok := places[list[i].Field]
		if !ok {
			place = uint32(len(places))
			places[list[i].Field] = place
			appendText(t.Fields, list[i].Field)
		}
		t.Field[i] = place
		appendText(t.Texts, list[i].Text)
	}
	return t
}

func unpackTerms(part string, t *pb.TermList) ([]score.Term, error) {
	n := len(t.GetTexts().GetLengths())
	if n != len(t.GetField()) {
		return nil, malformed(part, "there are %d tokens and %d fields", n, len(t.GetField()))
	}
	if names := len(t.GetFields().GetLengths()); names > n {
		return nil, malformed(part, "there are %d names of fields for %d tokens", names, n)
	}
	texts, err := openTexts(part, t.GetTexts())
	if err != nil || n == 0 {
		return nil, err
	}
	fields, err := unpackTexts(part+" fields", t.GetFields())
	if err != nil {
		return nil, err
	}
	list := make([]score.Term, n)
	for i, f := range t.GetField() {
		if uint64(f) >= uint64(len(fields)) {
			return nil, malformed(part, "field %d is not among the %d", f, len(fields))
		}
		list[i] = score.Term{Field: fields[f], Text: texts.next()}
	}
	return list, nil
}

// packStats returns nil for nil.
func packStats(s *score.Stats) *pb.TermStats {
	if s == nil {
		return nil
	}
	t := &pb.TermStats{Docs: s.Docs}
	if n := len(s.Fields); n > 0 {
		names := make([]string, 0, n)
		for name := range s.Fields {
			names = append(names, name)
		}
		slices.Sort(names)
		t.Fields = packTexts(names)
		t.SumLen, t.FieldDocs = make([]uint64, n), make([]uint64, n)
		for i, name := range names {
			f := s.Fields[name]
			t.SumLen[i], t.FieldDocs[i] = f.SumLen, f.Docs
		}
	}
	if n := len(s.DF); n > 0 {
		terms := make([]score.Term, 0, n)
		for term := range s.DF {
			terms = append(terms, term)
		}
		slices.SortFunc(terms, func(a, b score.Term) int {
			if c := strings.Compare(a.Field, b.Field); c != 0 {
				return c
			}
			return strings.Compare(a.Text, b.Text)
		})
		t.Terms = packTerms(terms)
		t.Df = make([]uint64, n)
		for i, term := range terms {
			t.Df[i] = s.DF[term]
		}
	}
	return t
}

// unpackStats returns nil for nil. The maps of what it returns are never nil.
func unpackStats(part string, t *pb.TermStats) (*score.Stats, error) {
	if t == nil {
		return nil, nil
	}
	n := len(t.GetFields().GetLengths())
	if len(t.SumLen) != n || len(t.FieldDocs) != n {
		return nil, malformed(part, "there are %d fields, %d sums and %d counts", n, len(t.SumLen), len(t.FieldDocs))
	}
	if words := len(t.GetTerms().GetField()); len(t.Df) != words {
		return nil, malformed(part, "there are %d terms and %d frequencies", words, len(t.Df))
	}
	fields, err := openTexts(part+" fields", t.GetFields())
	if err != nil {
		return nil, err
	}
	terms, err := unpackTerms(part+" terms", t.GetTerms())
	if err != nil {
		return nil, err
	}
	s := &score.Stats{Docs: t.Docs, Fields: make(map[string]score.FieldStats, n), DF: make(map[score.Term]uint64, len(terms))}
	for i := range n {
		s.Fields[fields.next()] = score.FieldStats{SumLen: t.SumLen[i], Docs: t.FieldDocs[i]}
	}
	for i, term := range terms {
		s.DF[term] = t.Df[i]
	}
	if len(s.Fields) != n || len(s.DF) != len(terms) {
		return nil, malformed(part, "a field or a term stands there twice")
	}
	return s, nil
}

func packFields(names []string) *pb.Fields {
	if names == nil {
		return nil
	}
	return &pb.Fields{Names: names}
}

// unpackFields returns nil for an absent list and not for one without names.
func unpackFields(f *pb.Fields) []string {
	if f == nil {
		return nil
	}
	if f.Names == nil {
		return []string{}
	}
	return f.Names
}

// The numbers of the enums are those of package exec; a test holds them together.

func packSort(keys []exec.SortKey) []*pb.SortKey {
	if len(keys) == 0 {
		return nil
	}
	list := make([]*pb.SortKey, len(keys))
	for i, k := range keys {
		list[i] = &pb.SortKey{By: pb.SortKey_By(k.By), Field: k.Field, Desc: k.Desc, MissingFirst: k.MissingFirst, Mode: pb.SortKey_Mode(k.Mode)}
	}
	return list
}

func unpackSort(list []*pb.SortKey) ([]exec.SortKey, error) {
	if len(list) == 0 {
		return nil, nil
	}
	keys := make([]exec.SortKey, len(list))
	for i, k := range list {
		if k.GetBy() < 0 || k.GetBy() > pb.SortKey_BY_FIELD || k.GetMode() < 0 || k.GetMode() > pb.SortKey_MODE_GREATEST {
			return nil, malformed("sort", "key %d has a kind or a mode that is not known", i+1)
		}
		keys[i] = exec.SortKey{By: exec.SortBy(k.GetBy()), Field: k.GetField(), Desc: k.GetDesc(), MissingFirst: k.GetMissingFirst(), Mode: exec.Mode(k.GetMode())}
	}
	return keys, nil
}

func packAfter(a *exec.After) *pb.After {
	if a == nil {
		return nil
	}
	after := &pb.After{Id: []byte(a.Key), Values: make([]*pb.SortValue, len(a.Values))}
	for i, v := range a.Values {
		after.Values[i] = &pb.SortValue{Kind: pb.ValueKind(v.Kind), Number: v.Number, Text: []byte(v.Text), Score: v.Score}
	}
	return after
}

func unpackAfter(after *pb.After) (*exec.After, error) {
	if after == nil {
		return nil, nil
	}
	a := &exec.After{Key: string(after.Id)}
	if len(after.Values) > 0 {
		a.Values = make([]exec.SortValue, len(after.Values))
	}
	for i, v := range after.Values {
		if v.GetKind() < 0 || v.GetKind() > pb.ValueKind_VALUE_SCORE {
			return nil, malformed("after", "value %d has a kind that is not known", i+1)
		}
		a.Values[i] = exec.SortValue{Kind: exec.ValueKind(v.GetKind()), Number: v.GetNumber(), Text: string(v.GetText()), Score: v.GetScore()}
	}
	return a, nil
}
