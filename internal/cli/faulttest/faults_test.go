//go:build linux

package faulttest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weft-search/weft/internal/cli/faulttest/link"
)

// fault is something that goes wrong and is mended again.
type fault struct {
	name  string
	on    []*server // whose process it hits, or has to go on
	links bool      // it hits connections
	begin func() error
	heal  func() error // of what begin has done; whole again when it returns, or soon after
}

// kinds are the kinds of faults. Each draws what it hits.
var kinds = map[string]func(c *cluster) *fault{
	"clock": (*cluster).jump,
	"delay": func(c *cluster) *fault {
		d := time.Duration(1+c.rng.IntN(30)) * time.Millisecond
		return c.onLinks(fmt.Sprintf("delays of %v", d), link.Fault{There: link.Way{Delay: d}, Back: link.Way{Delay: d}})
	},
	"jitter": func(c *cluster) *fault {
		d := time.Duration(1+c.rng.IntN(80)) * time.Millisecond
		return c.onLinks(fmt.Sprintf("delays of up to %v", d), link.Fault{There: link.Way{Jitter: d}, Back: link.Way{Jitter: d}})
	},
	"packets lost": func(c *cluster) *fault {
		if link.CanDrop() != nil {
			return nil
		}
		there, back := 0.01+0.29*c.rng.Float64(), 0.01+0.29*c.rng.Float64()
		switch c.rng.IntN(4) {
		case 0:
			there = 0
		case 1:
			back = 0
		}
		return c.onLinks(fmt.Sprintf("%.0f%% of packets lost, and %.0f%% of those back", 100*there, 100*back),
			link.Fault{There: link.Way{Drop: there}, Back: link.Way{Drop: back}})
	},
	"cut requests": func(c *cluster) *fault {
		n := c.rng.Int64N(4000)
		return c.onLinks(fmt.Sprintf("resets after %d bytes of requests", n), link.Fault{There: link.Way{Loss: link.Reset, After: n}})
	},
	"cut replies": func(c *cluster) *fault {
		n := c.rng.Int64N(4000)
		return c.onLinks(fmt.Sprintf("resets after %d bytes of replies", n), link.Fault{Back: link.Way{Loss: link.Reset, After: n}})
	},
	"stall": func(c *cluster) *fault {
		n := c.rng.Int64N(8000)
		w := link.Way{Loss: link.Stall, After: n}
		return c.onLinks(fmt.Sprintf("nothing after %d bytes", n), link.Fault{There: w, Back: w})
	},
	"requests lost": func(c *cluster) *fault {
		return c.onLinks("no requests", link.Fault{There: link.Way{Loss: link.Stall}})
	},
	"replies lost": func(c *cluster) *fault {
		return c.onLinks("no replies", link.Fault{Back: link.Way{Loss: link.Stall}})
	},
	"parted": func(c *cluster) *fault {
		w := link.Way{Loss: link.Stall}
		return c.onLinks("parted", link.Fault{There: w, Back: w, Refuse: c.rng.IntN(2) == 0})
	},
	"refused": func(c *cluster) *fault {
		f := c.onLinks("connections are reset and refused", link.Fault{Refuse: true})
		begin := f.begin
		f.begin = func() error {
			if err := begin(); err != nil {
				return err
			}
			c.cut()
			return nil
		}
		return f
	},
	"member killed": func(c *cluster) *fault {
		m := c.members[c.rng.IntN(len(c.members))]
		return &fault{name: m.name + " killed", on: []*server{&m.server}, begin: m.kill, heal: m.start}
	},
	"group killed": func(c *cluster) *fault {
		g := c.members[c.rng.IntN(len(c.members))].group
		of := func(do func(m *member) error) func() error {
			return func() error {
				var errs []error
				for _, m := range c.members {
					if m.group == g {
						errs = append(errs, do(m))
					}
				}
				return errors.Join(errs...)
			}
		}
		var on []*server
		for _, m := range c.members {
			if m.group == g {
				on = append(on, &m.server)
			}
		}
		return &fault{
			name: fmt.Sprintf("group %d killed", g), on: on,
			begin: of(func(m *member) error { return m.kill() }), heal: of(func(m *member) error { return m.start() }),
		}
	},
	"disk lost":        (*cluster).loseDisk,
	"broker disk lost": (*cluster).loseBroker,
	"broker killed": func(c *cluster) *fault {
		b := c.coordinators()[c.rng.IntN(len(c.coordinators()))]
		return &fault{name: b.name + " killed", on: []*server{&b.server}, begin: b.kill, heal: b.start}
	},
	"member stopped": func(c *cluster) *fault {
		m := c.members[c.rng.IntN(len(c.members))]
		return &fault{
			name:  m.name + " stopped",
			on:    []*server{&m.server},
			begin: func() error { return m.signal(syscall.SIGSTOP) }, heal: func() error { return m.signal(syscall.SIGCONT) },
		}
	},
	"broker stopped": func(c *cluster) *fault {
		b := c.coordinators()[c.rng.IntN(len(c.coordinators()))]
		return &fault{
			name:  b.name + " stopped",
			on:    []*server{&b.server},
			begin: func() error { return b.signal(syscall.SIGSTOP) }, heal: func() error { return b.signal(syscall.SIGCONT) },
		}
	},
	"disk full": func(c *cluster) *fault {
		for _, m := range c.members {
			if m.disk == nil {
				continue
			}
			but := c.rng.Int64N(24 << 10)
			restart := c.rng.IntN(3) == 0
			return &fault{
				name:  fmt.Sprintf("disk of %s full but for %d bytes", m.name, but),
				on:    []*server{&m.server},
				begin: func() error { return m.disk.fill(but) },
				heal: func() error {
					if err := m.disk.empty(); err != nil || !restart {
						return err
					}
					return errors.Join(m.kill(), m.start())
				},
			}
		}
		return nil
	},
}

// cannot is why there are no faults of a kind, in a cluster of this shape or on this machine; empty: there are.
func (c *cluster) cannot(kind string) string {
	switch kind {
	case "clock":
		if !c.shape.clocks {
			return "weft has to be built with another package time for it: make clock, make faults"
		}
	case "packets lost":
		if err := link.CanDrop(); err != nil {
			return err.Error()
		}
	case "disk full":
		switch {
		case !c.shape.fullDisk:
			return "no member of this cluster has a disk of its own: TestEveryKindOfFault has it"
		case !slices.ContainsFunc(c.members, func(m *member) bool { return m.disk != nil }):
			return "this machine lets nobody mount a disk in a namespace, the reason is above"
		}
	case "disk lost":
		if c.shape.repairEvery == 0 {
			return "nothing in the background fills an empty disk here: TestEveryDiskIsTakenAwayForGood, the tree and random faults have it"
		}
	case "broker disk lost":
		if !slices.ContainsFunc(c.coordinators(), func(b *broker) bool { return b.store && b.dir != "" }) {
			return "no broker of this cluster has a store and a disk: random faults have it, and every other tree"
		}
	}
	return ""
}

// loseDisk is the loss of a member's disk: the member is killed, its folder goes, and it comes back with an empty one. What it held the others of its
// group hold, so it is none of a group of one, nor of one of which another has not been filled again yet. The comparison in the background fills it.
func (c *cluster) loseDisk() *fault {
	if c.shape.repairEvery == 0 {
		return nil
	}
	m := c.members[c.rng.IntN(len(c.members))]
	of := 0
	for _, o := range c.members {
		if o.group == m.group {
			of++
		}
	}
	if of < 2 || m.disk != nil || c.lost[m.group] {
		return nil
	}
	c.lost[m.group] = true // from now on: two faults may be drawn before the first begins
	return &fault{name: m.name + " loses its disk", on: []*server{&m.server}, begin: m.loseDisk, heal: m.start}
}

// TestNoGroupLosesAllItsDisks: faults are drawn several at a time.
func TestNoGroupLosesAllItsDisks(t *testing.T) {
	c := &cluster{rng: rand.New(rand.NewPCG(1, 1)), shape: shape{repairEvery: time.Second}, lost: map[int]bool{}}
	for range 2 {
		c.members = append(c.members, &member{group: 7})
	}
	if c.loseDisk() == nil {
		t.Fatal("no member loses its disk")
	}
	for range 100 {
		if f := c.loseDisk(); f != nil {
			t.Fatalf("%s, too", f.name)
		}
	}
}

// loseBroker is the loss of the disk of a broker with a store: what it kept for members nobody else can give them. The others take that over.
func (c *cluster) loseBroker() *fault {
	b := c.coordinators()[c.rng.IntN(len(c.coordinators()))]
	if !b.store || b.dir == "" {
		return nil
	}
	return &fault{
		name: b.name + " loses its disk", on: []*server{&b.server},
		begin: func() error {
			c.orphans = time.Now()
			if err := b.kill(); err != nil {
				return err
			}
			if err := os.RemoveAll(b.dir); err != nil {
				return fmt.Errorf("take the disk of %s away: %w", b.name, err)
			}
			return nil
		},
		heal: b.start,
	}
}

// loseDisk kills a member and takes its folder away.
func (m *member) loseDisk() error {
	if err := m.kill(); err != nil {
		return err
	}
	if err := os.RemoveAll(m.dir); err != nil {
		return fmt.Errorf("take the disk of %s away: %w", m.name, err)
	}
	return nil
}

// onLinks is a fault of some links: one, all of a member, all of a broker, or some to the bucket. A broker in the middle of a tree is one or the other.
func (c *cluster) onLinks(name string, f link.Fault) *fault {
	b, m := c.coordinators()[c.rng.IntN(len(c.coordinators()))], c.links()[c.rng.IntN(len(c.links()))]
	for c.shape.tree && !c.linked(b, m.proxy) { // there is no link between them
		b, m = c.coordinators()[c.rng.IntN(len(c.coordinators()))], c.links()[c.rng.IntN(len(c.links()))]
	}
	out := &fault{links: true}
	var hit func(br *broker, to *link.Proxy) bool
	switch kind := c.rng.IntN(6); {
	case kind == 0:
		hit, name = func(_ *broker, to *link.Proxy) bool { return to == m.proxy }, name+" to "+m.name
	case kind == 1:
		hit, name = func(br *broker, _ *link.Proxy) bool { return br == b }, name+" from "+b.name
	case kind == 2 && c.bucket != nil:
		hit, name = func(_ *broker, to *link.Proxy) bool { return to == c.bucket.proxy }, name+" to the bucket"
	case kind == 3 && c.bucket != nil:
		hit, name = func(br *broker, to *link.Proxy) bool { return br == b && to == c.bucket.proxy }, name+" from "+b.name+" to the bucket"
	default:
		hit, name = func(br *broker, to *link.Proxy) bool { return br == b && to == m.proxy }, name+" from "+b.name+" to "+m.name
	}
	if c.bucket != nil { // a broker does not start without its store
		for _, br := range c.coordinators() {
			if hit(br, c.bucket.proxy) {
				out.on = append(out.on, &br.server)
			}
		}
	}
	set := func(f link.Fault, cut bool) func() error {
		return func() error {
			var errs []error
			for _, br := range c.coordinators() {
				for _, to := range c.proxies() {
					if !hit(br, to) {
						continue
					}
					if cut {
						to.Cut(br.name)
					}
					errs = append(errs, to.Set(br.name, f))
				}
			}
			return errors.Join(errs...)
		}
	}
	// What was held arrives late, or never.
	out.name, out.begin, out.heal = name, set(f, false), set(link.Fault{}, c.rng.IntN(2) == 0)
	return out
}

// linkTo is the way to a member, or to a broker in the middle.
type linkTo struct {
	name  string
	proxy *link.Proxy
}

// links are the ways to all members and to the brokers in the middle.
func (c *cluster) links() []linkTo {
	var out []linkTo
	for _, m := range c.members {
		out = append(out, linkTo{m.name, m.proxy})
	}
	for _, b := range c.middle {
		out = append(out, linkTo{b.name, b.proxy})
	}
	return out
}

// linked tells whether a broker of a tree speaks to who is behind a link.
func (c *cluster) linked(b *broker, to *link.Proxy) bool {
	at := slices.Index(c.middle, b)
	for _, m := range c.members {
		if m.proxy == to {
			return at >= 0 && m.group/c.shape.groups == at
		}
	}
	return at < 0 // it is one in the middle
}

// proxies are the links to all members, to the brokers in the middle, and to the bucket.
func (c *cluster) proxies() []*link.Proxy {
	var out []*link.Proxy
	for _, l := range c.links() {
		out = append(out, l.proxy)
	}
	if c.bucket != nil {
		out = append(out, c.bucket.proxy)
	}
	return out
}

// apart tells whether faults can be had at once: no process is hit by two, and connections by one.
func (c *cluster) apart(fs []*fault) bool {
	seen := map[*server]bool{}
	links := 0
	for _, f := range fs {
		if f.links {
			links++
		}
		for _, s := range f.on {
			if seen[s] {
				return false
			}
			seen[s] = true
		}
	}
	return links < 2
}

// cut resets all connections of brokers to members and the bucket.
func (c *cluster) cut() {
	for _, b := range c.coordinators() {
		for _, p := range c.proxies() {
			p.Cut(b.name)
		}
	}
}

// hold waits while a fault lasts. A cluster is to be watched for real time.
func (c *cluster) hold(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	<-t.C
}

// suffer lets faults begin, lasts, and heals them in the order in which they began.
func (c *cluster) suffer(d time.Duration, faults ...*fault) {
	c.t.Helper()
	names := make([]string, len(faults))
	for i, f := range faults {
		names[i] = f.name
	}
	c.t.Logf("%v: %s", d.Round(time.Millisecond), strings.Join(names, "; "))
	for _, f := range faults {
		if err := f.begin(); err != nil {
			c.t.Fatalf("%s: %v", f.name, err)
		}
	}
	c.hold(d)
	for _, f := range faults {
		if err := f.heal(); err != nil {
			c.t.Fatalf("mend %s: %v", f.name, err)
		}
	}
	c.healthy()
}
