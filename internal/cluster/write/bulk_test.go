package write

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-search/weft/internal/admit"
	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/topology/placement"
	"github.com/weft-search/weft/internal/topology/shardmap"
)

// numbered are lines of documents from..to-1.
func numbered(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, `{"id":"d%d","n":%d}`+"\n", i, i)
	}
	return b.String()
}

// worded are such lines with words in place of the numbers.
func worded(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, `{"id":"d%d","n":"word %d"}`+"\n", i, i)
	}
	return b.String()
}

func bulkOf(t testing.TB, w *Writer, body string) *leaf.BulkReply {
	t.Helper()
	reply, err := w.Bulk(t.Context(), &leaf.BulkRequest{Index: "x"}, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

func TestALoadGoesToItsGroups(t *testing.T) {
	c := newCluster(t, 2, 2, 1)
	w := c.writer(Options{})
	w.chunkDocs = 7
	reply := bulkOf(t, w, numbered(0, 300)+numbered(10, 20))
	if !reply.OK || reply.Indexed != 310 || reply.Duplicates != 10 || reply.Shards != 3 || reply.Members.OK != 5 || reply.Members.Total != 5 {
		t.Errorf("%+v", reply.BulkReply)
	}
	if got := fmt.Sprint(reply.Inferred); got != "[{n i64 integer}]" {
		t.Error(got)
	}
	if wrong := c.same("x") + c.sameSchemas("x"); wrong != "" {
		t.Error(wrong)
	}
	if reply := bulkOf(t, w, ""); !reply.OK || reply.Shards != 0 || reply.Members.Total != 0 {
		t.Errorf("an empty load: %+v", reply.BulkReply)
	}
	if reply := bulkOf(t, w, "no json\n"); reply.OK || reply.Failed != 1 || len(reply.Errors) != 1 || reply.Errors[0].Code != string(api.InvalidJSON) {
		t.Errorf("nothing but errors: %+v", reply.BulkReply)
	}
	_, err := w.Load(t.Context(), &leaf.BulkRequest{Index: "x"}, strings.NewReader("no json\n"), LoadOptions{Whole: true})
	if p := problemOf(t, err, api.NothingApplied); !bytes.Contains(p.Extra, []byte(`"failed":1`)) {
		t.Errorf("%s", p.Extra)
	}
	if bulkOf(t, w, numbered(0, 1)).Inferred != nil {
		t.Error("a field again")
	}
}

func TestErrorsAreThoseOfTheFirstLines(t *testing.T) {
	c := newCluster(t, 1, 1)
	w := c.writer(Options{Limits: Limits{BulkErrors: 5, DocumentBytes: 200}})
	w.chunkDocs = 2
	put(t, w, `{"id":"a","n":1}`)
	var body strings.Builder
	for i := range 40 {
		fmt.Fprintf(&body, `{"id":"d%d","n":%d}`+"\n", i, i)
		switch i % 3 {
		case 0:
			body.WriteString(`{"id":"bad","n":"word"}` + "\n")
		case 1:
			body.WriteString(strings.Repeat("x", 300) + "\n")
		}
	}
	reply := bulkOf(t, w, body.String())
	lines := make([]int, 0)
	for _, e := range reply.Errors {
		lines = append(lines, e.Line)
	}
	if !slices.Equal(lines, []int{2, 4, 7, 9, 12}) || reply.Failed != 27 || reply.ErrorsOmitted != 22 || reply.Indexed != 40 {
		t.Errorf("lines %v, %+v", lines, reply.BulkReply)
	}
	if e := reply.Errors[0]; e.ID != "bad" || e.Code != string(api.TypeConflict) {
		t.Errorf("%+v", e)
	}
	if e := reply.Errors[1]; e.Code != string(api.DocumentTooLarge) {
		t.Errorf("%+v", e)
	}
}

func TestALoadNamesWhoMissedIt(t *testing.T) {
	c, hints := newCluster(t, 2, 2), &hintBook{}
	w := c.writer(Options{Hints: hints})
	w.chunkDocs = 5
	bulkOf(t, w, numbered(0, 1))
	of := func(g, to int) (n int) {
		for i := range to {
			if c.State().Owner(fmt.Sprint("d", i)).Ordinal == g {
				n++
			}
		}
		return n
	}
	c.models["0/1"].during("Bulk", gone, -1)
	reply := bulkOf(t, w, numbered(0, 60))
	if reply.OK || reply.Indexed != 60 || reply.Failed != 0 || reply.Members.OK != 3 || !slices.Equal(reply.Members.FailedAddresses, []string{"0/1"}) {
		t.Errorf("%+v", reply.BulkReply)
	}
	if n := len(hints.of("0/1")); n != of(0, 60) {
		t.Errorf("%d hints of %d", n, of(0, 60))
	}
	// A whole group is away.
	c.models["0/0"].during("Bulk", gone, -1)
	reply = bulkOf(t, w, numbered(60, 100))
	away := of(0, 100) - of(0, 60)
	if reply.OK || int(reply.Failed) != away || int(reply.Indexed) != 40-away || reply.Members.OK != 2 || reply.Members.Total != 4 || reply.Shards != 2 {
		t.Errorf("%+v", reply.BulkReply)
	}
	for _, e := range reply.Errors {
		if e.Code != string(api.GroupUnavailable) || e.Line < 1 || e.ID != fmt.Sprint("d", 59+e.Line) {
			t.Errorf("%+v", e)
		}
	}
	// All of them are.
	c.models["1/0"].during("Bulk", gone, -1)
	c.models["1/1"].during("Bulk", refuse, -1)
	_, err := w.Bulk(t.Context(), &leaf.BulkRequest{Index: "x"}, strings.NewReader(numbered(0, 30)))
	p, ok := errors.AsType[*api.Problem](err)
	if !ok || p.HTTPStatus() != 503 || !bytes.Contains(p.Extra, []byte(`"failed":30`)) {
		t.Errorf("%v", err)
	}
	// Nobody knows.
	for _, m := range c.all() {
		m.during("Bulk", lost, -1)
	}
	reply = bulkOf(t, w, numbered(0, 30))
	if reply.OK || reply.Failed != 30 || reply.Errors[0].Code != string(api.WriteUncertain) || reply.Members.OK != 0 {
		t.Errorf("%+v", reply.BulkReply)
	}
}

// TestAHungMemberIsWaitedForOnce loads many chunks while a member does not answer.
func TestAHungMemberIsWaitedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, hints := newCluster(t, 2), &hintBook{}
		w := c.writer(Options{Hints: hints})
		w.chunkDocs = 5
		bulkOf(t, w, numbered(0, 1))
		c.models["0/1"].during("Bulk", hang, -1)
		began := time.Now()
		reply := bulkOf(t, w, numbered(0, 100))
		if took := time.Since(began); took > 2*w.o.Limits.ChunkTimeout {
			t.Errorf("it took %v", took)
		}
		if reply.OK || reply.Indexed != 100 || reply.Members.OK != 1 || len(hints.of("0/1")) != 100 {
			t.Errorf("%+v", reply.BulkReply)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestALoadWaitsForRoom refuses chunks for want of room: for a while, and for ever.
func TestALoadWaitsForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		w := c.writer(Options{})
		w.chunkDocs = 10
		for _, m := range c.all() {
			m.during("Bulk", busy, 20)
		}
		if reply := bulkOf(t, w, numbered(0, 50)); !reply.OK {
			t.Errorf("%+v", reply.BulkReply)
		}
		c.models["0/0"].during("PutIndex", busy, 5)
		if reply := bulkOf(t, w, `{"id":"new","field":1}`); !reply.OK {
			t.Errorf("%+v", reply.BulkReply)
		}
		for _, m := range c.all() {
			m.during("Bulk", busy, -1)
		}
		began := time.Now()
		_, err := w.Bulk(t.Context(), &leaf.BulkRequest{Index: "x"}, strings.NewReader(numbered(0, 5)))
		problemOf(t, err, api.TooManyWrites)
		if took := time.Since(began); took < w.o.Limits.BulkStall-time.Second || took > w.o.Limits.BulkStall+time.Second {
			t.Errorf("it took %v", took)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestMembersOfUnequalSchemas lets one member refuse what the other takes.
func TestMembersOfUnequalSchemas(t *testing.T) {
	c, hints := newCluster(t, 2), &hintBook{}
	w := c.writer(Options{Hints: hints})
	odd := c.models["0/1"]
	if _, _, _, prob := odd.made("x").typed([]byte(`{"id":"other","n":1}`)); prob != nil {
		t.Fatal(prob)
	}
	odd.fates = func(call string) fate {
		if call == "Info" {
			return gone
		}
		return fine
	}
	reply := bulkOf(t, w, `{"id":"a","n":"a word"}`+"\n"+`{"id":"b"}`)
	if reply.OK || reply.Indexed != 2 || reply.Failed != 0 || reply.Members.OK != 1 || len(reply.Errors) != 1 || reply.Errors[0].Line != 1 || reply.Errors[0].Code != string(api.TypeConflict) {
		t.Errorf("%+v", reply.BulkReply)
	}
	if got := hints.of("0/1"); !slices.Equal(got, []string{"x/a"}) {
		t.Errorf("hints %v", got)
	}
	one := put(t, w, `{"id":"c","n":"a word"}`)
	if one.OK || one.Members.OK != 1 || !slices.Contains(hints.of("0/1"), "x/c") {
		t.Errorf("%+v, hints %v", one.WriteReply, hints.of("0/1"))
	}
}

// TestAMemberThatListsNotAllErrors lets members leave errors out of their replies.
func TestAMemberThatListsNotAllErrors(t *testing.T) {
	for _, silent := range [][2]int{{1, 1}, {-1, 1}, {1, -1}} {
		c, hints := newCluster(t, 2), &hintBook{}
		w := c.writer(Options{Hints: hints})
		for i, m := range c.group(0) {
			if _, _, _, prob := m.made("x").typed([]byte(`{"id":"other","n":1}`)); prob != nil {
				t.Fatal(prob)
			}
			m.silent = silent[i]
		}
		// The coordinator is told of a schema in which n is words, so that it refuses nothing by itself.
		ix := w.schemas.of(w, "x")
		other := newModel("")
		if _, _, _, prob := other.made("x").typed([]byte(`{"id":"a","n":"a word"}`)); prob != nil {
			t.Fatal(prob)
		}
		ty := ix.keep(other.made("x").schema, other.sdl("x"), false, time.Now().Add(time.Hour))
		for _, m := range c.group(0) {
			ix.gave(m.addr, ty, 0)
		}
		reply := bulkOf(t, w, worded(0, 4)+`{"id":"z"}`)
		known := silent[0] < 0 || silent[1] < 0
		if reply.Indexed != 1 || reply.Failed != 4 || known != (reply.ErrorsOmitted == 0) || known != (len(reply.Errors) == 4) || reply.OK {
			t.Errorf("%v: %+v", silent, reply.BulkReply)
		}
		for i, m := range c.group(0) {
			if failed := slices.Contains(reply.Members.FailedAddresses, m.addr); known && failed != (silent[i] >= 0) {
				t.Errorf("%v: %+v", silent, reply.BulkReply)
			}
		}
	}
}

// TestALoadWithAKey sends a load twice.
func TestALoadWithAKey(t *testing.T) {
	c := newCluster(t, 2, 2)
	w := c.writer(Options{})
	w.chunkDocs = 6
	body := numbered(0, 50) + `{"n":1}` + "\n"
	send := func(body string) *leaf.BulkReply {
		t.Helper()
		reply, err := w.Bulk(t.Context(), &leaf.BulkRequest{Index: "x", Key: "key"}, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
	first := send(body)
	put(t, w, `{"id":"d7","n":1000}`)
	second := send(body)
	if first.Repeated || !second.Repeated || second.Indexed != 50 || second.Failed != 1 || first.Indexed != 50 {
		t.Errorf("%+v, then %+v", first, second)
	}
	own := c.group(c.State().Owner("d7").Ordinal)
	if got := own[0].docs("x")["d7"]; got != `{"id":"d7","n":1000}` {
		t.Errorf("a repeated load has written %s", got)
	}
	// A member that missed a part of it gets that part.
	calls := 2
	if c.State().Owner("d7").Ordinal == 0 {
		calls += 6 // about the claim of the load
	}
	own[1].during("Bulk", gone, calls)
	w.o.Limits.BulkStall = time.Nanosecond
	third, err := w.Bulk(t.Context(), &leaf.BulkRequest{Index: "x", Key: "other"}, strings.NewReader(numbered(100, 130)))
	if err != nil || third.OK {
		t.Fatalf("%+v, %v", third, err)
	}
	if third, err = w.Bulk(t.Context(), &leaf.BulkRequest{Index: "x", Key: "other"}, strings.NewReader(numbered(100, 130))); err != nil || !third.OK || third.Repeated {
		t.Errorf("%+v, %v", third, err)
	}
	if wrong := c.same("x"); wrong != "" {
		t.Error(wrong)
	}
	// Other documents under the key are not taken for those of before.
	if reply := send(numbered(200, 210)); reply.Repeated || c.group(c.State().Owner("d205").Ordinal)[0].docs("x")["d205"] == "" {
		t.Errorf("%+v", reply)
	}
	r, sender := io.Pipe()
	done := make(chan error)
	go func() {
		_, err := w.Bulk(t.Context(), &leaf.BulkRequest{Index: "x", Key: "slow"}, r)
		done <- err
	}()
	if _, err := io.WriteString(sender, numbered(0, 1)); err != nil {
		t.Fatal(err)
	}
	_, err = w.Bulk(t.Context(), &leaf.BulkRequest{Index: "x", Key: "slow"}, strings.NewReader(""))
	problemOf(t, err, api.LoadUnderWay)
	if err := sender.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	_, err = w.Bulk(t.Context(), &leaf.BulkRequest{Index: "x", Key: strings.Repeat("k", leaf.MaxBulkKey+1)}, strings.NewReader(""))
	problemOf(t, err, api.InvalidParameter)
}

// broken is a stream that fails after what it has.
type broken struct {
	io.Reader
	err error
}

func (b *broken) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		err = b.err
	}
	return n, err
}

func TestAStreamThatBreaksOff(t *testing.T) {
	cut := errors.New("the connection was cut")
	for _, whole := range []bool{false, true} {
		c := newCluster(t, 2, 1)
		w := c.writer(Options{})
		w.chunkDocs = 3
		stream := func(body string) (*leaf.BulkReply, error) {
			return w.Load(t.Context(), &leaf.BulkRequest{Index: "x"}, &broken{strings.NewReader(body), cut}, LoadOptions{Whole: whole})
		}
		reply, err := stream(numbered(0, 20) + `{"id":"half`)
		if err != nil || reply.OK || reply.Indexed != 20 || len(reply.Errors) != 1 || reply.Errors[0].Line != 21 || reply.Errors[0].Code != string(api.InvalidBody) {
			t.Errorf("whole %t: %+v, %v", whole, reply, err)
		}
		if wrong := c.same("x"); wrong != "" {
			t.Error(wrong)
		}
		_, err = stream(`{"id":"half`)
		problemOf(t, err, api.InvalidBody)
		_, err = stream("no json\n" + `{"id":"half`)
		problemOf(t, err, map[bool]api.Code{false: api.InvalidBody, true: api.NothingApplied}[whole])
	}
}

// TestTheCallerOfALoadLeaves ends the context of a load in its middle.
func TestTheCallerOfALoadLeaves(t *testing.T) {
	for _, whole := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 2)
			w := c.writer(Options{})
			w.chunkDocs = 5
			ctx, cancel := context.WithCancel(t.Context())
			r, sender := io.Pipe()
			stop := context.AfterFunc(ctx, func() { r.CloseWithError(context.Cause(ctx)) })
			defer stop()
			go func() {
				io.WriteString(sender, numbered(0, 12))
				synctest.Wait()
				cancel()
			}()
			reply, err := w.Load(ctx, &leaf.BulkRequest{Index: "x"}, r, LoadOptions{Whole: whole})
			in := len(c.models["0/0"].docs("x"))
			if whole {
				if err != nil || reply.OK || reply.Indexed != 12 || in != 12 || len(reply.Errors) != 1 || reply.Errors[0].Line != 13 {
					t.Errorf("%+v, %v; %d are in", reply, err, in)
				}
			} else if e, ok := errors.AsType[*leaf.TransportError](err); !ok || !e.MaybeApplied || !errors.Is(err, context.Canceled) || in != 10 {
				t.Errorf("%v; %d are in", err, in)
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestASlowGroupSlowsTheReaderDown lets one group stand still: of the stream no more is read than may wait.
func TestASlowGroupSlowsTheReaderDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 1)
		gate := admit.New(front.GateMemory, 4000, 0, 0)
		w := c.writer(Options{Memory: gate, Limits: Limits{DocumentBytes: 1000, LoadBytes: 4000}})
		w.chunkDocs = 1 << 20
		put(t, w, `{"id":"a","n":1}`)
		free := make(chan struct{})
		for _, m := range c.all() {
			m.before = func(_ context.Context, call string) {
				if call == "Bulk" {
					<-free
				}
			}
		}
		r, sender := io.Pipe()
		const lines = 20_000
		read := &counter{r: r}
		done := make(chan *leaf.BulkReply)
		go func() {
			reply, err := w.Bulk(t.Context(), &leaf.BulkRequest{Index: "x"}, read)
			if err != nil {
				t.Error(err)
			}
			done <- reply
		}()
		go func() {
			for i := range lines {
				if _, err := io.WriteString(sender, numbered(i, i+1)); err != nil {
					return
				}
			}
			sender.Close()
		}()
		synctest.Wait()
		if n := read.bytes(); n > 256<<10+4000 || n < 2000 {
			t.Errorf("%d bytes were read", n) // a buffer of the reader, and what may wait
		}
		if gate.Used() != 4000 {
			t.Errorf("%d bytes are charged", gate.Used())
		}
		_, err := w.Bulk(t.Context(), &leaf.BulkRequest{Index: "x"}, strings.NewReader(""))
		problemOf(t, err, api.RequestMemoryFull)
		close(free)
		if reply := <-done; !reply.OK || reply.Indexed != lines {
			t.Errorf("%+v", reply.BulkReply)
		}
		if gate.Used() != 0 {
			t.Errorf("%d bytes are charged", gate.Used())
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
}

// counter counts what is read.
type counter struct {
	r  io.Reader
	mu sync.Mutex
	n  int
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += n
	return n, err
}

func (c *counter) bytes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// TestNothingOvertakesWhenTheMapChanges changes the shard map between two lines with one id, while the first is on its way.
func TestNothingOvertakesWhenTheMapChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 1)
		w := c.writer(Options{})
		w.chunkDocs = 1
		put(t, w, `{"id":"first","n":0}`)
		c.models["2/0"] = newModel("2/0")
		next, err := c.State().Map.AddGroup("2/0")
		if err == nil {
			next, err = begun(next, 3)
		}
		if err != nil {
			t.Fatal(err)
		}
		old := c.State()
		c.setMap(next)
		id := ""
		for i := 0; id == ""; i++ {
			if k := fmt.Sprint("m", i); len(c.State().Writers(k)) == 2 {
				id = k
			}
		}
		c.mu.Lock()
		now := c.st
		c.st = old
		c.mu.Unlock()
		// The first line waits at its member until long after the second could have been there.
		free := make(chan struct{})
		var once sync.Once
		from := c.group(old.Owner(id).Ordinal)[0]
		from.before = func(_ context.Context, call string) {
			if call == "Bulk" {
				once.Do(func() { <-free })
			}
		}
		r, sender := io.Pipe()
		done := make(chan *leaf.BulkReply)
		go func() {
			reply, err := w.Bulk(t.Context(), &leaf.BulkRequest{Index: "x"}, r)
			if err != nil {
				t.Error(err)
			}
			done <- reply
		}()
		io.WriteString(sender, `{"id":"`+id+`","n":1}`+"\n")
		synctest.Wait()
		c.mu.Lock()
		c.st = now
		c.mu.Unlock()
		for _, m := range c.all() {
			m.mu.Lock()
			m.epoch = now.Epoch()
			m.mu.Unlock()
		}
		io.WriteString(sender, `{"id":"`+id+`","n":2}`+"\n")
		sender.Close()
		synctest.Wait()
		close(free)
		if reply := <-done; !reply.OK || reply.Indexed != 2 || reply.Duplicates != 1 {
			t.Errorf("%+v", reply.BulkReply)
		}
		for _, g := range now.Writers(id) {
			if got := c.group(g.Ordinal)[0].docs("x")[id]; got != `{"id":"`+id+`","n":2}` {
				t.Errorf("group %d has %s", g.Ordinal, got)
			}
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestAFieldOfAnotherTypeComesDuringALoad lets another coordinator add a field while documents with it wait in chunks.
func TestAFieldOfAnotherTypeComesDuringALoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 1)
		one, two := c.writer(Options{}), c.writer(Options{})
		put(t, one, `{"id":"a"}`)
		r, sender := io.Pipe()
		done := make(chan *leaf.BulkReply)
		go func() {
			reply, err := one.Bulk(t.Context(), &leaf.BulkRequest{Index: "x"}, r)
			if err != nil {
				t.Error(err)
			}
			done <- reply
		}()
		io.WriteString(sender, worded(0, 10)+`{"id":"e","m":1}`+"\n")
		synctest.Wait()
		put(t, two, `{"id":"b","n":1}`)
		io.WriteString(sender, worded(10, 12))
		sender.Close()
		reply := <-done
		if reply.Indexed != 1 || reply.Failed != 12 || fmt.Sprint(reply.Inferred) != "[{m i64 integer}]" || reply.Errors[0].Line != 1 || reply.Errors[0].Code != string(api.TypeConflict) {
			t.Errorf("%+v", reply.BulkReply)
		}
		if wrong := c.sameSchemas("x"); wrong != "" {
			t.Error(wrong)
		}
		for _, w := range []*Writer{one, two} {
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestLongLinesAreSentAtOnce(t *testing.T) {
	c := newCluster(t, 2)
	w := c.writer(Options{})
	long := `{"id":"long","s":"` + strings.Repeat("a word ", 300_000) + `"}`
	reply := bulkOf(t, w, numbered(0, 3)+long+"\n"+numbered(3, 5))
	if !reply.OK || reply.Indexed != 6 || c.models["0/1"].called("Bulk") != 2 {
		t.Errorf("%+v in %d chunks", reply.BulkReply, c.models["0/1"].called("Bulk"))
	}
	one := put(t, w, long)
	if !one.OK {
		t.Errorf("%+v", one.WriteReply)
	}
}

// instant is a member that has everything, whatever it is.
type instant struct{ leaf.Member }

func (instant) Info(_ context.Context, req *leaf.InfoRequest) (*leaf.InfoReply, error) {
	return &leaf.InfoReply{Index: api.IndexInfo{Name: req.Index, Schema: benchSchema, Dynamic: true}}, nil
}

func (instant) PutIndex(_ context.Context, req *leaf.PutIndexRequest) (*leaf.PutIndexReply, error) {
	return &leaf.PutIndexReply{Info: api.IndexInfo{Name: req.Index, Schema: benchSchema, Dynamic: true}}, nil
}

func (instant) Index(context.Context, *leaf.IndexRequest) (*leaf.IndexReply, error) {
	return &leaf.IndexReply{WriteReply: api.WriteReply{OK: true}}, nil
}

func (instant) Sums(_ context.Context, req *leaf.SumsRequest) (*leaf.SumsReply, error) {
	return &leaf.SumsReply{Sums: make([]leaf.Sum, len(req.IDs))}, nil
}

const benchSchema = `index x { dynamic: true field id: text<raw> [indexed, stored, fast, primary] field title: text<standard> [stored, inferred, multi] field year: i64 [stored, inferred, multi] field tags: text<standard> [stored, inferred, multi] }`

// BenchmarkIndex is what the writer itself costs for one document at two members: no wire, and members that do nothing.
func BenchmarkIndex(b *testing.B) {
	m, err := shardmap.New(placement.Ring, 0, []shardmap.Group{{Members: []string{"a", "b"}}})
	if err != nil {
		b.Fatal(err)
	}
	st, err := members.NewState(m, nil, func(string) (leaf.Member, error) { return instant{}, nil })
	if err != nil {
		b.Fatal(err)
	}
	w, err := New(&cluster{st: st}, Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	body := []byte(`{"id":"pkg/net/http","title":"Client is an HTTP client with a zero value that is usable","year":2024,"tags":["http","client"]}`)
	b.ReportAllocs()
	for b.Loop() {
		if reply, err := w.Index(b.Context(), &leaf.IndexRequest{Index: "x", Body: body}); err != nil || !reply.OK {
			b.Fatal(reply, err)
		}
	}
}
