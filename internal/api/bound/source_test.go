package bound

import (
	"strings"
	"testing"
)

func TestSelector(t *testing.T) {
	const doc = `{"id":"1","a":{"b":1,"c":{"d":2,"e":3}},"a.f":4,"list":[{"x":1,"y":2},{"y":3},5],"é":"ü\u0000"}`
	tests := []struct {
		name  string
		mode  pickMode
		names []string
		want  string
	}{
		{"one", pickNamed, []string{"id"}, `{"id":"1"}`},
		{"none that is there", pickNamed, []string{"zz"}, `{}`},
		{"order of the document", pickNamed, []string{"é", "id"}, `{"id":"1","é":"ü\u0000"}`},
		{"path", pickNamed, []string{"a.c.d"}, `{"a":{"c":{"d":2}}}`},
		{"written with a dot", pickNamed, []string{"a.f"}, `{"a":{},"a.f":4}`},
		{"whole", pickNamed, []string{"a", "a.b"}, `{"a":{"b":1,"c":{"d":2,"e":3}}}`},
		{"in an array", pickNamed, []string{"list.x"}, `{"list":[{"x":1},{}]}`},
		{"hidden", pickAllOther, []string{"id", "list.y", "a.c"}, `{"a":{"b":1},"a.f":4,"list":[{"x":1},{},5],"é":"ü\u0000"}`},
		{"all", pickAll, nil, doc},
	}
	for _, tt := range tests {
		got, err := newSelectorFor(tt.mode, tt.names).Apply([]byte(doc))
		if err != nil || string(got) != tt.want {
			t.Errorf("%s: %s, %v; want %s", tt.name, got, err, tt.want)
		}
	}
	if _, err := newSelector(pickNamed, []string{"a"}).Apply([]byte(`{"a":`)); err == nil {
		t.Error("damaged source was accepted")
	}
}

func newSelectorFor(mode pickMode, names []string) Selector {
	if mode == pickAll {
		return Selector{}
	}
	return newSelector(mode, names)
}

func BenchmarkSelector(b *testing.B) {
	src := []byte(`{"id":"net/http.Client.Do","package":"net/http","kind":"method","name":"Do","signature":"func (c *Client) Do(req *Request) (*Response, error)","doc":"` +
		strings.Repeat("Do sends an HTTP request and returns an HTTP response, following policy.\\n", 6) + `","line":217,"v":[` + strings.Repeat("0.12345,", 63) + `0.5]}`)
	s := newSelector(pickAllOther, []string{"v"})
	b.SetBytes(int64(len(src)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Apply(src); err != nil {
			b.Fatal(err)
		}
	}
}
