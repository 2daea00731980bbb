package node

import (
	"encoding/binary"
	"fmt"

	"github.com/zeebo/xxh3"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/api/cursor"
	"github.com/weft-search/weft/internal/query"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/shard/exec"
)

// page is where a page of hits begins.
type page struct {
	digest cursor.Digest
	after  *exec.After // nil: at the front
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

// bindPage reads the cursor of the request.
func (x *execution) bindPage() *api.Problem {
	if x.req.KNN != nil {
		return nil // pages are cut by offset
	}
	x.page.digest = searchDigest(x.req)
	if x.req.After == "" {
		return nil
	}
	bad := func(detail string) *api.Problem {
		return api.NewProblem(api.InvalidCursor, "after: "+detail).On("after")
	}
	c, err := cursor.Decode(x.req.After)
	if err != nil {
		return bad("it is not the next of a reply, or not the whole of it")
	}
	if c.Digest != x.page.digest {
		return api.NewProblem(api.CursorMismatch, "after: the cursor comes from a search with another index, q, filter, sort, default_op or default_fields; give the same again").On("after")
	}
	if len(c.Values) != max(len(x.sort), 1) || x.scored() && c.Stats == nil {
		return bad("it does not fit the order")
	}
	after := &exec.After{Key: c.ID, Values: make([]exec.SortValue, len(c.Values))}
	for i, v := range c.Values {
		after.Values[i] = exec.SortValue{Kind: valueKinds[v.Kind], Number: v.Num, Text: v.Text, Score: v.Score}
		if want := x.valueKind(i); v.Kind != want && (v.Kind != cursor.None || want == cursor.Score) {
			return bad(fmt.Sprintf("value %d is not one of its sort key", i+1))
		}
	}
	x.page.after, x.stats = after, c.Stats
	return nil
}

// valueKinds are the kinds of package exec by those of package cursor.
var valueKinds = [...]exec.ValueKind{cursor.None: exec.MissingValue, cursor.Number: exec.NumberValue, cursor.Text: exec.TextValue, cursor.Score: exec.ScoreValue}

// valueKind is what key i of the order compares.
func (x *execution) valueKind(i int) cursor.Kind {
	switch {
	case len(x.sort) == 0 || x.sort[i].By == exec.ByScore:
		return cursor.Score
	case x.sort[i].By == exec.ByID || x.sortTypes[i] == schema.Text:
		return cursor.Text
	}
	return cursor.Number
}

// next sets the cursor behind the last hit if more hits follow.
func (x *execution) next(reply *api.SearchReply) {
	if !x.rank.more || x.partial {
		return
	}
	last := exec.AfterHit(&x.rank.hits[len(x.rank.hits)-1])
	c := &cursor.Cursor{Digest: x.page.digest, ID: last.Key, Values: make([]cursor.Value, len(last.Values))}
	if x.scored() {
		c.Stats = x.stats
	}
	for i, v := range last.Values {
		c.Values[i] = cursor.Value{Num: v.Number, Text: v.Text, Score: v.Score}
		for k, kind := range valueKinds {
			if kind == v.Kind {
				c.Values[i].Kind = cursor.Kind(k)
			}
		}
	}
	var ok bool
	if reply.Next, ok = c.Encode(); !ok {
		x.note(fmt.Sprintf("more hits follow, but a cursor to them would be longer than %d characters", cursor.MaxText))
	}
}
