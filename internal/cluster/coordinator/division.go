package coordinator

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/weft-search/weft/internal/topology/placement"
	"github.com/weft-search/weft/internal/topology/shardmap"
)

// division is what is known of how the groups here share what the coordinator above gives. The id of a document decides at both levels: two
// rules that are alike send all that is alike for the one above to the same group here.
type division struct {
	mu    sync.Mutex
	asked divided
	said  string // of asked; empty: nothing is wrong
}

// divided are two placements, one over the other.
type divided struct {
	above, own placement.Spec
	ordinal    int // in the map above; -1: it is not known
}

// How a division is judged.
const (
	// leastShare is the part of what a group has of all hashes that it is to have of those from above. Rules that have nothing to do with each
	// other give it all of that.
	leastShare = 2.0 / 3
	// judgedFrom is how many hashes of a sample a group has to expect to be judged: the lack of a third is more than five deviations then.
	judgedFrom = 256
	// leastSample and mostLooks bound a sample, in hashes and in the groups that are looked at for them: 0.1 s.
	leastSample = 1 << 14
	mostLooks   = 1 << 25
)

// starved are the groups of own that get less than leastShare of their part of what the placement above gives to one shard: the one of that
// ordinal or, below 0, the one for which there are most of them. Groups for which the sample is too small are not judged.
func starved(above, own *placement.Placement, ordinal int) (groups []int, of int) {
	over, under := above.Spec(), own.Spec()
	looks := 2
	for _, s := range []placement.Spec{over, under} {
		if s.Rule == placement.Rendezvous {
			looks += s.Shards
		}
	}
	counts := make([]uint32, over.Shards*under.Shards)
	r := rand.New(rand.NewPCG(1, 1)) // the same for everybody
	for range min(max(leastSample, 2*judgedFrom*len(counts)), mostLooks/looks) {
		h := r.Uint32()
		counts[above.ShardOfHash(h)*under.Shards+own.ShardOfHash(h)]++
	}
	shares := own.Describe().Shards
	of = max(ordinal, 0)
	for o := range over.Shards {
		if ordinal >= 0 && o != ordinal {
			continue
		}
		row := counts[o*under.Shards:][:under.Shards]
		sum := 0.0
		for _, n := range row {
			sum += float64(n)
		}
		var lack []int
		for g, n := range row {
			if want := sum * shares[g].Share; want >= judgedFrom && float64(n) < leastShare*want {
				lack = append(lack, g)
			}
		}
		if len(lack) > len(groups) {
			groups, of = lack, o
		}
	}
	return groups, of
}

// divides says what is wrong with how the groups here share what the coordinator above gives, and logs it when it is seen first; empty where
// nothing is wrong, or nobody stands above. Of more than one level above only the next is known here.
func (c *Coordinator) divides() string {
	s := c.members.State()
	if s == nil {
		return ""
	}
	m, err := shardmap.Decode(c.above.reply().Map)
	if err != nil {
		return "" // there is none, or a newer version wrote it
	}
	ask := divided{above: m.Visible(), own: s.Visible().Spec(), ordinal: c.ordinal(m)}
	c.division.mu.Lock()
	defer c.division.mu.Unlock()
	if ask == c.division.asked {
		return c.division.said
	}
	above, err := placement.New(ask.above)
	if err != nil {
		return ""
	}
	said := ""
	if groups, of := starved(above, s.Visible(), ask.ordinal); len(groups) > 0 {
		said = unevenly(ask, groups, of)
		c.log.Warn("the groups here share unevenly what the coordinator above gives", "why", said)
	}
	c.division.asked, c.division.said = ask, said
	return said
}

// ordinal is the group of the map above that this coordinator is, where one of them has an address that it listens at; else -1.
func (c *Coordinator) ordinal(m *shardmap.Map) int {
	own := map[string]bool{}
	for _, l := range c.front.Listeners() {
		own[l.Addr] = true
	}
	return slices.IndexFunc(m.Groups, func(g shardmap.Group) bool {
		return slices.ContainsFunc(g.Members, func(addr string) bool { return own[strings.TrimPrefix(addr, "grpc://")] })
	})
}

// shownStarved is how many groups are named.
const shownStarved = 10

func unevenly(d divided, groups []int, of int) string {
	names := strings.Trim(fmt.Sprint(groups[:min(len(groups), shownStarved)]), "[]")
	if len(groups) > shownStarved {
		names += " …"
	}
	whose := fmt.Sprintf("group %d there, which this is,", of)
	if d.ordinal < 0 {
		whose = fmt.Sprintf("group %d there", of)
	}
	return fmt.Sprintf("the coordinator above places by %s over %d groups, and this one by %s over %d: of what is for %s, %d of the %d groups here get less than two thirds of their share, or nothing (%s). "+
		"Nothing is lost or found wrongly. For an even division set this level up anew with another --shard-mode than the level above has, and load the documents again",
		d.above.Rule, d.above.Shards, d.own.Rule, d.own.Shards, whose, len(groups), d.own.Shards, names)
}
