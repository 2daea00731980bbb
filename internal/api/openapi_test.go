package api

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

func loadDoc(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(OpenAPI)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(context.Background(), openapi3.IsOpenAPI31OrLater()); err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestDocumentListsEveryCode(t *testing.T) {
	doc := loadDoc(t)
	var got []string
	for _, v := range doc.Components.Schemas["Problem"].Value.Properties["code"].Value.Enum {
		got = append(got, v.(string))
	}
	var want []string
	for code := range Codes {
		want = append(want, string(code))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("codes in the document:\n%v\nin the table:\n%v", got, want)
	}
}

// TestPageListsEveryCode compares the table of problems in docs/http.md with the one in code.
func TestPageListsEveryCode(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "http.md"))
	if err != nil {
		t.Fatal(err)
	}
	listed := map[Code]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)` \\| ([0-9]{3}) \\|").FindAllStringSubmatch(string(page), -1) {
		listed[Code(row[1])] = row[2]
	}
	for code, info := range Codes {
		if listed[code] != strconv.Itoa(info.Status) {
			t.Errorf("%s is %d, the page says %q", code, info.Status, listed[code])
		}
		delete(listed, code)
	}
	for code := range listed {
		t.Errorf("%s is on the page only", code)
	}
}

func TestDocumentHasTheParametersOfSearch(t *testing.T) {
	doc := loadDoc(t)
	var taken []string
	for _, p := range searchParams {
		taken = append(taken, p.name)
	}
	slices.Sort(taken)
	path := doc.Paths.Find("/search")
	var inURL []string
	for _, p := range path.Get.Parameters {
		inURL = append(inURL, p.Value.Name)
	}
	slices.Sort(inURL)
	if !slices.Equal(inURL, taken) {
		t.Errorf("GET /search: document has %v, code takes %v", inURL, taken)
	}
	var inBody []string
	for name := range path.Post.RequestBody.Value.Content["application/json"].Schema.Value.Properties {
		inBody = append(inBody, name)
	}
	slices.Sort(inBody)
	if !slices.Equal(inBody, taken) {
		t.Errorf("POST /search: document has %v, code takes %v", inBody, taken)
	}
}
