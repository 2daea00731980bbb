package write

import (
	"context"
	"fmt"
	"io"
	"maps"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/read"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/topology/placement"
	"github.com/weft-search/weft/internal/topology/shardmap"
)

// moved puts the map in force that comes after a move to so many groups.
func (c *cluster) moved(to int) {
	c.t.Helper()
	for _, step := range []func(m *shardmap.Map) (*shardmap.Map, error){
		func(m *shardmap.Map) (*shardmap.Map, error) { return m.BeginMove(to, "job") },
		(*shardmap.Map).BeginCopying, (*shardmap.Map).Cutover, (*shardmap.Map).BeginCleaning, (*shardmap.Map).EndMove,
	} {
		next, err := step(c.State().Map)
		if err != nil {
			c.t.Fatal(err)
		}
		c.setMap(next, c.all()...)
	}
}

// placedOver is newCluster of which only the first groups hold documents.
func placedOver(t *testing.T, placed int, sizes ...int) *cluster {
	c := newCluster(t, sizes...)
	m := c.State().Map.Clone()
	m.Epoch, m.Placed = m.Epoch+1, placed
	c.setMap(m, c.all()...)
	return c
}

// everything is what all members hold.
func (c *cluster) everything() map[string]string {
	all := map[string]string{}
	for _, m := range c.all() {
		for id, source := range m.docs("x") {
			all[m.addr+" "+id] = source
		}
	}
	return all
}

func keyed(w *Writer, key, body string) (*leaf.BulkReply, error) {
	return w.Bulk(context.Background(), &leaf.BulkRequest{Index: "x", Key: key}, strings.NewReader(body))
}

func TestALoadThatIsSentAgainAfterAMoveUndoesNothing(t *testing.T) {
	c := placedOver(t, 2, 2, 1, 1)
	w := c.writer(Options{})
	w.chunkDocs = 6
	body := numbered(0, 50)
	if r, err := keyed(w, "k", body); err != nil || !r.OK {
		t.Fatalf("%+v, %v", r, err)
	}
	put(t, w, `{"id":"d7","n":1000}`)
	c.moved(3)
	put(t, w, `{"id":"d8","n":1000}`)
	before := c.everything()
	other := c.writer(Options{}) // another coordinator
	other.chunkDocs = w.chunkDocs
	for _, by := range []*Writer{w, other, other} {
		_, err := keyed(by, "k", body)
		p := problemOf(t, err, api.LoadMoved)
		if p.HTTPStatus() != 409 || !strings.Contains(string(p.Extra), `"failed":50`) {
			t.Errorf("%v %s", p, p.Extra)
		}
	}
	// One member of the first group is enough to know it.
	c.models["0/0"].during("Bulk", gone, -1)
	_, err := keyed(other, "k", body)
	problemOf(t, err, api.LoadMoved)
	if !maps.Equal(before, c.everything()) {
		t.Error("a refused load was applied")
	}
	// Under the placement of before it is the same load again.
	c.models["0/0"].fates = nil
	c.moved(2)
	if r, err := keyed(other, "k", body); err != nil || !r.Repeated {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := keyed(other, "new", body); err != nil || !r.OK || r.Repeated {
		t.Errorf("%+v, %v", r, err)
	}
}

// A move that begins while a load is being sent again gives what is left of it other parts, which no member knows: they are not applied over
// what was written since.
func TestAMoveThatCrossesARepetitionUndoesNothing(t *testing.T) {
	for after := int64(1); after < 24; after++ {
		c := placedOver(t, 2, 2, 1, 1)
		w := c.writer(Options{})
		w.chunkDocs = 6
		body := numbered(0, 50)
		if r, err := keyed(w, "k", body); err != nil || !r.OK {
			t.Fatalf("%+v, %v", r, err)
		}
		for i := range 50 {
			put(t, w, fmt.Sprintf(`{"id":"d%d","n":%d}`, i, 1000+i))
		}
		before := map[string]string{}
		maps.Copy(before, c.everything())
		var n atomic.Int64
		crossed := false
		for _, m := range c.all() {
			m.after = func(_ context.Context, call string) {
				if call == "Bulk" && n.Add(1) == after {
					next, err := begun(c.State().Map, 3)
					if err != nil {
						t.Error(err)
						return
					}
					c.setMap(next, c.all()...)
					crossed = true
				}
			}
		}
		r, err := keyed(w, "k", body)
		for _, m := range c.all() {
			m.after = nil
		}
		for key, source := range c.everything() {
			if source != before[key] {
				t.Fatalf("move after %d calls: %s has %s, it was %s", after, key, source, before[key])
			}
		}
		if !crossed {
			if err != nil || !r.Repeated {
				t.Fatalf("%+v, %v", r, err)
			}
			if after < 5 {
				t.Errorf("only %d calls", n.Load())
			}
			break
		}
		switch {
		case err != nil:
			problemOf(t, err, api.LoadMoved)
		case r.Failed == 0 && !r.Repeated:
			t.Errorf("move after %d calls: %+v", after, r)
		}
	}
}

// atEnd is a reader that calls a function before it tells of its end.
type atEnd struct {
	io.Reader
	call func()
}

func (r *atEnd) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err == io.EOF && r.call != nil {
		r.call()
		r.call = nil
	}
	return n, err
}

// A load whose parts came together by one placement and were sent by the next is not the load that it would be if it was sent again.
func TestALoadThatIsSentByAnotherPlacementThanItWasPartedByIsNotAppliedAgain(t *testing.T) {
	c := placedOver(t, 2, 2, 1, 1)
	w := c.writer(Options{})
	body := numbered(0, 40)
	first := &atEnd{strings.NewReader(body), func() {
		next, err := begun(c.State().Map, 3)
		if err != nil {
			t.Error(err)
			return
		}
		c.setMap(next, c.all()...)
	}}
	if r, err := w.Bulk(context.Background(), &leaf.BulkRequest{Index: "x", Key: "k"}, first); err != nil || !r.OK || r.Repeated {
		t.Fatalf("%+v, %v", r, err)
	}
	if !c.State().Moving() {
		t.Fatal("nothing has moved")
	}
	for i := range 40 {
		put(t, w, fmt.Sprintf(`{"id":"d%d","n":%d}`, i, 1000+i))
	}
	before := c.everything()
	_, err := keyed(c.writer(Options{}), "k", body)
	problemOf(t, err, api.LoadMoved)
	if !maps.Equal(before, c.everything()) {
		t.Error("a refused load was applied")
	}
}

func TestALoadThatAMoveCrossesIsNotAppliedAgain(t *testing.T) {
	c := placedOver(t, 2, 1, 1, 1)
	w := c.writer(Options{})
	w.chunkDocs = 6
	body := numbered(0, 50)
	var n atomic.Int64 // calls come at once
	c.models["0/0"].after = func(ctx context.Context, call string) {
		if call == "Bulk" {
			if n.Add(1) == 5 { // after the claim and a chunk
				next, err := begun(c.State().Map, 3)
				if err != nil {
					t.Error(err)
					return
				}
				c.setMap(next, c.all()...)
			}
		}
	}
	if r, err := keyed(w, "k", body); err != nil || !r.OK {
		t.Fatalf("%+v, %v", r, err)
	}
	if !c.State().Moving() {
		t.Fatal("nothing has moved")
	}
	before := c.everything()
	_, err := keyed(w, "k", body)
	problemOf(t, err, api.LoadMoved)
	// Also where the move is given up.
	next, err := c.State().Map.AbortMove()
	if err != nil {
		t.Fatal(err)
	}
	c.setMap(next, c.all()...)
	_, err = keyed(w, "k", body)
	problemOf(t, err, api.LoadMoved)
	if !maps.Equal(before, c.everything()) {
		t.Error("a refused load was applied")
	}
}

func TestAFenceDoesNotChangeTheChunksOfALoad(t *testing.T) {
	c := newCluster(t, 2, 1)
	w := c.writer(Options{})
	w.chunkDocs = 6
	body := numbered(0, 50)
	c.models["0/0"].after = func(ctx context.Context, call string) {
		if call == "Bulk" { // a new epoch with nothing else changed, again and again
			m := c.State().Map.Clone()
			m.Epoch++
			c.setMap(m)
		}
	}
	if r, err := keyed(w, "k", body); err != nil || !r.OK {
		t.Fatalf("%+v, %v", r, err)
	}
	c.models["0/0"].after = nil
	put(t, w, `{"id":"d7","n":1000}`)
	before := c.everything()
	if r, err := keyed(w, "k", body); err != nil || !r.Repeated || r.Indexed != 50 {
		t.Errorf("%+v, %v", r, err)
	}
	if !maps.Equal(before, c.everything()) {
		t.Error("a repeated load was applied")
	}
}

func TestALoadWithAKeyNeedsTheFirstGroup(t *testing.T) {
	c := newCluster(t, 1, 1)
	w := c.writer(Options{})
	bulkOf(t, w, numbered(0, 30))
	before := c.everything()
	c.models["0/0"].during("Bulk", gone, -1)
	if r, err := keyed(w, "k", worded(30, 60)); err == nil {
		t.Errorf("%+v", r)
	}
	if r, err := keyed(w, "k", numbered(30, 60)); err == nil || !maps.Equal(before, c.everything()) {
		t.Errorf("%+v", r)
	}
}

// below is a cluster as one member of another: what a coordinator that stands as a shard is to the one above.
type below struct {
	*read.Reader
	*Writer
}

func (b below) Stats(ctx context.Context, req *leaf.StatsRequest) (*leaf.StatsReply, error) {
	return b.Reader.Stats(ctx, req)
}

func (b below) Sums(ctx context.Context, req *leaf.SumsRequest) (*leaf.SumsReply, error) {
	if req.Fence {
		return b.Writer.FencedSums(ctx, req)
	}
	return b.Reader.Sums(ctx, req)
}

func (below) Place(_ context.Context, req *leaf.PlaceRequest) (*leaf.PlaceReply, error) {
	return &leaf.PlaceReply{Epoch: req.Epoch, Map: req.Map}, nil
}

func (below) Placed(context.Context) (*leaf.PlaceReply, error) { return &leaf.PlaceReply{}, nil }
func (below) Close() error                                     { return nil }

// stack makes a cluster of clusters, each of which is a group.
func stack(t *testing.T, placed int, under ...*cluster) (*cluster, *Writer) {
	t.Helper()
	return pile(t, placed, false, under...)
}

// pile makes a cluster of clusters, which are groups of one member, or the members of one group.
func pile(t *testing.T, placed int, mirrored bool, under ...*cluster) (*cluster, *Writer) {
	t.Helper()
	c := &cluster{t: t, models: map[string]*model{}, dial: map[string]leaf.Member{}}
	var groups []shardmap.Group
	for i, u := range under {
		addr := "cluster-" + strconv.Itoa(i)
		src := &frozen{c: u}
		r, err := read.New(src, read.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
		w, err := New(src, Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		})
		c.dial[addr] = below{r, w}
		if mirrored && i > 0 {
			groups[0].Members = append(groups[0].Members, addr)
			continue
		}
		groups = append(groups, shardmap.Group{Members: []string{addr}})
	}
	m, err := shardmap.New(placement.Ring, 0, groups)
	if err != nil {
		t.Fatal(err)
	}
	m.Placed = placed
	c.setMap(m)
	w := c.writer(Options{})
	w.chunkDocs = 6
	return c, w
}

// contents is what all members of all clusters hold.
func contents(list ...*cluster) map[string]string {
	all := map[string]string{}
	for i, c := range list {
		for at, source := range c.everything() {
			all[strconv.Itoa(i)+" "+at] = source
		}
	}
	return all
}

// TestACoordinatorOverCoordinatorsKnowsALoadAgain: the marks of the coordinator above are kept at the bottom, by the first group of the
// first cluster, and a question leaves none there.
func TestACoordinatorOverCoordinatorsKnowsALoadAgain(t *testing.T) {
	under := []*cluster{newCluster(t, 2, 1), newCluster(t, 1, 1), newCluster(t, 1)}
	top, w := stack(t, 2, under...)
	body := numbered(0, 50)
	if r, err := keyed(w, "k", body); err != nil || !r.OK || r.Indexed != 50 || r.Repeated {
		t.Fatalf("%+v, %v", r, err)
	}
	put(t, w, `{"id":"d7","n":1000}`)
	before := contents(under...)
	again := func(when string, whole bool) {
		t.Helper()
		other := top.writer(Options{}) // another coordinator above
		other.chunkDocs = w.chunkDocs
		if r, err := keyed(other, "k", body); err != nil || !r.Repeated || r.OK != whole || (r.Indexed == 50) != whole {
			t.Errorf("%s: %+v, %v", when, r, err)
		}
		if !maps.Equal(before, contents(under...)) {
			t.Errorf("%s: a repeated load was applied", when)
		}
	}
	again("all are there", true)
	// One member that has the marks is enough for them, though not for documents to be in.
	under[0].models["0/0"].during("Bulk", gone, -1)
	again("one is away", false)
	under[0].models["0/0"].fates = nil
	// The coordinator below goes by a map that its members do not take any more.
	for _, u := range under {
		m := u.State().Map.Clone()
		m.Epoch++
		u.setMap(m, u.all()...)
	}
	again("the map below is a newer one", true)
	// Documents are moved between the clusters.
	top.moved(3)
	_, err := keyed(w, "k", body)
	problemOf(t, err, api.LoadMoved)
	if !maps.Equal(before, contents(under...)) {
		t.Error("a refused load was applied")
	}
	top.moved(2)
	again("moved back", true)
	if r, err := keyed(w, "new", body); err != nil || !r.OK || r.Repeated {
		t.Errorf("another key: %+v, %v", r, err)
	}
}

// TestAMarkOfTheCoordinatorAboveNeedsTheFirstGroup: a mark that no member keeps is none.
func TestAMarkOfTheCoordinatorAboveNeedsTheFirstGroup(t *testing.T) {
	under := newCluster(t, 1, 1)
	_, w := stack(t, 1, under)
	bulkOf(t, w, numbered(0, 30)) // the index is there
	before := contents(under)
	under.models["0/0"].during("Bulk", gone, -1)
	if r, err := keyed(w, "k", worded(30, 60)); err == nil {
		t.Errorf("%+v", r)
	}
	if !maps.Equal(before, contents(under)) {
		t.Error("a load without marks was applied")
	}
}

// TestALoadThatIsSentAgainUndoesNothingWhereAMemberMissedIt: what a member missed of a load came to it as documents and not as the load, and so
// did what was written since. When the load is sent again it is not to be applied there, however shortly.
func TestALoadThatIsSentAgainUndoesNothingWhereAMemberMissedIt(t *testing.T) {
	for missing := range 2 {
		t.Run("member "+strconv.Itoa(missing), func(t *testing.T) {
			c := newCluster(t, 2)
			w := c.writer(Options{})
			w.o.Limits.BulkStall = 1
			w.chunkDocs = 3
			m := c.group(0)[missing]
			m.during("Bulk", gone, -1)
			body := numbered(0, 9)
			if reply, err := keyed(w, "key", body); err != nil || reply.OK || reply.Indexed != 9 {
				t.Fatalf("%+v, %v", reply, err)
			}
			m.during("Bulk", fine, -1)
			for i := range 8 { // it is given these otherwise, and d8 not yet
				put(t, w, `{"id":"d`+strconv.Itoa(i)+`","n":1000}`)
			}
			before := maps.Clone(m.puts)
			for range 2 {
				reply, err := keyed(w, "key", body)
				if err != nil || !reply.OK || reply.Indexed != 9 || reply.Repeated {
					t.Fatalf("%+v, %v", reply, err)
				}
			}
			if wrong := c.same("x"); wrong != "" {
				t.Error(wrong)
			}
			if got := m.docs("x"); got["d7"] != `{"id":"d7","n":1000}` || got["d8"] == "" {
				t.Errorf("it has %v", got)
			}
			if !maps.Equal(m.puts, before) {
				t.Errorf("it has applied the load again: %v, before that %v", m.puts, before)
			}
			// Where those who took it do not answer, nothing is applied either, and it is told.
			other := c.group(0)[1-missing]
			asked := 0
			other.before = func(_ context.Context, call string) {
				if call == "Bulk" {
					if asked++; asked == 7 { // five are about the claim, and one asks for the part
						other.during("Bulk", gone, -1)
					}
				}
			}
			reply, err := keyed(w, "key", numbered(0, 3))
			if err == nil && reply.OK {
				t.Errorf("%+v", reply)
			}
			if !maps.Equal(m.puts, before) {
				t.Errorf("it has applied the load again: %v, before that %v", m.puts, before)
			}
		})
	}
}

// A load that is sent again when the shard map has just changed is a repetition as before: the try under the older map had no effect.
func TestALoadIsKnownBehindAChangeOfTheMap(t *testing.T) {
	c := newCluster(t, 2)
	w, err := New(&frozen{c: c}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	body := numbered(0, 8)
	if r, err := keyed(w, "k", body); err != nil || !r.OK || r.Repeated {
		t.Fatalf("%+v, %v", r, err)
	}
	next := c.State().Map.Clone()
	next.Epoch++
	c.setMap(next, c.all()...)
	if r, err := keyed(w, "k", body); err != nil || !r.OK || !r.Repeated || r.Indexed != 8 {
		t.Errorf("%+v, %v", r, err)
	}
}
