package coordinator

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/store"
	"github.com/weft-search/weft/internal/topology/placement"
	"github.com/weft-search/weft/internal/topology/shardmap"
)

// keeper is a member that keeps its map, and is there or not.
type keeper struct {
	leaf.Member
	addr string
	why  string // it does not answer; empty: the connection is refused
	node string

	mu   sync.Mutex
	down bool
	kept leaf.PlaceReply
}

func (k *keeper) answer() error {
	if k.down {
		return &leaf.TransportError{Address: k.addr, Call: "Ping", Cause: errors.New("dial tcp " + k.addr + ": " + cmp.Or(k.why, "connection refused"))}
	}
	return nil
}

func (k *keeper) Ping(context.Context) (*leaf.PingReply, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return &leaf.PingReply{Node: k.node}, k.answer()
}

func (k *keeper) Placed(context.Context) (*leaf.PlaceReply, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	kept := k.kept
	kept.Node = k.node
	return &kept, k.answer()
}

func (k *keeper) Place(_ context.Context, req *leaf.PlaceRequest) (*leaf.PlaceReply, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.answer(); err != nil {
		return nil, err
	}
	k.kept = leaf.PlaceReply{Node: k.node, Epoch: req.Epoch, Map: req.Map}
	kept := k.kept
	return &kept, nil
}

func (k *keeper) Close() error { return nil }

// keepers starts a coordinator with a store over a group of one member, and returns what a call of it says. Members whose address begins
// with "away" are not there.
func keepers(t *testing.T) func(method, target string) (int, string) {
	t.Helper()
	sm, err := shardmap.New(placement.Ring, 0, []shardmap.Group{{Members: []string{"a:1"}}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{
		Shards: sm, Store: store.NewMemory(nil), RepairEvery: -1, MapEvery: time.Hour, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Dial: func(addr string) (leaf.Member, error) {
			host := strings.TrimPrefix(strings.TrimPrefix(addr, "grpc://"), "frame://")
			grpc := strings.HasPrefix(addr, "grpc://")
			down := host == "away:1" || host == "odd:1" || host == "awkward:1" && !grpc || host == "awaits:1" && grpc
			why := "connection refused"
			if host == "odd:1" {
				why = "what came is no answer by " + strings.TrimSuffix(addr, host)
			}
			return &keeper{addr: addr, down: down, why: why, node: strings.TrimPrefix(host, "also-")}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(c.Start(t.Context()), c.Ready(t.Context())); err != nil {
		t.Fatal(err)
	}
	return func(method, target string) (int, string) {
		rec := httptest.NewRecorder()
		c.Handler().ServeHTTP(rec, httptest.NewRequest(method, target, nil))
		return rec.Code, rec.Body.String()
	}
}

func TestANodeIsNotAddedUnderASecondName(t *testing.T) {
	call := keepers(t)
	for _, s := range []struct {
		params string
		status int
		says   string
	}{
		{"action=add_group&members=also-a:1", 409, "also-a:1 is a:1 under another name: both are the node a:1"},
		{"action=add_group&members=grpc://a:1", 409, "grpc://a:1 is a:1 under another name"},
		{"action=add_group&members=also-a:1&force=true", 409, "under another name"},
		{"action=add_member&group=0&member=also-a:1", 409, "under another name"},
		{"action=add_member&group=0&member=also-a:1&force=true", 409, "under another name"},
		{"action=add_group&members=b:1|also-b:1", 409, "also-b:1 is b:1 under another name"},
		{"action=add_group&members=b:1", 200, `"address":"b:1"`},
		{"action=add_member&group=0&member=also-b:1", 409, "also-b:1 is b:1 under another name"},
		{"action=add_member&group=0&member=c:1", 200, `"address":"c:1"`},
	} {
		if status, body := call("POST", "/_topology?"+strings.ReplaceAll(s.params, "|", "%7C")); status != s.status || !strings.Contains(body, s.says) {
			t.Errorf("%s: %d %s", s.params, status, body)
		}
	}
}

func TestAMemberThatDoesNotAnswerIsNotAddedUnlessForced(t *testing.T) {
	call := keepers(t)
	for _, s := range []struct {
		params string
		status int
		says   string
	}{
		{"action=add_group&members=away:1", 409, "away:1 does not answer: connection refused. Start it first"},
		// Somebody listens there, by the other protocol or by none.
		{"action=add_group&members=awkward:1", 409, "awkward:1 does not answer, but as grpc://awkward:1 it does: the port speaks shard gRPC"},
		{"action=add_group&members=frame://awkward:1", 409, "frame://awkward:1 does not answer, but as grpc://awkward:1 it does: the port speaks shard gRPC"},
		{"action=add_group&members=grpc://awaits:1", 409, "grpc://awaits:1 does not answer, but as awaits:1 it does: the port speaks framed JSON"},
		{"action=add_group&members=odd:1", 409, "if it is started, that is another of its ports"},
		{"action=add_group&members=b:1,away:1", 409, `"detail":"away:1 does not answer`},
		{"action=add_member&group=0&member=away:1", 409, "away:1 does not answer"},
		{"action=add_member&group=0&member=away:1&force=false", 409, "away:1 does not answer"},
		{"action=add_member&group=0&member=away:1&force=perhaps", 400, `"field":"force"`},
		{"action=remove_group&force=true", 400, `"field":"force"`},
		// What is wrong anyway is said, and nobody is asked.
		{"action=add_member&group=7&member=away:1", 409, "there is no group 7"},
		{"action=add_group&members=a:1", 400, "stands twice"},
		{"action=add_member&group=0&member=away:1&force=true", 200, `"address":"away:1","ready":false`},
		{"action=add_group&members=b:1", 200, `"address":"b:1","ready":true`},
	} {
		_, before := call("GET", "/readyz")
		status, body := call("POST", "/_topology?"+s.params)
		if status != s.status || !strings.Contains(body, s.says) || strings.Count(body, "dial") > 0 {
			t.Errorf("%s: %d %s", s.params, status, body)
		}
		if _, after := call("GET", "/readyz"); (after == before) != (s.status != 200) {
			t.Errorf("%s: %s, and %s after that", s.params, before, after)
		}
	}
}
