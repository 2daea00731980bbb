//go:build linux

package faulttest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	index = "faults"
	// stableDocs are loaded first and never changed. liveIDs are written all the time, each by all writers.
	stableDocs = 1500
	liveIDs    = 90
	writers    = 5
	readers    = 4
	pageSize   = 400
)

// The schema that the index is declared with. Live documents bring fields with them, so that it grows.
const sdl = `index faults {
    dynamic: true
    default_fields: [body]
    field id: text<raw> [indexed, stored, fast, primary]
    field kind: text<raw> [indexed, stored, fast]
    field bucket: text<raw> [indexed, stored, fast]
    field value: text<raw> [indexed, stored, fast]
    field n: i64 [stored, fast]
    field body: text<simple> [indexed<positions>, stored]
}
`

// doc is a document. Of a live one the value names its write.
type doc struct {
	ID     string `json:"id"`
	Kind   string `json:"kind"` // stable or live
	Bucket string `json:"bucket"`
	Value  string `json:"value"`
	N      int    `json:"n"`
	Body   string `json:"body"`
	extra
}

// extra is a field that the schema does not have before the first document with it. Nameless, there is none.
type extra struct{ name, value string } // value: as JSON

// extraPrefix begins the names of such fields.
const extraPrefix = "x_"

// buckets is how many there are.
const buckets = 7

// newDoc is the document that an id, a kind and a value decide.
func newDoc(kind, id, value string) doc {
	seed := uint64(14695981039346656037)
	for _, b := range []byte(id + "\x00" + value) {
		seed = (seed ^ uint64(b)) * 1099511628211
	}
	r := rand.New(rand.NewPCG(seed, 1))
	words := make([]string, 4+r.IntN(20))
	for i := range words {
		words[i] = fmt.Sprintf("w%d", int(300*r.Float64()*r.Float64()))
	}
	d := doc{ID: id, Kind: kind, Bucket: fmt.Sprintf("b%d", r.IntN(buckets)), Value: value, N: r.IntN(1000), Body: strings.Join(words, " ")}
	_, serial, _ := strings.Cut(value, "/")
	serial, calm := strings.CutSuffix(serial, calmSuffix)
	if n, err := strconv.Atoi(serial); err == nil && kind == "live" && r.IntN(3) > 0 {
		d.extra = newExtra(r, n, calm)
	}
	return d
}

// How many writes there are to a new field, and how many fields at most: an index infers 1,000.
const (
	extraEvery = 50
	mostExtras = 600
)

// calmSuffix ends the values of writes that are made while there are no faults.
const calmSuffix = "-calm"

// newExtra is one of the latest fields when so many writes were made, so that several writers meet a new one at a time. All but the last
// kind are taken by every document for the same type; of the last the first document decides, and others are refused. Brokers of which
// each reaches another member of the first group would decide otherwise, so there are such fields while there are no faults.
func newExtra(r *rand.Rand, serial int, calm bool) extra {
	n := max(0, serial/extraEvery-r.IntN(4))
	if n >= mostExtras {
		n = r.IntN(mostExtras)
	}
	kind := []string{"int", "num", "text", "flag", "date", "any"}[n%6]
	if kind == "any" && !calm {
		kind = "text"
	}
	e := extra{name: fmt.Sprintf("%s%s_%d", extraPrefix, kind, n)}
	switch kind {
	case "int":
		e.value = strconv.Itoa(r.IntN(1000))
	case "num":
		e.value = strconv.Itoa(r.IntN(100)) + ".5"
	case "text":
		e.value = fmt.Sprintf(`"w%d w%d"`, r.IntN(20), r.IntN(20))
	case "flag":
		e.value = strconv.FormatBool(r.IntN(2) == 0)
	case "date":
		e.value = fmt.Sprintf(`"2026-%02d-03T04:05:06Z"`, 1+r.IntN(12))
	default:
		e.value = []string{"7", `"w7"`}[r.IntN(2)]
	}
	return e
}

func (d doc) json() []byte {
	b, err := json.Marshal(d)
	if err != nil {
		panic(err) // it has nothing but strings and numbers
	}
	if d.name != "" {
		b = fmt.Appendf(b[:len(b)-1], ",%q:%s}", d.name, d.value)
	}
	return b
}

// UnmarshalJSON implements json.Unmarshaler.
func (d *doc) UnmarshalJSON(b []byte) error {
	type declared doc
	if err := json.Unmarshal(b, (*declared)(d)); err != nil {
		return err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(b, &all); err != nil {
		return err
	}
	for name, value := range all {
		if strings.HasPrefix(name, extraPrefix) {
			if d.name != "" {
				return fmt.Errorf("a document with %s and %s", d.name, name)
			}
			d.extra = extra{name, string(value)}
		}
	}
	return nil
}

func stableID(i int) string { return fmt.Sprintf("s-%04d", i) }
func liveID(i int) string   { return fmt.Sprintf("k-%03d", i) }

// ownID is an id that one writer alone writes.
func ownID(writer string, i int) string { return fmt.Sprintf("o-%s-%d", writer, i) }

// answer is what came back of a call.
type answer struct {
	status int
	body   []byte
	err    error // it did not come through or back
}

// code is that of a problem document.
func (a *answer) code() string {
	var p struct {
		Code string `json:"code"`
	}
	if a.err != nil || json.Unmarshal(a.body, &p) != nil {
		return ""
	}
	return p.Code
}

func (a *answer) String() string {
	if a.err != nil {
		return a.err.Error()
	}
	return fmt.Sprintf("%d %s", a.status, last(string(a.body), 600))
}

// call makes a call of a broker.
func (b *broker) call(ctx context.Context, method, path string, params url.Values, ctype string, body []byte, key string) *answer {
	u := *b.url.Load() + path
	if len(params) > 0 {
		u += "?" + params.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, u, bytes.NewReader(body))
	if err != nil {
		return &answer{err: err}
	}
	req.GetBody = nil // a request that has a key is not to be sent again behind our back
	if ctype != "" {
		req.Header.Set("Content-Type", ctype)
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := b.http.Do(req)
	if err != nil {
		return &answer{err: err}
	}
	a := &answer{status: resp.StatusCode}
	a.body, a.err = io.ReadAll(resp.Body)
	a.err = errors.Join(a.err, resp.Body.Close())
	return a
}

// unreached tells whether a call cannot have had an effect, because there was nobody to connect to.
func unreached(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// load is a cluster under load.
type load struct {
	c       *cluster
	h       *history
	seed    uint64
	stop    chan struct{}
	wg      sync.WaitGroup
	serial  atomic.Int64
	calm    atomic.Bool    // there are no faults
	counted map[string]int // buckets of the stable documents

	mu       sync.Mutex
	wrong    []string
	statuses map[string]int
}

func newLoad(c *cluster, seed uint64) *load {
	l := &load{c: c, h: newHistory(), seed: seed, counted: map[string]int{}, statuses: map[string]int{}}
	for i := range stableDocs {
		l.counted[newDoc("stable", stableID(i), "").Bucket]++
	}
	return l
}

// blame notes what is wrong with an answer.
func (l *load) blame(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
}

// note counts an answer, and says that something is wrong with one that no fault explains.
func (l *load) note(what string, b *broker, a *answer) {
	name := what + " " + strconv.Itoa(a.status) + " " + a.code()
	if a.err != nil {
		name = what + " broken off"
	}
	l.mu.Lock()
	l.statuses[name]++
	l.mu.Unlock()
	switch {
	case a.err != nil, a.status == http.StatusOK, a.status == http.StatusMultiStatus:
	case a.status == http.StatusTooManyRequests, a.status == http.StatusServiceUnavailable, a.status == http.StatusGatewayTimeout, a.status == http.StatusInsufficientStorage:
	case a.code() == "write_uncertain", a.code() == "load_under_way", a.code() == "load_moved", a.code() == "document_not_found":
	case (a.code() == "type_conflict" || a.code() == "nothing_applied") && strings.Contains(string(a.body), extraPrefix+"any_"):
	default:
		l.blame("%s of %s: %v", what, b.name, a)
	}
}

// fill declares the index and loads the stable documents. There are no faults yet.
func (l *load) fill(ctx context.Context) error {
	b := l.c.brokers[0]
	if a := b.call(ctx, http.MethodPut, "/indexes/"+index, nil, "text/plain", []byte(sdl), ""); a.err != nil || a.status != http.StatusCreated {
		return fmt.Errorf("declare the index: %v", a)
	}
	var body []byte
	for i := range stableDocs {
		body = append(append(body, newDoc("stable", stableID(i), "").json()...), '\n')
	}
	if a := b.call(ctx, http.MethodPost, "/index/bulk", url.Values{"index": {index}}, "application/x-ndjson", body, ""); a.err != nil || a.status != http.StatusOK {
		return fmt.Errorf("load the documents: %v", a)
	}
	return nil
}

// begin starts writers and readers; end stops them and waits.
func (l *load) begin() {
	l.stop = make(chan struct{})
	for i := range writers {
		r := rand.New(rand.NewPCG(l.seed, uint64(i)+uint64(l.serial.Add(1))<<8))
		l.wg.Go(func() { l.loop(func() { l.write(r, "writer-"+strconv.Itoa(i)) }) })
	}
	for i := range readers {
		r := rand.New(rand.NewPCG(l.seed, uint64(i)+uint64(l.serial.Add(1))<<8))
		l.wg.Go(func() { l.loop(func() { l.read(r, "reader-"+strconv.Itoa(i)) }) })
	}
}

func (l *load) end() {
	close(l.stop)
	l.wg.Wait()
}

func (l *load) stopped() bool {
	select {
	case <-l.stop:
		return true
	default:
		return false
	}
}

// pace is the least time between two calls of one worker: the machine has others.
const pace = 2 * time.Millisecond

func (l *load) loop(do func()) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-tick.C:
			do()
		}
	}
}

// within is a context that ends soon, or when a stuck cluster should have answered.
func within(r *rand.Rand) (context.Context, context.CancelFunc) {
	d := []time.Duration{300 * time.Millisecond, 2 * time.Second, 15 * time.Second, 15 * time.Second}[r.IntN(4)]
	return context.WithTimeout(context.Background(), d)
}

func (l *load) broker(r *rand.Rand) *broker { return l.c.brokers[r.IntN(len(l.c.brokers))] }

// outcomeOf is what the answer to a write says.
func outcomeOf(a *answer) outcome {
	switch {
	case a.err != nil && unreached(a.err):
		return refused
	case a.err != nil:
		return unknown
	case a.status == http.StatusOK:
		return acked
	case a.status == http.StatusTooManyRequests, a.status == http.StatusServiceUnavailable, a.code() == "type_conflict", a.code() == "nothing_applied":
		return refused
	}
	return unknown
}

// value is one that nobody wrote before.
func (l *load) value(by string) string {
	v := by + "/" + strconv.FormatInt(l.serial.Add(1), 10)
	if l.calm.Load() {
		v += calmSuffix
	}
	return v
}

func (l *load) write(r *rand.Rand, by string) {
	value := l.value(by)
	ctx, cancel := within(r)
	defer cancel()
	switch r.IntN(11) {
	case 0, 1, 2, 3, 4:
		id := liveID(r.IntN(liveIDs))
		b := l.broker(r)
		w := l.h.begin(by+" with a put at "+b.name, id, value)
		a := b.call(ctx, http.MethodPost, "/index", url.Values{"index": {index}}, "application/json", newDoc("live", id, value).json(), "")
		l.h.end(w, outcomeOf(a))
		l.note("put", b, a)
		l.honest("put", b, a)
	case 5, 6:
		id := liveID(r.IntN(liveIDs))
		b := l.broker(r)
		w := l.h.begin(by+" with a delete at "+b.name, id, "")
		a := b.call(ctx, http.MethodDelete, "/index", url.Values{"index": {index}, "id": {id}}, "", nil, "")
		l.h.end(w, outcomeOf(a))
		l.note("delete", b, a)
		l.honest("delete", b, a)
	case 7:
		l.again(ctx, r, by, value)
	default:
		l.bulk(ctx, r, by, value)
	}
}

// own is how many documents a writer has for itself.
const own = 8

// again loads documents with a key, writes some of them otherwise, and sends the load again, which has no effect any more.
func (l *load) again(ctx context.Context, r *rand.Rand, by, value string) {
	var body []byte
	for i := range own {
		body = append(append(body, newDoc("live", ownID(by, i), value).json()...), '\n')
	}
	begin := func() []*write {
		ws := make([]*write, own)
		for i := range ws {
			ws[i] = l.h.begin(by+" with a bulk that is sent twice", ownID(by, i), value)
		}
		return ws
	}
	send := func() *answer {
		b := l.broker(r)
		a := b.call(ctx, http.MethodPost, "/index/bulk", url.Values{"index": {index}}, "application/x-ndjson", body, value)
		l.note("bulk", b, a)
		l.honest("bulk", b, a)
		return a
	}
	kills, moves := l.c.kills(), l.c.moves.Load()
	ws := begin()
	o := outcomeOf(send())
	for _, w := range ws {
		l.h.end(w, o)
	}
	if o != acked {
		return
	}
	for i := range own {
		if r.IntN(2) == 0 {
			continue
		}
		b, over := l.broker(r), l.value(by)
		w := l.h.begin(by+" with a put at "+b.name, ownID(by, i), over)
		a := b.call(ctx, http.MethodPost, "/index", url.Values{"index": {index}}, "application/json", newDoc("live", ownID(by, i), over).json(), "")
		l.h.end(w, outcomeOf(a))
		l.note("put", b, a)
		l.honest("put", b, a)
	}
	ws = begin()
	a := send()
	var said struct {
		Repeated bool `json:"repeated"`
	}
	// A key is lost with a disk that is full, and by the calendar when a member starts; and where documents move, a member of the first
	// group that missed the beginning may be the only one that is asked.
	kept := !l.c.shape.fullDisk && l.c.kills() == kills && l.c.moves.Load() == moves && moves%2 == 0
	o = outcomeOf(a)
	if a.err == nil && a.status/100 == 2 {
		if err := json.Unmarshal(a.body, &said); err != nil {
			l.blame("a load that was sent again: %v: %v", err, a)
		}
		if kept && !said.Repeated && !bytes.Contains(a.body, []byte("write_uncertain")) { // of what no member has confirmed nobody can tell
			l.blame("a load that was sent again is not known any more: %v", a)
		}
		if o = unknown; said.Repeated || kept {
			o = refused
		}
	}
	if a.code() == "load_moved" || a.code() == "load_under_way" {
		o = refused
	}
	for _, w := range ws {
		l.h.end(w, o)
	}
}

// honest checks that a write calls itself ok only if all members have it.
func (l *load) honest(what string, b *broker, a *answer) {
	if a.err != nil || a.status/100 != 2 {
		return
	}
	var w struct {
		OK        bool     `json:"ok"`
		MembersOK int      `json:"members_ok"`
		Members   int      `json:"members"`
		Failed    []string `json:"failed_addresses"`
	}
	if err := json.Unmarshal(a.body, &w); err != nil {
		l.blame("%s of %s: %v: %v", what, b.name, err, a)
	} else if w.OK != (a.status == http.StatusOK) || w.OK && (w.MembersOK != w.Members || w.Members < 1 || len(w.Failed) > 0) || !w.OK && what != "bulk" && len(w.Failed) == 0 {
		l.blame("%s of %s does not add up: %v", what, b.name, a)
	}
}

// bulk loads some documents with different ids, half of the time with a key, by which the load is sent again after a failure, perhaps to
// another broker.
func (l *load) bulk(ctx context.Context, r *rand.Rand, by, value string) {
	ids := r.Perm(liveIDs)[:1+r.IntN(30)]
	key, tries, how := "", 1, " with a bulk"
	if r.IntN(2) == 0 {
		key, tries, how = value, 4, " with a bulk that has a key"
	}
	var body []byte
	ws := make([]*write, len(ids))
	for i, n := range ids {
		body = append(append(body, newDoc("live", liveID(n), value).json()...), '\n')
		ws[i] = l.h.begin(by+how, liveID(n), value)
	}
	total := refused
	var lines map[int]outcome // that failed, where all else is in
	for range tries {
		b := l.broker(r)
		a := b.call(ctx, http.MethodPost, "/index/bulk", url.Values{"index": {index}}, "application/x-ndjson", body, key)
		l.note("bulk", b, a)
		l.honest("bulk", b, a)
		for _, w := range ws {
			l.h.tell(w, fmt.Sprintf("at %v %s: %.300s", time.Duration(l.h.now()).Round(time.Millisecond), b.name, a))
		}
		lines = nil
		switch o := outcomeOf(a); {
		case o == acked:
			total = acked
		case o == unknown:
			total = unknown
			lines = failedLines(a)
		}
		if total == acked || ctx.Err() != nil || l.stopped() {
			break
		}
	}
	for i, w := range ws {
		o := total
		if total == unknown && lines != nil {
			failed, is := lines[i+1]
			if o = acked; is {
				o = failed
			}
		}
		l.h.end(w, o)
	}
}

// failedLines are the lines that are not in, where every member has taken all others; else nil.
func failedLines(a *answer) map[int]outcome {
	var r struct {
		Indexed int `json:"indexed"`
		Failed  int `json:"failed"`
		Errors  []struct {
			Line int    `json:"line"`
			Code string `json:"code"`
		} `json:"errors"`
		Addresses []string `json:"failed_addresses"`
	}
	if a.err != nil || a.status != http.StatusMultiStatus || json.Unmarshal(a.body, &r) != nil || len(r.Addresses) > 0 || r.Failed != len(r.Errors) || r.Indexed == 0 {
		return nil
	}
	out := map[int]outcome{}
	for _, e := range r.Errors {
		if out[e.Line] = unknown; e.Code == "type_conflict" {
			out[e.Line] = refused
		}
	}
	return out
}

// found is the answer to a search.
type found struct {
	Total    int    `json:"total"`
	Relation string `json:"total_relation"`
	Hits     []struct {
		ID     string `json:"id"`
		Source *doc   `json:"source"`
	} `json:"hits"`
	Aggs map[string]struct {
		Buckets []struct {
			Value string `json:"value"`
			Count int    `json:"count"`
		} `json:"buckets"`
		Other int `json:"other"`
	} `json:"aggs"`
	Next   string `json:"next"`
	Shards struct {
		Failed int `json:"failed"`
	} `json:"shards"`
	AggFailed []string `json:"agg_failed_addresses"`
	Coverage  struct {
		Complete bool `json:"complete"`
	} `json:"coverage"`
}

// whole tells whether the answer says that nothing is missing.
func (f *found) whole() bool {
	return f.Coverage.Complete && f.Shards.Failed == 0 && len(f.AggFailed) == 0
}

// search makes a search; nil where there is no answer.
func (l *load) search(ctx context.Context, b *broker, p url.Values) *found {
	p.Set("index", index)
	a := b.call(ctx, http.MethodGet, "/search", p, "", nil, "")
	l.note("search", b, a)
	if a.err != nil || a.status != http.StatusOK {
		return nil
	}
	f := &found{}
	if err := json.Unmarshal(a.body, f); err != nil {
		l.blame("search of %s: %v: %v", b.name, err, a)
		return nil
	}
	if f.Coverage.Complete && f.Shards.Failed > 0 {
		l.blame("search of %s, %v: complete with %d shards failed", b.name, p, f.Shards.Failed)
	}
	l.mu.Lock()
	if f.whole() {
		l.statuses["search whole"]++
	} else {
		l.statuses["search partial"]++
	}
	l.mu.Unlock()
	return f
}

func (l *load) read(r *rand.Rand, by string) {
	ctx, cancel := within(r)
	defer cancel()
	b := l.broker(r)
	by += " of " + b.name
	switch r.IntN(10) {
	case 0, 1, 2:
		id := l.some(r)
		start := l.h.now()
		if d, ok := l.get(ctx, b, id); ok {
			l.sight(by+" with get", id, d, start)
		}
	case 3:
		want := newDoc("stable", stableID(r.IntN(stableDocs)), "")
		if d, ok := l.get(ctx, b, want.ID); ok && *d != want {
			l.blame("%s got %s as %+v", by, want.ID, d)
		}
	case 4, 5:
		id := l.some(r)
		start := l.h.now()
		f := l.search(ctx, b, url.Values{"q": {"id:" + strconv.Quote(id)}, "dfs": {strconv.FormatBool(r.IntN(2) == 0)}})
		switch {
		case f == nil || !f.whole():
		case f.Total != len(f.Hits) || f.Total > 1:
			l.blame("%s found %d documents with the id %s, shows %d", by, f.Total, id, len(f.Hits))
		case f.Total == 0:
			l.h.see(by+" with search", id, "", start)
		case f.Hits[0].Source != nil: // a document may go between being found and being shown
			l.sight(by+" with search", id, f.Hits[0].Source, start)
		}
	case 6, 7:
		p := url.Values{"q": {"kind:stable"}, "limit": {"0"}, "aggs": {"b:terms(bucket,0)"}, "dfs": {strconv.FormatBool(r.IntN(2) == 0)}}
		if r.IntN(3) == 0 {
			p.Set("allow_partial", "true")
		}
		if r.IntN(3) == 0 {
			p.Set("min_coverage", "1")
		}
		if f := l.search(ctx, b, p); f != nil {
			l.count(by, f)
		}
	case 8:
		// A word with a filter, so that scores and statistics are at work as well.
		word := fmt.Sprintf("w%d", r.IntN(150))
		p := url.Values{"q": {"body:" + word}, "filter": {"kind:stable"}, "limit": {"1000"}, "fields": {""}, "dfs": {strconv.FormatBool(r.IntN(2) == 0)}}
		f := l.search(ctx, b, p)
		if f == nil {
			return
		}
		want := 0
		for i := range stableDocs {
			for w := range strings.FieldsSeq(newDoc("stable", stableID(i), "").Body) {
				if w == word {
					want++
					break
				}
			}
		}
		if f.Total > want || len(f.Hits) != min(f.Total, 1000) || f.whole() && f.Total != want {
			l.blame("%s found %d stable documents with %s, shows %d, there are %d; whole: %t", by, f.Total, word, len(f.Hits), want, f.whole())
		}
	default:
		l.list(ctx, r, by)
	}
}

// some is the id of a live document.
func (l *load) some(r *rand.Rand) string {
	if r.IntN(4) == 0 {
		return ownID("writer-"+strconv.Itoa(r.IntN(writers)), r.IntN(own))
	}
	return liveID(r.IntN(liveIDs))
}

// sight records a live document that was read, which has to be as it was written.
func (l *load) sight(by, id string, d *doc, start int64) {
	if d.ID != "" && *d != newDoc("live", id, d.Value) {
		l.blame("%s got %s as %+v", by, id, *d)
	}
	l.h.see(by, id, d.Value, start)
}

// get reads a document; the zero document if there is none.
func (l *load) get(ctx context.Context, b *broker, id string) (*doc, bool) {
	a := b.call(ctx, http.MethodGet, "/doc", url.Values{"index": {index}, "id": {id}}, "", nil, "")
	l.note("get", b, a)
	switch {
	case a.err != nil:
		return nil, false
	case a.status == http.StatusNotFound && a.code() == "document_not_found":
		return &doc{}, true
	case a.status != http.StatusOK:
		return nil, false
	}
	var d struct {
		ID     string `json:"id"`
		Source *doc   `json:"source"`
	}
	if err := json.Unmarshal(a.body, &d); err != nil || d.Source == nil || d.ID != id || d.Source.ID != id {
		l.blame("get %s of %s: %v: %v", id, b.name, err, a)
		return nil, false
	}
	return d.Source, true
}

// count checks the total and the buckets of all stable documents.
func (l *load) count(by string, f *found) {
	if f.whole() && f.Relation != "eq" {
		l.blame("%s: the total is %q", by, f.Relation)
	}
	sum := f.Aggs["b"].Other
	for _, b := range f.Aggs["b"].Buckets {
		sum += b.Count
		if b.Count > l.counted[b.Value] || f.whole() && b.Count != l.counted[b.Value] {
			l.blame("%s counts %d stable documents in %s, there are %d; whole: %t", by, b.Count, b.Value, l.counted[b.Value], f.whole())
		}
	}
	if f.Total > stableDocs || f.whole() && (f.Total != stableDocs || sum != stableDocs) {
		l.blame("%s counts %d stable documents, %d in buckets, there are %d; whole: %t", by, f.Total, sum, stableDocs, f.whole())
	}
}

// list reads all ids, or the stable ones, page by page, each from another broker.
func (l *load) list(ctx context.Context, r *rand.Rand, by string) {
	p := url.Values{"sort": {"id"}, "limit": {strconv.Itoa(pageSize)}, "fields": {""}}
	if r.IntN(2) == 0 {
		p.Set("q", "kind:stable")
	}
	before, stable := "", 0
	for {
		f := l.search(ctx, l.broker(r), p)
		if f == nil || !f.whole() {
			return
		}
		for _, h := range f.Hits {
			if h.ID <= before {
				l.blame("%s lists %s behind %s", by, h.ID, before)
				return
			}
			if before = h.ID; strings.HasPrefix(h.ID, "s-") {
				stable++
			}
		}
		if f.Next == "" {
			break
		}
		p.Set("after", f.Next)
	}
	if stable != stableDocs {
		l.blame("%s lists %d stable documents, there are %d", by, stable, stableDocs)
	}
}
