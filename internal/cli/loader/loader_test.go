package loader

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"

	"github.com/weft-search/weft/internal/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func write(t testing.TB, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	data := []byte(text)
	switch filepath.Ext(path) {
	case ".gz":
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		if _, err := z.Write(data); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		data = b.Bytes()
	case ".zst":
		z, err := zstd.NewWriter(nil)
		if err != nil {
			t.Fatal(err)
		}
		data = z.EncodeAll(data, nil)
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// server keeps the last document of each id, as the real one does.
type server struct {
	mu   sync.Mutex
	docs map[string]string
	sent atomic.Int64
	// before may fail a call before its effect.
	before func(call int64, body []byte) error
	// missed are the members that every reply names as having missed the load.
	missed []string
	// lost, if not empty, is the code with which the first document of each load is refused.
	lost string
}

func (s *server) send(_ context.Context, body []byte) (client.BulkResult, error) {
	n := s.sent.Add(1)
	if s.before != nil {
		if err := s.before(n, body); err != nil {
			return client.BulkResult{}, err
		}
	}
	res := client.BulkResult{FailedAddresses: s.missed}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.docs == nil {
		s.docs = map[string]string{}
	}
	for i, line := range strings.Split(strings.TrimSuffix(string(body), "\n"), "\n") {
		if i == 0 && s.lost != "" {
			res.Failed++
			res.Errors = append(res.Errors, client.DocError{Line: 1, Code: s.lost, Reason: "no"})
			continue
		}
		var doc struct {
			ID string `json:"id"`
		}
		if err := json.Unmarshal([]byte(line), &doc); err != nil || doc.ID == "" {
			res.Failed++
			res.Errors = append(res.Errors, client.DocError{Line: i + 1, Code: "invalid_document", Reason: "no id"})
			continue
		}
		s.docs[doc.ID] = line
		res.Indexed++
	}
	return res, nil
}

func runLoad(t testing.TB, cfg Config, s *server, paths ...string) ([]Reject, error) {
	t.Helper()
	inputs, err := Find(paths, "")
	if err != nil {
		t.Fatal(err)
	}
	var rejects []Reject
	cfg.Inputs, cfg.Send = inputs, s.send
	cfg.OnReject = func(r Reject) {
		r.File = filepath.Base(r.File)
		rejects = append(rejects, r)
	}
	err = Run(context.Background(), cfg)
	return rejects, err
}

func TestNDJSON(t *testing.T) {
	dir := t.TempDir()
	text := "\ufeff" + `{"id":"a","n":1}` + "\r\n\n" + `{"id":` + "\n" + `{"n":2}` + "\n" + `{"id":"a","n":3}` + "\n" + `{"x":{"id":"no"},"id":"b\u0063"}`
	for _, name := range []string{"c.ndjson", "c.jsonl.gz", "c.json.zst"} {
		t.Run(name, func(t *testing.T) {
			s := &server{}
			rejects, err := runLoad(t, Config{}, s, write(t, filepath.Join(dir, name), text))
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]string{"a": `{"id":"a","n":3}`, "bc": `{"x":{"id":"no"},"id":"b\u0063"}`}
			if d := cmp.Diff(want, s.docs); d != "" {
				t.Error(d)
			}
			wantRejects := []Reject{{name, 3, "", "invalid_document", "no id"}, {name, 4, "", "invalid_document", "no id"}}
			if d := cmp.Diff(wantRejects, rejects); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestIDField(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "c.ndjson"), strings.Join([]string{
		`{"_id" : "x" , "t":"{\"_id\":1}"}`, `{"t":[1,{"_id":2}],"_id":-7}`, `{"t":1}`, `{"id":1,"_id":2}`, `{"_id":{}}`,
	}, "\n"))
	s := &server{}
	rejects, err := runLoad(t, Config{IDField: "_id"}, s, path)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"x": `{"id":"x" , "t":"{\"_id\":1}"}`, "-7": `{"t":[1,{"_id":2}],"id":"-7"}`}
	if d := cmp.Diff(want, s.docs); d != "" {
		t.Error(d)
	}
	var codes []string
	for _, r := range rejects {
		codes = append(codes, fmt.Sprint(r.Line, r.Code))
	}
	slices.Sort(codes)
	if d := cmp.Diff([]string{"3missing_id", "4id_conflict", "5invalid_document"}, codes); d != "" {
		t.Error(d)
	}
}

func TestCSV(t *testing.T) {
	dir := t.TempDir()
	text := "\ufeffname,key,year,score,ok,when,junk\n" +
		`"two` + "\n" + `lines",k1,1999,.5,yes,2001-02-03,x` + "\n" +
		"plain,k2,,,,,\n" +
		"short,k3\n" +
		`ba"d,k4,1,1,1,,` + "\n" +
		"x,k5,1e3,1,1,,\n" +
		"y,k6,18446744073709551615,-1e400,no,,\n" +
		"z,k7,+5,+5.50,N,2001-02-03T04:05:06+01:00,\n" +
		"bad\xff,k8,,,,,\n"
	types := map[string]Type{"year": AsInteger, "score": AsNumber, "ok": AsBoolean, "when": AsDate, "junk": Skipped}
	s := &server{}
	rejects, err := runLoad(t, Config{IDField: "key", Types: types}, s, write(t, filepath.Join(dir, "c.csv.gz"), text))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"k1": `{"name":"two\nlines","id":"k1","year":1999,"score":0.5,"ok":true,"when":"2001-02-03T00:00:00Z"}`,
		"k2": `{"name":"plain","id":"k2"}`,
		"k7": `{"name":"z","id":"k7","year":5,"score":5.5,"ok":false,"when":"2001-02-03T03:05:06Z"}`,
	}
	if d := cmp.Diff(want, s.docs); d != "" {
		t.Error(d)
	}
	wantRejects := []Reject{
		{"c.csv.gz", 5, "k3", "bad_csv", "the record has 2 cells, the header line has 7"},
		{"c.csv.gz", 6, "", "bad_csv", `line 6, column 3: bare " in non-quoted-field`},
		{"c.csv.gz", 7, "k5", "bad_value", `column "year": "1e3" is not a 64-bit integer`},
		{"c.csv.gz", 8, "k6", "bad_value", `column "score": "-1e400" is not a finite number`},
		{"c.csv.gz", 10, "k8", "bad_value", `column "name": the text is not UTF-8`},
	}
	if d := cmp.Diff(wantRejects, rejects); d != "" {
		t.Error(d)
	}
}

func TestCSVHeaderErrors(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]string{
		"":              "no header line",
		"a,b\n1,2\n":    `no column "id"`,
		"id,a,a\n":      "two columns",
		"id,,b\n":       "column 2 has no name",
		"id,\"a\nb":     "read header line",
		"id,b\xff\n":    "not UTF-8",
		"id,a\r1,2\r":   "carriage return",
		"id,other\n1,2": `no column "typed"`,
	} {
		path := write(t, filepath.Join(dir, "c.csv"), text)
		if _, err := runLoad(t, Config{Types: map[string]Type{"typed": AsInteger}}, &server{}, path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("header %q: got %v, want %q", text, err, want)
		}
	}
}

// TestCSVWithMarkAndQuotes has what spreadsheets write: a byte order mark, then a quote.
func TestCSVWithMarkAndQuotes(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "c.csv"), "\ufeff\"id\",\"a\"\r\n\"1\",\"x\"\r\n")
	s := &server{}
	rejects, err := runLoad(t, Config{}, s, path)
	if err != nil || len(rejects) > 0 || s.docs["1"] != `{"id":"1","a":"x"}` {
		t.Errorf("got %v, %v, %v", s.docs, rejects, err)
	}
	inputs, err := Find([]string{path}, "")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Columns(inputs); err != nil || !cmp.Equal(got, map[string]bool{"id": true, "a": true}) {
		t.Errorf("columns %v, %v", got, err)
	}
}

func TestUnclosedQuoteEndsTheTable(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "c.csv"), "id,a\n1,x\n2,\""+strings.Repeat("a\n", MaxRecord))
	s := &server{}
	_, err := runLoad(t, Config{}, s, path)
	if !errors.Is(err, errRecordTooLong) || !strings.Contains(err.Error(), "line 3") {
		t.Errorf("got %v", err)
	}
	if len(s.docs) != 1 {
		t.Errorf("%d documents before the bad one went in", len(s.docs))
	}
}

func TestLongLineIsRejectedAndPassed(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "c.ndjson"), `{"id":"a"}`+"\n"+strings.Repeat("x", MaxRecord+1)+"\n"+`{"id":"b"}`)
	s := &server{}
	rejects, err := runLoad(t, Config{}, s, path)
	if err != nil || len(s.docs) != 2 || len(rejects) != 1 || rejects[0].Code != "document_too_large" || rejects[0].Line != 2 {
		t.Errorf("got %d documents, %+v, %v", len(s.docs), rejects, err)
	}
}

func TestFolder(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.md"), "---\ntitle: \"From front\"\n---\ntext")
	write(t, filepath.Join(dir, "b", "c.markdown"), "```\n# no\n```\nintro\n\n## Real *one* ##\nx")
	write(t, filepath.Join(dir, "b", "d.txt.gz"), "\nFirst line\nrest")
	write(t, filepath.Join(dir, "b.txt"), strings.Repeat("long ", 50))
	write(t, filepath.Join(dir, "s.md"), "Under\n=====\n")
	write(t, filepath.Join(dir, "bad.txt"), "ok\xff")
	write(t, filepath.Join(dir, "image.png"), "no")
	write(t, filepath.Join(dir, ".git", "x.txt"), "hidden")
	s := &server{}
	rejects, err := runLoad(t, Config{}, s, dir)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"a.md":         `{"id":"a.md","title":"From front","body":"text"}`,
		"b/c.markdown": `{"id":"b/c.markdown","title":"Real *one*","body":"` + "```\\n# no\\n```\\nintro\\n\\n## Real *one* ##\\nx" + `"}`,
		"b/d.txt.gz":   `{"id":"b/d.txt.gz","title":"First line","body":"\nFirst line\nrest"}`,
		"b.txt":        `{"id":"b.txt","title":"b","body":"` + strings.Repeat("long ", 50) + `"}`,
		"s.md":         `{"id":"s.md","title":"Under","body":"Under\n=====\n"}`,
	}
	if d := cmp.Diff(want, s.docs); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]Reject{{"bad.txt", 1, "bad.txt", "invalid_utf8", "the text is not UTF-8 at byte 2"}}, rejects); d != "" {
		t.Error(d)
	}
}

func TestTitles(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"---\ntitle: 'In quotes'\n---\n", "In quotes"},
		{"---\ntitle: Of \"quotes\"\n---\n", "Of \"quotes\""},
		{"---\ntitle: '90s\n---\n", "'90s"},
		{"---\ntitle: \" padded \"\n---\n", "padded"},
		{"---\ntitle: \" \"\n---\n# Blank is none", "Blank is none"},
		{"---\ntitle: '\n---\n", "'"},
		{"---\nauthor:\n  title: Professor\n---\n# Not of the author", "Not of the author"},
		{"# C#", "C#"},
		{"# C# ##", "C#"},
		{"## A #\t", "A"},
		{"# ###\n", ""},
		{"a # b\n---", "a # b"},
	} {
		if got, _ := splitTitle(c.text, Markdown); got != c.want {
			t.Errorf("%q: title %q, want %q", c.text, got, c.want)
		}
	}
}

func TestFolderGoesOnAndSeesChanges(t *testing.T) {
	dir, state := t.TempDir(), filepath.Join(t.TempDir(), "state")
	old := time.Now().Add(-time.Hour)
	for _, name := range []string{"a.txt", "b/c.txt", "b.txt", "d.txt"} {
		if err := os.Chtimes(write(t, filepath.Join(dir, name), name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	s := &server{}
	if _, err := runLoad(t, Config{StatePath: state}, s, dir); err != nil || len(s.docs) != 4 {
		t.Fatalf("first load: %d, %v", len(s.docs), err)
	}
	s = &server{}
	write(t, filepath.Join(dir, "a.txt"), "changed")
	write(t, filepath.Join(dir, "e.txt"), "new")
	if _, err := runLoad(t, Config{StatePath: state}, s, dir); err != nil {
		t.Fatal(err)
	}
	if len(s.docs) != 2 || s.docs["a.txt"] == "" || s.docs["e.txt"] == "" {
		t.Errorf("second load sent %v", s.docs)
	}
}

// TestGoesOnBehindEveryFailure breaks the connection for good at every batch in turn and loads again with the state: all
// documents are there in the end, with the last version of each, and what was acknowledged far behind is not sent again.
func TestGoesOnBehindEveryFailure(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	want := map[string]string{}
	var text, table strings.Builder
	table.WriteString("id,v\n")
	for i := range 400 {
		id := fmt.Sprint("d", rng.IntN(150))
		want[id] = fmt.Sprintf(`{"id":"%s","v":"%d"}`, id, i)
		text.WriteString(want[id] + "\n")
		fmt.Fprintf(&table, "%s,%d\n", id, i)
	}
	for _, name := range []string{"c.ndjson", "c.ndjson.gz", "c.csv", "c.csv.gz"} {
		body := text.String()
		if strings.Contains(name, "csv") {
			body = table.String()
		}
		path := write(t, filepath.Join(t.TempDir(), name), body)
		for fail := int64(1); fail < 60; fail += 7 {
			dir := t.TempDir()
			down := errors.New("down for good")
			s := &server{before: func(n int64, _ []byte) error {
				if n >= fail {
					return &client.Problem{Status: 500, Detail: down.Error()}
				}
				return nil
			}}
			cfg := Config{StatePath: filepath.Join(dir, "state"), BatchDocs: 7, Concurrency: 3}
			if _, err := runLoad(t, cfg, s, path); err == nil {
				t.Fatalf("%s, call %d failed, the load did not", name, fail)
			}
			s.before = nil
			first := s.sent.Load()
			if _, err := runLoad(t, cfg, s, path); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, s.docs); d != "" {
				t.Fatalf("%s, call %d failed: %s", name, fail, d)
			}
			if again := s.sent.Load() - first; fail > 40 && again > 40 {
				t.Errorf("%s, call %d failed: %d batches were sent again", name, fail, again)
			}
			before := s.sent.Load()
			if _, err := runLoad(t, cfg, s, path); err != nil || s.sent.Load() != before {
				t.Errorf("a load that was complete sent %d batches more, %v", s.sent.Load()-before, err)
			}
		}
	}
}

func TestStateOfAnEmptyIndexIsVoid(t *testing.T) {
	dir := t.TempDir()
	path := write(t, filepath.Join(dir, "c.ndjson"), `{"id":"a"}`)
	cfg := Config{StatePath: filepath.Join(dir, "state")}
	for range 2 {
		s := &server{}
		cfg.Fresh = true
		if _, err := runLoad(t, cfg, s, path); err != nil || len(s.docs) != 1 {
			t.Errorf("%d documents, %v", len(s.docs), err)
		}
	}
}

func TestStateOfAnotherServerIsRefused(t *testing.T) {
	dir := t.TempDir()
	path := write(t, filepath.Join(dir, "c.ndjson"), `{"id":"a"}`)
	cfg := Config{StatePath: filepath.Join(dir, "state"), URL: "http://one", Index: "x"}
	if _, err := runLoad(t, cfg, &server{}, path); err != nil {
		t.Fatal(err)
	}
	cfg.URL = "http://two"
	if _, err := runLoad(t, cfg, &server{}, path); err == nil || !strings.Contains(err.Error(), "http://one") {
		t.Errorf("got %v", err)
	}
	for text, want := range map[string]string{"{": "read state file", `{"version":2}`: "version 2"} {
		write(t, cfg.StatePath, text)
		if _, err := runLoad(t, cfg, &server{}, path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("state %q: got %v", text, err)
		}
	}
}

func TestWaitsForARefusingServer(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "c.ndjson"), `{"id":"a"}`)
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := &server{before: func(n int64, _ []byte) error {
			switch {
			case n <= 2:
				return &client.Problem{Status: 429, RetryAfterMS: 5000, Code: "memtable_full"}
			case n <= 3:
				return &client.Problem{Status: 507, RetryAfterMS: 2000, Code: "disk_full"}
			case n <= 4:
				return &client.TransportError{Call: "call", Err: errors.New("connection reset")}
			}
			return nil
		}}
		var stats Stats
		var notes []string
		if _, err := runLoad(t, Config{Stats: &stats, Note: func(s string) { notes = append(notes, s) }}, s, path); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 12*time.Second || took > 15*time.Second {
			t.Errorf("took %v", took)
		}
		if stats.Retries.Load() != 4 || stats.Indexed.Load() != 1 || len(notes) != 1 {
			t.Errorf("%d retries, %d indexed, notes %q", stats.Retries.Load(), stats.Indexed.Load(), notes)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := &server{before: func(int64, []byte) error {
			return &client.TransportError{Call: "call", Err: errors.New("connection refused")}
		}}
		if _, err := runLoad(t, Config{RetryFor: time.Minute}, s, path); err == nil || !strings.Contains(err.Error(), "gave up") {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("gave up after %v", took)
		}
	})
}

// TestWhatNoWaitMendsEndsTheLoad has errors that would be the same at the next try.
func TestWhatNoWaitMendsEndsTheLoad(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "c.ndjson"), `{"id":"a"}`)
	for _, fatal := range []error{&client.Problem{Status: 400}, errors.New("read reply: not JSON"), client.ErrReplyTooLarge} {
		s := &server{before: func(int64, []byte) error { return fatal }}
		if _, err := runLoad(t, Config{}, s, path); !errors.Is(err, fatal) || s.sent.Load() != 1 {
			t.Errorf("%v: got %v after %d calls", fatal, err, s.sent.Load())
		}
	}
	s := &server{before: func(int64, []byte) error { return &client.Problem{Status: 503} }}
	if _, err := runLoad(t, Config{RetryFor: -1}, s, path); err == nil || s.sent.Load() != 1 {
		t.Errorf("without retries: got %v after %d calls", err, s.sent.Load())
	}
}

func TestTooLargeBatchesAreCut(t *testing.T) {
	var text strings.Builder
	for i := range 100 {
		fmt.Fprintf(&text, `{"id":"%d","t":"%s"}`+"\n", i, strings.Repeat("x", i))
	}
	s := &server{before: func(_ int64, body []byte) error {
		if len(body) > 100 {
			return &client.Problem{Status: 413, Code: "body_too_large", Detail: "too large"}
		}
		return nil
	}}
	rejects, err := runLoad(t, Config{}, s, write(t, filepath.Join(t.TempDir(), "c.ndjson"), text.String()))
	if err != nil || len(s.docs)+len(rejects) != 100 || len(rejects) == 0 || rejects[0].ID == "" {
		t.Errorf("%d in, %d rejected, %v", len(s.docs), len(rejects), err)
	}
	for _, r := range rejects {
		if r.Code != "body_too_large" || fmt.Sprint(r.Line-1) != r.ID {
			t.Errorf("reject %+v", r)
		}
	}
}

func TestMaxRejects(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "c.ndjson"), strings.Repeat("{}\n", 5000))
	var out bytes.Buffer
	_, err := runLoad(t, Config{MaxRejects: 10, Rejects: &out}, &server{}, path)
	if !errors.Is(err, ErrTooManyRejects) {
		t.Errorf("got %v", err)
	}
	if n := strings.Count(out.String(), "\n"); n < 10 || !strings.HasPrefix(out.String(), `{"file":`) {
		t.Errorf("%d rejects written", n)
	}
}

func TestSlowInputIsNotHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := newPipe()
		s := &server{}
		done := make(chan error, 1)
		go func() {
			done <- Run(context.Background(), Config{Inputs: []Input{{Path: Stdin, Format: NDJSON}}, Stdin: r, Send: s.send})
		}()
		w <- []byte(`{"id":"a"}` + "\n")
		<-time.After(3 * time.Second)
		if s.sent.Load() != 1 {
			t.Errorf("%d batches after three seconds", s.sent.Load())
		}
		close(w)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestCancelSavesTheState(t *testing.T) {
	dir := t.TempDir()
	path := write(t, filepath.Join(dir, "c.ndjson"), strings.Repeat(`{"id":"a"}`+"\n", 1000))
	ctx, cancel := context.WithCancelCause(context.Background())
	stop := errors.New("interrupted")
	s := &server{before: func(n int64, _ []byte) error {
		if n == 20 {
			cancel(stop)
		}
		return nil
	}}
	inputs, err := Find([]string{path}, "")
	if err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(dir, "state")
	err = Run(ctx, Config{Inputs: inputs, Send: s.send, StatePath: state, BatchDocs: 10, Concurrency: 1})
	if !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
	st, err := readState(state)
	if err != nil || len(st.Files) != 1 || st.Files[0].Line < 190 || st.Files[0].Line > 210 {
		t.Errorf("state %+v, %v", st, err)
	}
}

func TestFolderByALink(t *testing.T) {
	dir, link := t.TempDir(), filepath.Join(t.TempDir(), "link")
	write(t, filepath.Join(dir, "a.txt"), "text")
	for _, l := range []struct{ to, name string }{{dir, link}, {"..", filepath.Join(dir, "up")}, {"self", filepath.Join(dir, "self")}} {
		if err := os.Symlink(l.to, l.name); err != nil {
			t.Skip(err)
		}
	}
	s := &server{}
	if _, err := runLoad(t, Config{}, s, link); err != nil || len(s.docs) != 1 || s.docs["a.txt"] == "" {
		t.Errorf("got %v, %v", s.docs, err)
	}
}

func TestFolderWithoutTextIsTold(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "c.ndjson"), `{"id":"a"}`)
	var notes []string
	if _, err := runLoad(t, Config{Note: func(s string) { notes = append(notes, s) }}, &server{}, dir); err != nil || len(notes) != 1 || !strings.Contains(notes[0], "no text or Markdown file") {
		t.Errorf("%q, %v", notes, err)
	}
}

// A load that members of a cluster missed is in, and says so once for each of them.
func TestMembersThatMissedDocumentsAreNamedOnce(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "c.ndjson"), strings.Repeat(`{"id":"a"}`+"\n", 20))
	var notes []string
	var stats Stats
	s := &server{missed: []string{"10.0.0.1:7702", "10.0.0.2:7702"}}
	if _, err := runLoad(t, Config{BatchDocs: 2, Stats: &stats, Note: func(s string) { notes = append(notes, s) }}, s, path); err != nil {
		t.Fatal(err)
	}
	if len(notes) != 2 || !strings.HasPrefix(notes[0], "10.0.0.1:7702 missed") || !strings.HasPrefix(notes[1], "10.0.0.2:7702 missed") || stats.Indexed.Load() != 20 {
		t.Errorf("%d indexed, notes %q", stats.Indexed.Load(), notes)
	}
}

// Documents that a whole group missed are rejected, and nothing says that others of their group have them.
func TestDocumentsThatAWholeGroupMissedAreNotSaidToBeThere(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "c.ndjson"), strings.Repeat(`{"id":"a"}`+"\n", 20))
	for code, whole := range map[string]bool{"group_unavailable": true, "write_uncertain": true, "invalid_document": false} {
		var notes []string
		s := &server{missed: []string{"10.0.0.1:7702"}, lost: code}
		rejects, err := runLoad(t, Config{BatchDocs: 2, Note: func(s string) { notes = append(notes, s) }}, s, path)
		if err != nil || len(rejects) != 10 {
			t.Fatalf("%s: %d rejects, %v", code, len(rejects), err)
		}
		if len(notes) != 1 || strings.Contains(notes[0], "those that its whole group missed are rejected") != whole {
			t.Errorf("%s: %q", code, notes)
		}
	}
}

func TestFindErrors(t *testing.T) {
	dir := t.TempDir()
	for _, paths := range [][]string{{filepath.Join(dir, "none.csv")}, {write(t, filepath.Join(dir, "x.bin"), "")}, {"-", "-"}} {
		if _, err := Find(paths, ""); err == nil {
			t.Errorf("%v was taken", paths)
		}
	}
	array := write(t, filepath.Join(dir, "x.json"), `[{"id":"a"}]`)
	if _, err := runLoad(t, Config{}, &server{}, array); err == nil || !strings.Contains(err.Error(), "JSON array") {
		t.Errorf("got %v", err)
	}
	cut := write(t, filepath.Join(dir, "x.ndjson.gz"), strings.Repeat(`{"id":"a"}`+"\n", 10000))
	if err := os.Truncate(cut, 60); err != nil {
		t.Fatal(err)
	}
	if _, err := runLoad(t, Config{}, &server{}, cut); err == nil || strings.Count(err.Error(), "the compressed data ends too early: unexpected EOF") != 1 {
		t.Errorf("got %v", err)
	}
}

func FuzzFindMember(f *testing.F) {
	for _, s := range []string{`{"id":"a"}`, `{"a":[{"id":1}],"id":-2e3 }`, `{"\u0069d":"\"x"`, `{"a":"\\","id":{}}`, `[]`, `{`, `{"a"`, `{"a":`, `{"a":}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		m, ok := findMember(line, "id")
		if !ok {
			return
		}
		if m.name < 0 || m.name >= m.value || m.value >= m.end || m.end > len(line) {
			t.Fatalf("%q: %+v", line, m)
		}
		var got map[string]any
		if json.Unmarshal(line, &got) != nil {
			return
		}
		var value any
		if err := json.Unmarshal(line[m.value:m.end], &value); err != nil || !cmp.Equal(value, got["id"]) {
			t.Fatalf("%q: found %q, %v", line, line[m.value:m.end], err)
		}
	})
}
