package node

import (
	"net/http"

	"github.com/weft-search/weft/internal/front"
)

// indexParam is the parameter of every data call.
const indexParam = front.IndexParam

// routes are the calls of the HTTP surface. The OpenAPI document has exactly these.
func (n *Node) routes() []front.Route {
	return []front.Route{
		{Name: "put_index", Method: http.MethodPut, Path: "/indexes/{name}", Params: []string{}, Handler: n.putIndex},
		{Name: "get_index", Method: http.MethodGet, Path: "/indexes/{name}", Params: []string{}, Handler: n.getIndex},
		{Name: "delete_index", Method: http.MethodDelete, Path: "/indexes/{name}", Params: []string{}, Handler: n.deleteIndex},
		{Name: "list_indexes", Method: http.MethodGet, Path: "/indexes", Params: []string{}, Handler: n.listIndexes},
		{Name: "put_document", Method: http.MethodPost, Path: "/index", Params: []string{indexParam}, Handler: n.putDocument},
		{Name: "delete_document", Method: http.MethodDelete, Path: "/index", Params: []string{indexParam, "id"}, Handler: n.deleteDocument},
		{Name: "bulk", Method: http.MethodPost, Path: "/index/bulk", Params: []string{indexParam}, Handler: n.bulk},
		{Name: "commit", Method: http.MethodPost, Path: "/commit", Params: []string{indexParam}, Bodyless: true, Handler: n.commitIndex},
		{Name: "get_document", Method: http.MethodGet, Path: "/doc", Params: []string{indexParam, "id"}, Handler: n.getDocument},
		{Name: "search", Method: http.MethodGet, Path: "/search", Handler: n.search},
		{Name: "search", Method: http.MethodPost, Path: "/search", Params: []string{indexParam}, Handler: n.searchBody},
		{Name: "knn_recall", Method: http.MethodGet, Path: "/knn_recall", Params: recallParams, Handler: n.knnRecall},
		{Name: "healthz", Method: http.MethodGet, Path: "/healthz", Params: []string{}, Always: true, Handler: n.healthz},
		{Name: "readyz", Method: http.MethodGet, Path: "/readyz", Params: []string{}, Always: true, Handler: n.readyz},
		{Name: "metrics", Method: http.MethodGet, Path: "/metrics", Params: []string{}, Always: true, Handler: n.metricsPage},
		{Name: "openapi", Method: http.MethodGet, Path: "/openapi.json", Params: []string{}, Always: true, Handler: front.OpenAPI},
	}
}
