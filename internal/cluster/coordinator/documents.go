package coordinator

import (
	"errors"
	"net/http"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/write"
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/text"
)

// statusOf is the status of a reply to a write: 207 where a part of it is not in.
func statusOf(ok bool) int {
	if ok {
		return http.StatusOK
	}
	return http.StatusMultiStatus
}

func (c *Coordinator) putDocument(call *front.Call) *api.Problem {
	name, prob := call.Index()
	if prob != nil {
		return prob
	}
	if _, prob := call.Wants(front.TypeJSON); prob != nil {
		return prob
	}
	body, held, prob := call.Body(c.cfg.Limits.DocumentBytes)
	if prob != nil {
		if prob.Code == api.BodyTooLarge {
			prob.Code = api.DocumentTooLarge
		}
		return prob
	}
	defer held.Release()
	place, err := c.writes.Enter(call.Context(), 1)
	if err != nil {
		return c.problem(call.Context(), err)
	}
	defer place.Release()
	reply, err := c.whole.Index(call.Context(), &leaf.IndexRequest{Index: name, Body: body})
	c.countIndex(err)
	if err != nil {
		return c.problem(call.Context(), err)
	}
	return call.JSON(statusOf(reply.OK), reply.WriteReply.AppendJSON(nil))
}

// countIndex counts the write of one document.
func (c *Coordinator) countIndex(err error) {
	if err == nil {
		c.documents.indexed.Inc()
	} else if p, ok := errors.AsType[*api.Problem](err); ok && p.HTTPStatus() == http.StatusBadRequest {
		c.documents.rejected.Inc()
	}
}

// countLoad counts what became of a load.
func (c *Coordinator) countLoad(reply *leaf.BulkReply) {
	if reply != nil {
		c.documents.indexed.Add(reply.Indexed)
		c.documents.rejected.Add(reply.Failed)
	}
}

func (c *Coordinator) deleteDocument(call *front.Call) *api.Problem {
	name, prob := call.Index()
	if prob != nil {
		return prob
	}
	id, prob := call.ID()
	if prob != nil {
		return prob
	}
	place, err := c.writes.Enter(call.Context(), 1)
	if err != nil {
		return c.problem(call.Context(), err)
	}
	defer place.Release()
	reply, err := c.write.Delete(call.Context(), name, id)
	if err != nil {
		return c.problem(call.Context(), err)
	}
	c.documents.deleted.Add(uint64(reply.Deleted))
	return call.JSON(statusOf(reply.OK), reply.AppendJSON(nil))
}

func (c *Coordinator) bulk(call *front.Call) *api.Problem {
	name, prob := call.Index()
	if prob != nil {
		return prob
	}
	if _, prob := call.Wants(front.BulkTypes...); prob != nil {
		return prob
	}
	key, prob := call.IdempotencyKey()
	if prob != nil {
		return prob
	}
	place, err := c.bulks.Enter(call.Context(), 1)
	if err != nil {
		return c.problem(call.Context(), err)
	}
	defer func() { call.Leave(place) }()
	src, stop := call.Timed(call.Context())
	defer stop()
	reply, err := c.write.Load(call.Context(), &leaf.BulkRequest{Index: name, Key: key}, src, write.LoadOptions{Whole: true})
	c.countLoad(reply)
	if err != nil {
		return call.Long(c.problem(call.Context(), err))
	}
	return call.JSON(statusOf(reply.OK), reply.BulkReply.AppendJSON(nil, reply.Repeated))
}

func (c *Coordinator) getDocument(call *front.Call) *api.Problem {
	name, prob := call.Index()
	if prob != nil {
		return prob
	}
	id, prob := call.ID()
	if prob != nil {
		return prob
	}
	place, err := c.searches.Enter(call.Context(), 1)
	if err != nil {
		return c.problem(call.Context(), err)
	}
	defer func() { call.LeaveRead(place) }()
	source, prob := c.searcher.Get(call.Context(), name, id)
	if prob != nil {
		return prob
	}
	b := append(make([]byte, 0, len(source)+len(id)+32), `{"id":`...)
	b = api.AppendString(b, id)
	b = append(b, `,"source":`...)
	if source == nil {
		b = append(b, "null"...)
	} else {
		b = append(b, source...)
	}
	return call.JSON(http.StatusOK, append(b, '}'))
}

func (c *Coordinator) putIndex(call *front.Call) *api.Problem {
	name := call.Request().PathValue("name")
	if p := api.CheckIndexName(name); p != nil {
		return p
	}
	kind, prob := call.Wants("text/plain", front.TypeJSON)
	if prob != nil {
		return prob
	}
	body, held, prob := call.Body(c.cfg.Limits.SchemaBytes)
	if prob != nil {
		return prob
	}
	defer held.Release()
	sdl := ""
	if len(body) > 0 {
		sch, prob := api.ReadSchema(name, kind == front.TypeJSON, body, text.Check)
		if prob != nil {
			return prob
		}
		sdl = sch.SDL()
	}
	place, err := c.writes.Enter(call.Context(), 1)
	if err != nil {
		return c.problem(call.Context(), err)
	}
	defer place.Release()
	reply, err := c.whole.PutIndex(call.Context(), &leaf.PutIndexRequest{Index: name, Schema: sdl})
	if err != nil {
		return c.problem(call.Context(), err)
	}
	status := http.StatusOK
	if reply.Made {
		status = http.StatusCreated
	}
	if failedMembers(reply.Below) != nil {
		status = http.StatusMultiStatus
	}
	return call.JSON(status, appendInfo(nil, &reply.Info, reply.Below))
}

// failedMembers are the addresses that a change did not reach.
func failedMembers(b *leaf.Below) []string {
	if b == nil {
		return nil
	}
	return b.Shards.FailedAddresses
}

// appendInfo appends the description of an index, with the members that a change of it did not reach.
func appendInfo(b []byte, info *api.IndexInfo, below *leaf.Below) []byte {
	b = info.AppendJSON(b)
	failed := failedMembers(below)
	if failed == nil {
		return b
	}
	b = append(b[:len(b)-1], `,"failed_addresses":`...)
	b = api.AppendStrings(b, failed)
	return append(b, '}')
}

func (c *Coordinator) getIndex(call *front.Call) *api.Problem {
	name := call.Request().PathValue("name")
	if p := api.CheckIndexName(name); p != nil {
		return p
	}
	reply, err := c.whole.Info(call.Context(), &leaf.InfoRequest{Index: name})
	if err != nil {
		return c.problem(call.Context(), err)
	}
	return call.JSON(http.StatusOK, appendInfo(nil, &reply.Index, reply.Below))
}

func (c *Coordinator) listIndexes(call *front.Call) *api.Problem {
	reply, err := c.whole.Indexes(call.Context(), &leaf.IndexesRequest{})
	if err != nil {
		return c.problem(call.Context(), err)
	}
	b := []byte(`{"indexes":[`)
	for i := range reply.Indexes {
		if i > 0 {
			b = append(b, ',')
		}
		b = reply.Indexes[i].AppendJSON(b)
	}
	b = append(b, ']')
	if failed := failedMembers(reply.Below); failed != nil {
		b = append(b, `,"failed_addresses":`...)
		b = api.AppendStrings(b, failed)
	}
	return call.JSON(http.StatusOK, append(b, '}'))
}

func (c *Coordinator) deleteIndex(call *front.Call) *api.Problem {
	name := call.Request().PathValue("name")
	if p := api.CheckIndexName(name); p != nil {
		return p
	}
	place, err := c.writes.Enter(call.Context(), 1)
	if err != nil {
		return c.problem(call.Context(), err)
	}
	defer place.Release()
	reply, err := c.whole.DropIndex(call.Context(), &leaf.DropIndexRequest{Index: name})
	if err != nil {
		return c.problem(call.Context(), err)
	}
	status := http.StatusOK
	if failedMembers(reply.Below) != nil {
		status = http.StatusMultiStatus
	}
	return call.JSON(status, appendInfo(nil, &reply.Info, reply.Below))
}
