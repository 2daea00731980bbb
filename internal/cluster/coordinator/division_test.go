package coordinator

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/topology/placement"
	"github.com/weft-search/weft/internal/topology/shardmap"
)

// TestStarved holds what is said of two placements over each other against what is known of the rules.
func TestStarved(t *testing.T) {
	const (
		ring = placement.Ring
		mod  = placement.Modulo
		rdv  = placement.Rendezvous
	)
	for _, tt := range []struct {
		name       string
		above, own placement.Spec
		ordinal    int
		groups     []int
	}{
		{"a ring under the same", placement.Spec{Rule: ring, Shards: 2}, placement.Spec{Rule: ring, Shards: 2}, 0, []int{1}},
		{"its other half", placement.Spec{Rule: ring, Shards: 2}, placement.Spec{Rule: ring, Shards: 2}, 1, []int{0}},
		{"where it is not known which", placement.Spec{Rule: ring, Shards: 2}, placement.Spec{Rule: ring, Shards: 2}, -1, []int{1}},
		{"a ring under half of its points", placement.Spec{Rule: ring, Shards: 2, VNodes: 64}, placement.Spec{Rule: ring, Shards: 2}, 0, []int{1}},
		{"a ring over half of its points", placement.Spec{Rule: ring, Shards: 2}, placement.Spec{Rule: ring, Shards: 2, VNodes: 64}, 0, []int{1}},
		{"a larger ring under a ring", placement.Spec{Rule: ring, Shards: 2}, placement.Spec{Rule: ring, Shards: 8}, 0, []int{1}},
		{"a smaller ring, of a shard that it has", placement.Spec{Rule: ring, Shards: 3}, placement.Spec{Rule: ring, Shards: 2}, 1, []int{0}},
		{"a smaller ring, of one that it lacks", placement.Spec{Rule: ring, Shards: 3}, placement.Spec{Rule: ring, Shards: 2}, 2, nil},
		{"modulo with a common factor", placement.Spec{Rule: mod, Shards: 4}, placement.Spec{Rule: mod, Shards: 6}, 1, []int{0, 2, 4}},
		{"modulo without one", placement.Spec{Rule: mod, Shards: 4}, placement.Spec{Rule: mod, Shards: 5}, 1, nil},
		{"rendezvous under the same", placement.Spec{Rule: rdv, Shards: 3}, placement.Spec{Rule: rdv, Shards: 3}, 2, []int{0, 1}},
		{"rendezvous under a ring", placement.Spec{Rule: ring, Shards: 2}, placement.Spec{Rule: rdv, Shards: 2}, -1, nil},
		{"a ring under rendezvous", placement.Spec{Rule: rdv, Shards: 16}, placement.Spec{Rule: ring, Shards: 16}, -1, nil},
		{"modulo under a ring", placement.Spec{Rule: ring, Shards: 16}, placement.Spec{Rule: mod, Shards: 16}, -1, nil},
		{"modulo under rendezvous", placement.Spec{Rule: rdv, Shards: 30}, placement.Spec{Rule: mod, Shards: 30}, -1, nil},
		{"rendezvous under modulo", placement.Spec{Rule: mod, Shards: 30}, placement.Spec{Rule: rdv, Shards: 30}, -1, nil},
		{"a ring under modulo", placement.Spec{Rule: mod, Shards: 8}, placement.Spec{Rule: ring, Shards: 8, VNodes: 1}, -1, nil},
		{"one group", placement.Spec{Rule: ring, Shards: 8}, placement.Spec{Rule: ring, Shards: 1}, -1, nil},
		{"under one group", placement.Spec{Rule: ring, Shards: 1}, placement.Spec{Rule: ring, Shards: 8}, -1, nil},
		{"as many as there may be", placement.Spec{Rule: rdv, Shards: placement.MaxShards}, placement.Spec{Rule: rdv, Shards: placement.MaxShards}, -1, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			above, err := placement.New(tt.above)
			if err != nil {
				t.Fatal(err)
			}
			own, err := placement.New(tt.own)
			if err != nil {
				t.Fatal(err)
			}
			groups, of := starved(above, own, tt.ordinal)
			if !slices.Equal(groups, tt.groups) || of != max(tt.ordinal, 0) {
				t.Errorf("%v get too little of what is for %d, want %v", groups, of, tt.groups)
			}
		})
	}
}

// namedStandIn says which node it is.
type namedStandIn struct {
	standIn
	node string
}

func (s *namedStandIn) Place(ctx context.Context, req *leaf.PlaceRequest) (*leaf.PlaceReply, error) {
	reply, err := s.standIn.Place(ctx, req)
	reply.Node = s.node
	return reply, err
}

func (s *namedStandIn) Placed(ctx context.Context) (*leaf.PlaceReply, error) {
	reply, err := s.standIn.Placed(ctx)
	reply.Node = s.node
	return reply, err
}

// TestADivisionThatStarvesGroupsIsSaid gives a coordinator maps from above: one by a rule that is its own is said once in the log, and in the
// topology as long as it is in force.
func TestADivisionThatStarvesGroupsIsSaid(t *testing.T) {
	own, err := shardmap.New(placement.Ring, 0, []shardmap.Group{{Members: []string{"a"}}, {Members: []string{"b"}}})
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	members := map[string]*namedStandIn{"a": {node: "a"}, "b": {node: "b"}}
	c, err := New(Config{
		Shards: own, SlowSearch: -1, RepairEvery: -1, Log: slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelWarn})),
		ShardAddr: "127.0.0.1:0", Dial: func(addr string) (leaf.Member, error) { return members[addr], nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	here := c.Listeners()[0].Addr
	place := func(epoch uint64, rule placement.Rule, groups ...string) []string {
		t.Helper()
		m := &shardmap.Map{Epoch: epoch, Rule: rule, Placed: len(groups)}
		for _, g := range groups {
			m.Groups = append(m.Groups, shardmap.Group{Members: []string{g}})
		}
		b, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Leaf().Place(t.Context(), &leaf.PlaceRequest{Epoch: epoch, Map: b}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Leaf().Placed(t.Context()); err != nil {
			t.Fatal(err)
		}
		rec := httptest.NewRecorder()
		c.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/_topology", nil))
		var top struct {
			Notes []string `json:"notes"`
		}
		if err := json.Unmarshal(rec.Body.Bytes(), &top); err != nil || rec.Code != 200 {
			t.Fatalf("%d %v: %s", rec.Code, err, rec.Body)
		}
		return top.Notes
	}
	for i, step := range []struct {
		rule   placement.Rule
		groups []string
		words  string // in the note; empty: there is none
	}{
		{placement.Rendezvous, []string{here, "other"}, ""},
		{placement.Ring, []string{"other", "grpc://" + here}, "group 1 there, which this is,"},
		{placement.Ring, []string{"other", "behind-a-proxy"}, "group 0 there,"},
		{placement.Ring, []string{"x", "y", here}, ""},
		{placement.Ring, []string{"x", here, "y"}, "place"},
		{placement.Modulo, []string{here, "other"}, ""},
	} {
		notes := place(uint64(i)+1, step.rule, step.groups...)
		if (step.words == "") != (len(notes) == 0) || len(notes) > 1 || step.words != "" && (!strings.Contains(notes[0], step.words) || !strings.Contains(notes[0], "--shard-mode")) {
			t.Errorf("with %s over %v: %q", step.rule, step.groups, notes)
		}
	}
	if err := c.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(said.String(), "share unevenly"); n != 3 {
		t.Errorf("of three maps that divide badly %d are logged:\n%s", n, said.String())
	}
}
