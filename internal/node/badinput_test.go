package node

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/weft-search/weft/internal/api"
)

// TestBadInput walks what a caller can get wrong: each gives a clear error that names the thing and its place, and changes nothing.
func TestBadInput(t *testing.T) {
	s := newServer(t, Config{})
	s.do("PUT", "/indexes/books", "text/plain", bookSchema).want(201)
	s.put("books", `{"id":"1","title":"a good book","year":2001}`)
	s.put("loose", `{"id":"1","n":1}`)

	const (
		jsonType = "application/json"
		books    = "/index?index=books"
		loose    = "/index?index=loose"
		find     = "/search?index=books&"
	)
	long := func(n int) string { return strings.Repeat("a", n) }
	type details struct {
		field    string
		line     float64 // 0: not looked at
		column   float64 // 0: not looked at
		position float64 // -1: not looked at
		limit    float64 // 0: not looked at
	}
	none := details{position: -1}
	on := func(field string) details { return details{field: field, position: -1} }
	at := func(field string, line, position float64) details {
		return details{field: field, line: line, position: position}
	}
	inSchema := func(line, column float64) details { return details{line: line, column: column, position: -1} }
	within := func(field string, limit float64) details { return details{field: field, position: -1, limit: limit} }
	tests := []struct {
		name, method, target, ctype, body string
		status                            int
		code                              api.Code
		want                              details
	}{
		{"unknown path", "GET", "/nope", "", "", 404, api.NotFound, none},
		{"slash at the end", "GET", "/search/", "", "", 404, api.NotFound, none},
		{"wrong method", "PATCH", "/index", "", "", 405, api.MethodNotAllowed, none},
		{"unknown parameter", "GET", "/doc?id=1&nope=2", "", "", 400, api.UnknownParameter, on("nope")},
		{"unknown parameter of search", "GET", find + "nope=2", "", "", 400, api.UnknownParameter, on("nope")},
		{"repeated parameter", "GET", "/doc?id=1&id=2", "", "", 400, api.RepeatedParameter, on("id")},
		{"bad escape", "GET", "/doc?id=%zz", "", "", 400, api.InvalidParameter, none},
		{"parameter not UTF-8", "GET", "/doc?id=%ff", "", "", 400, api.InvalidUTF8, on("id")},
		{"bad index name", "GET", "/search?index=..%2Fetc", "", "", 400, api.InvalidIndexName, on("index")},
		{"empty index name", "POST", "/index?index=", jsonType, `{"id":"1"}`, 400, api.InvalidIndexName, on("index")},
		{"long URL", "GET", find + "q=" + long(70_000), "", "", 414, api.URITooLong, within("", 65_536)},

		{"no id", "GET", "/doc?index=books", "", "", 400, api.MissingParameter, on("id")},
		{"empty id", "GET", "/doc?index=books&id=", "", "", 400, api.InvalidID, on("id")},
		{"long id", "GET", "/doc?index=books&id=" + long(513), "", "", 400, api.InvalidID, within("id", 512)},
		{"empty id to delete", "DELETE", "/index?index=books&id=", "", "", 400, api.InvalidID, on("id")},

		{"wrong content type", "POST", books, "application/xml", `<a/>`, 415, api.UnsupportedMediaType, on("Content-Type")},
		{"form", "POST", books, "application/x-www-form-urlencoded", `{"id":"1"}`, 415, api.UnsupportedMediaType, on("Content-Type")},
		{"no media type", "POST", books, ";;", `{"id":"1"}`, 415, api.UnsupportedMediaType, on("Content-Type")},
		{"wrong charset", "POST", books, "application/json; charset=latin1", `{"id":"1"}`, 415, api.UnsupportedMediaType, on("Content-Type")},
		{"empty body", "POST", books, jsonType, "", 400, api.InvalidJSON, at("", 1, 0)},
		{"not JSON", "POST", books, jsonType, "{\n \"id\": \"1\",\n \"title\": nope}", 400, api.InvalidJSON, at("", 3, 24)},
		{"broken off", "POST", books, jsonType, `{"id":"1","title":"x`, 400, api.InvalidJSON, at("", 1, 20)},
		{"an array", "POST", books, jsonType, `[{"id":"1"}]`, 400, api.InvalidJSON, at("", 1, 0)},
		{"two documents", "POST", books, jsonType, `{"id":"1"} {"id":"2"}`, 400, api.InvalidJSON, at("", 1, 11)},
		{"invalid UTF-8", "POST", books, jsonType, "{\"id\":\"1\",\"title\":\"a\xffb\"}", 400, api.InvalidUTF8, at("", 1, 20)},
		{"lone surrogate", "POST", books, jsonType, `{"id":"1","title":"\ud800"}`, 400, api.InvalidUTF8, at("", 1, 19)},
		{"repeated member", "POST", books, jsonType, `{"id":"1","title":"a","title":"b"}`, 400, api.DuplicateMember, on("title")},
		{"no id in the document", "POST", books, jsonType, `{"title":"a"}`, 400, api.MissingID, on("id")},
		{"empty id in the document", "POST", books, jsonType, `{"id":"","title":"a"}`, 400, api.InvalidID, on("id")},
		{"number as id", "POST", books, jsonType, `{"id":1}`, 400, api.InvalidID, on("id")},
		{"id of 5 MB", "POST", books, jsonType, `{"id":"` + long(5<<20) + `"}`, 400, api.InvalidID, on("id")},
		{"unknown field", "POST", books, jsonType, `{"id":"1","colour":"red"}`, 400, api.UnknownField, on("colour")},
		{"wrong type", "POST", books, jsonType, `{"id":"1","year":"old"}`, 400, api.TypeConflict, on("year")},
		{"wrong type of an inferred field", "POST", loose, jsonType, `{"id":"1","n":"old"}`, 400, api.TypeConflict, on("n")},
		{"NaN", "POST", loose, jsonType, `{"id":"1","n":NaN}`, 400, api.InvalidJSON, at("", 1, 14)},
		{"infinity", "POST", loose, jsonType, `{"id":"1","n":Infinity}`, 400, api.InvalidJSON, at("", 1, 14)},
		{"number over the range", "POST", loose, jsonType, `{"id":"1","x":1e999}`, 400, api.NumberOutOfRange, at("", 1, 14)},
		{"integer over the range", "POST", books, jsonType, `{"id":"1","year":9223372036854775808}`, 400, api.NumberOutOfRange, on("year")},
		{"over-long field", "POST", books, jsonType, `{"id":"1","title":"` + long(8<<20+1) + `"}`, 400, api.ValueTooLong, on("title")},
		{"over-long document", "POST", books, jsonType, `{"id":"1","title":"` + long(16<<20) + `"}`, 413, api.DocumentTooLarge, within("", 16<<20)},
		{"deep nesting", "POST", loose, jsonType, `{"id":"1"` + strings.Repeat(`,"a":{"b":1`, 50) + strings.Repeat("}", 51), 400, api.TooDeep, none},
		{"nothing becomes an index", "POST", "/index?index=fresh", jsonType, `{"id":""}`, 400, api.InvalidID, on("id")},

		{"bulk of another type", "POST", "/index/bulk?index=books", "text/csv", "a,b", 415, api.UnsupportedMediaType, on("Content-Type")},
		{"bulk of nothing that fits", "POST", "/index/bulk?index=books", "application/x-ndjson", "{}\n[]\n", 400, api.NothingApplied, none},

		{"syntax", "GET", find + "q=good+AND+", "", "", 400, api.InvalidQuery, on("q")},
		{"open quote", "GET", find + `q=a+%22open`, "", "", 400, api.InvalidQuery, on("q")},
		{"query over 64 KiB", "POST", "/search?index=books", jsonType, `{"q":"` + long(70_000) + `"}`, 400, api.QueryLimit, within("q", 65_536)},
		{"query of 10 MB", "POST", "/search?index=books", jsonType, `{"q":"` + long(10<<20) + `"}`, 413, api.BodyTooLarge, within("", 1<<20)},
		{"query of 10 MB in the URL", "GET", find + "q=" + long(10<<20), "", "", 414, api.URITooLong, within("", 65_536)},
		{"deep query", "GET", find + "q=" + strings.Repeat("(", 40) + "a" + strings.Repeat(")", 40), "", "", 400, api.QueryLimit, on("q")},
		{"unknown field of a query", "GET", find + "q=a+OR+colour:red", "", "", 400, api.UnknownField, at("colour", 0, 5)},
		{"field that is not indexed", "GET", find + "q=note:%3E%3D3", "", "", 400, api.FieldNotFast, on("note")},
		{"bound of another type", "GET", find + "q=year:%5Ba+TO+b%5D", "", "", 400, api.InvalidBound, at("year", 0, 0)},
		{"unknown default field", "GET", find + "q=a&default_fields=title,colour", "", "", 400, api.UnknownField, on("colour")},
		{"default field without text", "GET", find + "q=a&default_fields=year", "", "", 400, api.FieldNotSearchable, on("year")},
		{"unknown source field", "GET", find + "q=a&fields=colour", "", "", 400, api.UnknownField, on("colour")},
		{"source field that is not stored", "GET", find + "q=a&fields=note", "", "", 400, api.InvalidField, on("note")},
		{"too deep a page", "GET", find + "q=a&offset=9999&limit=2", "", "", 400, api.InvalidParameter, within("offset", 10_000)},
		{"score over the range", "GET", find + "q=(good%5E3e38)%5E3e38", "", "", 400, api.ScoreOverflow, on("q")},
		{"search in another type", "POST", "/search", "text/plain", "a", 415, api.UnsupportedMediaType, on("Content-Type")},
		{"search with an unknown member", "POST", "/search?index=books", jsonType, `{"q":"a","nope":1}`, 400, api.UnknownParameter, on("nope")},
		{"search with bad JSON", "POST", "/search?index=books", jsonType, "{\"q\":\"a\"\n \"limit\":1}", 400, api.InvalidJSON, at("", 2, 10)},
		{"search with a parameter in the URL", "POST", "/search?q=a", jsonType, `{}`, 400, api.UnknownParameter, on("q")},

		{"search that is not an object", "POST", "/search", jsonType, "\n [1]", 400, api.InvalidJSON, at("", 2, 2)},
		{"search of two objects", "POST", "/search", jsonType, "{}\n{}", 400, api.InvalidJSON, at("", 2, 3)},
		{"search that is not UTF-8", "POST", "/search", jsonType, "{\"q\":\"\xff\"}", 400, api.InvalidUTF8, at("", 1, 6)},
		{"search with a lone surrogate", "POST", "/search", jsonType, `{"q":"\ud800"}`, 400, api.InvalidUTF8, at("", 1, 6)},
		{"search with a nameless field", "POST", "/search", jsonType, `{"fields":[""]}`, 400, api.InvalidParameter, on("fields")},
		{"limit beyond every number", "GET", find + "limit=99999999999999999999", "", "", 400, api.InvalidParameter, within("limit", 10_000)},
		{"timeout below every number", "GET", find + "timeout_ms=-99999999999999999999", "", "", 400, api.InvalidParameter, within("timeout_ms", 600_000)},
		{"share in hexadecimal", "GET", find + "min_coverage=0x1p-1", "", "", 400, api.InvalidParameter, on("min_coverage")},
		{"path with an empty element", "GET", "http://x//search?index=books", "", "", 404, api.NotFound, none},
		{"path with dots", "GET", "/indexes/../search?index=books", "", "", 404, api.NotFound, none},
		{"index called dot", "PUT", "/indexes/.", "", "", 404, api.NotFound, none},
		{"index called dot, escaped", "PUT", "/indexes/%2e", "", "", 400, api.InvalidIndexName, on("index")},
		{"index name with a NUL", "GET", "/indexes/a%00", "", "", 400, api.InvalidIndexName, on("index")},

		{"schema with a fault", "PUT", "/indexes/new", "text/plain", "index new {\n  field id text\n}", 400, api.InvalidSchema, inSchema(2, 12)},
		{"schema in bad JSON", "PUT", "/indexes/new", jsonType, `{"fields":`, 400, api.InvalidSchema, inSchema(1, 11)},
		{"schema with an unknown tokenizer", "PUT", "/indexes/new", "text/plain", "index new {\n  field title: text<nope> [indexed]\n}", 400, api.InvalidSchema, inSchema(2, 21)},
		{"schema that is not UTF-8", "PUT", "/indexes/new", "text/plain", "index \xff {}", 400, api.InvalidUTF8, none},
		{"schema of another type", "PUT", "/indexes/new", "application/xml", "<a/>", 415, api.UnsupportedMediaType, on("Content-Type")},
		{"schema that is too long", "PUT", "/indexes/new", "text/plain", long(1<<20 + 1), 413, api.BodyTooLarge, within("", 1<<20)},
		{"index with a bad name", "PUT", "/indexes/-x", "text/plain", bookSchema, 400, api.InvalidIndexName, on("index")},
		{"index with an escaped slash", "PUT", "/indexes/a%2Fb", "text/plain", bookSchema, 400, api.InvalidIndexName, on("index")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &server{t: t, node: s.node}
			p := s.do(tt.method, tt.target, tt.ctype, tt.body).problem(tt.status, tt.code)
			if tt.want.field != "" && p["field"] != tt.want.field {
				t.Errorf("field %v, want %q: %v", p["field"], tt.want.field, p["detail"])
			}
			if tt.want.line != 0 && p["line"] != tt.want.line {
				t.Errorf("line %v, want %v: %v", p["line"], tt.want.line, p["detail"])
			}
			if tt.want.column != 0 && p["column"] != tt.want.column {
				t.Errorf("column %v, want %v: %v", p["column"], tt.want.column, p["detail"])
			}
			if tt.want.position >= 0 && p["position"] != tt.want.position {
				t.Errorf("position %v, want %v: %v", p["position"], tt.want.position, p["detail"])
			}
			if tt.want.limit != 0 && p["limit"] != tt.want.limit {
				t.Errorf("limit %v, want %v: %v", p["limit"], tt.want.limit, p["detail"])
			}
			if detail, _ := p["detail"].(string); detail == "" || len(detail) > 700 {
				t.Errorf("detail %.800q", detail)
			}
			if p["request_id"] == "" || p["type"] != api.TypePrefix+string(tt.code) {
				t.Errorf("type %v, request id %v", p["type"], p["request_id"])
			}
		})
	}
	if p := s.do("GET", find+"q=good+AND+", "", "").json(); p["position"] == nil || p["expected"] == nil {
		t.Errorf("a syntax error without position or expectation: %v", p)
	}
	if got := s.do("PATCH", "/index", "", "").header.Get("Allow"); got != "DELETE, POST" {
		t.Errorf("Allow %q", got)
	}
	// Nothing of all this has left a trace.
	for index, want := range map[string]float64{"books": 1, "loose": 1} {
		if _, total := s.ids("/search?index=" + index); total != want {
			t.Errorf("%s has %v documents", index, total)
		}
	}
	s.do("GET", "/indexes/fresh", "", "").problem(404, api.IndexNotFound)
	s.do("GET", "/indexes/new", "", "").problem(404, api.IndexNotFound)
}

// TestWrongContentTypeSaysWhatToSend: -d of curl sends the type of a form.
func TestWrongContentTypeSaysWhatToSend(t *testing.T) {
	s := newServer(t, Config{})
	for target, want := range map[string]string{"/index": "application/json", "/search": "application/json", "/index/bulk": "application/x-ndjson"} {
		p := s.do("POST", target, "application/x-www-form-urlencoded", `{"id":"1"}`).problem(415, api.UnsupportedMediaType)
		if detail := p["detail"].(string); !strings.Contains(detail, "-H 'Content-Type: "+want+"'") || !strings.Contains(detail, "curl adds") {
			t.Errorf("%s: detail %q", target, detail)
		}
	}
}

func TestProblemsOfAQueryNameTheField(t *testing.T) {
	s := newServer(t, Config{})
	s.put("default", `{"id":"1","n":1}`)
	for q, field := range map[string]string{"colour:red": "colour", "a+AND+_exists_:size.w": "size.w", "n:%5Ba+TO+b%5D": "n"} {
		p := s.do("GET", "/search?q="+q, "", "").want(400).json()
		if p["field"] != field || !strings.Contains(p["detail"].(string), `field "`+field+`"`) {
			t.Errorf("%s: field %v, detail %v", q, p["field"], p["detail"])
		}
	}
}

// TestIDsOfAllKinds writes, reads and deletes documents whose ids need care in a URL.
func TestIDsOfAllKinds(t *testing.T) {
	s := newServer(t, Config{})
	ids := []string{"a/b", "a b", " ", "a+b", "a&b=c", "%41", "..", "日本", "a\nb", "a\x00b", strings.Repeat("x", 512), strings.Repeat("é", 256)}
	for _, id := range ids {
		quoted := string(api.AppendString(nil, id))
		if m := s.put("default", `{"id":`+quoted+`,"t":"x"}`); m["id"] != id {
			t.Errorf("id %q became %q", id, m["id"])
		}
	}
	if _, total := s.ids("/search?q=x&limit=100"); total != float64(len(ids)) {
		t.Errorf("%v documents", total)
	}
	for _, id := range ids {
		in := url.QueryEscape(id)
		if m := s.do("GET", "/doc?id="+in, "", "").want(200).json(); m["id"] != id || m["source"].(map[string]any)["id"] != id {
			t.Errorf("id %q: %v", id, m)
		}
		if m := s.do("DELETE", "/index?id="+in, "", "").want(200).json(); m["deleted"] != 1.0 {
			t.Errorf("id %q was not deleted", id)
		}
	}
}

// TestManyNamesInAList repeats names up to the length of the body: the work is bounded by the schema.
func TestManyNamesInAList(t *testing.T) {
	s := newServer(t, Config{})
	s.put("default", `{"id":"1","t":"x","n":1}`)
	names := strings.Repeat(`"t",`, 20_000) + `"n"`
	for _, body := range []string{`{"fields":[` + names + `]}`, `{"q":"x","default_fields":[` + names[:len(names)-4] + `]}`} {
		if got := s.do("POST", "/search", "application/json", body).want(200).json(); got["total"] != 1.0 {
			t.Errorf("%v", got)
		}
	}
}

func TestContentEncodingIsRefused(t *testing.T) {
	s := newServer(t, Config{})
	h := http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}}
	s.sendHeader("POST", "/index", h, "\x1f\x8b").problem(415, api.UnsupportedEncoding)
	h.Set("Content-Encoding", "identity")
	s.sendHeader("POST", "/index", h, `{"id":"1"}`).want(200)
}

func TestRequestIDIsKept(t *testing.T) {
	s := newServer(t, Config{})
	a := s.sendHeader("GET", "/doc?id=1", http.Header{"X-Request-Id": {"mine-1"}}, "")
	if p := a.problem(404, api.IndexNotFound); p["request_id"] != "mine-1" || a.header.Get("X-Request-Id") != "mine-1" {
		t.Errorf("request id %v in the body, %q in the header", p["request_id"], a.header.Get("X-Request-Id"))
	}
	if got := s.sendHeader("GET", "/healthz", http.Header{"X-Request-Id": {"bad id\x00"}}, "").header.Get("X-Request-Id"); len(got) != 32 {
		t.Errorf("a bad request id became %q", got)
	}
}

func TestIndexLimit(t *testing.T) {
	s := newServer(t, Config{Limits: Limits{Indexes: 2}})
	s.put("a", `{"id":"1"}`)
	s.put("b", `{"id":"1"}`)
	if p := s.do("POST", "/index?index=c", "application/json", `{"id":"1"}`).problem(429, api.IndexLimit); p["limit"] != 2.0 || p["retry_after_ms"] == nil {
		t.Errorf("refusal %v", p)
	}
	s.do("DELETE", "/indexes/a", "", "").want(200)
	s.put("c", `{"id":"1"}`)
}

func TestReplyLimit(t *testing.T) {
	s := newServer(t, Config{Limits: Limits{ReplyBytes: 1000}})
	for _, id := range []string{"1", "2", "3"} {
		s.put("default", `{"id":"`+id+`","t":"`+strings.Repeat("x", 400)+`"}`)
	}
	s.do("GET", "/search?limit=2", "", "").want(200)
	if p := s.do("GET", "/search?limit=3", "", "").problem(400, api.ReplyTooLarge); p["limit"] != 1000.0 {
		t.Errorf("refusal %v", p)
	}
	s.do("GET", "/search?limit=3&fields=", "", "").want(200)
}
