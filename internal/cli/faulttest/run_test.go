//go:build linux

package faulttest

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
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
	for _, b := range c.brokers {
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

// Every kind of fault, one after the other, under load: nothing that was acknowledged is lost, nothing is there twice, no answer calls
// itself complete that is not.
func TestEveryKindOfFault(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real processes")
	}
	seed := drawSeed(t)
	c := open(t, rand.New(rand.NewPCG(seed, 1)), shape{groups: 2, replicas: 2, fullDisk: true})
	l := c.ready(seed)
	l.begin()
	order := slices.Sorted(maps.Keys(kinds))
	c.rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	for _, kind := range order {
		if f := c.draw(kind); f != nil {
			c.suffer(400*time.Millisecond, f)
			c.hold(100 * time.Millisecond)
		}
	}
	l.end()
	c.mended()
	l.verify()
	c.doctor()
	l.report()
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
			s := shape{groups: 1 + rng.IntN(2), replicas: 2, fullDisk: rng.IntN(2) == 0}
			if s.groups == 1 {
				s.replicas = 2 + rng.IntN(3)
			}
			if rng.IntN(2) == 0 {
				s.repairEvery = time.Duration(1+rng.IntN(10)) * time.Second
			}
			t.Logf("%d groups of %d, repaired every %v", s.groups, s.replicas, s.repairEvery)
			c := open(t, rng, s)
			l := c.ready(seed + uint64(n))
			order := slices.Sorted(maps.Keys(kinds))
			for range 1 + rng.IntN(4) {
				l.begin()
				for range 1 + rng.IntN(12) {
					d := time.Duration(50+rng.IntN(1500)) * time.Millisecond
					if rng.IntN(12) == 0 {
						d = time.Duration(9+rng.IntN(6)) * time.Second
					}
					var fs []*fault
					for range 1 + rng.IntN(2) {
						if f := c.draw(order[rng.IntN(len(order))]); f != nil && c.apart(append(fs, f)) {
							fs = append(fs, f)
						}
					}
					c.suffer(d, fs...)
					if rng.IntN(2) == 0 {
						c.hold(time.Duration(rng.IntN(500)) * time.Millisecond)
					}
				}
				l.end()
				c.mended()
				l.verify()
				if t.Failed() {
					return
				}
			}
			c.doctor()
			l.report()
		})
	}
}
