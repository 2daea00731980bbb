package route

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	summapb "github.com/weft-search/weft/api/summa"
	brokerpb "github.com/weft-search/weft/api/summa/broker"
	"github.com/weft-search/weft/internal/corpus"
	"github.com/weft-search/weft/internal/summa"
	"github.com/weft-search/weft/internal/summa/summagolden"
)

// node reads a node of a test: "id@shard role state index,index", where the state is healthy, suspect, evicted or unready, and role and
// state may be left out.
func node(text string) *Node {
	words := strings.Fields(text)
	id, shard, _ := strings.Cut(words[0], "@")
	n := &Node{ID: id, Shard: shard, Address: id + ":1", Ready: true, Health: Healthy}
	for _, w := range words[1:] {
		switch w {
		case "master":
			n.Role = Master
		case "follower":
			n.Role = Follower
		case "suspect":
			n.Health = Suspect
		case "evicted":
			n.Health = Evicted
		case "unready":
			n.Ready = false
		case "healthy":
		default:
			n.Indexes = slices.Sorted(strings.SplitSeq(w, ","))
		}
	}
	return n
}

func view(p *Placement, nodes ...string) *View {
	var all []*Node
	for _, n := range nodes {
		all = append(all, node(n))
	}
	return New(p, all)
}

// said is what a decision came to: the nodes in order, those that are read from though suspect with a ~, absent ones as -, and ! for an
// ambiguous index; or code and text.
func said(r Route, err error) string {
	if err != nil {
		return refusal(err)
	}
	targets := r.Parts
	if !r.Partitioned {
		targets = []Target{r.Target}
	}
	out := show(targets)
	if r.Ambiguous {
		out += " !"
	}
	return out
}

func show(targets []Target) string {
	var out []string
	for _, t := range targets {
		switch {
		case t.Node == nil:
			out = append(out, "-")
		case t.Node.Shard != t.Shard:
			out = append(out, "wrong shard "+t.Shard)
		case t.Stale:
			out = append(out, t.Node.ID+"~")
		default:
			out = append(out, t.Node.ID)
		}
	}
	return strings.Join(out, " ")
}

func refusal(err error) string {
	var e *summa.Error
	if !errors.As(err, &e) || status.Code(err) != e.Code {
		return "not a status: " + err.Error()
	}
	return e.Code.String() + ": " + e.Text
}

func TestRouting(t *testing.T) {
	rules := placement(t, "", "pin*=1", "parts*=0,1,2", "far*=8,9", "gone*=9")
	for _, c := range []struct {
		name   string
		nodes  []string
		index  string
		turn   uint64
		read   string
		part   string // with partial reads, where it differs
		write  string
		listed bool
	}{
		{
			name: "no nodes", index: "a",
			read: "NotFound: index 'a' is not present on any healthy backend", write: "NotFound: index 'a' is not present on any healthy backend",
		},
		{
			name: "an unlabelled node alone is the master", nodes: []string{"n@0 a"}, index: "a", listed: true,
			read: "n", write: "n",
		},
		{
			name: "an index that nobody has", nodes: []string{"n@0 a"}, index: "b",
			read: "NotFound: index 'b' is not present on any healthy backend", write: "NotFound: index 'b' is not present on any healthy backend",
		},
		{
			name: "an index of an evicted node is nowhere", nodes: []string{"n@0 evicted a"}, index: "a",
			read: "NotFound: index 'a' is not present on any healthy backend", write: "NotFound: index 'a' is not present on any healthy backend",
		},
		{
			name: "an index of a node that is not ready is nowhere", nodes: []string{"n@0 unready a"}, index: "a",
			read: "NotFound: index 'a' is not present on any healthy backend", write: "NotFound: index 'a' is not present on any healthy backend",
		},
		{
			name: "a suspect node goes on serving", nodes: []string{"n@0 suspect a"}, index: "a", listed: true,
			read: "n~", write: "n",
		},
		{
			name: "healthy copies take turns, the first", nodes: []string{"b@0 master a", "a@0 follower a", "c@0 follower suspect a", "d@0 follower a"}, index: "a",
			turn: 3, listed: true, read: "a", write: "b",
		},
		{
			name: "healthy copies take turns, the last", nodes: []string{"b@0 master a", "a@0 follower a", "c@0 follower suspect a", "d@0 follower a"}, index: "a",
			turn: math.MaxUint64 - 1, listed: true, read: "d", write: "b", // 2^64-2 = 2 modulo 3
		},
		{
			name: "nodes without the index are not read from", nodes: []string{"a@0 master a", "b@0 follower"}, index: "a", turn: 1, listed: true,
			read: "a", write: "a",
		},
		{
			name: "the first suspect copy where none is healthy", nodes: []string{"c@0 suspect a", "b@0 suspect a", "a@0 evicted a"}, index: "a", turn: 1, listed: true,
			read: "b~", write: "FailedPrecondition: shard '0' has no master among 3 members; label exactly one pod with role=master",
		},
		{
			name: "a write goes to the master though only a follower told of the index", nodes: []string{"a@0 master", "b@0 follower a"}, index: "a", listed: true,
			read: "b", write: "a",
		},
		{
			name: "an unlabelled node among others is no master", nodes: []string{"a@0 a", "b@0 follower a"}, index: "a", listed: true,
			read: "a", write: "FailedPrecondition: shard '0' has no master among 2 members; label exactly one pod with role=master",
		},
		{
			name: "members that are not ready count", nodes: []string{"a@0 a", "b@0 unready a"}, index: "a", listed: true,
			read: "a", write: "FailedPrecondition: shard '0' has no master among 2 members; label exactly one pod with role=master",
		},
		{
			name: "two masters", nodes: []string{"a@0 master a", "b@0 master unready"}, index: "a", listed: true,
			read: "a", write: "FailedPrecondition: shard '0' has 2 masters; writes refused until exactly one remains",
		},
		{
			name: "a follower alone", nodes: []string{"a@0 follower a"}, index: "a", listed: true,
			read: "a", write: "FailedPrecondition: shard '0' has no master: its only member is labeled follower",
		},
		{
			name: "a master that is not ready", nodes: []string{"a@0 master unready a", "b@0 follower a"}, index: "a", listed: true,
			read: "b", write: "Unavailable: index 'a': shard '0' master 'a' is unavailable",
		},
		{
			name: "a master that is evicted", nodes: []string{"a@0 master evicted a", "b@0 follower a"}, index: "a", listed: true,
			read: "b", write: "Unavailable: index 'a': shard '0' master 'a' is unavailable",
		},
		{
			name: "several shards and no rule", nodes: []string{"a@10 a", "b@2 a", "c@3 a"}, index: "a", listed: true,
			read: "a !", write: "FailedPrecondition: index 'a' exists on 3 shards with no placement rule pinning the writable one; add --placement",
		},
		{
			name: "of several shards those with an evicted copy do not count", nodes: []string{"a@1 evicted a", "b@2 a"}, index: "a", listed: true,
			read: "b", write: "b",
		},
		{
			name: "a rule pins", nodes: []string{"a@0 pin", "b@1 pin", "c@2 pin"}, index: "pin", listed: true,
			read: "b", write: "b",
		},
		{
			name: "a rule pins to a suspect copy, though another shard has a healthy one", nodes: []string{"a@0 pin", "b@1 suspect pin"}, index: "pin", listed: true,
			read: "b~", write: "b",
		},
		{
			name: "a rule pins to a shard that has no routable copy", nodes: []string{"a@0 pin", "b@1 evicted pin"}, index: "pin", listed: true,
			read: "a", write: "a",
		},
		{
			name: "a rule pins to a shard that is not among several", nodes: []string{"a@0 pin", "b@1", "c@2 pin"}, index: "pin", listed: true,
			read: "a !", write: "FailedPrecondition: index 'pin' exists on 2 shards with no placement rule pinning the writable one; add --placement",
		},
		{
			name: "a rule pins to a shard without nodes", nodes: []string{"a@0 gone"}, index: "gone", listed: true,
			read: "a", write: "a",
		},
		{
			name: "parts", nodes: []string{"a@0 parts", "b@1 master parts", "c@1 follower parts", "d@2 suspect parts", "e@3 parts"}, index: "parts", turn: 1, listed: true,
			read: "a c d~", write: "a b d",
		},
		{
			name: "a part that is missing", nodes: []string{"a@0 parts", "b@1 master evicted parts", "c@1 follower", "d@2 parts"}, index: "parts", listed: true,
			read:  "Unavailable: index 'parts' is partitioned over 3 shards but partition(s) [1] carry no healthy copy",
			part:  "a - d",
			write: "Unavailable: index 'parts' is partitioned over 3 shards but partition(s) [1] carry no healthy copy",
		},
		{
			name: "parts that are missing", nodes: []string{"a@0", "b@1 parts"}, index: "parts", listed: true,
			read:  "Unavailable: index 'parts' is partitioned over 3 shards but partition(s) [0, 2] carry no healthy copy",
			part:  "- b -",
			write: "Unavailable: index 'parts' is partitioned over 3 shards but partition(s) [0, 2] carry no healthy copy",
		},
		{
			name: "all parts are missing, and the index is elsewhere", nodes: []string{"a@0 far"}, index: "far", listed: true,
			read:  "Unavailable: index 'far' is partitioned over 2 shards but partition(s) [8, 9] carry no healthy copy",
			part:  "Unavailable: index 'far': none of its 2 partitions has a routable replica",
			write: "Unavailable: index 'far' is partitioned over 2 shards but partition(s) [8, 9] carry no healthy copy",
		},
		{
			name: "all parts are missing", nodes: []string{"a@0", "b@1", "c@2 evicted parts"}, index: "parts",
			read: "NotFound: index 'parts' is not present on any healthy backend", write: "NotFound: index 'parts' is not present on any healthy backend",
		},
		{
			name: "a part without a master", nodes: []string{"a@0 parts", "b@1 parts", "c@1 parts", "d@2 master unready parts", "e@2 parts"}, index: "parts", listed: true,
			read: "a b e", write: "FailedPrecondition: shard '1' has no master among 2 members; label exactly one pod with role=master",
		},
		{
			name: "a part whose master is away", nodes: []string{"a@0 parts", "b@1 parts", "d@2 master unready parts", "e@2 parts"}, index: "parts", listed: true,
			read: "a b e", write: "Unavailable: index 'parts': shard '2' master 'd' is unavailable",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := view(rules, c.nodes...)
			if got := said(v.Read(c.index, c.turn)); got != c.read {
				t.Errorf("a read: %s, not %s", got, c.read)
			}
			if c.part == "" {
				c.part = c.read
			}
			r, err := v.ReadPartial(c.index, c.turn)
			if got := said(r, err); got != c.part {
				t.Errorf("a partial read: %s, not %s", got, c.part)
			}
			if err == nil && len(r.Missing()) != strings.Count(c.part, "-") {
				t.Errorf("a partial read misses %v", r.Missing())
			}
			if got := said(v.Write(c.index)); got != c.write {
				t.Errorf("a write: %s, not %s", got, c.write)
			}
			if got := slices.Contains(v.Indexes(), c.index); got != c.listed {
				t.Errorf("listed: %t, not %t", got, c.listed)
			}
		})
	}
}

func TestCreate(t *testing.T) {
	rules := placement(t, "", "pin*=1", "parts*=0,1", "wide*=0,7", "gone*=9")
	reject := placement(t, "reject", "pin*=1")
	for _, c := range []struct {
		name  string
		rules *Placement
		nodes []string
		index string
		want  string
	}{
		{name: "no nodes", index: "a", want: "Unavailable: no backends discovered; cannot place index"},
		{name: "no nodes and no rule", rules: reject, index: "a", want: "FailedPrecondition: no placement rule matches index 'a' and --placement-default is 'reject'"},
		{name: "no nodes and a rule", rules: rules, index: "pin", want: "FailedPrecondition: placement rule for 'pin' targets shard '1' but no backend carries that shard id"},
		{name: "the shard with the fewest", nodes: []string{"a@0 a,b", "b@1 c", "c@2 d,e"}, index: "x", want: "b"},
		{name: "the first of equals by name", nodes: []string{"a@2 a", "b@10 b", "c@3 c"}, index: "x", want: "b"},
		{name: "copies count once", nodes: []string{"a@0 master a,b", "b@0 follower a,c", "c@1 d,e,f,g"}, index: "x", want: "a"},
		{name: "copies count once, and all of them", nodes: []string{"a@0 master a", "b@0 follower a,b,c", "c@1 d,e"}, index: "x", want: "c"},
		{name: "a suspect master takes it", nodes: []string{"a@0 suspect", "b@1 a"}, index: "x", want: "a"},
		{name: "B2: not a shard without master", nodes: []string{"a@0", "b@0", "c@1 a,b"}, index: "x", want: "c"},
		{name: "B2: not a shard whose master is away", nodes: []string{"a@0 unready", "b@1 evicted", "c@2 a,b"}, index: "x", want: "c"},
		{
			name: "no master anywhere: what the shard with the fewest says", nodes: []string{"a@0 follower a", "b@1", "c@1"}, index: "x",
			want: "FailedPrecondition: shard '1' has no master among 2 members; label exactly one pod with role=master",
		},
		{name: "no master up", nodes: []string{"a@0 evicted", "b@1 unready"}, index: "x", want: "Unavailable: shard '0' master 'a' is unavailable"},
		{name: "an unready node is a shard", nodes: []string{"a@0 unready"}, index: "x", want: "Unavailable: shard '0' master 'a' is unavailable"},
		{name: "pinned", rules: rules, nodes: []string{"a@0", "b@1 a,b,c"}, index: "pin", want: "b"},
		{name: "pinned under reject", rules: reject, nodes: []string{"a@0", "b@1 a,b,c"}, index: "pinned", want: "b"},
		{name: "no rule under reject", rules: reject, nodes: []string{"a@0"}, index: "x", want: "FailedPrecondition: no placement rule matches index 'x' and --placement-default is 'reject'"},
		{
			name: "pinned to a shard that is not there", rules: rules, nodes: []string{"a@0"}, index: "gone1",
			want: "FailedPrecondition: placement rule for 'gone1' targets shard '9' but no backend carries that shard id",
		},
		{name: "pinned to two masters", rules: rules, nodes: []string{"a@1 master", "b@1 master"}, index: "pin", want: "FailedPrecondition: shard '1' has 2 masters; writes refused until exactly one remains"},
		{name: "pinned to a follower", rules: rules, nodes: []string{"a@1 follower"}, index: "pin", want: "FailedPrecondition: shard '1' has no master: its only member is labeled follower"},
		{name: "pinned to a master that is away", rules: rules, nodes: []string{"a@1 master evicted", "b@1 follower"}, index: "pin", want: "Unavailable: shard '1' master 'a' is unavailable"},
		{name: "all parts in order", rules: rules, nodes: []string{"z@0", "a@1"}, index: "parts", want: "z a"},
		{
			name: "a part that is not there", rules: rules, nodes: []string{"a@0"}, index: "wide",
			want: "FailedPrecondition: placement rule for 'wide' partitions over shard '7' but no backend carries that shard id",
		},
		{name: "a part whose master is away", rules: rules, nodes: []string{"a@0", "b@1 unready"}, index: "parts", want: "Unavailable: shard '1' master 'b' is unavailable"},
	} {
		t.Run(c.name, func(t *testing.T) {
			targets, err := view(c.rules, c.nodes...).Create(c.index)
			got := show(targets)
			if err != nil {
				got = refusal(err)
			}
			if got != c.want {
				t.Errorf("%s, not %s", got, c.want)
			}
		})
	}
}

func TestMasterOfAShardThatNobodyKnows(t *testing.T) {
	if _, err := view(nil, "a@0").Master("s"); err == nil || refusal(err) != "FailedPrecondition: unknown shard 's'" {
		t.Errorf("it is %v", err)
	}
}

func TestRefusalsRepeatLongNamesInPart(t *testing.T) {
	for _, name := range []string{strings.Repeat("ä", 1<<20), "x" + strings.Repeat("ä", 1<<20), strings.Repeat("\x80", 1<<20)} {
		_, err := view(nil, "a@0").Read(name, 0)
		if got := len(err.Error()); got > 1200 {
			t.Errorf("the refusal has %d bytes", got)
		}
		if utf8.ValidString(name) && !utf8.ValidString(err.Error()) {
			t.Error("the refusal cuts a character in two")
		}
	}
}

func TestReplicasAreWhatAReadChoosesFrom(t *testing.T) {
	v := view(nil, "a@0 evicted a", "b@0 a", "c@0 suspect a", "d@0 a", "e@1 suspect a", "f@1 unready a", "g@1 suspect a", "h@2")
	ids := func(nodes []*Node) (out []string) {
		for _, n := range nodes {
			out = append(out, n.ID)
		}
		return out
	}
	for shard, want := range map[string]string{"0": "b d", "1": "e g", "2": "", "3": ""} {
		if got := strings.Join(ids(v.Replicas(nil, "a", shard)), " "); got != want {
			t.Errorf("on shard %s: %q, not %q", shard, got, want)
		}
	}
	if got := v.Replicas(nil, "b", "0"); got != nil {
		t.Errorf("an index that is nowhere has %v", ids(got))
	}
}

// goldenFleet is the scripted set-up of the recordings.
func goldenFleet() []*Node {
	return []*Node{
		node("n0@0 master solo,parts,wparts,w2parts,hole,nokey,dup,pinned,repparts,first_b1"),
		node("n1@1 master parts,wparts,w2parts,hole,nokey,dup,pinned"),
		node("n2@2 master parts,wparts,w2parts,nokey"),
		node("n3a@3 nomaster"), node("n3b@3 nomaster"),
		node("n4@4 follower follow"),
		node("n5a@5 master twom"), node("n5b@5 master twom"),
		node("n6a@6 master repl,repparts"), node("n6b@6 follower repl,repparts"),
	}
}

// Every recorded call that names one index goes where the reference sent it, or is refused in the same words.
func TestRoutesAreThoseOfTheReference(t *testing.T) {
	cases, err := summagolden.Load(corpus.Dir(t, "summa-golden"), "broker-plain")
	if err != nil {
		t.Fatal(err)
	}
	// What differs for a line of contracts/differences.md.
	differs := map[string]string{
		"broker/create/globxyz": "n6a", // B2: shard 3 has fewer indexes, but no master
	}
	routed, refused := 0, 0
	for _, c := range cases {
		if c.RequestRule != "" || len(c.RequestB64) != 1 || c.RPC == "GetTopology" || strings.HasPrefix(c.Name, "broker/limits/") {
			continue // of no index, or refused before it is routed
		}
		requests, err := c.Requests()
		if err != nil {
			t.Fatal(err)
		}
		named, ok := requests[0].(interface{ GetIndexName() string })
		if !ok || named.GetIndexName() == "" {
			continue
		}
		index := named.GetIndexName()
		placement := goldenPlacement(t)
		if c.Target == "broker:reject" {
			placement.reject = true
		}
		v := New(placement, goldenFleet())
		if c.RPC == "CreateIndex" {
			targets, err := v.Create(index)
			got, want := show(targets), strings.Join(asked(c), " ")
			if err != nil {
				got = refusal(err)
			}
			if len(c.Nodes) == 0 {
				want = golden(c)
			}
			if d, ok := differs[c.Name]; ok {
				if want == d {
					t.Errorf("%s does not differ", c.Name)
				}
				want = d
			}
			if got != want {
				t.Errorf("%s: %s, not %s", c.Name, got, want)
			}
			routed++
			continue
		}
		var r Route
		switch reads := []string{"Search", "GetDocument", "GetIndexInfo", "GetTextStats"}; {
		case !slices.Contains(reads, c.RPC):
			r, err = v.Write(index)
		case c.Target == "broker:partial":
			r, err = v.ReadPartial(index, 0)
		default:
			r, err = v.Read(index, 0)
		}
		if err != nil {
			refused++
			if got := refusal(err); got != golden(c) || len(c.Nodes) > 0 {
				t.Errorf("%s: %s, not %s", c.Name, got, golden(c))
			}
			continue
		}
		routed++
		for _, id := range asked(c) { // which replica depends on the turn
			if !slices.ContainsFunc(append(r.Parts, r.Target), func(t Target) bool {
				return slices.ContainsFunc(v.nodes, func(n *Node) bool { return n.ID == id && n.Shard == t.Shard })
			}) {
				t.Errorf("%s: the reference asks %s, whose shard is not in %s", c.Name, id, said(r, nil))
			}
		}
	}
	if routed < 60 || refused < 12 {
		t.Errorf("only %d routed and %d refused calls were compared", routed, refused)
	}
	t.Logf("%d calls routed, %d refused", routed, refused)
}

func asked(c summagolden.Case) (out []string) {
	for _, call := range c.Nodes {
		if !slices.Contains(out, call.Node) {
			out = append(out, call.Node)
		}
	}
	return out
}

// golden tells a recorded refusal as refusal does.
func golden(c summagolden.Case) string {
	var code codes.Code
	if err := code.UnmarshalJSON(fmt.Appendf(nil, "%q", c.Code)); err != nil {
		return err.Error()
	}
	return code.String() + ": " + c.Message
}

// GetTopology, GetBackends and ListIndexes show what those of the reference show.
func TestAdminViewsAreThoseOfTheReference(t *testing.T) {
	cases, err := summagolden.Load(corpus.Dir(t, "summa-golden"), "broker-plain")
	if err != nil {
		t.Fatal(err)
	}
	v := New(goldenPlacement(t), goldenFleet())
	compared := 0
	for _, c := range cases {
		reply, err := c.Reply()
		if err != nil {
			t.Fatal(err)
		}
		var got, want []string
		switch reply := reply.(type) {
		case *brokerpb.GetTopologyResponse:
			requests, err := c.Requests()
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range reply.GetIndexes() {
				want = append(want, fmt.Sprint(x.GetIndexName(), x.GetMergePolicy(), x.GetAmbiguous()))
				for _, p := range x.GetPartitions() {
					want = append(want, fmt.Sprint(p.GetShardId(), p.GetWeight()))
					for _, n := range p.GetReplicas() {
						want = append(want, n.GetBackendId()+n.GetRole()+n.GetHealth())
					}
				}
			}
			for _, x := range v.Topology(requests[0].(*brokerpb.GetTopologyRequest).GetIndexName()) {
				got = append(got, fmt.Sprint(x.Index, x.MergePolicy(), x.Ambiguous))
				for _, s := range x.Shards {
					got = append(got, fmt.Sprint(s.Shard, s.Weight))
					for _, n := range s.Nodes {
						got = append(got, n.ID+n.Role.String()+n.Health.String())
					}
				}
			}
		case *brokerpb.GetBackendsResponse:
			for _, n := range reply.GetBackends() {
				want = append(want, fmt.Sprintln(n.GetBackendId(), n.GetShardId(), n.GetRole(), n.GetHealth(), n.GetIndexes(), n.GetConsecutiveFailures(), n.GetReady()))
			}
			for _, n := range v.Backends() {
				got = append(got, fmt.Sprintln(n.ID, n.Shard, n.Role, n.Health, n.Indexes, n.Failures, n.Ready))
			}
		case *summapb.ListIndexesResponse:
			got, want = v.Indexes(), reply.GetIndexNames()
		default:
			continue
		}
		compared++
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n%q, not\n%q", c.Name, got, want)
		}
	}
	if compared < 7 {
		t.Errorf("only %d cases were compared", compared)
	}
}

func TestTopologyShowsCopiesThatAreNotRoutableBesideThoseThatAre(t *testing.T) {
	v := view(placement(t, "", "p*=0:4,1:2"), "a@0 p", "b@0 evicted p", "c@1 unready p", "d@2 suspect p,x", "e@3 evicted x,y")
	var got []string
	for _, x := range v.Topology("") {
		got = append(got, fmt.Sprint(x.Index, " ", x.MergePolicy(), " ", x.Ambiguous))
		for _, s := range x.Shards {
			got = append(got, fmt.Sprint(s.Shard, " ", s.Weight, " ", len(s.Nodes), " ", s.Nodes[len(s.Nodes)-1].Health))
		}
	}
	want := []string{"p score false", "0 4 2 evicted", "2 0 1 suspect", "x passthrough false", "2 0 1 suspect"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
	for _, index := range []string{"absent", "y"} {
		if got := v.Topology(index); len(got) != 0 {
			t.Errorf("an index that is nowhere has %v", got)
		}
	}
	if got := v.Counts(); got != (Counts{Healthy: 1, Suspect: 1, Evicted: 2, Unready: 1}) || !v.Serving() {
		t.Errorf("counts are %+v", got)
	}
	if view(nil, "a@0 suspect a", "b@0 unready a").Serving() {
		t.Error("a view without a ready and healthy node serves")
	}
}

func TestANodeAloneOnItsShardActsAsMaster(t *testing.T) {
	v := view(nil, "a@0 unready", "b@1", "c@1", "d@2 follower", "e@3 master", "f@3 master")
	var got []string
	for _, n := range v.Backends() {
		got = append(got, n.ID+" "+v.Acts(n).String())
	}
	if want := []string{"a master", "b unlabeled", "c unlabeled", "d follower", "e master", "f master"}; !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
}

func TestMapAge(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, c := range []struct {
		learned time.Time
		want    uint64
	}{
		{time.Time{}, math.MaxUint64},
		{now.Add(-81 * time.Millisecond), 81},
		{now, 0},
		{now.Add(time.Second), 0},
	} {
		if got := (&Node{Learned: c.learned}).MapAge(now); got != c.want {
			t.Errorf("learned %v: %d", c.learned, got)
		}
	}
}
