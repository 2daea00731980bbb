package framed

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weft-search/weft/internal/wire/frame"
)

// script is a client as somebody would write it in an afternoon: a socket, four bytes of length, JSON.
type script struct {
	t    *testing.T
	conn net.Conn
}

func connect(t *testing.T, addr string) *script {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return &script{t, conn}
}

func (s *script) send(request string) {
	s.t.Helper()
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(request)))
	if _, err := s.conn.Write(append(b, request...)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *script) receive() string {
	s.t.Helper()
	var length [4]byte
	if _, err := io.ReadFull(s.conn, length[:]); err != nil {
		s.t.Fatal(err)
	}
	body := make([]byte, binary.LittleEndian.Uint32(length[:]))
	if _, err := io.ReadFull(s.conn, body); err != nil {
		s.t.Fatal(err)
	}
	return string(body)
}

// closed checks that the server ends the connection.
func (s *script) closed() {
	s.t.Helper()
	if n, err := s.conn.Read(make([]byte, 1)); n != 0 || err == nil {
		s.t.Errorf("the connection is still open")
	}
}

const metaTail = `,"snapshot":{"instance":"17442066374219041001","version":"12","commit_ts":"9007199254740993"},"timings":{"queue_ms":0.012,"search_ms":1.5}}`

// Every operation, asked by hand, one after the other on one connection.
func TestScript(t *testing.T) {
	s := connect(t, serveLeaf(t, goldenLeaf(), frame.Limits{}))
	for _, c := range []struct{ request, want string }{
		{`{"op":"ping"}`, `{"ok":true,"node":"6b9d2f3c-5a1e-4c8e-9f51-0d6f5f3a7c11"}`},
		{` { "index" : "books", "op": "docs" } `, `{"ok":true,"docs":3` + metaTail},
		{`{"op":"docs","timeout_ms":250}`, `{"ok":true,"docs":3` + metaTail},
		{`{"op":"ids"}`, `{"ok":true,"ids":["b/1","b/2","ü \"3\""],"next":null` + metaTail},
		{`{"op":"ids","after":"b/1","limit":1}`, `{"ok":true,"ids":["b/2"],"next":"b/2"` + metaTail},
		{`{"op":"index","body":"{\"id\":\"b/1\"}"}`, `{"ok":true,"id":"b/1","members_ok":1,"members":1,"failed_addresses":[],"inferred":[{"field":"year","type":"i64","from":"integer"}]` + metaTail},
		{`{"op":"bulk","body":"{\"id\":\"\u0062\"}\n{}\n"}`, `{"ok":true,"indexed":2,"failed":0,"duplicates":0,"shards":1,"members_ok":1,"members":1,"failed_addresses":[],"took_ms":2.5,"errors":[]` + metaTail},
		{`{"op":"bulk","body":"bad\n"}`, `{"ok":false,"code":"nothing_applied","error":"none of the 1 documents was applied; see errors","status":400,"indexed":0,"failed":1,"duplicates":0,"shards":1,"members_ok":1,"members":1,"failed_addresses":[],"took_ms":2.5,"errors":[{"line":1,"id":"bad","code":"type_conflict","reason":"field \"price\": not a number"}]` + metaTail},
		{`{"op":"delete","id":"b/1"}`, `{"ok":true,"deleted":1,"members_ok":1,"members":1,"failed_addresses":[]` + metaTail},
		{`{"op":"search","query":"wind","limit":2}`, `{"ok":true,"hits":[["b/1",1.25,null],["b/2",0.1,null]],"docs":3,"total":2,"total_relation":"eq"` + metaTail},
		{`{"op":"search","query":"wind","limit":2,"sort":"num:price","order":"desc","filters":["kind:novel",{"terms":{"field":"kind","values":[]}}]}`, `{"ok":true,"hits":[["b/1",1.25,12.5],["b/2",0.1,null]],"docs":3,"total":2,"total_relation":"eq"` + metaTail},
		{`{"op":"search","sort":"serial,day,stock,kind","missing":"first"}`, `{"ok":true,"hits":[["b/1",1.25,[18446744073709551615,1700000000000,-9007199254740993,"n:"]],["b/2",0.1,[null,null,null,null]]],"docs":3,"total":2,"total_relation":"eq"` + metaTail},
		{`{"op":"search","sort":["serial",{"field":"kind"},"score","id"],"typed":true}`, `{"ok":true,"hits":[["b/1",1.25,["n:18446744073709551615","t:n:",1.25,"t:b/1"]],["b/2",0.1,[null,null,0.1,"t:b/2"]]],"docs":3,"total":2,"total_relation":"eq"` + metaTail},
		{`{"op":"search","sort":"score"}`, `{"ok":true,"hits":[["b/1",1.25,1.25],["b/2",0.1,0.1]],"docs":3,"total":2,"total_relation":"eq"` + metaTail},
		{`{"op":"search","sort":"id","after":["b/1",0,"b/1"]}`, `{"ok":true,"hits":[["b/1",1.25,"b/1"],["b/2",0.1,"b/2"]],"docs":3,"total":2,"total_relation":"eq"` + metaTail},
		{`{"op":"search","track_total":"none"}`, `{"ok":true,"hits":[["b/1",1.25,null],["b/2",0.1,null]],"docs":3,"total":null,"total_relation":"none"` + metaTail},
		{`{"op":"stats","terms":[["wind","title"],["é","notes"]]}`, `{"ok":true,"docs":3,"terms":[{"term":"é","field":"notes","df":1},{"term":"wind","field":"title","df":2}],"fields":{"notes":{"sum":18446744073709551615,"count":1},"title":{"sum":14,"count":3}}` + metaTail},
		{`{"op":"agg","query":"wind","specs":{},"values":["stock","kind","none"]}`, `{"ok":true,"aggs":{},"values":{"stock":[-1,9007199254740993],"kind":["novel","a\"b"],"none":[]},"types":{"stock":"i64","kind":"text","none":null},"docs":3,"matched":2` + metaTail},
		{`{"op":"knn","field":"v","vector":[1,0.5],"k":2}`, `{"ok":true,"hits":[["b/1",0.9999999],["b/2",-0.5]],"docs":3` + strings.TrimSuffix(metaTail, "}") + `,"approximate":["graph"]}`},
		{`{"op":"export","ids":["b/1","x"]}`, `{"ok":true,"docs":[{"id":"b/1","title":"wind"}],"ids":["b/1"],"missing":["x"]` + metaTail},
		{`{"op":"has","ids":["b/1","x"]}`, `{"ok":true,"missing":["x"]` + metaTail},
		{`{"op":"delete_many","ids":["b/1","b/2"]}`, `{"ok":true,"deleted":2` + metaTail},
		{`{"op":"info"}`, `{"ok":true,"node":"6b9d2f3c-5a1e-4c8e-9f51-0d6f5f3a7c11","version":"v1.2.3","index":{"name":"books","docs":3,"segments":2,"bytes":4096,"schema":` + quoted(goldenSDL) + `,"dynamic":false,"state":"open"}` + metaTail},
	} {
		s.send(c.request)
		if got := s.receive(); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.request, got, c.want)
		}
	}
}

func quoted(s string) string {
	return `"` + strings.NewReplacer("\n", `\n`, `"`, `\"`).Replace(s) + `"`
}

// What is wrong with a request is told by name, and the connection goes on.
func TestScriptOfMistakes(t *testing.T) {
	s := connect(t, serveLeaf(t, goldenLeaf(), frame.Limits{}))
	for _, c := range []struct{ request, code, in string }{
		{`{}`, "missing_parameter", `"field":"op"`},
		{`[1,2]`, "invalid_json", "not a JSON object"},
		{`7`, "invalid_json", "not a JSON object"},
		{`{"op":7}`, "invalid_parameter", "op: it is a string"},
		{`{"op":"frobnicate"}`, "invalid_parameter", `there is no operation \"frobnicate\"`},
		{`{"op":"ping","colour":1}`, "unknown_parameter", `ping has no member \"colour\"`},
		{`{"op":"docs","op":"ping"}`, "repeated_parameter", `"field":"op"`},
		{`{"op":"search","stats":{"docs":1,"docs":2}}`, "repeated_parameter", `"field":"docs"`},
		{`{"op":"search","stats":{"docs":1,"terms":[{"term":"a","term":"b","field":"f","df":1}],"fields":{}}}`, "repeated_parameter", `"field":"term"`},
		{`{"op":"search","stats":{"docs":1,"terms":[],"fields":{"f":{"sum":1,"count":1},"f":{"sum":1,"count":1}}}}`, "repeated_parameter", `"field":"f"`},
		{`{"op":"search","filters":["a",{"bool":{"must":["a"],"must":["b"]}}]}`, "repeated_parameter", `"field":"must"`},
		{`{"op":"search","sort":[{"field":"price","order":"asc","order":"desc"}]}`, "repeated_parameter", `"field":"order"`},
		{`{"op":"agg","specs":{"a":{"kind":"terms","kind":"terms","field":"kind"}}}`, "repeated_parameter", `"field":"kind"`},
		{`{"colour":{"a":1,"a":2},"op":"ping"}`, "unknown_parameter", `ping has no member \"colour\"`},
		{`{"colour":1,"colour":2,"op":"ping"}`, "repeated_parameter", `"field":"colour","line":1,"position":12`},
		{`{"op":"ping","` + strings.Repeat("a", 1000) + `":1}`, "unknown_parameter", strings.Repeat("a", 128) + "…"},
		{`{"op":"search","sort":"` + strings.Repeat("a", 1<<20) + `"}`, "invalid_parameter", `sort: it has 1048578 bytes, 1048576 are allowed","status":400,"field":"sort","limit":1048576`},
		{`{"op":"search","filters":[{"bool":{"a":1` + manyMembers(64) + `}}]}`, "invalid_parameter", "filters: an object in it has more than 64 members"},
		{`{"op":"docs","index":""}`, "invalid_index_name", "empty"},
		{`{"op":"docs","index":"a/b"}`, "invalid_index_name", `"position":1`},
		{`{"op":"docs","index":null}`, "invalid_parameter", "index: it is a string"},
		{`{"op":"docs","timeout_ms":0}`, "invalid_parameter", "timeout_ms"},
		{`{"op":"docs","timeout_ms":-1}`, "invalid_parameter", "timeout_ms"},
		{`{"op":"docs","timeout_ms":1e3}`, "invalid_parameter", "timeout_ms"},
		{`{"op":"docs","timeout_ms":9223372036854775807}`, "invalid_parameter", "timeout_ms"},
		{`{"op":"ids","limit":1.5}`, "invalid_parameter", "limit: it is a whole number"},
		{`{"op":"ids","limit":18446744073709551616}`, "invalid_parameter", "limit: it is a whole number"},
		{`{"op":"index"}`, "missing_parameter", "body: index needs it"},
		{`{"op":"index","body":{}}`, "invalid_parameter", "body: it is a string"},
		{`{"op":"bulk","body":["a"]}`, "invalid_parameter", "body: it is a string"},
		{`{"op":"bulk"}`, "missing_parameter", "body: bulk needs it"},
		{`{"op":"delete"}`, "missing_parameter", "id: delete needs it"},
		{`{"op":"delete","id":""}`, "invalid_id", `"field":"id"`},
		{`{"op":"search","query":"a AND"}`, "invalid_query", `"field":"query","position":5,"expected"`},
		{`{"op":"search","query":7}`, "invalid_parameter", "query: it is a string"},
		{`{"op":"search","filters":"a"}`, "invalid_parameter", "filters: it is an array"},
		{`{"op":"search","filters":["a","("]}`, "invalid_query", "filters 2: at byte 1"},
		{`{"op":"search","filters":[7]}`, "invalid_parameter", "filters: each is a query string or an object"},
		{`{"op":"search","filters":[{"colour":1}]}`, "unknown_parameter", `"field":"filters"`},
		{`{"op":"search","filters":[` + strings.Repeat(`"a",`, 64) + `"a"]}`, "invalid_parameter", `65 are given, 64 are allowed","status":400,"field":"filters","limit":64`},
		{`{"op":"search","sort":"a,,b"}`, "invalid_parameter", "sort: a key is empty"},
		{`{"op":"search","order":"up"}`, "invalid_parameter", "order: it is asc or desc"},
		{`{"op":"search","sort":"num:kind"}`, "field_not_sortable", "holds no numbers"},
		{`{"op":"search","default_op":"xor"}`, "invalid_parameter", "default_op: it is or, or and"},
		{`{"op":"search","track_total":-1}`, "invalid_parameter", "track_total"},
		{`{"op":"search","track_total":"some"}`, "invalid_parameter", "track_total"},
		{`{"op":"search","typed":1}`, "invalid_parameter", "typed: it is true or false"},
		{`{"op":"search","after":["a",1,2]}`, "invalid_parameter", "after: it is a hit"},
		{`{"op":"search","sort":"price","after":["a",1,null,4]}`, "invalid_parameter", "after: it is a hit"},
		{`{"op":"search","sort":"price","after":["a",1,"x"]}`, "invalid_parameter", "after: key 1 is not a value of its sort key"},
		{`{"op":"search","sort":"serial","after":["a",1,-1]}`, "invalid_parameter", "after: key 1 is not a value of its sort key"},
		{`{"op":"search","sort":"serial","after":["a",1,18446744073709551616]}`, "invalid_parameter", "after: key 1 is not a value of its sort key"},
		{`{"op":"search","sort":"price,id","after":["a",1,[1]]}`, "invalid_parameter", "after: it has 1 keys, the order has 2"},
		{`{"op":"search","typed":true,"sort":"price","after":["a",1,["n:1x"]]}`, "invalid_parameter", "after: it is a hit"},
		{`{"op":"search","stats":{"docs":1}}`, "invalid_parameter", "stats: it is an object"},
		{`{"op":"search","stats":{"docs":-1,"terms":[],"fields":{}}}`, "invalid_parameter", "stats: it is an object"},
		{`{"op":"search","stats":{"docs":1,"terms":[],"fields":{},"avg":1}}`, "unknown_parameter", `stats: there is no member \"avg\"`},
		{`{"op":"search","stats":{"docs":1,"terms":[{"term":"a","field":"f","df":1},{"term":"a","field":"f","df":2}],"fields":{}}}`, "invalid_parameter", "stats: it is an object"},
		{`{"op":"stats"}`, "missing_parameter", "terms: stats needs it"},
		{`{"op":"stats","terms":[["a"]]}`, "invalid_parameter", "terms: it is an array of pairs"},
		{`{"op":"agg","specs":[{"a":1}]}`, "invalid_parameter", "specs: it is an object of aggregations"},
		{`{"op":"agg","specs":{"a":{"kind":"mode"}}}`, "invalid_aggregation", "specs: aggregation"},
		{`{"op":"agg","values":["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"]}`, "invalid_parameter", `values: 17 are given, 16 are allowed","status":400,"field":"values","limit":16`},
		{`{"op":"knn","vector":[1]}`, "missing_parameter", "field: knn needs it"},
		{`{"op":"knn","field":"v"}`, "invalid_parameter", "one of vector, bits, and indices with values"},
		{`{"op":"knn","field":"v","vector":["1"]}`, "invalid_parameter", "vector is an array of numbers"},
		{`{"op":"knn","field":"v","vector":[1e39]}`, "invalid_parameter", "finite as a 32-bit float"},
		{`{"op":"export"}`, "missing_parameter", "ids: export needs it"},
		{`{"op":"has","ids":[1]}`, "invalid_parameter", "ids: it is an array of ids"},
		{`{"op":"has","ids":[` + strings.Repeat(`"a",`, 10_000) + `"a"]}`, "invalid_parameter", `10001 are given, 10000 are allowed`},
		{`{"op":"delete_many","ids":"a"}`, "invalid_parameter", "ids: it is an array of ids"},
	} {
		s.send(c.request)
		request := c.request[:min(len(c.request), 200)]
		got := s.receive()
		if !strings.HasPrefix(got, `{"ok":false,"code":"`+c.code+`","error":"`) || !strings.Contains(got, c.in) {
			t.Errorf("%s\n got %s\nwant %s with %s", request, got, c.code, c.in)
		}
	}
	s.send(`{"op":"ping"}`)
	if got := s.receive(); !strings.HasPrefix(got, `{"ok":true`) {
		t.Errorf("after all of them: %s", got)
	}
}

// A frame that cannot be trusted is answered, and the connection closed.
func TestScriptThatCannotBeTrusted(t *testing.T) {
	addr := serveLeaf(t, goldenLeaf(), frame.Limits{MaxFrame: 10_000})
	for _, c := range []struct{ name, request, code string }{
		{"empty", "", "invalid_json"},
		{"no JSON", "hello", "invalid_json"},
		{"JSON that ends early", `{"op":"ping"`, "invalid_json"},
		{"more behind the object", `{"op":"ping"} {"op":"ping"}`, "invalid_json"},
		{"more behind a value", `7 8`, "invalid_json"},
		{"a zero byte behind the object", "{\"op\":\"ping\"}\x00", "invalid_json"},
		{"a zero byte behind a value", "7\x00", "invalid_json"},
		{"nested too deep", `{"op":"ping","x":` + strings.Repeat("[", 4000) + `}`, "invalid_json"},
		{"not UTF-8", "{\"op\":\"ping\xff\"}", "invalid_utf8"},
		{"half a surrogate pair", `{"op":"\ud83d"}`, "invalid_utf8"},
		{"a repeated member and no JSON", `{"op":"ping","op":"ping",`, "invalid_json"},
		{"a hundred members", `{"op":"ping"` + manyMembers(100) + `}`, "invalid_json"},
		{"too long", `{"op":"index","body":"` + strings.Repeat("a", 10_000) + `"}`, "body_too_large"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := connect(t, addr)
			s.send(c.request)
			if got := s.receive(); !strings.HasPrefix(got, `{"ok":false,"code":"`+c.code+`"`) {
				t.Errorf("got %s", got)
			}
			s.closed()
		})
	}
}

func manyMembers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"m%d":1`, i)
	}
	return b.String()
}
