package node

import (
	"bytes"
	"context"
	"fmt"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/front"
)

// When a write shows is a property of its index: at once, or when the index is committed. Whoever writes, over HTTP or over Summa, respects
// it. A cluster would have to commit on all its shards at one moment, so over the shard protocols such an index takes no writes.

// shardWriteKey marks the context of a write over the shard protocols.
type shardWriteKey struct{}

func withShardWrite(ctx context.Context) context.Context {
	return context.WithValue(ctx, shardWriteKey{}, true)
}

// ofShardWrite tells whether the context is of a write that must not be staged.
func ofShardWrite(ctx context.Context) bool { return ctx.Value(shardWriteKey{}) != nil }

// cutVisibility takes the member visibility out of a schema in JSON. What is not an object is left to the reader of the schema, which says
// what is wrong with it.
func cutVisibility(body []byte) (schema []byte, visibility string, prob *api.Problem) {
	d := jsontext.NewDecoder(bytes.NewReader(body), jsontext.AllowDuplicateNames(true))
	if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
		return body, "", nil
	}
	type cut struct{ from, to int64 }
	var out []cut
	for d.PeekKind() == '"' {
		from := d.InputOffset() // with the comma before it, if there is one
		name, err := d.ReadToken()
		if err != nil {
			return body, "", nil
		}
		mine := name.String() == "visibility"
		value, err := d.ReadValue()
		if err != nil {
			return body, "", nil
		}
		if !mine {
			continue
		}
		text, err := jsontext.AppendUnquote(nil, value)
		if err != nil || string(text) != api.OnCommit && string(text) != api.AtOnce {
			return nil, "", api.NewProblem(api.InvalidSchema, fmt.Sprintf("visibility: it is %q or %q", api.AtOnce, api.OnCommit)).On("visibility")
		}
		visibility = string(text)
		out = append(out, cut{from, d.InputOffset()})
	}
	switch len(out) {
	case 0:
		return body, "", nil
	case 1:
	default:
		return nil, "", api.NewProblem(api.InvalidSchema, "visibility: it is given twice").On("visibility")
	}
	// Blanks keep line and column of all the rest.
	rest := bytes.Clone(body)
	for i := out[0].from; i < out[0].to; i++ {
		if rest[i] != '\n' {
			rest[i] = ' '
		}
	}
	// The comma behind a first member goes with it.
	if bytes.TrimSpace(body[out[0].from:])[0] != ',' {
		if behind := bytes.TrimLeft(rest[out[0].to:], " \t\r\n"); len(behind) > 0 && behind[0] == ',' {
			behind[0] = ' '
		}
	}
	return rest, visibility, nil
}

// commitIndex shows what was staged.
func (n *Node) commitIndex(c *front.Call) *api.Problem {
	name, prob := c.Index()
	if prob != nil {
		return prob
	}
	place, err := n.writes.Enter(c.Context(), 1)
	if err != nil {
		return n.problem(c.Context(), err)
	}
	defer place.Release()
	l, err := n.catalog.use(c.Context(), name)
	if err != nil {
		return n.problem(c.Context(), err)
	}
	defer l.release()
	docs, err := l.commit()
	if err != nil {
		return n.problem(c.Context(), err)
	}
	reply := api.CommitReply{Index: name, Visibility: api.AtOnce, Docs: docs}
	if l.entry.onCommit() {
		reply.Visibility = api.OnCommit
	}
	return c.JSON(http.StatusOK, reply.AppendJSON(nil))
}

// commit shows what was staged, and returns the number of live documents then. It goes on when its caller leaves. Where writes show at
// once it does nothing.
func (l lease) commit() (docs uint64, err error) {
	if l.entry.onCommit() {
		if err := (tasks{l.eng}).Commit(l.ctx); err != nil {
			if cause := context.Cause(l.ctx); cause != nil {
				return 0, cause
			}
			return 0, err
		}
	}
	snap := l.eng.Snapshot()
	defer snap.Release()
	return snap.Docs(), nil
}
