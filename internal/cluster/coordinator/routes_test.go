package coordinator

import (
	"slices"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"

	"github.com/weft-search/weft/internal/api"
)

func TestRoutesAndDocumentAgree(t *testing.T) {
	doc, err := openapi3.NewLoader().LoadFromData(api.OpenAPI)
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, rt := range (&Coordinator{}).routes() {
		have[rt.Method+" "+rt.Path] = true
		item := doc.Paths.Find(rt.Path)
		if item == nil || item.GetOperation(rt.Method) == nil {
			t.Errorf("%s %s is not in the document", rt.Method, rt.Path)
			continue
		}
		if rt.Params == nil {
			continue // those of search are compared where they are defined
		}
		var documented []string
		for _, p := range item.GetOperation(rt.Method).Parameters {
			if p.Value.In == "query" {
				documented = append(documented, p.Value.Name)
			}
		}
		if d := cmp.Diff(slices.Sorted(slices.Values(rt.Params)), slices.Sorted(slices.Values(documented))); len(documented)+len(rt.Params) > 0 && d != "" {
			t.Errorf("%s %s: parameters in code and document: %s", rt.Method, rt.Path, d)
		}
	}
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			if !have[method+" "+path] && item.GetOperation(method).Extensions["x-weft-role"] != "node" {
				t.Errorf("%s %s is in the document only", method, path)
			}
		}
	}
}
