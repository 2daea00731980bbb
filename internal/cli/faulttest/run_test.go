//go:build linux

package faulttest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weft-search/weft/internal/cli/faulttest/link"
)

// drawSeed is the seed of a run.
func drawSeed(t *testing.T) uint64 {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed: -faults.seed=%d", seed)
	return seed
}

// ready waits until all brokers answer for all members, and loads what is there from the beginning.
func (c *cluster) ready(seed uint64) *load {
	c.t.Helper()
	for _, b := range c.coordinators() {
		eventually(c.t, b.name, func(ctx context.Context) string {
			if a := b.call(ctx, "GET", "/_ring", nil, "", nil, ""); a.err != nil || a.status != 200 {
				return a.String()
			}
			return ""
		})
	}
	l := newLoad(c, seed)
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	if err := l.fill(ctx); err != nil {
		c.t.Fatal(err)
	}
	return l
}

// report logs what the load was told.
func (l *load) report() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.c.t.Logf("after %v, of writes: %v; of calls: %v", time.Since(l.h.began).Round(time.Millisecond), l.h.told, l.statuses)
}

// draw makes a fault of a kind; nil where there is nothing for it to hit.
func (c *cluster) draw(kind string) *fault { return kinds[kind](c) }

// mostDraws is how often a kind is drawn that may be drawn: some draws by chance hit who has nothing for it to hit.
const mostDraws = 200

// sufferEach lets each kind of fault happen once. Those that this cluster cannot have are logged with the reason; the test fails where another
// is not met.
func (c *cluster) sufferEach(order []string) {
	c.t.Helper()
	for _, kind := range order {
		if why := c.cannot(kind); why != "" {
			c.t.Logf("left out: %s; %s", kind, why)
			continue
		}
		f := c.draw(kind)
		for n := 1; f == nil && n < mostDraws; n++ {
			f = c.draw(kind)
		}
		if f == nil {
			c.t.Errorf("no fault of the kind %q was met, and nothing says why", kind)
			continue
		}
		c.suffer(300*time.Millisecond, f)
		c.hold(50 * time.Millisecond)
	}
}

// drawSome makes one or two faults that can be had at once.
func (c *cluster) drawSome() []*fault {
	order := slices.Sorted(maps.Keys(kinds))
	for {
		var fs []*fault
		for range 1 + c.rng.IntN(2) {
			kind := order[c.rng.IntN(len(order))]
			if c.shape.clocks && c.rng.IntN(6) == 0 {
				kind = "clock"
			}
			if kind == "broker disk lost" && *forFlag == 0 {
				continue // a move behind it waits for minutes, see TestEveryKindOfFault
			}
			if f := c.draw(kind); f != nil && c.apart(append(fs, f)) {
				fs = append(fs, f)
			}
		}
		if len(fs) > 0 {
			return fs
		}
	}
}

// check ends the load, waits for the cluster to mend itself, and holds everything against what was written.
func (l *load) check() {
	l.c.t.Helper()
	l.end()
	l.c.mended()
	l.verify()
	if l.c.t.Failed() {
		l.report()
		l.c.t.FailNow()
	}
}

// cross lets the load go on over links whose delays differ, so that writers cross, and without a fault. The members are equal all the
// same once each write was acknowledged: nothing has to be repaired.
func (l *load) cross(d time.Duration) {
	l.c.t.Helper()
	jitter := func(d time.Duration) {
		for _, m := range l.c.links() {
			for _, b := range l.c.coordinators() {
				if err := m.proxy.Set(b.name, link.Fault{There: link.Way{Jitter: d}}); err != nil {
					l.c.t.Fatal(err)
				}
			}
		}
	}
	jitter(20 * time.Millisecond)
	l.calm.Store(true)
	l.begin()
	l.c.hold(d)
	l.end()
	l.calm.Store(false)
	jitter(0)
	ctx, cancel := context.WithTimeout(l.c.t.Context(), patience)
	defer cancel()
	sure := l.h.sure()
	var first map[string]string
	values := map[string]map[string]string{} // of each document, by member
	group := map[string]int{}
	for i, m := range l.c.members {
		docs, err := m.contents(ctx)
		if err != nil {
			l.c.t.Fatal(err)
		}
		for id, raw := range docs {
			var d doc
			if err := json.Unmarshal([]byte(raw), &d); err != nil {
				l.c.t.Fatal(err)
			}
			if g, ok := group[id]; ok && g != m.group {
				l.c.t.Errorf("%s is in groups %d and %d", id, g, m.group)
			}
			group[id] = m.group
			if values[id] == nil {
				values[id] = map[string]string{}
			}
			values[id][m.name] = d.Value
		}
		maps.DeleteFunc(docs, func(id, _ string) bool { return !sure[id] })
		if i > 0 && l.c.members[i-1].group == m.group && !maps.Equal(first, docs) {
			l.c.t.Errorf("after all writes were acknowledged, %s differs from %s: %s", m.name, l.c.members[i-1].name, difference(first, docs))
		}
		first = docs
	}
	// Where the outcome of a write is not known members may differ, and each has something that came behind all that was acknowledged.
	var wrong []string
	for _, id := range l.h.ids() {
		at := values[id]
		if at == nil {
			at = map[string]string{"no member": ""}
		}
		for _, m := range l.c.members {
			if g, ok := group[id]; ok && g == m.group && at[m.name] == "" {
				at[m.name] = "" // it is not there
			}
		}
		wrong = append(wrong, l.h.stands(id, at)...)
	}
	for _, why := range clip(wrong) {
		l.c.t.Error(why)
	}
	if len(sure) < liveIDs/2 {
		l.c.t.Logf("without a fault, of %d documents the outcome of a write is not known", liveIDs-len(sure))
	}
}

// Every kind of fault, one after the other, under load, and then some while documents move to a group that was added: nothing that was
// acknowledged is lost, nothing is there twice, no answer calls itself complete that is not.
func TestEveryKindOfFault(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real processes")
	}
	seed := drawSeed(t)
	c := open(t, rand.New(rand.NewPCG(seed, 1)), shape{groups: 2, replicas: 2, keeping: mixed, fullDisk: true, moveDocs: 400, bucket: seed%2 == 0, clocks: *clockFlag})
	l := c.ready(seed)
	l.cross(500 * time.Millisecond)
	l.begin()
	order := slices.Sorted(maps.Keys(kinds))
	if *forFlag == 0 {
		// What a broker kept that is gone for good is waited for for up to five minutes. The tree has that, and random faults.
		order = slices.DeleteFunc(order, func(kind string) bool { return kind == "broker disk lost" })
		t.Log("left out: broker disk lost; the tree has it, and random faults")
	}
	c.rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	c.sufferEach(order)
	l.check()
	l.begin()
	c.addGroup()
	c.move(3, 3, 300*time.Millisecond)
	l.check()
	c.doctor()
	l.report()
}

// A tree, brokers over brokers over members, meets every kind of fault on both of its levels, with writes and searches through the top.
func TestEveryKindOfFaultInATree(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real processes")
	}
	seed := drawSeed(t)
	c := open(t, rand.New(rand.NewPCG(seed, 5)), shape{groups: 1, replicas: 2, keeping: []keeping{byStore, byMembers}[seed%2], tree: true, clocks: *clockFlag, repairEvery: 2 * time.Second})
	l := c.ready(seed)
	l.begin()
	order := slices.Sorted(maps.Keys(kinds))
	c.rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	c.sufferEach(order)
	l.check()
	c.doctor()
	l.report()
}

// addGroup starts a member and makes it a group, which holds nothing yet.
func (c *cluster) addGroup() {
	c.t.Helper()
	m := c.addMember(c.members[len(c.members)-1].group+1, false)
	if c.shape.keeping != byMembers {
		c.topology("add-group", m.address())
		return
	}
	// The members keep the map, and the brokers are the word on who they are.
	for _, b := range c.brokers {
		if err := errors.Join(b.kill(), b.start()); err != nil {
			c.t.Fatal(err)
		}
	}
	c.awaitMaps()
}

// removeGroup removes the last group, which holds nothing any more, and ends its member.
func (c *cluster) removeGroup() {
	c.t.Helper()
	m := c.members[len(c.members)-1]
	c.mu.Lock()
	c.members = c.members[:len(c.members)-1]
	c.mu.Unlock()
	if c.shape.keeping != byMembers {
		c.topology("remove-group")
	} else {
		for _, b := range c.brokers {
			if err := errors.Join(b.kill(), b.start()); err != nil {
				c.t.Fatal(err)
			}
		}
	}
	c.awaitMaps()
	if err := errors.Join(m.kill(), m.proxy.Close()); err != nil {
		c.t.Error(err)
	}
	if m.clock != nil {
		if err := m.clock.close(); err != nil {
			c.t.Error(err)
		}
	}
}

// topology runs a command of weft topology.
func (c *cluster) topology(args ...string) {
	c.t.Helper()
	c.brokers[0].topology(c, args...)
}

func (b *broker) topology(c *cluster, args ...string) {
	c.t.Helper()
	args = append([]string{"topology", "--url", *b.url.Load()}, args...)
	if out, err := exec.Command(c.bin, args...).CombinedOutput(); err != nil {
		c.t.Fatalf("weft %v: %v\n%s", args, err, out)
	}
}

// awaitMaps waits until all brokers go by the same map over all groups.
func (c *cluster) awaitMaps() {
	c.t.Helper()
	eventually(c.t, "one map", func(ctx context.Context) string {
		var first string
		for i, b := range c.brokers {
			var top struct {
				Map json.RawMessage `json:"map"`
			}
			a := b.call(ctx, http.MethodGet, "/_topology", nil, "", nil, "")
			if a.err != nil || a.status != http.StatusOK || json.Unmarshal(a.body, &top) != nil {
				return a.String()
			}
			if i == 0 {
				first = string(top.Map)
			}
			if string(top.Map) != first || strings.Count(first, `"members"`) != c.members[len(c.members)-1].group+1 {
				return fmt.Sprintf("%s goes by %s, %s by %s", c.brokers[0].name, first, b.name, top.Map)
			}
		}
		return ""
	})
}

// move moves the documents so that they stand on so many groups, with some faults meanwhile.
func (c *cluster) move(groups, faults int, most time.Duration) {
	c.t.Helper()
	c.moves.Add(1)
	defer c.moves.Add(1)
	b := c.brokers[c.rng.IntN(2)]
	var started struct {
		Job string `json:"job"`
	}
	c.eventually("rebalance", func(ctx context.Context) string {
		var top struct {
			Map struct {
				Placed int `json:"placed"`
			} `json:"map"`
		}
		a := b.call(ctx, http.MethodGet, "/_topology", nil, "", nil, "")
		if a.err != nil || json.Unmarshal(a.body, &top) != nil {
			return a.String()
		}
		p := url.Values{"wait": {"false"}, "from": {strconv.Itoa(top.Map.Placed)}, "to": {strconv.Itoa(groups)}}
		a = b.call(ctx, http.MethodPost, "/_rebalance", p, "", nil, "")
		if a.err != nil || a.status != http.StatusAccepted || json.Unmarshal(a.body, &started) != nil {
			return a.String()
		}
		return ""
	})
	began := time.Now()
	state := func(ctx context.Context) string {
		var job struct {
			State string `json:"state"`
		}
		a := b.call(ctx, http.MethodGet, "/_jobs/"+started.Job, nil, "", nil, "")
		if a.err != nil || json.Unmarshal(a.body, &job) != nil || job.State != "done" {
			return a.String()
		}
		return ""
	}
	for range faults {
		if state(c.t.Context()) == "" {
			break
		}
		c.suffer(most/4+time.Duration(c.rng.Int64N(int64(most))), c.drawSome()...)
	}
	c.eventually("the move to "+strconv.Itoa(groups)+" groups", state)
	c.t.Logf("moved to %d groups in %v", groups, time.Since(began).Round(time.Millisecond))
}

// Faults by random choices, two at once now and then, some of them so long that calls give up, for as long as -faults.for says. Every
// round ends with a cluster that is whole; some rounds begin with a new one.
func TestRandomFaults(t *testing.T) {
	if *forFlag == 0 {
		t.Skip("goes on for as long as -faults.for says")
	}
	seed := drawSeed(t)
	rng := rand.New(rand.NewPCG(seed, 2))
	end := time.Now().Add(*forFlag)
	for n := 0; time.Now().Before(end) && !t.Failed(); n++ {
		t.Run("", func(t *testing.T) {
			s := shape{
				groups: 1 + rng.IntN(2), replicas: 2, fullDisk: rng.IntN(2) == 0, moveDocs: 100 + rng.IntN(1000),
				keeping: []keeping{byStore, byMembers, mixed}[rng.IntN(3)],
			}
			s.clocks = *clockFlag
			s.bucket = s.keeping != byMembers && rng.IntN(2) == 0
			if s.tree = rng.IntN(4) == 0; s.tree {
				s.groups, s.replicas = 1, 2
			}
			if s.groups == 1 && !s.tree {
				s.replicas = 2 + rng.IntN(3)
			}
			if rng.IntN(2) == 0 {
				s.repairEvery = time.Duration(1+rng.IntN(10)) * time.Second
			}
			t.Logf("%+v", s)
			c := open(t, rng, s)
			l := c.ready(seed + uint64(n))
			l.cross(time.Duration(rng.IntN(2000)) * time.Millisecond)
			grown := false
			for n := range 2 + rng.IntN(4) {
				if n > 0 && time.Now().After(end) {
					break
				}
				l.begin()
				switch {
				case s.tree || rng.IntN(2) == 0:
					for range 1 + rng.IntN(12) {
						d := time.Duration(50+rng.IntN(1500)) * time.Millisecond
						if rng.IntN(12) == 0 {
							d = time.Duration(9+rng.IntN(6)) * time.Second
						}
						c.suffer(d, c.drawSome()...)
						if rng.IntN(2) == 0 {
							c.hold(time.Duration(rng.IntN(500)) * time.Millisecond)
						}
					}
				default:
					if rng.IntN(8) == 0 {
						c.hold(65 * time.Second) // coordinators that are up for a minute take over what they think was left
					}
					if !grown {
						c.addGroup()
						c.move(s.groups+1, rng.IntN(8), time.Second)
					} else {
						c.move(s.groups, rng.IntN(8), time.Second)
						c.removeGroup()
					}
					grown = !grown
				}
				l.check()
			}
			c.doctor()
			l.report()
		})
	}
}
