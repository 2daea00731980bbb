package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/shard"
	"github.com/weft-search/weft/internal/text"
)

// dynamicSchema is the schema of an index that was not declared: a key, and fields inferred from documents.
func dynamicSchema(name string) (*schema.Schema, error) {
	s, err := (&schema.Schema{Name: name, Dynamic: true, Generation: 1}).WithKey()
	if err != nil {
		return nil, fmt.Errorf("make schema of a dynamic index: %w", err)
	}
	return s, nil
}

func (n *Node) putIndex(c *front.Call) *api.Problem {
	name := c.Request().PathValue("name")
	if p := api.CheckIndexName(name); p != nil {
		return p
	}
	kind, prob := c.Wants("text/plain", front.TypeJSON)
	if prob != nil {
		return prob
	}
	body, held, prob := c.Body(n.cfg.Limits.SchemaBytes)
	if prob != nil {
		return prob
	}
	defer held.Release()
	visibility := ""
	if kind == front.TypeJSON {
		if body, visibility, prob = cutVisibility(body); prob != nil {
			return prob
		}
	}
	sch, prob := api.ReadSchema(name, kind == front.TypeJSON, body, text.Check)
	if prob != nil {
		return prob
	}
	place, err := n.writes.Enter(c.Context(), 1)
	if err != nil {
		return n.problem(c.Context(), err)
	}
	defer place.Release()
	l, made, err := n.declare(c.Context(), name, sch, len(body) > 0, visibility)
	if err != nil {
		return n.problem(c.Context(), err)
	}
	defer l.release()
	status := http.StatusCreated
	if !made {
		status = http.StatusOK
	}
	info := n.info(l.index)
	return c.JSON(status, info.AppendJSON(nil))
}

// declare makes an index with a schema, or extends the one that is there if the schema was given. made tells which. The index comes in
// use. The caller has a place among the writes. visibility is empty where nothing was said of it; of an index that is there it has to be
// the one it has.
func (n *Node) declare(ctx context.Context, name string, sch *schema.Schema, given bool, visibility string) (l lease, made bool, err error) {
	first := visibility
	if first == api.AtOnce {
		first = ""
	}
	if l, made, err = n.catalog.create(ctx, name, sch, first); err != nil {
		return lease{}, false, err
	}
	if have := cmp.Or(l.entry.Visibility, api.AtOnce); visibility != "" && visibility != have {
		l.release()
		return lease{}, false, &api.Problem{Code: api.SchemaConflict, Field: "visibility", Detail: fmt.Sprintf("visibility: the index has %q, and that stays so", have)}
	}
	if !made && given {
		if err := n.extend(ctx, l, sch); err != nil {
			l.release()
			return lease{}, false, err
		}
	}
	return l, made, nil
}

// extend adds the fields of a schema that the index lacks. What differs is a conflict, and nothing is added; what the index has
// over the schema stays. So do options that the schema says nothing of: an index that infers its fields can be given a declared
// one without a word about the rest.
func (n *Node) extend(ctx context.Context, l lease, sch *schema.Schema) error {
	have := l.eng.Schema()
	key := have.PrimaryField()
	if key < 0 {
		return &api.Problem{Code: api.SchemaConflict, Detail: "the index was made over Summa without a primary field, which a schema over HTTP has; it stays as it is"}
	}
	if i := sch.PrimaryField(); key >= 0 && i >= 0 && sch.Fields[i].Name != have.Fields[key].Name {
		return &api.Problem{
			Code: api.SchemaConflict, Field: api.Clip(sch.Fields[i].Name),
			Detail: fmt.Sprintf("the key of the index is %q and stays so", have.Fields[key].Name),
		}
	}
	if prob := optionConflict(have, sch); prob != nil {
		return prob
	}
	if _, err := have.AddFields(sch.Fields); err != nil {
		return fmt.Errorf("extend schema: %w", err)
	}
	if err := n.memtables.admit(); err != nil {
		return err
	}
	if err := l.eng.AddFields(ctx, sch.Fields); err != nil {
		return fmt.Errorf("extend schema: %w", err)
	}
	return nil
}

// optionConflict finds what the schema says of the index as a whole and the index has otherwise: a shard can be given fields and
// nothing else.
func optionConflict(have, want *schema.Schema) *api.Problem {
	stays := func(option, what string) *api.Problem {
		return &api.Problem{
			Code: api.SchemaConflict, Field: option,
			Detail: option + ": " + what + ", and that stays so; fields can be added, for any other change make a new index",
		}
	}
	switch {
	case len(want.DefaultFields) > 0 && !slices.Equal(want.DefaultFields, have.DefaultFields):
		what := "the index has none"
		if len(have.DefaultFields) > 0 {
			what = "the index has [" + api.ClipDetail(strings.Join(have.DefaultFields, ", ")) + "]"
		}
		p := stays("default_fields", what)
		p.Detail += ", or give default_fields with the search"
		return p
	case want.Dynamic && !have.Dynamic:
		return stays("dynamic", "the index takes no fields but the declared ones")
	case want.MaxL1PhraseTerms != 0 && want.MaxL1PhraseTerms != have.MaxL1PhraseTerms:
		return stays("max_l1_phrase_terms", "the index has another number or none")
	case want.ReorderOnMerge != nil && (have.ReorderOnMerge == nil || *want.ReorderOnMerge != *have.ReorderOnMerge):
		return stays("reorder_on_merge", "the index has it otherwise or not at all")
	case len(want.Routers) > 0 && !slices.Equal(want.Routers, have.Routers):
		return stays("query_router", "the index has others or none")
	}
	return nil
}

// info describes an index.
func (n *Node) info(i *index) api.IndexInfo {
	info := api.IndexInfo{Name: i.entry.Name, State: "opening", Visibility: i.entry.Visibility}
	select {
	case <-i.opened:
	default:
		return info
	}
	if i.err != nil {
		info.State, info.Reason = "unavailable", failureReason(i.err)
		return info
	}
	snap := i.eng.Snapshot()
	defer snap.Release()
	return describe(i, snap)
}

// describe describes an index that is open.
func describe(i *index, snap *shard.Snapshot) api.IndexInfo {
	sch := snap.Schema()
	stats := i.eng.Stats()
	info := api.IndexInfo{Name: i.entry.Name, State: "open", Visibility: i.entry.Visibility, Staged: stats.Staged}
	if stats.ReadOnly != "" {
		// An empty batch has no effect, and its refusal has the cause.
		if _, err := i.eng.Apply(i.ctx, nil); errors.Is(err, shard.ErrReadOnly) {
			info.State, info.Reason = "read_only", readOnlyReason(err)
		}
	}
	info.Docs, info.Segments, info.Bytes, info.Schema, info.Dynamic = snap.Docs(), snap.Segments(), snap.Bytes(), sch.SDL(), sch.Dynamic
	return info
}

func (n *Node) getIndex(c *front.Call) *api.Problem {
	name := c.Request().PathValue("name")
	if p := api.CheckIndexName(name); p != nil {
		return p
	}
	l, err := n.catalog.use(c.Context(), name)
	if err != nil {
		return n.problem(c.Context(), err)
	}
	defer l.release()
	info := n.info(l.index)
	return c.JSON(http.StatusOK, info.AppendJSON(nil))
}

func (n *Node) listIndexes(c *front.Call) *api.Problem {
	b := []byte(`{"indexes":[`)
	for k, i := range n.catalog.list() {
		if k > 0 {
			b = append(b, ',')
		}
		info := n.info(i)
		b = info.AppendJSON(b)
	}
	return c.JSON(http.StatusOK, append(b, "]}"...))
}

func (n *Node) deleteIndex(c *front.Call) *api.Problem {
	name := c.Request().PathValue("name")
	if p := api.CheckIndexName(name); p != nil {
		return p
	}
	place, err := n.writes.Enter(c.Context(), 1)
	if err != nil {
		return n.problem(c.Context(), err)
	}
	defer place.Release()
	info, err := n.drop(c.Context(), name)
	if err != nil {
		return n.problem(c.Context(), err)
	}
	return c.JSON(http.StatusOK, info.AppendJSON(nil))
}

// drop deletes an index and describes it as it was. The caller has a place among the writes.
func (n *Node) drop(ctx context.Context, name string) (api.IndexInfo, error) {
	info := api.IndexInfo{Name: name, State: "unavailable"}
	if l, err := n.catalog.use(ctx, name); err == nil {
		info = n.info(l.index)
		l.release()
	} else if _, broken := errors.AsType[*unavailableError](err); !broken {
		return api.IndexInfo{}, err
	}
	if err := n.catalog.remove(ctx, name); err != nil {
		return api.IndexInfo{}, err
	}
	info.State = "deleted"
	return info, nil
}
