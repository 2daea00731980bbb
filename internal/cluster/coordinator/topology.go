package coordinator

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/members"
	"github.com/weft-search/weft/internal/front"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/topology/placement"
	"github.com/weft-search/weft/internal/topology/shardmap"
)

// state is the state that a call goes by.
func (c *Coordinator) state() (*members.State, *api.Problem) {
	if s := c.members.State(); s != nil {
		return s, nil
	}
	return nil, notReady()
}

// document answers with v as JSON.
func (c *Coordinator) document(call *front.Call, status int, v any) *api.Problem {
	b, err := json.Marshal(v)
	if err != nil {
		return c.problem(call.Context(), fmt.Errorf("write reply: %w", err))
	}
	return call.JSON(status, b)
}

// ring describes how documents are placed, as readers see it.
func (c *Coordinator) ring(call *front.Call) *api.Problem {
	s, prob := c.state()
	if prob != nil {
		return prob
	}
	return c.document(call, http.StatusOK, s.Visible().Describe())
}

// owner says where a document belongs.
type owner struct {
	ID      string   `json:"id"`
	Hash    uint32   `json:"hash"`
	Shard   int      `json:"shard"`
	Primary string   `json:"primary"`
	Members []string `json:"members"`
	// Moving is the shard that the document is being moved to.
	Moving *int `json:"moving_to,omitempty"`
}

func (c *Coordinator) placement(call *front.Call) *api.Problem {
	s, prob := c.state()
	if prob != nil {
		return prob
	}
	id, prob := call.ID()
	if prob != nil {
		return prob
	}
	g := s.Owner(id)
	o := owner{ID: id, Hash: placement.Hash(id), Shard: g.Ordinal, Primary: g.Members[0].Addr}
	for _, m := range g.Members {
		o.Members = append(o.Members, m.Addr)
	}
	for _, w := range s.Writers(id) {
		if w != g && !s.Map.CutOver() { // after the cutover the other one is where it comes from
			o.Moving = &w.Ordinal
		}
	}
	return c.document(call, http.StatusOK, o)
}

// plan tells what another number of shards would move, from the ids that are there. They pass by one after the other: memory does not
// depend on how many there are. Without a parameter index it is over all indexes.
func (c *Coordinator) plan(call *front.Call) *api.Problem {
	s, prob := c.state()
	if prob != nil {
		return prob
	}
	if !call.Params().Has("shards") {
		return &api.Problem{Code: api.MissingParameter, Field: "shards", Detail: "shards is missing: the number of shards to plan for"}
	}
	to, prob := api.ParseCount("shards", call.Params().Get("shards"), 1, placement.MaxShards)
	if prob != nil {
		return prob
	}
	var indexes []string
	if call.Params().Has(indexParam) {
		name, prob := call.Index()
		if prob != nil {
			return prob
		}
		indexes = []string{name}
	} else {
		list, err := c.whole.Indexes(call.Context(), &leaf.IndexesRequest{})
		if err != nil {
			return c.problem(call.Context(), err)
		}
		if list.Below != nil && list.Below.Shards.Failed > 0 {
			return c.incomplete(list.Below, "the indexes of some shards are not known")
		}
		for _, info := range list.Indexes {
			indexes = append(indexes, info.Name)
		}
	}
	place, err := c.scans.Enter(call.Context(), 1)
	if err != nil {
		return c.problem(call.Context(), err)
	}
	defer func() { call.Leave(place) }()
	p, err := placement.NewPlan(s.Visible().Spec(), to)
	if err != nil {
		return c.problem(call.Context(), err)
	}
	for _, name := range indexes {
		_, err := c.whole.IDs(call.Context(), &leaf.IDsRequest{Index: name}, func(ids []string) error {
			for _, id := range ids {
				p.Add(id)
			}
			return nil
		})
		if err != nil {
			return c.problem(call.Context(), err)
		}
	}
	return c.document(call, http.StatusOK, p.Report())
}

// topologyReply is the shard map with what is known of the members.
type topologyReply struct {
	Epoch  uint64          `json:"epoch"`
	Map    json.RawMessage `json:"map"`
	Source string          `json:"source"` // "store" or "members"
	Groups []groupReply    `json:"groups"`
	// Notes are what an operator should know of the map as a whole, in sentences.
	Notes []string `json:"notes,omitempty"`
}

type groupReply struct {
	Shard   int           `json:"shard"`
	Visible bool          `json:"visible"`
	Members []memberReply `json:"members"`
}

type memberReply struct {
	Address string `json:"address"`
	Ready   bool   `json:"ready"`
	Node    string `json:"node,omitempty"`
	Epoch   uint64 `json:"epoch"`            // of the shard map that it keeps
	Behind  bool   `json:"behind,omitempty"` // it may lack documents: it has missed writes, or is to be compared first
	Reason  string `json:"reason,omitempty"` // why it is not ready: the code of a problem
	Detail  string `json:"detail,omitempty"` // the same in words
	// Suspect is why the member is not read from; empty where it is.
	Suspect string `json:"suspect,omitempty"`
	// Refuses is what it does not take of the writes that it missed; nil: nothing, as far as it is known here.
	Refuses *refusedReply `json:"refuses,omitempty"`
}

// shownRefused is how many documents that a member refuses are named.
const shownRefused = 10

type refusedReply struct {
	Documents int               `json:"documents"`
	First     []refusedDocument `json:"first"` // the oldest, at most shownRefused
}

type refusedDocument struct {
	Index string    `json:"index"`
	ID    string    `json:"id"`
	Since time.Time `json:"since"`
}

// refused describes what a member refuses; nil: nothing that is known here.
func (c *Coordinator) refused(addr string) *refusedReply {
	if c.hints == nil {
		return nil
	}
	list := c.hints.Aside(addr)
	if len(list) == 0 {
		return nil
	}
	out := &refusedReply{Documents: len(list)}
	for _, r := range list[:min(len(list), shownRefused)] {
		out.First = append(out.First, refusedDocument{r.Index, r.ID, r.Since})
	}
	return out
}

func (c *Coordinator) topology(call *front.Call) *api.Problem {
	s, prob := c.state()
	if prob != nil {
		return prob
	}
	return c.showTopology(call, s)
}

func (c *Coordinator) showTopology(call *front.Call, s *members.State) *api.Problem {
	b, err := s.Map.Encode()
	if err != nil {
		return c.problem(call.Context(), err)
	}
	out := topologyReply{Epoch: s.Epoch(), Map: b, Source: c.members.Keeper()}
	for i, list := range c.members.Ask(call.Context(), s) {
		_, visible := s.View(i)
		g := groupReply{Shard: i, Visible: visible}
		for _, a := range list {
			m := memberReply{Address: a.Addr, Ready: a.Err == nil, Behind: c.behind(a.Addr), Suspect: c.members.Why(a.Addr), Refuses: c.refused(a.Addr)}
			switch {
			case a.Err != nil:
				p := c.problem(call.Context(), a.Err)
				m.Reason, m.Detail = string(p.Code), p.Detail
				if why, silent := leaf.Silent(a.Err); silent {
					m.Detail = "does not answer: " + why
				}
			case a.Reply != nil:
				m.Node, m.Epoch = a.Reply.Node, a.Reply.Epoch
			}
			g.Members = append(g.Members, m)
		}
		out.Groups = append(out.Groups, g)
	}
	if why := c.divides(); why != "" {
		out.Notes = append(out.Notes, why)
	}
	return c.document(call, http.StatusOK, out)
}

// topologyParams are those of a change of the map.
var topologyParams = []string{"action", "members", "group", "member", "epoch", "force"}

// changeTopology changes the shard map: action is add_group (members: comma list), remove_group, add_member (group, member) or
// remove_member (member); accept (member) says that the documents which a member of a group that is lost has count, with force also where others that hold them do not answer. With epoch the change is made only to the map of that epoch. Members that
// are added have to answer, but with force.
func (c *Coordinator) changeTopology(call *front.Call) *api.Problem {
	if call.Params().Get("action") == "accept" {
		return c.accept(call)
	}
	if c.cfg.Store == nil {
		return api.NewProblem(api.JobConflict, "the members keep the shard map, and --shards says who they are: start the coordinators with other shards, or with a store")
	}
	p := call.Params()
	change, added, prob := topologyChange(p)
	if prob != nil {
		return prob
	}
	force, prob := flag(call, "force", false)
	if prob != nil {
		return prob
	}
	if p.Has("force") && added == nil {
		return api.NewProblem(api.InvalidParameter, "force: "+p.Get("action")+" does not take it").On("force")
	}
	if s := c.members.State(); s != nil {
		if prob := c.joining(call, s, change, added, force); prob != nil {
			return prob
		}
	}
	var epoch uint64
	if p.Has("epoch") {
		n, err := strconv.ParseUint(p.Get("epoch"), 10, 64)
		if err != nil || n == 0 {
			return api.NewProblem(api.InvalidParameter, "epoch: it is a whole number above 0").On("epoch")
		}
		epoch = n
	}
	s, err := c.members.Change(call.Context(), func(m *shardmap.Map) (*shardmap.Map, error) {
		if epoch != 0 && m.Epoch != epoch {
			return nil, api.NewProblem(api.JobConflict, fmt.Sprintf("the shard map has epoch %d by now, not %d", m.Epoch, epoch)).On("epoch")
		}
		next, err := change(m)
		if err == nil {
			err = c.leavesOne(m, next)
		}
		return next, err
	})
	if err != nil {
		return c.topologyProblem(call, err)
	}
	return c.showTopology(call, s)
}

// accept says that what a member has counts, where no member of its group holds the documents for certain.
func (c *Coordinator) accept(call *front.Call) *api.Problem {
	p := call.Params()
	for _, name := range []string{"members", "group", "epoch"} {
		if p.Has(name) {
			return api.NewProblem(api.InvalidParameter, name+": accept does not take it").On(name)
		}
	}
	if p.Get("member") == "" {
		return &api.Problem{Code: api.MissingParameter, Field: "member", Detail: "member is missing: accept needs it"}
	}
	force, prob := flag(call, "force", false)
	if prob != nil {
		return prob
	}
	s, err := c.members.Accept(call.Context(), p.Get("member"), force)
	if err != nil {
		return c.topologyProblem(call, err)
	}
	c.log.Warn("an operator says that what a member has counts", "member", p.Get("member"), "force", force, "epoch", s.Epoch())
	return c.showTopology(call, s)
}

// leavesOne refuses a change that leaves a group which holds documents only members that may lack them: they were new, or lost their disks, and
// have not been found equal to the one that goes.
func (c *Coordinator) leavesOne(m, next *shardmap.Map) error {
	for g := range m.Groups[:min(m.Placed, len(m.Groups), len(next.Groups))] {
		now := next.Groups[g].Members
		if len(now) >= len(m.Groups[g].Members) || slices.ContainsFunc(now, func(addr string) bool { return !c.members.Suspect(addr) }) {
			continue
		}
		return fmt.Errorf("%w: the other members of group %d may lack its documents (%s): wait until a repair, or the comparison in the background, has found one of them equal; if the one that goes is gone for good, say first which of them counts (weft topology accept --force)",
			shardmap.ErrRefused, g, strings.Join(now, ", "))
	}
	return nil
}

// mapChange makes the next map of one.
type mapChange func(m *shardmap.Map) (*shardmap.Map, error)

// topologyActions are the changes that there are, by what they need: a group's ordinal, a member, or members; and whether these are added.
var topologyActions = map[string]struct {
	needs []string
	adds  bool
	make  func(group int, addrs []string) mapChange
}{
	"add_group": {[]string{"members"}, true, func(_ int, addrs []string) mapChange {
		return func(m *shardmap.Map) (*shardmap.Map, error) { return m.AddGroup(addrs...) }
	}},
	"remove_group": {nil, false, func(int, []string) mapChange { return (*shardmap.Map).RemoveGroup }},
	"add_member": {[]string{"group", "member"}, true, func(group int, addrs []string) mapChange {
		return func(m *shardmap.Map) (*shardmap.Map, error) { return m.AddMember(group, addrs[0]) }
	}},
	"remove_member": {[]string{"member"}, false, func(_ int, addrs []string) mapChange {
		return func(m *shardmap.Map) (*shardmap.Map, error) { return m.RemoveMember(addrs[0]) }
	}},
}

// topologyChange reads a change, and the addresses that come into the map with it. What an action does not need must not be given.
func topologyChange(p url.Values) (change mapChange, added []string, prob *api.Problem) {
	if !p.Has("action") {
		return nil, nil, &api.Problem{Code: api.MissingParameter, Field: "action", Detail: "action is missing: " + topologyWords}
	}
	action, ok := topologyActions[p.Get("action")]
	if !ok {
		return nil, nil, api.NewProblem(api.InvalidParameter, "action: "+topologyWords).On("action")
	}
	group := 0
	var addrs []string
	for _, name := range []string{"group", "member", "members"} {
		needed := slices.Contains(action.needs, name)
		switch {
		case needed && !p.Has(name):
			return nil, nil, &api.Problem{Code: api.MissingParameter, Field: name, Detail: name + " is missing: " + p.Get("action") + " needs it"}
		case !needed && p.Has(name):
			return nil, nil, api.NewProblem(api.InvalidParameter, name+": "+p.Get("action")+" does not take it").On(name)
		case !needed:
			continue
		}
		switch name {
		case "group":
			if group, prob = api.ParseCount("group", p.Get("group"), 0, placement.MaxShards-1); prob != nil {
				return nil, nil, prob
			}
		case "member":
			addrs = []string{p.Get("member")}
		case "members":
			addrs = strings.FieldsFunc(p.Get("members"), func(r rune) bool { return r == ',' || r == '|' })
		}
		if name != "group" && (len(addrs) == 0 || addrs[0] == "") {
			return nil, nil, api.NewProblem(api.InvalidParameter, name+": it names no address").On(name)
		}
	}
	if action.adds {
		added = addrs
	}
	return action.make(group, addrs), added, nil
}

const topologyWords = "it is add_group, remove_group, add_member, remove_member or accept"

// topologyProblem says why the map was not changed.
func (c *Coordinator) topologyProblem(call *front.Call, err error) *api.Problem {
	switch {
	case errors.Is(err, shardmap.ErrRefused):
		return &api.Problem{Code: api.JobConflict, Detail: api.ClipDetail(err.Error())}
	case errors.Is(err, shardmap.ErrInvalid):
		return &api.Problem{Code: api.InvalidParameter, Detail: api.ClipDetail(err.Error())}
	}
	return c.problem(call.Context(), err)
}
