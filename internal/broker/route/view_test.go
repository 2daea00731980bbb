package route

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// oracle answers from the nodes as they stand, by looking at all of them.
type oracle struct {
	p     *Placement
	nodes []*Node
}

func (o oracle) on(shard, index string, good func(*Node) bool) []*Node {
	var out []*Node
	for _, n := range o.nodes {
		if n.Shard == shard && slices.Contains(n.Indexes, index) && good(n) {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b *Node) int { return strings.Compare(a.ID, b.ID) })
	return out
}

func (o oracle) hosts(index string) []string {
	shards := map[string]bool{}
	for _, n := range o.nodes {
		if n.Routable() && slices.Contains(n.Indexes, index) {
			shards[n.Shard] = true
		}
	}
	var out []string
	for s := range shards {
		out = append(out, s)
	}
	slices.Sort(out)
	return out
}

func (o oracle) pick(shard, index string, turn uint64) string {
	if healthy := o.on(shard, index, func(n *Node) bool { return n.Ready && n.Health == Healthy }); len(healthy) > 0 {
		return healthy[turn%uint64(len(healthy))].ID
	}
	if suspect := o.on(shard, index, func(n *Node) bool { return n.Ready && n.Health == Suspect }); len(suspect) > 0 {
		return suspect[0].ID + "~"
	}
	return "-"
}

func (o oracle) rule(index string) *Rule {
	for _, r := range o.p.Rules() {
		if matches(r.Pattern, index) {
			return r
		}
	}
	return nil
}

func (o oracle) master(shard string) (*Node, string) {
	var members, labelled []*Node
	for _, n := range o.nodes {
		if n.Shard == shard {
			members = append(members, n)
			if n.Role == Master {
				labelled = append(labelled, n)
			}
		}
	}
	switch {
	case len(labelled) == 1:
		return labelled[0], ""
	case len(labelled) > 1:
		return nil, fmt.Sprintf("FailedPrecondition: shard '%s' has %d masters; writes refused until exactly one remains", shard, len(labelled))
	case len(members) == 1 && members[0].Role == Unlabeled:
		return members[0], ""
	case len(members) == 1:
		return nil, fmt.Sprintf("FailedPrecondition: shard '%s' has no master: its only member is labeled follower", shard)
	}
	return nil, fmt.Sprintf("FailedPrecondition: shard '%s' has no master among %d members; label exactly one pod with role=master", shard, len(members))
}

func (o oracle) read(index string, turn uint64, partial bool) string {
	hosts, rule := o.hosts(index), o.rule(index)
	switch {
	case len(hosts) == 0:
		return fmt.Sprintf("NotFound: index '%s' is not present on any healthy backend", index)
	case rule.Partitioned():
		var parts, missing []string
		for _, p := range rule.Parts {
			parts = append(parts, o.pick(p.Shard, index, turn))
			if parts[len(parts)-1] == "-" {
				missing = append(missing, p.Shard)
			}
		}
		switch {
		case len(missing) > 0 && !partial:
			return fmt.Sprintf("Unavailable: index '%s' is partitioned over %d shards but partition(s) [%s] carry no healthy copy", index, len(parts), strings.Join(missing, ", "))
		case len(missing) == len(parts):
			return fmt.Sprintf("Unavailable: index '%s': none of its %d partitions has a routable replica", index, len(parts))
		}
		return strings.Join(parts, " ")
	case rule != nil && slices.Contains(hosts, rule.Parts[0].Shard):
		return o.pick(rule.Parts[0].Shard, index, turn)
	case len(hosts) == 1:
		return o.pick(hosts[0], index, turn)
	}
	return o.pick(hosts[0], index, turn) + " !"
}

func (o oracle) write(index string) string {
	hosts, rule := o.hosts(index), o.rule(index)
	if read := o.read(index, 0, false); strings.Contains(read, ": ") {
		return read
	}
	var shards []string
	switch {
	case rule.Partitioned():
		for _, p := range rule.Parts {
			shards = append(shards, p.Shard)
		}
	case rule != nil && slices.Contains(hosts, rule.Parts[0].Shard):
		shards = []string{rule.Parts[0].Shard}
	case len(hosts) == 1:
		shards = hosts
	default:
		return fmt.Sprintf("FailedPrecondition: index '%s' exists on %d shards with no placement rule pinning the writable one; add --placement", index, len(hosts))
	}
	var out []string
	for _, s := range shards {
		m, refused := o.master(s)
		switch {
		case refused != "":
			return refused
		case !m.Routable():
			return fmt.Sprintf("Unavailable: index '%s': shard '%s' master '%s' is unavailable", index, s, m.ID)
		}
		out = append(out, m.ID)
	}
	return strings.Join(out, " ")
}

func (o oracle) create(index string) string {
	rule := o.rule(index)
	indexes := map[string]map[string]bool{}
	for _, n := range o.nodes {
		if indexes[n.Shard] == nil {
			indexes[n.Shard] = map[string]bool{}
		}
		for _, x := range n.Indexes {
			indexes[n.Shard][x] = true
		}
	}
	var shards []string
	switch {
	case rule != nil:
		for _, p := range rule.Parts {
			shards = append(shards, p.Shard)
		}
	case len(o.nodes) == 0:
		return "Unavailable: no backends discovered; cannot place index"
	default:
		var best string
		least := 1 << 30
		for _, usableOnly := range []bool{true, false} {
			for s := range indexes {
				m, _ := o.master(s)
				if usableOnly && (m == nil || !m.Routable()) {
					continue
				}
				if n := len(indexes[s]); n < least || n == least && s < best {
					best, least = s, n
				}
			}
			if least < 1<<30 {
				break
			}
		}
		shards = []string{best}
	}
	var out []string
	for _, s := range shards {
		if indexes[s] == nil {
			verb := "targets"
			if rule.Partitioned() {
				verb = "partitions over"
			}
			return fmt.Sprintf("FailedPrecondition: placement rule for '%s' %s shard '%s' but no backend carries that shard id", index, verb, s)
		}
		m, refused := o.master(s)
		switch {
		case refused != "":
			return refused
		case !m.Routable():
			return fmt.Sprintf("Unavailable: shard '%s' master '%s' is unavailable", s, m.ID)
		}
		out = append(out, m.ID)
	}
	return strings.Join(out, " ")
}

func (o oracle) list() []string {
	var out []string
	for _, n := range o.nodes {
		if n.Routable() {
			out = append(out, n.Indexes...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

var (
	someIndexes = []string{"a", "ab", "abc", "p1", "p2", "q", "r"}
	someShards  = []string{"0", "1", "10", "2"}
)

// drawNode changes a node at random, or makes it.
func drawNode(t *rapid.T, id string) *Node {
	n := &Node{
		ID: id, Address: "host:1", Shard: rapid.SampledFrom(someShards).Draw(t, "shard"),
		Role: rapid.SampledFrom([]Role{Unlabeled, Master, Follower}).Draw(t, "role"), Ready: rapid.IntRange(0, 4).Draw(t, "ready") > 0,
		Health: rapid.SampledFrom([]Health{Healthy, Suspect, Evicted}).Draw(t, "health"),
	}
	n.Indexes = rapid.SliceOfNDistinct(rapid.SampledFrom(someIndexes), 0, 4, rapid.ID).Draw(t, "indexes")
	slices.Sort(n.Indexes)
	return n
}

// A chain of views, each made from the one before, answers as the oracle does from the nodes alone.
func TestViewsAnswerAsAnOracleDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &Placement{}
		for range rapid.IntRange(0, 3).Draw(t, "rules") {
			pattern := rapid.SampledFrom([]string{"*", "a*", "ab", "p*", "*b*", "q"}).Draw(t, "pattern")
			shards := rapid.SliceOfNDistinct(rapid.SampledFrom(append([]string{"9"}, someShards...)), 1, 3, rapid.ID).Draw(t, "shards")
			r, err := ParseRule(pattern + "=" + strings.Join(shards, ","))
			if err != nil {
				t.Fatal(err)
			}
			p.rules = append(p.rules, r)
		}
		nodes := map[string]*Node{}
		v := New(p, nil)
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			for range rapid.IntRange(0, 4).Draw(t, "changes") {
				id := rapid.SampledFrom([]string{"n1", "n2", "n3", "n10", "x", "y"}).Draw(t, "id")
				old := nodes[id]
				switch {
				case old == nil || rapid.Bool().Draw(t, "anew"):
					nodes[id] = drawNode(t, id)
				case rapid.IntRange(0, 3).Draw(t, "gone") == 0:
					delete(nodes, id)
				case rapid.Bool().Draw(t, "lists"): // only what tables can be patched by
					n := *old
					n.Indexes = drawNode(t, id).Indexes
					nodes[id] = &n
				default: // only what the tables do not hang on
					n := *old
					n.Ready, n.Health = rapid.Bool().Draw(t, "ready"), rapid.SampledFrom([]Health{Healthy, Suspect, Evicted}).Draw(t, "health")
					nodes[id] = &n
				}
			}
			var all []*Node
			for _, n := range nodes {
				all = append(all, n)
			}
			v = v.Next(all)
			o := oracle{p, all}
			if got, want := v.Indexes(), o.list(); !slices.Equal(got, want) {
				t.Fatalf("indexes %q, not %q", got, want)
			}
			for _, index := range append([]string{"absent"}, someIndexes...) {
				turn := rapid.Uint64().Draw(t, "turn")
				if got, want := said(v.Read(index, turn)), o.read(index, turn, false); got != want {
					t.Fatalf("a read of %s: %s, not %s", index, got, want)
				}
				if got, want := said(v.ReadPartial(index, turn)), o.read(index, turn, true); got != want {
					t.Fatalf("a partial read of %s: %s, not %s", index, got, want)
				}
				if got, want := said(v.Write(index)), o.write(index); got != want {
					t.Fatalf("a write to %s: %s, not %s", index, got, want)
				}
				targets, err := v.Create(index)
				got := show(targets)
				if err != nil {
					got = refusal(err)
				}
				if want := o.create(index); got != want {
					t.Fatalf("to create %s: %s, not %s", index, got, want)
				}
				if name, ok := v.Known(index); ok != slices.ContainsFunc(all, func(n *Node) bool { return slices.Contains(n.Indexes, index) }) || ok && name != index {
					t.Fatalf("%s is known: %q, %t", index, name, ok)
				}
			}
		}
	})
}

func TestANodeThatTellsOfAnIndexTwiceHasItOnce(t *testing.T) {
	v := New(nil, []*Node{{ID: "a", Shard: "0", Ready: true, Health: Healthy, Indexes: []string{"x", "x"}}, node("b@0 x"), node("c@1 y")})
	var got []string
	for turn := range uint64(4) {
		got = append(got, said(v.Read("x", turn)))
	}
	if want := []string{"a", "b", "a", "b"}; !slices.Equal(got, want) {
		t.Errorf("turns %q, not %q", got, want)
	}
	if v.shards[0].indexes != 1 || !slices.Equal(v.Indexes(), []string{"x", "y"}) {
		t.Errorf("%d indexes on the shard, and %q", v.shards[0].indexes, v.Indexes())
	}
}

func TestTablesAreTakenOverWhereOnlyStatesChange(t *testing.T) {
	a, b := node("a@0 x,y"), node("b@1 x")
	v := New(nil, []*Node{a, b})
	sick := *a
	sick.Health, sick.Role, sick.Address, sick.Failures = Evicted, Follower, "elsewhere:1", 3
	same := *b
	same.Indexes = slices.Clone(b.Indexes)
	if next := v.Next([]*Node{&same, &sick}); next.tables != v.tables || next.nodes[0] != &sick {
		t.Error("tables were made again for nodes with the same indexes")
	}
	moved := *b
	moved.Shard = "2"
	if next := v.Next([]*Node{a, &moved}); next.tables == v.tables {
		t.Error("tables were taken over for a node of another shard")
	}
}

func TestTheListOfIndexesIsMadeOnceForViewsThatHaveTheSame(t *testing.T) {
	a, b := node("a@0 x,y"), node("b@1 evicted z")
	v := New(nil, []*Node{a, b})
	if got := v.Indexes(); !slices.Equal(got, []string{"x", "y"}) {
		t.Fatalf("indexes %q", got)
	}
	sick := *a
	sick.Health = Suspect // which is still routable
	next := v.Next([]*Node{&sick, b})
	if n := testing.AllocsPerRun(10, func() { next.Indexes() }); n != 0 {
		t.Errorf("the list is made again for a view that has the same")
	}
	well := *b
	well.Health = Suspect
	if got := next.Next([]*Node{&sick, &well}).Indexes(); !slices.Equal(got, []string{"x", "y", "z"}) {
		t.Errorf("indexes %q after a node came back", got)
	}
	gone := *a
	gone.Ready = false
	if got := next.Next([]*Node{&gone, b}).Indexes(); len(got) != 0 {
		t.Errorf("indexes %q after a node went", got)
	}
}

func TestRoutingAllocatesNothing(t *testing.T) {
	v := New(goldenPlacement(t), goldenFleet())
	for _, index := range []string{"solo", "pinned", "dup", "repl"} {
		var turn uint64
		if n := testing.AllocsPerRun(100, func() {
			turn++
			if _, err := v.Read(index, turn); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("a read of %s allocates %v times", index, n)
		}
	}
	for _, index := range []string{"solo", "pinned", "repl"} {
		if n := testing.AllocsPerRun(100, func() {
			if _, err := v.Write(index); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("a write to %s allocates %v times", index, n)
		}
	}
	if n := testing.AllocsPerRun(100, func() { v.Indexes() }); n != 0 {
		t.Errorf("a list of indexes allocates %v times", n)
	}
}

// Tables that are patched over and over are those that would be made from the start, and stay in proportion.
func TestPatchedTablesAreThoseMadeFromTheStart(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	p := placement(t, "", "a*=1", "*7=0,1,2")
	var nodes []*Node
	for i := range 12 {
		nodes = append(nodes, &Node{ID: fmt.Sprintf("n%02d", i), Shard: fmt.Sprint(i / 3), Ready: true, Health: Healthy})
	}
	v := New(p, nodes)
	patched := 0
	for step := range 800 {
		nodes = slices.Clone(v.nodes)
		for range 1 + r.IntN(3) {
			n := *nodes[r.IntN(len(nodes))]
			names := slices.Clone(n.Indexes)
			for range 1 + r.IntN(4) {
				name := fmt.Sprintf("%c%d", 'a'+r.IntN(3), r.IntN(100))
				if at, has := slices.BinarySearch(names, name); has {
					names = slices.Delete(names, at, at+1)
				} else {
					names = slices.Insert(names, at, name)
				}
			}
			n.Indexes = names
			nodes[slices.IndexFunc(nodes, func(o *Node) bool { return o.ID == n.ID })] = &n
		}
		before := v
		whole := step%10 == 0 // is compared now and then: what is wrong once stays so for a while
		var kept string
		if whole {
			kept = fmt.Sprint(before.Topology(""), before.shards)
		}
		v = v.Next(nodes)
		if v.waste > 0 {
			patched++
		}
		made := New(p, nodes)
		if !slices.Equal(v.names, made.names) || !slices.Equal(v.shards, made.shards) {
			t.Fatalf("step %d: names %q and shards %v, not %q and %v", step, v.names, v.shards, made.names, made.shards)
		}
		if whole {
			if got, want := fmt.Sprint(v.Topology("")), fmt.Sprint(made.Topology("")); got != want {
				t.Fatalf("step %d: %s, not %s", step, got, want)
			}
			if fmt.Sprint(before.Topology(""), before.shards) != kept {
				t.Fatalf("step %d changed the view before", step)
			}
		}
		for _, name := range []string{"a7", "b7", "c70", "a1", "c99"} {
			if got, want := said(v.Read(name, uint64(step))), said(made.Read(name, uint64(step))); got != want {
				t.Fatalf("step %d: a read of %s: %s, not %s", step, name, got, want)
			}
		}
		if most := 2*spare + 3*len(made.position); len(v.position) > most || len(v.entries) > 2*spare+3*len(made.names) {
			t.Fatalf("step %d: %d positions and %d entries for %d and %d", step, len(v.position), len(v.entries), len(made.position), len(made.entries))
		}
	}
	if patched < 500 {
		t.Errorf("tables were patched %d times only", patched)
	}
}

func TestTwoViewsAfterTheSameOneDoNotShareWhatIsNew(t *testing.T) {
	at := func(lists ...string) (out []*Node) {
		for i, l := range lists {
			out = append(out, node(fmt.Sprintf("n%d@%d %s", i, i, l)))
		}
		return out
	}
	v := New(nil, at("a,b", "a", "")).Next(at("a,b,c", "a", "")) // which leaves room at the end of what is patched
	first := v.Next(at("a,b,c,d", "a", ""))
	second := v.Next(at("a,b,c", "a", "d"))
	if got := said(first.Read("d", 0)) + said(second.Read("d", 0)); got != "n0n2" {
		t.Errorf("they are at %s", got)
	}
}

// bigFleet has shards of three nodes, and each index on one shard.
func bigFleet(nodes, indexes int) []*Node {
	names := make([][]string, nodes/3)
	for i := range indexes {
		s := i % len(names)
		names[s] = append(names[s], fmt.Sprintf("collection-%08d", i))
	}
	var out []*Node
	for i := range names {
		for r := range 3 {
			n := &Node{
				ID: fmt.Sprintf("summa-%d-%d", i, r), Shard: fmt.Sprint(i), Address: fmt.Sprintf("10.0.%d.%d:50051", i, r),
				Ready: true, Health: Healthy, Role: Follower, Indexes: slices.Clone(names[i]),
			}
			if r == 0 {
				n.Role = Master
			}
			out = append(out, n)
		}
	}
	return out
}

func bigPlacement(b testing.TB) *Placement {
	var rules []string
	for i := range 20 {
		rules = append(rules, fmt.Sprintf("family-%d-*=%d", i, i))
	}
	return placement(b, "", rules...)
}

func BenchmarkView(b *testing.B) {
	nodes := bigFleet(999, 100_000)
	p := bigPlacement(b)
	full := New(p, nodes)

	b.Run("new", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			New(p, nodes)
		}
	})
	b.Run("one index more", func(b *testing.B) {
		b.ReportAllocs()
		more := slices.Clone(nodes)
		n := *nodes[500]
		n.Indexes = append([]string{"another"}, n.Indexes...)
		more[500] = &n
		for b.Loop() {
			full.Next(more)
		}
	})
	b.Run("health", func(b *testing.B) {
		b.ReportAllocs()
		changed := slices.Clone(full.nodes)
		n := *nodes[500]
		n.Health = Suspect
		changed[slices.Index(full.nodes, nodes[500])] = &n
		for b.Loop() {
			full.Next(changed)
		}
	})
	names := full.Indexes()
	order := rand.New(rand.NewPCG(1, 2)).Perm(len(names))
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		var turn uint64
		for b.Loop() {
			turn++
			if _, err := full.Read(names[order[turn%uint64(len(order))]], turn); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("write", func(b *testing.B) {
		b.ReportAllocs()
		var turn int
		for b.Loop() {
			turn++
			if _, err := full.Write(names[order[turn%len(order)]]); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// A thousand nodes with a hundred thousand indexes take bounded memory beside the names that nodes told.
func TestMemoryOfALargeView(t *testing.T) {
	nodes := bigFleet(999, 100_000)
	p := bigPlacement(t)
	before := heap()
	v := New(p, nodes)
	took := heap() - before
	t.Logf("a view of %d nodes and %d indexes takes %.1f MiB", len(nodes), len(v.Indexes()), float64(took)/(1<<20))
	if took > 24<<20 {
		t.Errorf("the view takes %d bytes", took)
	}
	runtime.KeepAlive(v)
	runtime.KeepAlive(nodes)
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
