package node

import (
	"net/http"

	"github.com/weft-search/weft/internal/api"
)

// route is one call of the HTTP surface. The OpenAPI document has exactly these.
type route struct {
	name    string // in metrics and logs
	method  string
	path    string   // as in the OpenAPI document
	params  []string // of the URL's query part; nil: the handler reads them itself
	always  bool     // answered also while the node is closing
	handler func(n *Node, c *call) *api.Problem
}

// indexParam is the parameter of every data call.
const indexParam = "index"

func routes() []route {
	return []route{
		{name: "put_index", method: http.MethodPut, path: "/indexes/{name}", params: []string{}, handler: (*Node).putIndex},
		{name: "get_index", method: http.MethodGet, path: "/indexes/{name}", params: []string{}, handler: (*Node).getIndex},
		{name: "delete_index", method: http.MethodDelete, path: "/indexes/{name}", params: []string{}, handler: (*Node).deleteIndex},
		{name: "list_indexes", method: http.MethodGet, path: "/indexes", params: []string{}, handler: (*Node).listIndexes},
		{name: "put_document", method: http.MethodPost, path: "/index", params: []string{indexParam}, handler: (*Node).putDocument},
		{name: "delete_document", method: http.MethodDelete, path: "/index", params: []string{indexParam, "id"}, handler: (*Node).deleteDocument},
		{name: "bulk", method: http.MethodPost, path: "/index/bulk", params: []string{indexParam}, handler: (*Node).bulk},
		{name: "get_document", method: http.MethodGet, path: "/doc", params: []string{indexParam, "id"}, handler: (*Node).getDocument},
		{name: "search", method: http.MethodGet, path: "/search", handler: (*Node).search},
		{name: "search", method: http.MethodPost, path: "/search", params: []string{indexParam}, handler: (*Node).searchBody},
		{name: "knn_recall", method: http.MethodGet, path: "/knn_recall", params: recallParams, handler: (*Node).knnRecall},
		{name: "healthz", method: http.MethodGet, path: "/healthz", params: []string{}, always: true, handler: (*Node).healthz},
		{name: "readyz", method: http.MethodGet, path: "/readyz", params: []string{}, always: true, handler: (*Node).readyz},
		{name: "metrics", method: http.MethodGet, path: "/metrics", params: []string{}, always: true, handler: (*Node).metricsPage},
		{name: "openapi", method: http.MethodGet, path: "/openapi.json", params: []string{}, always: true, handler: (*Node).openAPI},
	}
}
