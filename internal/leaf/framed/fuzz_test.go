package framed

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/weft-search/weft/internal/agg"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/shard/exec"
	"github.com/weft-search/weft/internal/wire/frame"
)

// seeds adds the golden requests or replies.
func seeds(f *testing.F, kind string, add func(text string)) {
	f.Helper()
	names, err := filepath.Glob(filepath.Join("testdata", "*.golden"))
	if err != nil || len(names) == 0 {
		f.Fatalf("no golden files: %v", err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			if text, ok := strings.CutPrefix(line, kind+": "); ok {
				add(strings.TrimSuffix(text, "\n"))
			}
		}
	}
}

// allocated is what fn takes from the heap, in bytes, what is freed again included.
func allocated(fn func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// Whatever a frame holds, it is answered with one JSON object, and reading it takes no more than a multiple of its length. A frame
// that is JSON keeps the connection open.
func FuzzRequest(f *testing.F) {
	seeds(f, "request", func(text string) { f.Add([]byte(text)) })
	f.Add([]byte(`{"op":"search","sort":"price,kind","after":["a",0.5,[1.5,null]],"filters":[{"bool":{"must":["a"]}}]}`))
	f.Add([]byte(`{"op":"search","op":"search"}`))
	f.Add([]byte("{\"op\":\"\xff\"}"))
	f.Add([]byte(`{"op":"docs","owned":[{"rule":"\u0072ing","shards":-1,"vnodes":0,"shard":1e3}],"epoch":1}`))
	f.Add([]byte(`{"op":"fetch","ids":["b/1"],"show":{"fields":[],"highlight":{"fields":["*"],"pre":""}},"knn":{"field":"v","bits":"AA=="}}`))
	h := NewHandler(goldenMember(), HandlerOptions{})
	f.Fuzz(func(t *testing.T, b []byte) {
		var r frame.Reply
		used := allocated(func() { r = h.Handle(t.Context(), b, nil) })
		reply := r.Body
		v := jsontext.Value(reply)
		if !v.IsValid() || v.Kind() != '{' || !strings.HasPrefix(string(reply), `{"ok":`) {
			t.Fatalf("the reply is %q", reply)
		}
		isJSON := jsontext.Value(b).IsValid(jsontext.AllowDuplicateNames(true))
		if isJSON && r.Close && !strings.Contains(string(reply), "more than 64 members") {
			t.Errorf("%q is JSON, and the connection ends: %s", b, reply)
		}
		if !isJSON && !r.Close {
			t.Errorf("%q is not JSON, and the connection goes on: %s", b, reply)
		}
		if most := int64(1<<20 + 400*len(b)); used > most {
			t.Errorf("%d bytes for a frame of %d", used, len(b))
		}
	})
}

// What is passed over without being read is JSON, and nothing else is.
func FuzzScan(f *testing.F) {
	for _, kind := range []string{"request", "reply"} {
		seeds(f, kind, func(text string) { f.Add([]byte(text)) })
	}
	f.Add([]byte(`[{"a\ud834\udd1e":[-1.5e+3,true,null,{}],"a":"\u00e9\/"},[]]`))
	f.Fuzz(func(t *testing.T, b []byte) { checkScan(t, b) })
}

// replyReaders are the readers of replies.
var replyReaders = []func(b []byte) (*api.Problem, error){
	func(b []byte) (*api.Problem, error) { _, p, err := readPingReply(b); return p, err },
	func(b []byte) (*api.Problem, error) { _, p, err := readDocsReply(b); return p, err },
	func(b []byte) (*api.Problem, error) { _, p, err := readInfoReply(b); return p, err },
	func(b []byte) (*api.Problem, error) {
		_, p, err := readSearchReply(b, &leaf.SearchRequest{Limit: exec.MaxWindow})
		return p, err
	},
	func(b []byte) (*api.Problem, error) {
		_, p, err := readSearchReply(b, &leaf.SearchRequest{Limit: exec.MaxWindow, Sort: make([]exec.SortKey, 3)})
		return p, err
	},
	func(b []byte) (*api.Problem, error) { _, p, err := readStatsReply(b); return p, err },
	func(b []byte) (*api.Problem, error) {
		_, p, err := readAggReply(b, fuzzAggs, agg.Options{})
		return p, err
	},
	func(b []byte) (*api.Problem, error) {
		_, p, err := readKNNReply(b, &leaf.KNNRequest{KNN: api.KNN{K: 1 << 30}})
		return p, err
	},
	func(b []byte) (*api.Problem, error) { _, p, err := readIDsReply(b, idsAtOnce); return p, err },
	func(b []byte) (*api.Problem, error) { _, p, err := readExportReply(b, leaf.MaxIDs); return p, err },
	func(b []byte) (*api.Problem, error) { _, p, err := readHasReply(b, leaf.MaxIDs); return p, err },
	func(b []byte) (*api.Problem, error) { _, p, err := readDeleteReply(b); return p, err },
	func(b []byte) (*api.Problem, error) { _, p, err := readIndexReply(b); return p, err },
	func(b []byte) (*api.Problem, error) { _, p, err := readBulkReply(b, maxBulkErrors); return p, err },
	func(b []byte) (*api.Problem, error) {
		_, p, err := readSearchReply(b, &leaf.SearchRequest{Limit: exec.MaxWindow, Show: &leaf.Show{}})
		return p, err
	},
	func(b []byte) (*api.Problem, error) { _, p, err := readFetchReply(b, 1); return p, err },
	func(b []byte) (*api.Problem, error) { _, p, err := readFetchReply(b, 4); return p, err },
	func(b []byte) (*api.Problem, error) { _, p, err := readIndexesReply(b); return p, err },
	func(b []byte) (*api.Problem, error) { _, p, err := readPutIndexReply(b); return p, err },
	func(b []byte) (*api.Problem, error) { _, p, err := readDropIndexReply(b); return p, err },
	func(b []byte) (*api.Problem, error) { _, p, err := readSumsReply(b, 2, false); return p, err },
	func(b []byte) (*api.Problem, error) { _, p, err := readSumsReply(b, leaf.MaxIDs, true); return p, err },
	func(b []byte) (*api.Problem, error) { _, p, err := readDigestReply(b, 2); return p, err },
	func(b []byte) (*api.Problem, error) { _, p, err := readDigestReply(b, leaf.MaxDepth); return p, err },
	func(b []byte) (*api.Problem, error) { _, p, err := readSyncReply(b, 2); return p, err },
	func(b []byte) (*api.Problem, error) { _, p, err := readPlaceReply(b); return p, err },
}

var fuzzAggs = func() *leaf.AggregateRequest {
	specs, err := agg.Parse("kinds:terms(kind,5),prices:histogram(price,2.5),cheap:filter(price:<10)")
	if err != nil {
		panic(err)
	}
	return &leaf.AggregateRequest{Specs: specs, Values: []string{"stock", "kind", "none"}}
}()

// Whatever a reply holds, reading it ends, says what is wrong, and takes no more than a multiple of its length. What is read as a
// reply or a problem is JSON.
func FuzzReply(f *testing.F) {
	seeds(f, "reply", func(text string) {
		for i := range replyReaders {
			f.Add(uint8(i), []byte(text))
		}
	})
	f.Fuzz(func(t *testing.T, which uint8, b []byte) {
		read := replyReaders[int(which)%len(replyReaders)]
		var prob *api.Problem
		var err error
		used := allocated(func() { prob, err = read(b) })
		if most := int64(1<<20 + 200*len(b)); used > most {
			t.Errorf("%d bytes for a reply of %d", used, len(b))
		}
		if err != nil {
			return
		}
		if !utf8.Valid(b) || !jsontext.Value(b).IsValid(jsontext.AllowDuplicateNames(true)) {
			t.Errorf("%q was read and is not JSON", b)
		}
		if prob != nil && prob.Code == "" {
			t.Errorf("%q: a problem without a code", b)
		}
	})
}
