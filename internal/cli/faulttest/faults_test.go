//go:build linux

package faulttest

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/weft-search/weft/internal/cli/faulttest/link"
)

// fault is something that goes wrong and is mended again.
type fault struct {
	name  string
	on    []*server // whose process it hits; none: connections or a disk
	begin func() error
	heal  func() error // of what begin has done; whole again when it returns, or soon after
}

// kinds are the kinds of faults. Each draws what it hits.
var kinds = map[string]func(c *cluster) *fault{
	"delay": func(c *cluster) *fault {
		d := time.Duration(1+c.rng.IntN(30)) * time.Millisecond
		return c.onLinks(fmt.Sprintf("delays of %v", d), link.Fault{There: link.Way{Delay: d}, Back: link.Way{Delay: d}})
	},
	"jitter": func(c *cluster) *fault {
		d := time.Duration(1+c.rng.IntN(80)) * time.Millisecond
		return c.onLinks(fmt.Sprintf("delays of up to %v", d), link.Fault{There: link.Way{Jitter: d}, Back: link.Way{Jitter: d}})
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
		return &fault{m.name + " killed", []*server{&m.server}, m.kill, m.start}
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
		return &fault{fmt.Sprintf("group %d killed", g), on, of(func(m *member) error { return m.kill() }), of(func(m *member) error { return m.start() })}
	},
	"broker killed": func(c *cluster) *fault {
		b := c.brokers[c.rng.IntN(len(c.brokers))]
		return &fault{b.name + " killed", []*server{&b.server}, b.kill, b.start}
	},
	"member stopped": func(c *cluster) *fault {
		m := c.members[c.rng.IntN(len(c.members))]
		return &fault{
			m.name + " stopped",
			[]*server{&m.server},
			func() error { return m.signal(syscall.SIGSTOP) }, func() error { return m.signal(syscall.SIGCONT) },
		}
	},
	"broker stopped": func(c *cluster) *fault {
		b := c.brokers[c.rng.IntN(len(c.brokers))]
		return &fault{
			b.name + " stopped",
			[]*server{&b.server},
			func() error { return b.signal(syscall.SIGSTOP) }, func() error { return b.signal(syscall.SIGCONT) },
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
				fmt.Sprintf("disk of %s full but for %d bytes", m.name, but),
				[]*server{&m.server},
				func() error { return m.disk.fill(but) },
				func() error {
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

// onLinks is a fault of some links: one, all of a member, or all of a broker.
func (c *cluster) onLinks(name string, f link.Fault) *fault {
	b, m := c.brokers[c.rng.IntN(len(c.brokers))], c.members[c.rng.IntN(len(c.members))]
	var hit func(br *broker, mem *member) bool
	var where string
	switch c.rng.IntN(4) {
	case 0:
		hit, where = func(_ *broker, mem *member) bool { return mem == m }, "to "+m.name
	case 1:
		hit, where = func(br *broker, _ *member) bool { return br == b }, "from "+b.name
	default:
		hit, where = func(br *broker, mem *member) bool { return br == b && mem == m }, "from "+b.name+" to "+m.name
	}
	set := func(f link.Fault, cut bool) func() error {
		return func() error {
			for _, br := range c.brokers {
				for _, mem := range c.members {
					if !hit(br, mem) {
						continue
					}
					if cut {
						mem.proxy.Cut(br.name)
					}
					mem.proxy.Set(br.name, f)
				}
			}
			return nil
		}
	}
	// What was held arrives late, or never.
	return &fault{name + " " + where, nil, set(f, false), set(link.Fault{}, c.rng.IntN(2) == 0)}
}

// apart tells whether faults can be had at once: no process is hit by two, and connections by one.
func (c *cluster) apart(fs []*fault) bool {
	seen := map[*server]bool{}
	links := 0
	for _, f := range fs {
		if f.on == nil {
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

// cut resets all connections between brokers and members.
func (c *cluster) cut() {
	for _, b := range c.brokers {
		for _, m := range c.members {
			m.proxy.Cut(b.name)
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
