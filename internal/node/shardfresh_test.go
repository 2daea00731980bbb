package node

import (
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
)

// TestFreshDocuments follows what a node says of documents that it had not, over deletes, indexes that go and come, and its own end.
func TestFreshDocuments(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	s := newServer(t, Config{DataDir: dir})
	n := 0
	write := func(what, index, id string, want bool) {
		t.Helper()
		reply, err := s.node.Leaf().Index(ctx, &leaf.IndexRequest{Index: index, Body: fmt.Appendf(nil, `{"id":%q}`, id)})
		if err != nil || reply.Fresh != want {
			t.Errorf("%s: %+v, %v", what, reply, err)
		}
	}
	fresh := func(what, index string, want bool) {
		t.Helper()
		n++
		write(what, index, strconv.Itoa(n), want)
	}
	remove := func(index string) {
		t.Helper()
		_, err := s.node.Leaf().DeleteMany(ctx, &leaf.DeleteRequest{Index: index, IDs: []string{"nosuch"}})
		if p, ok := errors.AsType[*api.Problem](err); err != nil && (!ok || p.Code != api.IndexNotFound) {
			t.Error(err)
		}
	}
	fresh("the first document", "a", true)
	fresh("another", "a", true)
	remove("a")
	// Of 16,384 slots two ids share one only by ill luck, and these do not.
	fresh("another behind a delete", "a", true)
	write("what was deleted", "a", "nosuch", false)
	fresh("in another index", "b", true)
	remove("c")
	fresh("in an index that was not there when something of it was deleted", "c", false)
	fresh("in an index that was there then", "b", true)

	s = newServer(t, Config{DataDir: t.TempDir()})
	fresh("of another node", "a", true)
	if _, err := s.node.Leaf().DropIndex(ctx, &leaf.DropIndexRequest{Index: "a"}); err != nil {
		t.Fatal(err)
	}
	fresh("where there was an index of that name", "a", false)

	s = newServer(t, Config{DataDir: t.TempDir()})
	fresh("of one more node", "a", true)
	_, err := s.node.Leaf().Sync(ctx, &leaf.SyncRequest{Index: "b", Items: []leaf.SyncItem{{ID: "nosuch"}}})
	if p, ok := errors.AsType[*api.Problem](err); !ok || p.Code != api.IndexNotFound {
		t.Errorf("a Sync of an index that is not there: %v", err)
	}
	fresh("in an index that was not there when something of it was to stay away", "b", false)

	dir = t.TempDir()
	s = newServer(t, Config{DataDir: dir})
	fresh("before a restart", "a", true)
	if err := s.node.Close(ctx); err != nil {
		t.Fatal(err)
	}
	s = newServer(t, Config{DataDir: dir})
	fresh("behind it", "a", false)
	fresh("behind it, in a new index", "b", false)
}
