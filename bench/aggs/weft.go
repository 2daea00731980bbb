package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"time"

	"github.com/weft-search/weft/internal/node"
)

const sdl = `index default {
  field id: text<raw> [indexed, stored, fast, primary]
  field body: text<simple> [indexed]
  field country: text<raw> [indexed, fast]
  field sku: text<raw> [indexed, fast]
  field price: f64 [fast]
  field stock: i64 [fast]
  field created: date [fast]
}`

// weftEngine is a whole node without a listener.
type weftEngine struct {
	node *node.Node
	buf  bytes.Buffer
}

func newWeft(dir string) (*weftEngine, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	n, err := node.New(node.Config{DataDir: dir})
	if err != nil {
		return nil, err
	}
	if err := n.Start(background); err != nil {
		return nil, err
	}
	<-n.Opened()
	w := &weftEngine{node: n}
	return w, w.call(http.MethodPut, "/indexes/default", "text/plain", []byte(sdl), nil)
}

func (w *weftEngine) call(method, target, ctype string, body []byte, out any) error {
	req := httptest.NewRequest(method, target, bytes.NewReader(body))
	if ctype != "" {
		req.Header.Set("Content-Type", ctype)
	}
	rec := &httptest.ResponseRecorder{Body: &w.buf}
	w.buf.Reset()
	w.node.Handler().ServeHTTP(rec, req)
	if rec.Code != http.StatusOK && rec.Code != http.StatusCreated {
		b, _ := io.ReadAll(io.LimitReader(&w.buf, 2000))
		return fmt.Errorf("%s %s: %d %s", method, target, rec.Code, b)
	}
	if out != nil {
		return json.Unmarshal(w.buf.Bytes(), out)
	}
	return nil
}

func (w *weftEngine) add(docs []doc) error {
	var body []byte
	for _, d := range docs {
		line, err := json.Marshal(map[string]any{
			"id": d.id, "body": d.body, "country": d.country, "sku": d.sku, "price": d.price, "stock": d.stock, "created": d.created.Format(time.RFC3339),
		})
		if err != nil {
			return err
		}
		body = append(append(body, line...), '\n')
	}
	return w.call(http.MethodPost, "/index/bulk", "application/x-ndjson", body, nil)
}

// settle waits until the background merging has been at rest for two seconds.
func (w *weftEngine) settle() error {
	var last string
	since := time.Now()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		var info struct {
			Segments int
			Bytes    int64
		}
		if err := w.call(http.MethodGet, "/indexes/default", "", nil, &info); err != nil {
			return err
		}
		if now := fmt.Sprint(info.Segments, info.Bytes); now != last {
			last, since = now, time.Now()
		}
		if time.Since(since) > 2*time.Second {
			return nil
		}
	}
	return nil
}

func (w *weftEngine) target(q question) string {
	v := url.Values{"limit": {"0"}, "aggs": {q.aggs}}
	if q.word != "" {
		v.Set("q", "body:"+q.word)
	}
	return "/search?" + v.Encode()
}

func (w *weftEngine) run(q question) error { return w.call(http.MethodGet, w.target(q), "", nil, nil) }

func (w *weftEngine) counts(q question) ([]int, error) {
	var reply struct {
		Aggs map[string]struct {
			Buckets []struct{ Count int }
		}
	}
	if err := w.call(http.MethodGet, w.target(q), "", nil, &reply); err != nil {
		return nil, err
	}
	var out []int
	for _, b := range reply.Aggs["a"].Buckets {
		out = append(out, b.Count)
	}
	return out, nil
}

func (w *weftEngine) close() error { return w.node.Close(background) }
