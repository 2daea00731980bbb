package leaftest

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
)

// written compares replies to writes that were made twice, into two indexes: the snapshots and times differ.
var written = cmp.Options{
	cmpopts.EquateEmpty(), cmpopts.IgnoreFields(leaf.Meta{}, "Timings", "Snapshot"), cmpopts.IgnoreFields(api.BulkReply{}, "TookMicros"),
}

// testExisting checks that a write for which the index has to be there makes none, and is like any other where it is there.
func testExisting(t *testing.T, e Env) {
	ctx := t.Context()
	writes := map[string]func(index string) error{
		"index": func(index string) error {
			_, err := e.Leaf.Index(ctx, &leaf.IndexRequest{Index: index, Body: []byte(`{"id":"1"}`), Existing: true})
			return err
		},
		"bulk": func(index string) error {
			_, err := e.Leaf.Bulk(ctx, &leaf.BulkRequest{Index: index, Existing: true}, strings.NewReader("{\"id\":\"1\"}\n"))
			return err
		},
		"bulk with a key": func(index string) error {
			_, err := e.Leaf.Bulk(ctx, &leaf.BulkRequest{Index: index, Key: "k", Existing: true}, strings.NewReader("{\"id\":\"1\"}\n"))
			return err
		},
		"an empty bulk with a key": func(index string) error {
			_, err := e.Leaf.Bulk(ctx, &leaf.BulkRequest{Index: index, Key: "none", Existing: true}, strings.NewReader(""))
			return err
		},
	}
	for name, write := range writes {
		if err := write("existing"); !hasCode(err, api.IndexNotFound) || leaf.ClassOf(err) != leaf.Never {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := e.Node.Leaf().Docs(ctx, &leaf.DocsRequest{Index: "existing"}); !hasCode(err, api.IndexNotFound) {
		t.Fatalf("the index was made: %v", err)
	}
	if _, err := e.Leaf.Index(ctx, &leaf.IndexRequest{Index: "existing", Body: []byte(`{"id":"0"}`)}); err != nil {
		t.Fatal(err)
	}
	for name, write := range writes {
		if err := write("existing"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func testWrites(t *testing.T, e Env) {
	ctx := t.Context()
	// The first write makes an index that infers its fields. Each is made on both leaves, in an index each.
	for i, doc := range []string{
		`{"id":"1","title":"warp and weft","n":17,"at":"2024-05-06T07:08:09Z","nested":{"x":[1.5,2]}}`,
		`{"id":"2","title":"loom","more":true}`,
		`{"id":"1","title":"warp again"}`,
		`{"id":"é/𝄞 \"q\" \u0001","title":"` + `\u2028 織物` + `"}`,
	} {
		want, err := e.Node.Leaf().Index(ctx, &leaf.IndexRequest{Index: "direct", Body: []byte(doc)})
		if err != nil {
			t.Fatal(err)
		}
		got, err := e.Leaf.Index(ctx, &leaf.IndexRequest{Index: "wired", Body: []byte(doc)})
		if err != nil {
			t.Fatalf("%s: %v", doc, err)
		}
		if d := cmp.Diff(want, got, written); d != "" {
			t.Errorf("%s: −in process +over the wire\n%s", doc, d)
		}
		if !got.OK || got.Fresh != (i != 2) || i == 0 && len(got.Inferred) == 0 || got.Snapshot.Instance == 0 || got.Snapshot.Version == 0 {
			t.Errorf("%s: %+v", doc, got)
		}
		checkMeta(t, "index", got)
		// It is there at once, in the snapshot of the reply or a later one.
		docs, err := e.Leaf.Docs(ctx, &leaf.DocsRequest{Index: "wired"})
		if err != nil || docs.Docs != []uint64{1, 2, 2, 3}[i] || docs.Snapshot.Instance != got.Snapshot.Instance || docs.Snapshot.Version < got.Snapshot.Version || docs.Snapshot.CommitTS < got.Snapshot.CommitTS {
			t.Errorf("%s: then %+v, %v", doc, docs, err)
		}
	}
	testExisting(t, e)
	// Without a name it is the default index.
	if _, err := e.Leaf.Index(ctx, &leaf.IndexRequest{Body: []byte(`{"id":"x"}`)}); err != nil {
		t.Fatal(err)
	}
	if docs, err := e.Node.Leaf().Docs(ctx, &leaf.DocsRequest{Index: api.DefaultIndex}); err != nil || docs.Docs != 1 {
		t.Errorf("the default index: %+v, %v", docs, err)
	}
	for _, c := range []struct {
		ids  []string
		want uint64
	}{
		{nil, 0},
		{[]string{"2", "nosuch", "2", "2"}, 1},
		{[]string{"2"}, 0},
		{[]string{"é/𝄞 \"q\" \u0001", "1"}, 2},
	} {
		got, err := e.Leaf.DeleteMany(ctx, &leaf.DeleteRequest{Index: "wired", IDs: c.ids})
		if err != nil || got.Deleted != c.want || got.Snapshot.Instance == 0 {
			t.Errorf("delete %q: %+v, %v", c.ids, got, err)
			continue
		}
		checkMeta(t, "delete_many", got)
		has, err := e.Leaf.Has(ctx, &leaf.HasRequest{Index: "wired", IDs: c.ids})
		if err != nil || len(has.Missing) != len(c.ids) || has.Snapshot.Version < got.Snapshot.Version {
			t.Errorf("after deleting %q: %+v, %v", c.ids, has, err)
		}
	}
	idle(t, e)
}

func testBulk(t *testing.T, e Env) {
	ctx := t.Context()
	for i, c := range []struct {
		body            string
		indexed, failed uint64
		duplicates      uint64
	}{
		{"", 0, 0, 0},
		{"\n  \n", 0, 0, 0},
		{`{"id":"1","t":"warp"}`, 1, 0, 0},
		{"\ufeff{\"id\":\"1\",\"t\":\"warp\"}\r\n\r\n{\"id\":\"2\",\"n\":1}\n{\"id\":\"1\",\"t\":\"weft 𝄞\"}\n", 3, 0, 1},
		{"{\"id\":\"1\"}\nnot json\n{\"id\":\"2\",\"n\":1}\n{\"n\":2}\n{\"id\":\"3\",\"n\":\"x y\"}\n{\"id\":\"4\"}\n{\"id\":\"é \\\"\",\"id\":1}", 3, 4, 0},
		{"not json\n[]\n", 0, 2, 0},
		{manyLines(5000), 5000, 0, 2500},
	} {
		load := func(l leaf.Leaf, index string) *leaf.BulkReply {
			t.Helper()
			// One byte at a time for a part, so that nothing depends on how the stream is cut.
			n := min(len(c.body), 300)
			body := io.MultiReader(oneByte{strings.NewReader(c.body[:n])}, strings.NewReader(c.body[n:]))
			reply, err := l.Bulk(ctx, &leaf.BulkRequest{Index: index}, body)
			if err != nil {
				t.Fatalf("load %d: %v", i, err)
			}
			return reply
		}
		want := load(e.Node.Leaf(), fmt.Sprint("direct", i))
		got := load(e.Leaf, fmt.Sprint("wired", i))
		if d := cmp.Diff(want, got, written); d != "" {
			t.Errorf("load %d: −in process +over the wire\n%s", i, d)
		}
		if got.Indexed != c.indexed || got.Failed != c.failed || got.Duplicates != c.duplicates || got.OK != (c.failed == 0) || uint64(len(got.Errors)) != c.failed {
			t.Errorf("load %d: %+v", i, got)
		}
		checkMeta(t, "bulk", got)
		if c.indexed == 0 {
			continue
		}
		docs, err := e.Leaf.Docs(ctx, &leaf.DocsRequest{Index: fmt.Sprint("wired", i)})
		if err != nil || docs.Docs != c.indexed-c.duplicates || docs.Snapshot.Version < got.Snapshot.Version || got.Snapshot.Instance != docs.Snapshot.Instance {
			t.Errorf("load %d: then %+v, %v", i, docs, err)
		}
	}
	// A line that is too long is refused, and the next one is not.
	long := "{\"id\":\"1\"}\n{\"id\":\"2\",\"t\":\"" + strings.Repeat("x ", 8<<20+1) + "\"}\n{\"id\":\"3\"}\n"
	got, err := e.Leaf.Bulk(ctx, &leaf.BulkRequest{Index: "long"}, strings.NewReader(long))
	if err != nil || got.Indexed != 2 || got.Failed != 1 || got.Errors[0].Line != 2 || got.Errors[0].Code != string(api.DocumentTooLarge) {
		t.Errorf("a long line: %+v, %v", got, err)
	}
	testBrokenStream(t, e)
	idle(t, e)
}

var errStream = errors.New("the stream broke")

// testBrokenStream: what is told of a stream that breaks off holds.
func testBrokenStream(t *testing.T, e Env) {
	for _, before := range []string{"", "{\"id\":\"a\"}\n{\"id\":\"b", manyLines(30_000)} {
		index := fmt.Sprint("broken", len(before))
		e.Node.Create(t, index, "index x { field id: text<raw> [indexed, stored, fast, primary] field n: i64 [stored, fast] }")
		reply, err := e.Leaf.Bulk(t.Context(), &leaf.BulkRequest{Index: index}, io.MultiReader(strings.NewReader(before), failing{errStream}))
		idle(t, e)
		docs, docsErr := e.Node.Leaf().Docs(t.Context(), &leaf.DocsRequest{Index: index})
		if docsErr != nil {
			t.Fatal(docsErr)
		}
		transport, _ := errors.AsType[*leaf.TransportError](err)
		switch {
		case err == nil:
			if reply.OK || reply.Indexed == 0 || len(reply.Errors) == 0 || docs.Docs != reply.Indexed-reply.Duplicates {
				t.Errorf("broken after %d bytes: %+v, then %d documents", len(before), reply, docs.Docs)
			}
		case transport != nil && transport.MaybeApplied:
		default:
			if docs.Docs != 0 {
				t.Errorf("broken after %d bytes: %v, and %d documents are in", len(before), err, docs.Docs)
			}
		}
	}
}

// manyLines are n documents, each id twice.
func manyLines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"id\":\"%d\",\"n\":%d}\n", i/2, i)
	}
	return b.String()
}

// failing is a stream that breaks at once.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// oneByte reads one byte at a time.
type oneByte struct{ r io.Reader }

func (o oneByte) Read(b []byte) (int, error) { return o.r.Read(b[:min(len(b), 1)]) }
