package hostiletest

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/weft-search/weft/internal/api"
)

// failures are the lines of /metrics that count answers with the status of a fault.
func failures(t *testing.T, s *site) (out []string) {
	t.Helper()
	for line := range strings.Lines(string(s.must(200, "GET", "/metrics", "", "").body)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "weft_http_requests_total{") && strings.Contains(line, `code="500"`) && !strings.HasSuffix(line, " 0") {
			out = append(out, line)
		}
	}
	return out
}

// clusterCalls are the calls that only a coordinator has, and the methods that each path takes.
var clusterCalls = []struct {
	path, methods string
	params        []string
}{
	{"/_ring", "GET HEAD", nil},
	{"/_placement", "GET HEAD", []string{"id"}},
	{"/_plan", "GET HEAD", []string{"shards", "index"}},
	{"/_topology", "GET HEAD POST", []string{"action", "members", "group", "member", "epoch"}},
	{"/_rebalance", "POST", []string{"from", "to", "wait"}},
	{"/_repair", "POST", []string{"wait", "force"}},
	{"/_jobs", "GET HEAD", nil},
	{"/_jobs/none", "GET HEAD POST", []string{"action"}},
}

// numbers are texts that are no number of groups that there are, escaped.
var numbers = []string{
	"", "0", "-1", "4", "1024", "1025", "4294967296", "9223372036854775808", "18446744073709551616", strings.Repeat("9", 400), "1e0", "0x2", "2.0", "%202", "2%20", "2,3",
	"%D9%A2", "NaN", "true", "%00", "%FF", "2%00", "2;3",
}

// oddTexts are escaped.
var oddTexts = []string{
	"%FF", "%C0%AF", "%ED%A0%80", "%00", "a%0Ab", "%E2%80%AE", "%F0%9F%A7%B6", "..%2F..%2Fetc", "%25s", "'%22%3C", strings.Repeat("x", 513), strings.Repeat("x", 60_000), strings.Repeat("%E4%B8%AD", 6000), "%",
	"%2", "%GG", "%F",
}

// cluster is what no refused call may change.
func (f *fleet) cluster(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, target := range []string{"/_topology", "/_ring", "/_jobs", "/indexes"} {
		fmt.Fprintf(&b, "%s\n", f.broker.must(200, "GET", target, "", "").body)
	}
	return b.String()
}

// oddCalls calls what only a coordinator has with whatever comes to mind. A call that is refused is refused with a code that is documented, and
// has no effect; none is a fault of the server.
func oddCalls(t *testing.T, f *fleet) {
	before := f.cluster(t)
	refused := func(method, target, ctype, body string) reply {
		t.Helper()
		r := f.broker.do(method, target, ctype, []byte(body))
		if r.status < 400 || r.status >= 499 {
			t.Errorf("%s %.120s %.40q: %d %.200s", method, target, body, r.status, r.body)
		} else if _, known := api.Codes[api.Code(r.code())]; !known && method != "HEAD" {
			t.Errorf("%s %.120s: %d without a code that is known: %.200s", method, target, r.status, r.body)
		}
		return r
	}
	// Nothing that is only read may fail, whatever comes of it.
	read := func(target string) {
		t.Helper()
		if r := f.broker.get(target); r.status != 200 && (r.status < 400 || r.status >= 499 || r.code() == "") {
			t.Errorf("GET %.120s: %d %.200s", target, r.status, r.body)
		}
	}
	for _, c := range clusterCalls {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"} {
			if strings.Contains(c.methods, method) {
				continue
			}
			for _, target := range []string{c.path, c.path + "?wait=false"} {
				if r := refused(method, target, "", ""); r.status != 405 || r.header.Get("Allow") == "" {
					t.Errorf("%s %s: %d, Allow %q", method, target, r.status, r.header.Get("Allow"))
				}
			}
		}
		for _, method := range strings.Fields(c.methods) {
			if method == "HEAD" {
				continue
			}
			for _, more := range []string{"x=1", "Wait=true", "=1", "index=docs&index=docs", "%FF=1", "a;b", "from=3;to=2", "x=" + strings.Repeat("x", 66_000)} {
				refused(method, c.path+"?"+more, "", "")
			}
			for _, p := range c.params {
				// Twice, also alike. Where it has none, it is not known once either.
				r := refused(method, c.path+"?"+p+"=1&"+p+"=1", "", "")
				if code := api.Code(r.code()); code != api.RepeatedParameter && (code != api.UnknownParameter || method == "POST") {
					t.Errorf("%s %s with %s twice: %.200s", method, c.path, p, r.body)
				}
			}
			// What has no body is not to be told in one.
			for _, b := range []struct{ ctype, body string }{
				{asJSON, `{"from":3,"to":2,"wait":false}`},
				{asJSON, `{`},
				{"application/x-www-form-urlencoded", "from=3&to=2"},
				{"", "\x00"},
				{asText, strings.Repeat("x", 1<<20)},
			} {
				if r := refused(method, c.path, b.ctype, b.body); r.code() != string(api.InvalidBody) {
					t.Errorf("%s %s with a body: %.200s", method, c.path, r.body)
				}
			}
			// Nor where its length is not told.
			conn := connect(t, f.broker)
			if _, err := conn.Write([]byte(method + " " + c.path + " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n")); err != nil {
				t.Fatal(err)
			}
			status := make([]byte, 12)
			if _, err := conn.Read(status); err != nil || string(status) != "HTTP/1.1 400" {
				t.Errorf("%s %s with a body in chunks: %q %v", method, c.path, status, err)
			}
			conn.leave()
		}
	}
	for _, n := range numbers {
		if n != "4" && n != "1024" {
			refused("GET", "/_plan?shards="+n, "", "")
		}
		if n != "4" && n != "1024" { // documents that are where they are to be may have come from there
			refused("POST", "/_rebalance?wait=false&from="+n, "", "")
		}
		for _, target := range []string{
			"/_rebalance?wait=false&to=" + n, "/_rebalance?wait=false&from=3&to=" + n, "/_rebalance?wait=false&to=2&from=" + n,
			"/_topology?action=add_member&member=127.0.0.1:1&group=" + n,
			"/_topology?action=remove_group&group=" + n, "/_topology?action=add_group&members=127.0.0.1:1&epoch=" + n,
		} {
			refused("POST", target, "", "")
		}
		for _, target := range []string{"/_rebalance?wait=" + n, "/_repair?wait=" + n} {
			if n != "true" {
				refused("POST", target, "", "")
			}
		}
		refused("POST", "/_jobs/none?action="+n, "", "")
		refused("GET", "/_jobs/"+strings.ReplaceAll(n+"x", ";", "%3B"), "", "")
	}
	for _, s := range oddTexts {
		read("/_placement?id=" + s)
		read("/_plan?shards=3&index=" + s)
		refused("POST", "/_topology?action="+s, "", "")
		for _, what := range []string{"add_group&members=", "add_group&members=127.0.0.1:1,", "add_member&group=0&member=", "remove_member&member="} {
			if strings.HasSuffix(what, ",") && (strings.HasPrefix(s, "x") || s == "") {
				continue
			}
			refused("POST", "/_topology?action="+what+s, "", "")
		}
		refused("POST", "/_jobs/none?action="+s, "", "")
		if _, err := url.PathUnescape(s); err == nil { // others are none of the handler
			refused("GET", "/_jobs/"+s, "", "")
			refused("POST", "/_jobs/"+s+"?action=cancel", "", "")
		}
	}
	there := f.nodes[3].proc.Listening["shard"]
	for _, change := range []string{
		"add_group", "add_group&members=", "add_group&members=,", "add_group&members=" + there, "add_group&members=127.0.0.1:1,127.0.0.1:1", "add_group&members=127.0.0.1",
		"add_group&members=127.0.0.1:99999", "add_group&members=:1:1", "add_group&members=http://127.0.0.1:1", "add_group&members=grpc://", "add_group&members=a%20b:1",
		"add_group&members=127.0.0.1:1&group=0", "add_group&member=127.0.0.1:1", "add_group&members=127.0.0.1:1&epoch=1000000",
		"add_member&group=3&member=127.0.0.1:1", "add_member&member=127.0.0.1:1", "add_member&group=0", "add_member&group=0&member=" + there,
		"remove_member&member=127.0.0.1:1", "remove_member", "remove_member&member=" + there + "&group=1", "remove_group", "remove_group&group=2", "drop", "ADD_GROUP",
	} {
		refused("POST", "/_topology?action="+change, "", "")
	}
	for _, target := range []string{"/_jobs/", "/_jobs//", "/_jobs/none/none", "/_", "/_ring/", "/_topology/x", "/_jobs/..", "/_jobs/%2e%2e", "//_ring"} {
		refused("GET", target, "", "")
		refused("POST", target, "", "")
	}
	if after := f.cluster(t); after != before {
		t.Errorf("calls that were refused had an effect:\n%s\nwas\n%s", after, before)
	}
}
