package coordinator

import (
	"net/http"
	"strconv"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/front"
)

const indexParam = front.IndexParam

// routes are the calls of the HTTP surface: those of a node, and those about the cluster.
func (c *Coordinator) routes() []front.Route {
	return []front.Route{
		{Name: "put_index", Method: http.MethodPut, Path: "/indexes/{name}", Params: []string{}, Handler: c.putIndex},
		{Name: "get_index", Method: http.MethodGet, Path: "/indexes/{name}", Params: []string{}, Handler: c.getIndex},
		{Name: "delete_index", Method: http.MethodDelete, Path: "/indexes/{name}", Params: []string{}, Handler: c.deleteIndex},
		{Name: "list_indexes", Method: http.MethodGet, Path: "/indexes", Params: []string{}, Handler: c.listIndexes},
		{Name: "put_document", Method: http.MethodPost, Path: "/index", Params: []string{indexParam}, Handler: c.putDocument},
		{Name: "delete_document", Method: http.MethodDelete, Path: "/index", Params: []string{indexParam, "id"}, Handler: c.deleteDocument},
		{Name: "bulk", Method: http.MethodPost, Path: "/index/bulk", Params: []string{indexParam}, Handler: c.bulk},
		{Name: "get_document", Method: http.MethodGet, Path: "/doc", Params: []string{indexParam, "id"}, Handler: c.getDocument},
		{Name: "search", Method: http.MethodGet, Path: "/search", Handler: c.search},
		{Name: "search", Method: http.MethodPost, Path: "/search", Params: []string{indexParam}, Handler: c.searchBody},
		{Name: "knn_recall", Method: http.MethodGet, Path: "/knn_recall", Params: recallParams, Handler: c.knnRecall},
		{Name: "ring", Method: http.MethodGet, Path: "/_ring", Params: []string{}, Bodyless: true, Handler: c.ring},
		{Name: "placement", Method: http.MethodGet, Path: "/_placement", Params: []string{"id"}, Bodyless: true, Handler: c.placement},
		{Name: "plan", Method: http.MethodGet, Path: "/_plan", Params: []string{indexParam, "shards"}, Bodyless: true, Handler: c.plan},
		{Name: "topology", Method: http.MethodGet, Path: "/_topology", Params: []string{}, Bodyless: true, Handler: c.topology},
		{Name: "change_topology", Method: http.MethodPost, Path: "/_topology", Params: topologyParams, Bodyless: true, Handler: c.changeTopology},
		{Name: "rebalance", Method: http.MethodPost, Path: "/_rebalance", Params: []string{"from", "to", "wait"}, Bodyless: true, Handler: c.rebalance},
		{Name: "repair", Method: http.MethodPost, Path: "/_repair", Params: []string{"wait", "force"}, Bodyless: true, Handler: c.repair},
		{Name: "list_jobs", Method: http.MethodGet, Path: "/_jobs", Params: []string{}, Bodyless: true, Handler: c.listJobs},
		{Name: "get_job", Method: http.MethodGet, Path: "/_jobs/{id}", Params: []string{}, Bodyless: true, Handler: c.getJob},
		{Name: "change_job", Method: http.MethodPost, Path: "/_jobs/{id}", Params: []string{"action"}, Bodyless: true, Handler: c.changeJob},
		{Name: "healthz", Method: http.MethodGet, Path: "/healthz", Params: []string{}, Always: true, Handler: c.healthz},
		{Name: "readyz", Method: http.MethodGet, Path: "/readyz", Params: []string{}, Always: true, Handler: c.readyz},
		{Name: "metrics", Method: http.MethodGet, Path: "/metrics", Params: []string{}, Always: true, Handler: c.metricsPage},
		{Name: "openapi", Method: http.MethodGet, Path: "/openapi.json", Params: []string{}, Always: true, Handler: front.OpenAPI},
	}
}

func (c *Coordinator) healthz(call *front.Call) *api.Problem {
	b := append([]byte(nil), `{"status":"ok","id":`...)
	b = api.AppendString(b, c.id)
	b = append(b, `,"version":`...)
	b = api.AppendString(b, c.cfg.Version)
	return call.JSON(http.StatusOK, append(b, '}'))
}

// readyz says yes when the shard map is known. Members that cannot be reached do not count: other coordinators would reach them no
// better, and what is there can be answered.
func (c *Coordinator) readyz(call *front.Call) *api.Problem {
	s := c.members.State()
	ready := s != nil && !c.front.Closing()
	b := strconv.AppendBool([]byte(`"ready":`), ready)
	if s != nil {
		b = append(b, `,"epoch":`...)
		b = strconv.AppendUint(b, s.Epoch(), 10)
		b = append(b, `,"groups":`...)
		b = strconv.AppendInt(b, int64(len(s.Groups)), 10)
	}
	switch {
	case c.front.Closing():
		return &api.Problem{Code: api.ShuttingDown, Detail: "the server is shutting down", Extra: b}
	case !ready:
		p := notReady()
		p.Extra = b
		return p
	}
	return call.JSON(http.StatusOK, append(append([]byte{'{'}, b...), '}'))
}

func (c *Coordinator) metricsPage(call *front.Call) *api.Problem {
	return call.Serve(c.cfg.Metrics.Handler())
}
