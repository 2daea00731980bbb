package shardmap

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/weft-search/weft/internal/topology/placement"
)

var update = flag.Bool("update", false, "write the golden file of the current format anew")

// sample is a map with everything in it.
func sample() *Map {
	return &Map{
		Epoch: 7, Rule: placement.Ring, VNodes: 128,
		Groups: []Group{{[]string{"grpc://10.0.0.1:7702", "10.0.0.2:7701"}}, {[]string{"b.example:7701"}}, {[]string{"[::1]:7701"}}},
		Placed: 2, Move: &Move{To: 3, Phase: Copying, Job: "rebalance-1"},
	}
}

func with(fn func(m *Map)) *Map {
	m := sample()
	fn(m)
	return m
}

func TestValidate(t *testing.T) {
	many := make([]string, MaxMembers+1)
	for i := range many {
		many[i] = fmt.Sprintf("m%d:1", i)
	}
	groups := make([]Group, placement.MaxShards+1)
	for i := range groups {
		groups[i].Members = []string{fmt.Sprintf("g%d:1", i)}
	}
	for _, c := range []struct {
		name string
		m    *Map
		ok   bool
	}{
		{"the sample", sample(), true},
		{"no move", with(func(m *Map) { m.Move = nil }), true},
		{"most members", with(func(m *Map) { m.Groups[0].Members = many[1:] }), true},
		{"most groups", with(func(m *Map) { m.Groups = groups[1:] }), true},
		{"the last epoch", with(func(m *Map) { m.Epoch = MaxEpoch }), true},
		{"default virtual nodes", with(func(m *Map) { m.VNodes = 0 }), true},
		{"preparing", with(func(m *Map) { m.Move.Phase = Preparing }), true},
		{"preparing for as many", with(func(m *Map) { m.Move.Phase, m.Move.To = Preparing, 2 }), false},
		{"switching", with(func(m *Map) { m.Move.Phase = Switching }), true},
		{"switching to fewer", with(func(m *Map) { m.Move.Phase, m.Move.To = Switching, 1 }), true},
		{"switching to as many", with(func(m *Map) { m.Move.Phase, m.Move.To = Switching, 2 }), false},
		{"cleaning back", with(func(m *Map) { m.Move.Phase, m.Move.To = Cleaning, 2 }), true},
		{"cleaning to fewer", with(func(m *Map) { m.Move.Phase, m.Move.To = Cleaning, 1 }), true},
		{"no epoch", with(func(m *Map) { m.Epoch = 0 }), false},
		{"an epoch that JSON readers round", with(func(m *Map) { m.Epoch = MaxEpoch + 1 }), false},
		{"no rule", with(func(m *Map) { m.Rule = "" }), false},
		{"unknown rule", with(func(m *Map) { m.Rule = "random" }), false},
		{"negative virtual nodes", with(func(m *Map) { m.VNodes = -1 }), false},
		{"too many virtual nodes", with(func(m *Map) { m.VNodes = placement.MaxVNodes + 1 }), false},
		{"no groups", with(func(m *Map) { m.Groups, m.Placed, m.Move = nil, 0, nil }), false},
		{"too many groups", with(func(m *Map) { m.Groups = groups }), false},
		{"no members", with(func(m *Map) { m.Groups[1].Members = nil }), false},
		{"too many members", with(func(m *Map) { m.Groups[0].Members = many }), false},
		{"twice in a group", with(func(m *Map) { m.Groups[0].Members[1] = m.Groups[0].Members[0] }), false},
		{"twice in the map", with(func(m *Map) { m.Groups[1].Members[0] = m.Groups[0].Members[0] }), false},
		{"empty address", with(func(m *Map) { m.Groups[0].Members[0] = "" }), false},
		{"address with a space", with(func(m *Map) { m.Groups[0].Members[0] = "a b" }), false},
		{"address with a comma", with(func(m *Map) { m.Groups[0].Members[0] = "a,b" }), false},
		{"address with a bar", with(func(m *Map) { m.Groups[0].Members[0] = "a|b" }), false},
		{"address with a line end", with(func(m *Map) { m.Groups[0].Members[0] = "a\n" }), false},
		{"address that is not UTF-8", with(func(m *Map) { m.Groups[0].Members[0] = "a\xff" }), false},
		{"long address", with(func(m *Map) { m.Groups[0].Members[0] = strings.Repeat("a", MaxAddr+1) }), false},
		{"placed over nothing", with(func(m *Map) { m.Placed = 0 }), false},
		{"placed over more than there are", with(func(m *Map) { m.Placed, m.Move = 4, nil }), false},
		{"move to nothing", with(func(m *Map) { m.Move.To = 0 }), false},
		{"move to more than there are", with(func(m *Map) { m.Move.To = 4 }), false},
		{"move to as many", with(func(m *Map) { m.Move.To = 2 }), false},
		{"unknown phase", with(func(m *Map) { m.Move.Phase = "done" }), false},
		{"move of nobody", with(func(m *Map) { m.Move.Job = "" }), false},
		{"long job", with(func(m *Map) { m.Move.Job = strings.Repeat("j", MaxJob+1) }), false},
	} {
		err := c.m.Validate()
		if c.ok != (err == nil) || !c.ok && !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", c.name, err)
		}
		b, err := c.m.Encode()
		if c.ok != (err == nil) || !c.ok && !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: encode: %v", c.name, err)
		}
		if !c.ok {
			continue
		}
		back, err := Decode(b)
		if err != nil {
			t.Errorf("%s: decode %s: %v", c.name, b, err)
			continue
		}
		again, err := back.Encode()
		if err != nil || !bytes.Equal(b, again) {
			t.Errorf("%s: encoded again as %s, want %s (%v)", c.name, again, b, err)
		}
	}
	if _, err := New(placement.Ring, 0, nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("a map without groups: %v", err)
	}
	// As large as the parts allow, the whole is too large for a map to be given to members.
	for i := range groups {
		groups[i].Members = nil
		for k := range MaxMembers {
			groups[i].Members = append(groups[i].Members, fmt.Sprintf("member-%d-%d.example.org:7701", i, k))
		}
	}
	m, err := New(placement.Modulo, 0, groups[1:])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Encode(); !errors.Is(err, ErrInvalid) {
		t.Errorf("a map above MaxBytes: %v", err)
	}
}

// TestGolden pins formats 1 and 2: these bytes are read for ever, and written until there is another format for what they say.
func TestGolden(t *testing.T) {
	for name, m := range map[string]*Map{
		"map_v1.json":           sample(),
		"map_v1_preparing.json": with(func(m *Map) { m.Move.Phase = Preparing }),
		"map_v1_switching.json": with(func(m *Map) { m.Move.Phase, m.Stored = Switching, true }),
		"map_v2.json": with(func(m *Map) {
			m.Stored, m.Nodes = true, map[string]string{"grpc://10.0.0.1:7702": "01890a5d-ac96-774b-bcce-b302099a8057", "10.0.0.2:7701": NoNode}
		}),
	} {
		t.Run(name, func(t *testing.T) { golden(t, filepath.Join("testdata", name), m) })
	}
}

func golden(t *testing.T, name string, m *Map) {
	got, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(name, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("encoded as\n%s, want\n%s", got, want)
	}
	back, err := Decode(want)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back, m) {
		t.Errorf("decoded as %+v", back)
	}
}

func TestDecode(t *testing.T) {
	const good = `{"format":1,"epoch":1,"rule":"modulo","vnodes":0,"groups":[{"members":["a:1"]}],"placed":1,"move":null}`
	for _, c := range []struct{ name, from, to string }{
		{"as it is", "", ""},
		{"space", `,"epoch"`, " ,\n \"epoch\""},
		{"another order", `{"format":1,"epoch":1,`, `{"epoch":1,"format":1,`},
		{"no move", `,"move":null`, ""},
		{"virtual nodes that the rule has not", `"vnodes":0`, `"vnodes":5`},
	} {
		m, err := Decode([]byte(strings.Replace(good, c.from, c.to, 1)))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if b, err := m.Encode(); err != nil || string(b) != good {
			t.Errorf("%s: encoded again as %s (%v)", c.name, b, err)
		}
	}
	for _, c := range []struct {
		name, from, to string
		want           error
	}{
		{"unknown member", `"epoch"`, `"owner":1,"epoch"`, ErrInvalid},
		{"unknown member of a group", `"members"`, `"weight":1,"members"`, ErrInvalid},
		{"twice", `"placed":1`, `"placed":1,"placed":1`, ErrInvalid},
		{"another case", `"epoch"`, `"Epoch"`, ErrInvalid},
		{"format 0", `"format":1`, `"format":0`, ErrInvalid},
		{"no format", `"format":1,`, ``, ErrInvalid},
		{"format 3", `"format":1`, `"format":3,"what":["we","do"],"not":"know"`, ErrNewerFormat},
		{"nodes in format 1", `"move":null`, `"move":null,"nodes":{"a:1":"u"}`, ErrInvalid},
		{"nodes of nobody", `"format":1,`, `"format":2,"nodes":{"b:1":"u"},`, ErrInvalid},
		{"nodes without a name", `"format":1,`, `"format":2,"nodes":{"a:1":""},`, ErrInvalid},
		{"text for a number", `"placed":1`, `"placed":"1"`, ErrInvalid},
		{"a fraction", `"placed":1`, `"placed":1.5`, ErrInvalid},
		{"negative epoch", `"epoch":1`, `"epoch":-1`, ErrInvalid},
		{"no groups", `[{"members":["a:1"]}]`, `null`, ErrInvalid},
		{"more behind it", `"move":null}`, `"move":null}{}`, ErrInvalid},
		{"cut", `,"move":null}`, ``, ErrInvalid},
		{"not valid", `"placed":1`, `"placed":2`, ErrInvalid},
		{"nothing", good, ``, ErrInvalid},
		{"another kind of value", good, `[1]`, ErrInvalid},
		{"too long", good, good + strings.Repeat(" ", MaxBytes), ErrInvalid},
	} {
		if m, err := Decode([]byte(strings.Replace(good, c.from, c.to, 1))); !errors.Is(err, c.want) || m != nil {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

func TestSpecs(t *testing.T) {
	ring := func(n int) placement.Spec { return placement.Spec{Rule: placement.Ring, Shards: n, VNodes: 128} }
	for _, c := range []struct {
		name    string
		m       *Map
		visible placement.Spec
		writes  []placement.Spec
	}{
		{"none", with(func(m *Map) { m.Move = nil }), ring(2), []placement.Spec{ring(2)}},
		{"preparing", with(func(m *Map) { m.Move.Phase = Preparing }), ring(2), []placement.Spec{ring(2)}},
		{"copying", sample(), ring(2), []placement.Spec{ring(2), ring(3)}},
		{"switching", with(func(m *Map) { m.Move.Phase = Switching }), ring(3), []placement.Spec{ring(3), ring(2)}},
		{"switching to fewer", with(func(m *Map) { m.Move.Phase, m.Move.To = Switching, 1 }), ring(1), []placement.Spec{ring(1), ring(2)}},
		{"cleaning", with(func(m *Map) { m.Move.Phase = Cleaning }), ring(3), []placement.Spec{ring(3)}},
		{"given up", with(func(m *Map) { m.Move.Phase, m.Move.To = Cleaning, 2 }), ring(2), []placement.Spec{ring(2)}},
		{"default virtual nodes", with(func(m *Map) { m.VNodes = 0 }), ring(2), []placement.Spec{ring(2), ring(3)}},
	} {
		if got := c.m.Visible(); got != c.visible {
			t.Errorf("%s: readers go by %+v, want %+v", c.name, got, c.visible)
		}
		if cut := c.m.CutOver(); cut != (c.m.Move != nil && c.visible != ring(2)) {
			t.Errorf("%s: cut over %t", c.name, cut)
		}
		if got := c.m.Writes(); !reflect.DeepEqual(got, c.writes) {
			t.Errorf("%s: writers go by %+v, want %+v", c.name, got, c.writes)
		}
	}
}

// While a map takes force, some go by it already and some by the one before: what is written by either is written where the other reads.
func TestWritersByOneMapWriteWhereReadersByTheNextLook(t *testing.T) {
	begin := func(m *Map) (*Map, error) { return m.BeginMove(3, "j") }
	for name, steps := range map[string][]func(*Map) (*Map, error){
		"a move":        {begin, (*Map).BeginCopying, (*Map).Cutover, (*Map).BeginCleaning, (*Map).EndMove},
		"one given up":  {begin, (*Map).BeginCopying, (*Map).AbortMove, (*Map).EndMove},
		"one not begun": {begin, (*Map).AbortMove, (*Map).EndMove},
	} {
		old := with(func(m *Map) { m.Move = nil })
		for i, step := range steps {
			next, err := step(old)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(old.Writes(), next.Visible()) || !slices.Contains(next.Writes(), old.Visible()) {
				t.Errorf("%s, step %d: readers by %+v and %+v, writers by %+v and %+v", name, i+1, old.Visible(), next.Visible(), old.Writes(), next.Writes())
			}
			// Who sees groups as a whole would see what is written elsewhere, too.
			if old.Move == nil && len(next.Writes()) > 1 || next.Move == nil && len(old.Writes()) > 1 {
				t.Errorf("%s, step %d: documents are seen twice", name, i+1)
			}
			old = next
		}
		if cut := old.CutOver(); cut {
			t.Errorf("%s: at its end it is under way", name)
		}
	}
}

// TestChanges runs each change on maps in every phase.
func TestChanges(t *testing.T) {
	idle := with(func(m *Map) { m.Move = nil })
	copying := sample()
	shrinking := with(func(m *Map) { m.Move.To = 1 })
	preparing := with(func(m *Map) { m.Move.Phase = Preparing })
	switching := with(func(m *Map) { m.Move.Phase = Switching })
	away := with(func(m *Map) { m.Move.Phase, m.Move.To, m.Placed = Switching, 2, 3 })
	apart := with(func(m *Map) { m.Move.Phase, m.Move.To = Switching, 1 })
	cleaning := with(func(m *Map) { m.Move.Phase = Cleaning })
	full := with(func(m *Map) { m.Move, m.Placed = nil, 3 })
	named := with(func(m *Map) {
		m.Move, m.Nodes = nil, map[string]string{"grpc://10.0.0.1:7702": "u", "b.example:7701": "w"}
	})
	last := with(func(m *Map) { m.Epoch = MaxEpoch })
	for _, c := range []struct {
		name string
		do   func(m *Map) (*Map, error)
		m    *Map
		want func(m *Map) // what is different besides the epoch; nil with an error
		err  error
	}{
		{"add a group", func(m *Map) (*Map, error) { return m.AddGroup("x:1", "x:2") }, copying, func(m *Map) {
			m.Groups = append(m.Groups, Group{[]string{"x:1", "x:2"}})
		}, nil},
		{"add a group of nobody", func(m *Map) (*Map, error) { return m.AddGroup() }, idle, nil, ErrInvalid},
		{"add a known member", func(m *Map) (*Map, error) { return m.AddGroup("b.example:7701") }, idle, nil, ErrInvalid},
		{"at the end of epochs", func(m *Map) (*Map, error) { return m.AddGroup("x:1") }, last, nil, ErrRefused},
		{"remove an unused group", (*Map).RemoveGroup, idle, func(m *Map) { m.Groups = m.Groups[:2] }, nil},
		{"remove a group that nothing moves to", (*Map).RemoveGroup, shrinking, func(m *Map) { m.Groups = m.Groups[:2] }, nil},
		{"remove a group in use", (*Map).RemoveGroup, full, nil, ErrRefused},
		{"remove a group that is moved to", (*Map).RemoveGroup, copying, nil, ErrRefused},
		{"remove a group that is to be moved to", (*Map).RemoveGroup, preparing, nil, ErrRefused},
		{"remove a group that readers have switched to", (*Map).RemoveGroup, switching, nil, ErrRefused},
		{"remove a group that readers have switched from", (*Map).RemoveGroup, away, nil, ErrRefused},
		{"remove a group that the switch leaves alone", (*Map).RemoveGroup, apart, func(m *Map) { m.Groups = m.Groups[:2] }, nil},
		{"remove a group that is cleaned", (*Map).RemoveGroup, cleaning, nil, ErrRefused},
		{"add a member", func(m *Map) (*Map, error) { return m.AddMember(1, "x:1") }, idle, func(m *Map) {
			m.Groups[1].Members = append(m.Groups[1].Members, "x:1")
			m.Nodes = map[string]string{"x:1": NoNode}
		}, nil},
		{"add a member to a group without documents", func(m *Map) (*Map, error) { return m.AddMember(2, "x:1") }, idle, func(m *Map) {
			m.Groups[2].Members = append(m.Groups[2].Members, "x:1")
		}, nil},
		{"name data folders", func(m *Map) (*Map, error) {
			return m.WithNodes(map[string]string{"10.0.0.2:7701": "v", "b.example:7701": "", "[::1]:7701": "of a group without documents", "x:1": "of nobody"})
		}, named, func(m *Map) {
			m.Nodes = map[string]string{"grpc://10.0.0.1:7702": "u", "10.0.0.2:7701": "v"}
		}, nil},
		{"remove a member whose folder is known", func(m *Map) (*Map, error) { return m.RemoveMember("grpc://10.0.0.1:7702") }, named, func(m *Map) {
			m.Groups[0].Members = []string{"10.0.0.2:7701"}
			delete(m.Nodes, "grpc://10.0.0.1:7702")
		}, nil},
		{"a folder with too long a name", func(m *Map) (*Map, error) {
			return m.WithNodes(map[string]string{"10.0.0.2:7701": strings.Repeat("u", MaxNode+1)})
		}, idle, nil, ErrInvalid},
		{"other groups", func(m *Map) (*Map, error) {
			return m.Regroup([]Group{{[]string{"x:1", "10.0.0.2:7701"}}, {[]string{"b.example:7701"}}, {[]string{"[::1]:7701"}}, {[]string{"y:1"}}})
		}, named, func(m *Map) {
			m.Groups = []Group{{[]string{"x:1", "10.0.0.2:7701"}}, {[]string{"b.example:7701"}}, {[]string{"[::1]:7701"}}, {[]string{"y:1"}}}
			m.Nodes = map[string]string{"x:1": NoNode, "b.example:7701": "w"}
		}, nil},
		{"add a member to no group", func(m *Map) (*Map, error) { return m.AddMember(3, "x:1") }, idle, nil, ErrRefused},
		{"add a member to group -1", func(m *Map) (*Map, error) { return m.AddMember(-1, "x:1") }, idle, nil, ErrRefused},
		{"add a member twice", func(m *Map) (*Map, error) { return m.AddMember(1, "10.0.0.2:7701") }, idle, nil, ErrInvalid},
		{"remove the primary", func(m *Map) (*Map, error) { return m.RemoveMember("grpc://10.0.0.1:7702") }, idle, func(m *Map) {
			m.Groups[0].Members = []string{"10.0.0.2:7701"}
		}, nil},
		{"remove the last member", func(m *Map) (*Map, error) { return m.RemoveMember("[::1]:7701") }, idle, nil, ErrRefused},
		{"remove nobody", func(m *Map) (*Map, error) { return m.RemoveMember("x:1") }, idle, nil, ErrRefused},
		{"grow", func(m *Map) (*Map, error) { return m.BeginMove(3, "j") }, idle, func(m *Map) { m.Move = &Move{3, Preparing, "j"} }, nil},
		{"shrink", func(m *Map) (*Map, error) { return m.BeginMove(1, "j") }, idle, func(m *Map) { m.Move = &Move{1, Preparing, "j"} }, nil},
		{"move to as many", func(m *Map) (*Map, error) { return m.BeginMove(2, "j") }, idle, nil, ErrRefused},
		{"move to none", func(m *Map) (*Map, error) { return m.BeginMove(0, "j") }, idle, nil, ErrRefused},
		{"move to too many", func(m *Map) (*Map, error) { return m.BeginMove(4, "j") }, idle, nil, ErrRefused},
		{"move without a job", func(m *Map) (*Map, error) { return m.BeginMove(3, "") }, idle, nil, ErrInvalid},
		{"a second move", func(m *Map) (*Map, error) { return m.BeginMove(1, "j") }, copying, nil, ErrRefused},
		{"copy", (*Map).BeginCopying, preparing, func(m *Map) { m.Move.Phase = Copying }, nil},
		{"copy again", (*Map).BeginCopying, copying, nil, ErrRefused},
		{"copy nothing", (*Map).BeginCopying, idle, nil, ErrRefused},
		{"cut over before it is copied", (*Map).Cutover, preparing, nil, ErrRefused},
		{"cut over", (*Map).Cutover, copying, func(m *Map) { m.Move.Phase = Switching }, nil},
		{"cut over nothing", (*Map).Cutover, idle, nil, ErrRefused},
		{"cut over again", (*Map).Cutover, switching, nil, ErrRefused},
		{"cut over while cleaning", (*Map).Cutover, cleaning, nil, ErrRefused},
		{"clean", (*Map).BeginCleaning, switching, func(m *Map) { m.Move.Phase = Cleaning }, nil},
		{"clean while copying", (*Map).BeginCleaning, copying, nil, ErrRefused},
		{"clean again", (*Map).BeginCleaning, cleaning, nil, ErrRefused},
		{"clean nothing", (*Map).BeginCleaning, idle, nil, ErrRefused},
		{"give up", (*Map).AbortMove, copying, func(m *Map) { m.Move.Phase, m.Move.To = Cleaning, 2 }, nil},
		{"give up before it is copied", (*Map).AbortMove, preparing, func(m *Map) { m.Move.Phase, m.Move.To = Cleaning, 2 }, nil},
		{"give up after the cutover", (*Map).AbortMove, switching, nil, ErrRefused},
		{"give up while cleaning", (*Map).AbortMove, cleaning, nil, ErrRefused},
		{"give up nothing", (*Map).AbortMove, idle, nil, ErrRefused},
		{"end", (*Map).EndMove, cleaning, func(m *Map) { m.Placed, m.Move = 3, nil }, nil},
		{"end while copying", (*Map).EndMove, copying, nil, ErrRefused},
		{"end while preparing", (*Map).EndMove, preparing, nil, ErrRefused},
		{"end while switching", (*Map).EndMove, switching, nil, ErrRefused},
		{"end nothing", (*Map).EndMove, idle, nil, ErrRefused},
	} {
		before := c.m.Clone()
		next, err := c.do(c.m)
		if !reflect.DeepEqual(before, c.m) {
			t.Fatalf("%s changed its map to %+v", c.name, c.m)
		}
		if !errors.Is(err, c.err) || (err == nil) != (next != nil) {
			t.Errorf("%s: %v, want %v", c.name, err, c.err)
			continue
		}
		if c.want == nil {
			continue
		}
		want := c.m.Clone()
		want.Epoch++
		c.want(want)
		if !reflect.DeepEqual(next, want) {
			t.Errorf("%s: %+v, want %+v", c.name, next, want)
		}
		// Nothing is shared: a change of the next map cannot reach the one before.
		for i := range next.Groups {
			for k := range next.Groups[i].Members {
				next.Groups[i].Members[k] = "changed"
			}
		}
		if next.Move != nil {
			next.Move.Job = "changed"
		}
		if !reflect.DeepEqual(before, c.m) {
			t.Errorf("%s shares what it returns with its map", c.name)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, m := range []*Map{
		sample(), with(func(m *Map) { m.Move = nil; m.Rule, m.VNodes = placement.Modulo, 0 }),
		with(func(m *Map) { m.Nodes = map[string]string{"10.0.0.2:7701": NoNode} }),
	} {
		b, err := m.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"format":3}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Decode(b)
		if err != nil {
			if !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrNewerFormat) {
				t.Errorf("untyped error: %v", err)
			}
			return
		}
		if err := m.Validate(); err != nil {
			t.Errorf("decoded a map that is none: %v", err)
		}
		once, err := m.Encode()
		if err != nil {
			if len(b) < MaxBytes/2 {
				t.Fatalf("cannot write what was read: %v", err)
			}
			return // escapes may make it longer than it was
		}
		again, err := Decode(once)
		if err != nil || !reflect.DeepEqual(again, m) {
			t.Errorf("%s reads as %+v, not %+v (%v)", once, again, m, err)
		}
	})
}
