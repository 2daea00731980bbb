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
	"slices"
	"strings"
	"testing"
	"time"
)

// suspects are the members that a broker does not read from, with why.
func (b *broker) suspects(ctx context.Context) (map[string]string, error) {
	var top struct {
		Groups []struct {
			Members []struct {
				Address string `json:"address"`
				Ready   bool   `json:"ready"`
				Suspect string `json:"suspect"`
			} `json:"members"`
		} `json:"groups"`
	}
	a := b.call(ctx, http.MethodGet, "/_topology", nil, "", nil, "")
	if a.err != nil || a.status != http.StatusOK || json.Unmarshal(a.body, &top) != nil {
		return nil, errors.New(a.String())
	}
	out := map[string]string{}
	for _, g := range top.Groups {
		for _, m := range g.Members {
			if !m.Ready {
				out[m.Address] = "it is not ready"
			}
			if m.Suspect != "" {
				out[m.Address] = m.Suspect
			}
		}
	}
	return out, nil
}

// trusted waits until every broker reads from all members.
func (c *cluster) trusted() {
	c.t.Helper()
	for _, b := range c.coordinators() {
		eventually(c.t, b.name+" trusts all", func(ctx context.Context) string {
			c.healthy()
			s, err := b.suspects(ctx)
			if err != nil {
				return err.Error()
			}
			if len(s) > 0 {
				return fmt.Sprint(s)
			}
			return ""
		})
	}
}

// Every member in turn loses its disk for good, under load, and is filled from the other one of its group, primaries too: nothing that was
// acknowledged is lost, and no answer that calls itself complete lacks what the empty member lacks.
func TestEveryDiskIsTakenAwayForGood(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real processes")
	}
	for _, keeping := range []keeping{mixed, byMembers} {
		t.Run(string(keeping), func(t *testing.T) {
			seed := drawSeed(t)
			c := open(t, rand.New(rand.NewPCG(seed, 6)), shape{groups: 2, replicas: 2, keeping: keeping, moveDocs: 400, repairEvery: time.Second})
			l := c.ready(seed)
			l.begin()
			for _, m := range c.members {
				if err := m.loseDisk(); err != nil {
					t.Fatal(err)
				}
				c.hold(200 * time.Millisecond)
				if c.rng.IntN(2) == 0 { // who has never seen the disk that is gone
					b := c.brokers[2]
					if err := errors.Join(b.kill(), b.start()); err != nil {
						t.Fatal(err)
					}
				}
				if err := m.start(); err != nil {
					t.Fatal(err)
				}
				c.hold(200 * time.Millisecond)
				c.trusted()
			}
			l.check()
			c.doctor()
			l.report()
		})
	}
}

// A shard with one member has lost its disk. No answer calls itself complete from then on, also not those of brokers that were started since and
// have no memory, nor is a document of it said not to be there, until an operator says that what is there counts. Then all brokers go by it. In a tree
// the broker above the shard is told that, and those at the top go by it.
func TestAShardThatHasLostItsDiskIsMissingUntilItIsAccepted(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real processes")
	}
	for name, s := range map[string]shape{
		"store":   {groups: 2, keeping: byStore},
		"mixed":   {groups: 2, keeping: mixed},
		"members": {groups: 2, keeping: byMembers},
		"tree":    {groups: 1, keeping: byStore, tree: true},
	} {
		t.Run(name, func(t *testing.T) {
			seed := drawSeed(t)
			s.replicas, s.repairEvery = 1, time.Second
			c := open(t, rand.New(rand.NewPCG(seed, 7)), s)
			l := c.ready(seed)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			m := c.members[seed%2]
			above, late := c.brokers, c.brokers[len(c.brokers)-1]
			if s.tree {
				above = c.middle[m.group : m.group+1]
			}
			held, err := m.contents(ctx)
			if err != nil {
				t.Fatal(err)
			}
			left := stableDocs - len(held)
			ids := slices.Sorted(maps.Keys(held))
			count := func(b *broker) *found {
				return l.search(ctx, b, url.Values{"q": {"kind:stable"}, "limit": {"0"}, "aggs": {"b:terms(bucket,0)"}})
			}
			for _, b := range c.brokers {
				if f := count(b); f == nil || !f.whole() || f.Total != stableDocs {
					t.Fatalf("%s counts %+v before", b.name, f)
				}
			}
			if err := m.loseDisk(); err != nil {
				t.Fatal(err)
			}
			missing := func(when string) {
				t.Helper()
				for i, b := range c.brokers {
					if f := count(b); f != nil && (f.whole() || f.Total > left) {
						t.Fatalf("%s, %s: %d of %d stable documents, whole: %t", when, b.name, f.Total, stableDocs, f.whole())
					}
					id := ids[(i*17)%len(ids)]
					if a := b.call(ctx, http.MethodGet, "/doc", url.Values{"index": {index}, "id": {id}}, "", nil, ""); a.err == nil && a.status != http.StatusServiceUnavailable {
						t.Fatalf("%s, %s says of a document of the lost shard: %v", when, b.name, a)
					}
					p := url.Values{"index": {index}, "q": {"kind:stable"}, "allow_partial": {"false"}}
					if a := b.call(ctx, http.MethodGet, "/search", p, "", nil, ""); a.err == nil && a.status != http.StatusServiceUnavailable {
						t.Fatalf("%s, %s answers what is to be whole: %v", when, b.name, a)
					}
				}
			}
			missing("while it is away")
			for _, b := range c.brokers[1:] { // one with a folder and one without
				if err := errors.Join(b.kill(), b.start()); err != nil {
					t.Fatal(err)
				}
			}
			if err := m.start(); err != nil {
				t.Fatal(err)
			}
			for range 30 {
				missing("it is back")
			}
			for _, b := range above {
				eventually(t, b.name+" says why", func(ctx context.Context) string {
					s, err := b.suspects(ctx)
					if err != nil || len(s) != 1 || !strings.Contains(s[m.address()], "another data folder") {
						return fmt.Sprint(s, err)
					}
					return ""
				})
			}
			missing("all know")
			for _, b := range c.coordinators() {
				if err := errors.Join(b.kill(), b.start()); err != nil {
					t.Fatal(err)
				}
			}
			missing("all brokers were started again")
			// It takes writes.
			again := ids[0]
			eventually(t, "a write to it", func(ctx context.Context) string {
				a := c.brokers[0].call(ctx, http.MethodPost, "/index", url.Values{"index": {index}}, "application/json", newDoc("stable", again, "").json(), "")
				if a.err != nil || a.status != http.StatusOK {
					return a.String()
				}
				return ""
			})
			missing("it was written to")
			above[0].topology(c, "accept", m.address())
			c.trusted()
			for round := range 2 {
				for _, b := range c.brokers {
					if f := count(b); f == nil || !f.whole() || f.Total != left+1 {
						t.Errorf("round %d: accepted, %s counts %+v, and %d are left", round, b.name, f, left+1)
					}
				}
				if err := errors.Join(late.kill(), late.start()); err != nil {
					t.Fatal(err)
				}
				eventually(t, late.name, func(ctx context.Context) string {
					if a := late.call(ctx, http.MethodGet, "/_ring", nil, "", nil, ""); a.err != nil || a.status != http.StatusOK {
						return a.String()
					}
					return ""
				})
			}
		})
	}
}
