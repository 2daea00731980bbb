package node

import (
	"net/http"
	"strconv"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/obs"
)

// Readiness is how far a node is with taking calls.
type Readiness struct {
	Ready    bool           // every index is open or has failed to open, and the node is not closing
	Closing  bool           // Close was called; calls may still be answered for Config.LameDuck
	Total    int            // indexes of the catalog
	Open     int            // indexes that answer
	Failed   []IndexFailure // indexes that could not be opened, by name
	ReadOnly []string       // indexes that answer searches but take no writes, by name
	Unlisted []string       // folders below indexes/ of the data folder that the catalog did not name at start
}

// IndexFailure is an index that answers 503, and why, in words without paths.
type IndexFailure struct{ Index, Reason string }

// Ready tells how far the node is.
func (n *Node) Ready() Readiness {
	r := Readiness{Closing: n.front.Closing(), Unlisted: n.catalog.unlisted}
	for _, i := range n.catalog.list() {
		r.Total++
		select {
		case <-i.opened:
		default:
			continue
		}
		if i.err != nil {
			r.Failed = append(r.Failed, IndexFailure{i.entry.Name, failureReason(i.err)})
			continue
		}
		r.Open++
		if i.eng.Stats().ReadOnly != "" {
			r.ReadOnly = append(r.ReadOnly, i.entry.Name)
		}
	}
	select {
	case <-n.opened:
		r.Ready = !r.Closing
	default:
	}
	return r
}

func (n *Node) healthz(c *front.Call) *api.Problem {
	b := append([]byte(nil), `{"status":"ok","id":`...)
	b = api.AppendString(b, n.self.ID)
	b = append(b, `,"version":`...)
	b = api.AppendString(b, n.cfg.Version)
	return c.JSON(http.StatusOK, append(b, '}'))
}

func (n *Node) readyz(c *front.Call) *api.Problem {
	r := n.Ready()
	b := strconv.AppendBool([]byte(`"ready":`), r.Ready)
	b = append(b, `,"indexes":{"total":`...)
	b = strconv.AppendInt(b, int64(r.Total), 10)
	b = append(b, `,"open":`...)
	b = strconv.AppendInt(b, int64(r.Open), 10)
	b = append(b, `,"failed":[`...)
	for i, f := range r.Failed {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"index":`...)
		b = api.AppendString(b, f.Index)
		b = append(b, `,"reason":`...)
		b = api.AppendString(b, f.Reason)
		b = append(b, '}')
	}
	b = append(b, `],"read_only":`...)
	b = api.AppendStrings(b, r.ReadOnly)
	b = append(b, `,"unlisted":`...)
	b = api.AppendStrings(b, r.Unlisted)
	b = append(b, '}')
	switch {
	case r.Closing:
		return &api.Problem{Code: api.ShuttingDown, Detail: "the server is shutting down", Extra: b}
	case !r.Ready:
		return &api.Problem{Code: api.NotReady, Detail: strconv.Itoa(r.Open+len(r.Failed)) + " of " + strconv.Itoa(r.Total) + " indexes are open", RetryAfterMS: 1000, Extra: b}
	}
	return c.JSON(http.StatusOK, append(append([]byte{'{'}, b...), '}'))
}

func (n *Node) metricsPage(c *front.Call) *api.Problem {
	return c.Serve(n.cfg.Metrics.Handler())
}

// samples emits the state of every open index for the metrics.
func (n *Node) samples(emit func(obs.IndexSample)) {
	for _, i := range n.catalog.list() {
		eng := i.engineIfOpen()
		if eng == nil {
			continue
		}
		st := eng.Stats()
		emit(obs.IndexSample{
			Index: i.entry.Name, ReadOnly: st.ReadOnly != "",
			Docs: st.Docs, DeletedDocs: st.SegmentDocs + st.MemtableDocs - min(st.Docs, st.SegmentDocs+st.MemtableDocs), Segments: uint64(st.Segments),
			SegmentBytes: uint64(st.SegmentBytes), MemtableDocs: st.MemtableDocs, MemtableBytes: uint64(st.MemtableBytes), LogBytes: uint64(st.LogBytes),
			LogRecords: st.LastSeq, Staged: st.Staged, Flushes: st.Flushes, FlushedBytes: uint64(st.FlushedBytes), FlushFailures: st.FlushFailures,
			Merges: st.Merges, MergedBytes: uint64(st.MergedBytes), MergeFailures: st.MergeFailures, WriteRefusals: st.Refused,
			LogAppends: st.LogRecords, LogSyncs: st.LogSyncs, LogSyncTime: st.LogSyncTime, FlushTime: st.FlushTime, MergeTime: st.MergeTime,
		})
	}
}
