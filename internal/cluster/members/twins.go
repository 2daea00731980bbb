package members

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/topology/shardmap"
)

// One node can be called by several addresses: by a name of its host and by a number, or over each of its two protocols. If it stood in the
// map twice, its one disk would count for two, its documents would be shown twice, and what a move deletes at the old owner would be what the
// new one has. So members are held against each other by what they say they are: the UUID of their data folder or, of a coordinator, which has
// none, the id that it draws when it starts. Of those that are the same the first in the order of the map counts. The others are twins: nothing is asked of them or
// written there, and no job runs, until the map does not have them any more.

// ErrTwins is matched by errors that say that two members of the map are one node.
var ErrTwins = errors.New("two members of the shard map are one node")

// twin is what a second name of a node stands for.
type twin struct{ addr, first, node string }

// say is the sentence about it, without a colon before a space: leaf.Silent takes what follows the last.
func (t twin) say() string {
	return fmt.Sprintf("it is %s under another name (both are the node %s)", t.first, t.node)
}

func twinsError(list []twin) error {
	words := make([]string, len(list))
	for i, t := range list {
		words[i] = fmt.Sprintf("%s and %s are the node %s", t.first, t.addr, t.node)
	}
	return fmt.Errorf("%w: %s", ErrTwins, strings.Join(words, "; "))
}

// identityLocked is what is known of who a member is; empty: nothing. It needs mu.
func (c *Cluster) identityLocked(addr string) string {
	if r := c.stand.known[addr]; r != nil && r.node != "" {
		return r.node
	}
	if node := c.stand.nodes[addr]; node != "" && node != shardmap.NoNode {
		return node
	}
	return c.drawn[addr]
}

// twinsLocked lists the members of groups that are the same as one before them, in order. It needs mu.
func (c *Cluster) twinsLocked(groups []shardmap.Group) []twin {
	var out []twin
	first := map[string]string{}
	for _, g := range groups {
		for _, addr := range g.Members {
			node := c.identityLocked(addr)
			switch other, known := first[node]; {
			case node == "":
			case known:
				out = append(out, twin{addr, other, node})
			default:
				first[node] = addr
			}
		}
	}
	return out
}

// twinsOf is an ErrTwins if members of groups are one node, as far as it is known.
func (c *Cluster) twinsOf(groups []shardmap.Group) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if list := c.twinsLocked(groups); len(list) > 0 {
		return twinsError(list)
	}
	return nil
}

// goLocked goes by a state, or by the one in force with what has been heard of members since: in place of a twin stands one that refuses
// everything. It needs mu.
func (c *Cluster) goLocked(s *State) {
	if s == nil {
		if s = c.bare; s == nil {
			return
		}
	}
	list := c.twinsLocked(s.Map.Groups)
	if s == c.bare && slices.Equal(list, c.twins) {
		return
	}
	for _, t := range list {
		if !slices.Contains(c.twins, t) {
			c.o.Log.Error("two members of the shard map are one node: the second counts as failed, and no rebalance or repair runs, until it is taken out of the map",
				"member", t.addr, "is", t.first, "node", t.node)
		}
	}
	for _, t := range c.twins {
		if !slices.ContainsFunc(list, func(now twin) bool { return now.addr == t.addr }) {
			c.o.Log.Info("a member is no other one of the map under a second name any more", "member", t.addr)
		}
	}
	if c.bare != s {
		in := map[string]bool{}
		for _, g := range s.Map.Groups {
			for _, addr := range g.Members {
				in[addr] = true
			}
		}
		maps.DeleteFunc(c.drawn, func(addr, _ string) bool { return !in[addr] })
	}
	c.bare, c.twins = s, list
	by := make(map[string]twin, len(list))
	for _, t := range list {
		by[t.addr] = t
	}
	c.second.Store(&by)
	c.state.Store(s.without(by))
}

// without is a state whose twins refuse everything.
func (s *State) without(twins map[string]twin) *State {
	if len(twins) == 0 {
		return s
	}
	out := *s
	out.Groups = make([]*Group, len(s.Groups))
	for i, g := range s.Groups {
		group := &Group{Ordinal: g.Ordinal, Members: slices.Clone(g.Members)}
		for k, m := range group.Members {
			if t, is := twins[m.Addr]; is {
				group.Members[k] = &Member{Addr: m.Addr, Leaf: refusing{t}}
			}
		}
		out.Groups[i] = group
	}
	return &out
}

// twinAt tells what an address is a second name of.
func (c *Cluster) twinAt(addr string) (t twin, is bool) {
	if by := c.second.Load(); by != nil {
		t, is = (*by)[addr]
	}
	return t, is
}

// secondNames are the addresses that are second names.
func (c *Cluster) secondNames() []string {
	if by := c.second.Load(); by != nil {
		return slices.Collect(maps.Keys(*by))
	}
	return nil
}

// drew asks a member that has told no data folder who it is, as coordinators say it.
func (c *Cluster) drew(ctx context.Context, m *Member) {
	reply, err := m.Leaf.Ping(ctx)
	if err != nil || reply.Node == "" {
		return // what it was counts until it says another
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.drawn[m.Addr] == reply.Node {
		return
	}
	c.drawn[m.Addr] = reply.Node
	c.goLocked(nil)
}

// Distinct asks all members who they are, and returns an error that matches ErrTwins if two are one node. Of those that do not answer
// it goes by what is known.
func (c *Cluster) Distinct(ctx context.Context) error {
	s := c.State()
	if s == nil {
		return nil
	}
	c.Ask(ctx, s)
	return c.known(ctx)
}

// Alone is Distinct, and asks one member only.
func (c *Cluster) Alone(ctx context.Context, addr string) error {
	if m, err := c.member(addr); err == nil {
		// Where it does not answer, nothing can be done there.
		_, _ = c.placed(ctx, m) //nolint:errcheck // as it says
	}
	return c.known(ctx)
}

func (c *Cluster) known(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.twins) > 0 {
		return twinsError(c.twins)
	}
	return nil
}

// Names asks whoever listens at addresses, and the members of the map, who they are, and returns an error if one of the addresses is another
// name of a member, or of another one of them. Those that do not answer, or say nothing, are left out.
func (c *Cluster) Names(ctx context.Context, addrs []string) error {
	s, err := c.Refresh(ctx) // another coordinator may have added it a moment ago
	if err != nil {
		return err
	}
	c.Ask(ctx, s)
	c.mu.Lock()
	names := map[string]string{} // by node
	for _, g := range s.Map.Groups {
		for _, addr := range g.Members {
			if node := c.identityLocked(addr); node != "" && names[node] == "" {
				names[node] = addr
			}
		}
	}
	c.mu.Unlock()
	for _, addr := range addrs {
		node, err := c.nodeAt(ctx, addr)
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		if err != nil || node == "" {
			continue
		}
		if other, known := names[node]; known && other != addr {
			return fmt.Errorf("%w: %s is %s under another name: both are the node %s. A node stands in the map once; start another one, with ports and a data folder of its own, and add that",
				shardmap.ErrRefused, addr, other, node)
		}
		names[node] = addr
	}
	return nil
}

// nodeAt asks who listens at an address, which need not be that of a member.
func (c *Cluster) nodeAt(ctx context.Context, addr string) (string, error) {
	m, err := c.member(addr)
	if err != nil {
		return "", err
	}
	c.unlessPlaced(addr)
	ctx, cancel := context.WithTimeout(ctx, c.o.CallTimeout)
	defer cancel()
	reply, err := m.Leaf.Ping(ctx)
	if err != nil {
		return "", err
	}
	return reply.Node, nil
}

// refusing stands for a twin in the states that are in force. It answers as one that cannot be reached.
type refusing struct{ twin }

var _ leaf.Member = refusing{}

func refuse[R any](r refusing, call string) (*R, error) {
	return nil, &leaf.TransportError{Address: r.addr, Call: call, Cause: errors.New(r.say())}
}

func (r refusing) Ping(context.Context) (*leaf.PingReply, error) {
	return refuse[leaf.PingReply](r, "Ping")
}

func (r refusing) Info(context.Context, *leaf.InfoRequest) (*leaf.InfoReply, error) {
	return refuse[leaf.InfoReply](r, "Info")
}

func (r refusing) Docs(context.Context, *leaf.DocsRequest) (*leaf.DocsReply, error) {
	return refuse[leaf.DocsReply](r, "Docs")
}

func (r refusing) Search(context.Context, *leaf.SearchRequest) (*leaf.SearchReply, error) {
	return refuse[leaf.SearchReply](r, "Search")
}

func (r refusing) Stats(context.Context, *leaf.StatsRequest) (*leaf.StatsReply, error) {
	return refuse[leaf.StatsReply](r, "Stats")
}

func (r refusing) Aggregate(context.Context, *leaf.AggregateRequest) (*leaf.AggregateReply, error) {
	return refuse[leaf.AggregateReply](r, "Aggregate")
}

func (r refusing) KNN(context.Context, *leaf.KNNRequest) (*leaf.KNNReply, error) {
	return refuse[leaf.KNNReply](r, "KNN")
}

func (r refusing) IDs(context.Context, *leaf.IDsRequest, func([]string) error) (*leaf.IDsReply, error) {
	return refuse[leaf.IDsReply](r, "IDs")
}

func (r refusing) Export(context.Context, *leaf.ExportRequest, func(leaf.ExportedDoc) error) (*leaf.ExportReply, error) {
	return refuse[leaf.ExportReply](r, "Export")
}

func (r refusing) Has(context.Context, *leaf.HasRequest) (*leaf.HasReply, error) {
	return refuse[leaf.HasReply](r, "Has")
}

func (r refusing) DeleteMany(context.Context, *leaf.DeleteRequest) (*leaf.DeleteReply, error) {
	return refuse[leaf.DeleteReply](r, "DeleteMany")
}

func (r refusing) Index(context.Context, *leaf.IndexRequest) (*leaf.IndexReply, error) {
	return refuse[leaf.IndexReply](r, "Index")
}

func (r refusing) Bulk(context.Context, *leaf.BulkRequest, io.Reader) (*leaf.BulkReply, error) {
	return refuse[leaf.BulkReply](r, "Bulk")
}

func (r refusing) Fetch(context.Context, *leaf.FetchRequest) (*leaf.FetchReply, error) {
	return refuse[leaf.FetchReply](r, "Fetch")
}

func (r refusing) Indexes(context.Context, *leaf.IndexesRequest) (*leaf.IndexesReply, error) {
	return refuse[leaf.IndexesReply](r, "Indexes")
}

func (r refusing) PutIndex(context.Context, *leaf.PutIndexRequest) (*leaf.PutIndexReply, error) {
	return refuse[leaf.PutIndexReply](r, "PutIndex")
}

func (r refusing) DropIndex(context.Context, *leaf.DropIndexRequest) (*leaf.DropIndexReply, error) {
	return refuse[leaf.DropIndexReply](r, "DropIndex")
}

func (r refusing) Sums(context.Context, *leaf.SumsRequest) (*leaf.SumsReply, error) {
	return refuse[leaf.SumsReply](r, "Sums")
}

func (r refusing) Digest(context.Context, *leaf.DigestRequest) (*leaf.DigestReply, error) {
	return refuse[leaf.DigestReply](r, "Digest")
}

func (r refusing) Sync(context.Context, *leaf.SyncRequest) (*leaf.SyncReply, error) {
	return refuse[leaf.SyncReply](r, "Sync")
}

func (r refusing) Place(context.Context, *leaf.PlaceRequest) (*leaf.PlaceReply, error) {
	return refuse[leaf.PlaceReply](r, "Place")
}

func (r refusing) Placed(context.Context) (*leaf.PlaceReply, error) {
	return refuse[leaf.PlaceReply](r, "Placed")
}

func (r refusing) Close() error { return nil }
