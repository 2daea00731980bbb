package bound

import (
	"encoding/binary"
	"fmt"

	"github.com/zeebo/xxh3"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/api/cursor"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/shard/exec"
)

// Page is where a page of hits begins.
type Page struct {
	Digest cursor.Digest
	After  *exec.After  // nil: at the front
	Stats  *score.Stats // that the pages before were scored with; nil: the order does not depend on them, or none are kept
}

// searchDigest is a fingerprint of everything that decides which documents come in which order.
func searchDigest(req *api.SearchRequest) cursor.Digest {
	var b []byte
	text := func(s string) {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	flag := func(v bool) {
		if v {
			b = append(b, 1)
		} else {
			b = append(b, 0)
		}
	}
	text(req.Index)
	text(req.Q)
	flag(req.DefaultOp == query.And)
	b = binary.AppendUvarint(b, uint64(len(req.DefaultFields)))
	for _, f := range req.DefaultFields {
		text(f)
	}
	b = binary.AppendUvarint(b, uint64(len(req.Filters)))
	for _, f := range req.Filters {
		text(f.String())
	}
	for _, k := range req.Sort {
		b = append(b, byte(k.By), byte(k.Pick))
		flag(k.Desc)
		flag(k.MissingFirst)
		text(k.Field)
	}
	return xxh3.Hash128(b).Bytes()
}

// BindPage reads the cursor of a request. With localStats one of a scored order may be without statistics.
func BindPage(req *api.SearchRequest, s Sort, scored, localStats bool) (Page, *api.Problem) {
	if req.KNN != nil {
		return Page{}, nil // pages are cut by offset
	}
	page := Page{Digest: searchDigest(req)}
	if req.After == "" {
		return page, nil
	}
	bad := func(detail string) (Page, *api.Problem) {
		return Page{}, api.NewProblem(api.InvalidCursor, "after: "+detail).On("after")
	}
	c, err := cursor.Decode(req.After)
	if err != nil {
		return bad("it is not the next of a reply, or not the whole of it")
	}
	if c.Digest != page.Digest {
		return Page{}, api.NewProblem(api.CursorMismatch,
			"after: the cursor comes from a search with another index, q, filter, sort, default_op or default_fields; give the same again").On("after")
	}
	if len(c.Values) != max(len(s.Keys), 1) || scored && !localStats && c.Stats == nil {
		return bad("it does not fit the order")
	}
	page.After = &exec.After{Key: c.ID, Values: make([]exec.SortValue, len(c.Values))}
	for i, v := range c.Values {
		page.After.Values[i] = exec.SortValue{Kind: valueKinds[v.Kind], Number: v.Num, Text: v.Text, Score: v.Score}
		if want := s.valueKind(i); v.Kind != want && (v.Kind != cursor.None || want == cursor.Score) {
			return bad(fmt.Sprintf("value %d is not one of its sort key", i+1))
		}
	}
	page.Stats = c.Stats
	return page, nil
}

// valueKinds are the kinds of package exec by those of package cursor.
var valueKinds = [...]exec.ValueKind{cursor.None: exec.MissingValue, cursor.Number: exec.NumberValue, cursor.Text: exec.TextValue, cursor.Score: exec.ScoreValue}

// valueKind is what key i of the order compares.
func (s Sort) valueKind(i int) cursor.Kind {
	switch {
	case len(s.Keys) == 0 || s.Keys[i].By == exec.ByScore:
		return cursor.Score
	case s.Keys[i].By == exec.ByID || s.Types[i] == schema.Text:
		return cursor.Text
	}
	return cursor.Number
}

// Next is the cursor of the page behind a hit. Only a scored order needs the statistics that it was scored with; nil leaves them out.
// ok is false when the cursor would be too long to be given: NoteLongCursor says so.
func (p Page) Next(last *exec.After, stats *score.Stats) (text string, ok bool) {
	c := &cursor.Cursor{Digest: p.Digest, ID: last.Key, Values: make([]cursor.Value, len(last.Values)), Stats: stats}
	for i, v := range last.Values {
		c.Values[i] = cursor.Value{Num: v.Number, Text: v.Text, Score: v.Score}
		for k, kind := range valueKinds {
			if kind == v.Kind {
				c.Values[i].Kind = cursor.Kind(k)
			}
		}
	}
	return c.Encode()
}
