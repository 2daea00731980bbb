package write

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/leaf"
)

// everyWrite are the ways to write a document, with what they leave of it. They tell who has it.
var everyWrite = map[string]func(ctx context.Context, w *Writer, n int) (api.Members, error){
	"Index": func(ctx context.Context, w *Writer, n int) (api.Members, error) {
		reply, err := w.Index(ctx, &leaf.IndexRequest{Index: "x", Body: fmt.Appendf(nil, `{"id":"a","n":%d}`, n)})
		if err != nil {
			return api.Members{}, err
		}
		return reply.WriteReply.Members, nil
	},
	"DeleteMany": func(ctx context.Context, w *Writer, _ int) (api.Members, error) {
		reply, err := w.DeleteMany(ctx, &leaf.DeleteRequest{Index: "x", IDs: []string{"a"}})
		if err != nil {
			return api.Members{}, err
		}
		return Members(&reply.Meta), nil
	},
	"Bulk": func(ctx context.Context, w *Writer, n int) (api.Members, error) {
		reply, err := w.Bulk(ctx, &leaf.BulkRequest{Index: "x"}, strings.NewReader(fmt.Sprintf(`{"id":"a","n":%d}`+"\n", n)))
		if err != nil {
			return api.Members{}, err
		}
		if len(reply.Errors) > 0 {
			return api.Members{}, api.NewProblem(api.Code(reply.Errors[0].Code), reply.Errors[0].Reason)
		}
		return reply.BulkReply.Members, nil
	},
	"Sync": func(ctx context.Context, w *Writer, n int) (api.Members, error) {
		expect := leaf.SumOf(fmt.Appendf(nil, `{"id":"a","n":%d}`, n-1))
		reply, err := w.Sync(ctx, &leaf.SyncRequest{Index: "x", Items: []leaf.SyncItem{{ID: "a", Expect: expect, Body: fmt.Appendf(nil, `{"id":"a","n":%d}`, n)}}})
		if err != nil {
			return api.Members{}, err
		}
		return Members(&reply.Meta), nil
	},
}

// A member whose process is stopped is waited for by the first write, and by no other while it answers no pings: the write is in at the others, and the
// member is given it later. It is not even sent what it would take up long after.
func TestAStoppedMemberIsWaitedForOnce(t *testing.T) {
	for call, write := range everyWrite {
		synctest.Test(t, func(t *testing.T) {
			c, hints := newCluster(t, 2), &hintBook{}
			w := c.writer(Options{Hints: hints})
			put(t, w, `{"id":"a","n":0}`)
			m := c.group(0)
			stopped := m[1]
			stopped.stopped.Store(true)
			sent := stopped.called(call)
			for n := 1; n <= 20; n++ {
				began := time.Now()
				have, err := write(t.Context(), w, n)
				if err != nil {
					t.Fatalf("%s: write %d: %v", call, n, err)
				}
				if have.OK != 1 || have.Total != 2 || len(have.FailedAddresses) != 1 || have.FailedAddresses[0] != stopped.addr {
					t.Errorf("%s: write %d is at %+v", call, n, have)
				}
				most := time.Second
				if n == 1 {
					most = 2*members.DefaultHung + time.Second
				}
				if took := time.Since(began); took > most {
					t.Errorf("%s: write %d took %v", call, n, took)
				}
			}
			if got := stopped.called(call) - sent; got > 1 {
				t.Errorf("%s: the member was sent %d writes", call, got)
			}
			if got := w.Stats().Retried; got > 0 {
				t.Errorf("%s: %d calls were made once more", call, got)
			}
			if got := hints.of(stopped.addr); len(got) != 1 || got[0] != "x/a" {
				t.Errorf("%s: hints %v", call, got)
			}
			stopped.stopped.Store(false)
			<-time.After(members.DefaultHung)
			if call == "Sync" { // of what was seen at both
				for i, m := range m {
					if _, err := m.Index(t.Context(), &leaf.IndexRequest{Index: "x", Body: []byte(`{"id":"a","n":20}`)}); err != nil {
						t.Error(i, err)
					}
				}
			}
			if have, err := write(t.Context(), w, 21); err != nil || have.OK != 2 {
				t.Errorf("%s: once it is back: %+v, %v", call, have, err)
			}
			if wrong := c.same("x"); wrong != "" {
				t.Errorf("%s: %s", call, wrong)
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// New fields are given to whoever is there: a member that is stopped is not waited for a second time, be it the one that decides or not.
func TestNewFieldsDoNotWaitForAStoppedMember(t *testing.T) {
	for _, at := range []string{"0/0", "0/1", "1/0"} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 2, 2)
			w := c.writer(Options{Hints: &hintBook{}})
			put(t, w, `{"id":"a","n":0}`)
			c.models[at].stopped.Store(true)
			for n := range 5 {
				began := time.Now()
				reply, err := w.Index(t.Context(), &leaf.IndexRequest{Index: "x", Body: fmt.Appendf(nil, `{"id":"a","f%d":%d}`, n, n)})
				if err != nil || reply.WriteReply.Members.OK == 0 || len(reply.Inferred) != 1 {
					t.Fatalf("%s: %+v, %v", at, reply, err)
				}
				most := 2 * time.Second
				if n == 0 {
					most = 2*members.DefaultHung + 3*time.Second // before it, members are asked for the schema
				}
				if took := time.Since(began); took > most {
					t.Errorf("%s: field %d took %v", at, n, took)
				}
			}
			c.models[at].stopped.Store(false)
			<-time.After(members.DefaultHung)
			for i := range 20 { // in both groups
				if reply := put(t, w, fmt.Sprintf(`{"id":"b%d","n":1}`, i)); !reply.OK {
					t.Errorf("%s: once it is back: %+v", at, reply.WriteReply)
				}
			}
			if wrong := c.sameSchemas("x"); wrong != "" {
				t.Errorf("%s: %s", at, wrong)
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Where all members of a group are stopped, a write is refused soon once that is known, as one that has no effect anywhere.
func TestAGroupThatIsStoppedRefusesWritesSoon(t *testing.T) {
	for call, write := range everyWrite {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 2)
			w := c.writer(Options{})
			put(t, w, `{"id":"a","n":0}`)
			for _, m := range c.group(0) {
				m.stopped.Store(true)
			}
			if _, err := write(t.Context(), w, 1); err == nil {
				t.Errorf("%s: the first is in", call)
			}
			began := time.Now()
			_, err := write(t.Context(), w, 2)
			if took := time.Since(began); took > 3*time.Second {
				t.Errorf("%s: it took %v", call, took)
			}
			if !hasCode(err, api.GroupUnavailable) {
				t.Errorf("%s: %v", call, err)
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Who is told that a group cannot be reached is told whose members these are.
func TestAnUnreachableGroupIsNamedAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2, 2)
		w := c.writer(Options{})
		for _, m := range c.group(0) {
			m.stopped.Store(true)
		}
		_, err := w.Index(t.Context(), &leaf.IndexRequest{Index: "new", Body: []byte(`{"id":"a"}`)})
		p := problemOf(t, err, api.GroupUnavailable)
		if !strings.Contains(p.Detail, "0/0, 0/1") || strings.Contains(p.Detail, "1/") {
			t.Errorf("%s", p.Detail)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A member that takes long and answers pings is waited for.
func TestASlowMemberThatAnswersPingsIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		w := c.writer(Options{})
		put(t, w, `{"id":"a","n":0}`)
		c.group(0)[1].before = func(ctx context.Context, call string) {
			if call == "Index" {
				<-time.After(9 * time.Second)
			}
		}
		if reply := put(t, w, `{"id":"a","n":1}`); !reply.OK {
			t.Errorf("%+v", reply.WriteReply)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
}
