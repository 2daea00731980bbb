package jobs

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/cluster/hints"
	"github.com/weft-search/weft/internal/topology/placement"
	"github.com/weft-search/weft/internal/vfs/memfs"
)

// setRefuse makes a model refuse a document, or take it again.
func (m *model) setRefuse(id string, refuse bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refuse[id] = refuse
}

// pair is a fleet of one group of some members with documents.
func pair(t *testing.T, members, n int) (*fleet, map[string]string) {
	f := newFleet(t)
	f.begin(placement.Ring, 1, members)
	docs, byID := corpus(n)
	f.load("default", f.current().Visible(), []int{members}, docs...)
	return f, byID
}

func (k *keeper) aside(addr string) (ids []string) {
	for _, r := range k.q.Aside(addr) {
		ids = append(ids, r.Index+"/"+r.ID)
	}
	slices.Sort(ids)
	return ids
}

// TestARefusedDocumentStepsAside: what else is kept for the member comes to it, and it is behind, also after a restart and for others, until it
// takes the document.
func TestARefusedDocumentStepsAside(t *testing.T) {
	for _, k := range []int{0, 1} { // the primary, too
		synctest.Test(t, func(t *testing.T) {
			f, byID := pair(t, 2, 1200)
			disk := memfs.New(nil)
			co, other := f.keeperOn(disk, Options{}), f.keeper(Options{})
			defer other.shut(t)
			m, has := f.at(addr(0, k)), f.at(addr(0, 1-k))
			ids := slices.Sorted(maps.Keys(byID))
			for _, id := range ids {
				byID[id] = doc(id, 5)
				has.put("default", byID[id])
			}
			m.setRefuse(ids[0], true)
			m.setRefuse(ids[700], true)
			co.missed(t, m.addr, ids...)
			<-time.After(20 * time.Second)
			check := func(k *keeper) {
				t.Helper()
				if got := k.aside(m.addr); !slices.Equal(got, []string{"default/" + ids[0], "default/" + ids[700]}) {
					t.Errorf("aside: %v", got)
				}
				if p := k.q.Pending(); len(p) != 1 || p[0].Short() {
					t.Errorf("%+v", p)
				}
				if !k.Behind(m.addr) || k.short(m.addr) || k.doubts(m.addr) != refuses || k.Behind(has.addr) {
					t.Errorf("behind %v, short %v, doubts %d", k.Behind(m.addr), k.short(m.addr), k.doubts(m.addr))
				}
				different := 0
				for id, d := range m.docs("default") {
					if byID[id] != d {
						different++
					}
				}
				if different != 2 {
					t.Errorf("%d documents differ", different)
				}
			}
			check(co)
			if got := co.count.refused.Load(); got != 2 {
				t.Errorf("%d are counted", got)
			}
			if err := other.heed(t.Context()); err != nil {
				t.Fatal(err)
			}
			if other.others.keeps(m.addr) || !other.others.refused(m.addr) || other.doubts(m.addr) != refuses {
				t.Errorf("others hear: keeps %v, refused %v", other.others.keeps(m.addr), other.others.refused(m.addr))
			}
			syncs := m.called("Sync")
			<-time.After(refusedEvery / 2)
			if m.called("Sync") != syncs {
				t.Error("it is given them again and again")
			}
			co.kill()
			co.shut(t)
			co = f.keeperOn(disk, Options{})
			defer func() { co.shut(t) }()
			check(co)
			m.setRefuse(ids[0], false)
			<-time.After(2 * refusedEvery)
			if got := co.aside(m.addr); !slices.Equal(got, []string{"default/" + ids[700]}) {
				t.Errorf("aside: %v", got)
			}
			// It is written anew, and taken.
			byID[ids[700]] = doc(ids[700], 6)
			m.put("default", byID[ids[700]])
			has.put("default", byID[ids[700]])
			<-time.After(2 * refusedEvery)
			if p := co.q.Pending(); len(p) != 0 || co.Behind(m.addr) {
				t.Errorf("%+v", p)
			}
			f.same("default", byID)
			if err := other.heed(t.Context()); err != nil || other.others.refused(m.addr) {
				t.Errorf("others hear yet that it refuses something (%v)", err)
			}
		})
	}
}

// TestARefusingPrimaryUndoesNothing: comparisons in the background go on where a member refuses documents, and take none of these from it; who does
// not know which they are makes nothing equal to it.
func TestARefusingPrimaryUndoesNothing(t *testing.T) {
	for _, knows := range []bool{true, false} {
		for _, k := range []int{0, 1} {
			synctest.Test(t, func(t *testing.T) {
				f, byID := pair(t, 2, 300)
				every := time.Minute
				o, no := Options{RepairEvery: every}, Options{}
				if !knows {
					o, no = no, o
				}
				co, other := f.keeper(o), f.keeper(no)
				defer co.shut(t)
				defer other.shut(t)
				m, has := f.at(addr(0, k)), f.at(addr(0, 1-k))
				byID["pkg/7"] = doc("pkg/7", 2)
				has.put("default", byID["pkg/7"])
				m.setRefuse("pkg/7", true)
				co.missed(t, m.addr, "pkg/7")
				<-time.After(10 * time.Second)
				f.at(addr(0, 1)).put("default", doc("ghost", 1))
				f.at(addr(0, 1)).remove("default", "pkg/8")
				<-time.After(20 * every)
				if got := has.docs("default")["pkg/7"]; got != byID["pkg/7"] {
					t.Errorf("knows %v, refused by %s: the acknowledged document was undone: %s", knows, m.addr, got)
				}
				_, ghost := f.at(addr(0, 1)).docs("default")["ghost"]
				_, there := f.at(addr(0, 1)).docs("default")["pkg/8"]
				if mended := !ghost && there; mended != (knows || k == 1) {
					t.Errorf("knows %v, refused by %s: the other differences are mended: %v", knows, m.addr, mended)
				}
			})
		}
	}
}

// TestWhatIsRefusedIsTakenFromNobodyElse: a member that refuses one document gives others what they have missed, but for that one.
func TestWhatIsRefusedIsTakenFromNobodyElse(t *testing.T) {
	for _, k := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			f, byID := pair(t, 2, 100)
			co := f.keeper(Options{})
			defer co.shut(t)
			m, has := f.at(addr(0, k)), f.at(addr(0, 1-k))
			byID["pkg/7"] = doc("pkg/7", 2)
			has.put("default", byID["pkg/7"])
			m.setRefuse("pkg/7", true)
			co.missed(t, m.addr, "pkg/7")
			<-time.After(10 * time.Second)
			// Now the other one misses a write of its own, and both may have missed one of the document that nobody has confirmed.
			byID["pkg/9"] = doc("pkg/9", 3)
			m.put("default", byID["pkg/9"])
			co.missed(t, has.addr, "pkg/9")
			for _, o := range f.all() {
				if _, err := co.q.AddUnacknowledged(o.addr, "default", []string{"pkg/7"}); err != nil {
					t.Fatal(err)
				}
			}
			<-time.After(2 * time.Minute)
			if got := has.docs("default"); !maps.Equal(got, byID) {
				t.Errorf("%s: %s and %s", has.addr, got["pkg/7"], got["pkg/9"])
			}
			if got := co.aside(has.addr); !slices.Equal(got, []string{"default/pkg/7"}) {
				t.Errorf("the other one is to be given it first, and aside is %v", got)
			}
			// A repair says who is right.
			m.setRefuse("pkg/7", false)
			if reply, err := co.Repair(t.Context(), false); err != nil || !reply.OK {
				t.Fatalf("%+v, %v", reply, err)
			}
			<-time.After(time.Minute)
			if p := co.q.Pending(); len(p) != 0 {
				t.Errorf("%+v", p)
			}
		})
	}
}

// TestAMoveGoesOnBesideARefusal: what a member refuses holds up no move while another member of its group has it, and one for which every member of a
// group refuses something waits, and says so.
func TestAMoveGoesOnBesideARefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t)
		sizes := []int{2, 2, 2}
		f.begin(placement.Ring, 2, sizes...)
		docs, byID := corpus(300)
		f.load("default", f.current().Visible(), sizes, docs...)
		co := f.keeper(Options{})
		defer co.shut(t)
		refuse := func(member, has string, id string) {
			byID[id] = doc(id, 2)
			f.at(has).put("default", byID[id])
			f.at(member).setRefuse(id, true)
			co.missed(t, member, id)
		}
		to := placement.Spec{Rule: placement.Ring, Shards: 3, VNodes: 16}
		var leave, stay []string // of group 0
		for _, id := range slices.Sorted(maps.Keys(f.at(addr(0, 0)).docs("default"))) {
			if shardOf(to, id) == 0 {
				stay = append(stay, id)
			} else {
				leave = append(leave, id)
			}
		}
		refuse(addr(0, 0), addr(0, 1), leave[0])
		refuse(addr(0, 0), addr(0, 1), stay[0])
		<-time.After(10 * time.Second)
		reply, err := co.Rebalance(t.Context(), 2, 3)
		if err != nil || !reply.OK {
			t.Fatalf("%+v, %v", reply, err)
		}
		for k := range 2 {
			if got := f.at(addr(2, k)).docs("default")[leave[0]]; got != byID[leave[0]] {
				t.Errorf("the new owner has %s", got)
			}
		}
		<-time.After(2 * refusedEvery)
		if got := co.aside(addr(0, 0)); !slices.Equal(got, []string{"default/" + stay[0]}) {
			t.Errorf("aside: %v", got)
		}
		f.at(addr(0, 0)).setRefuse(leave[0], false)
		// Now the other member refuses another one.
		refuse(addr(0, 1), addr(0, 0), stay[1])
		<-time.After(10 * time.Second)
		before := [2]map[string]string{f.at(addr(0, 0)).docs("default"), f.at(addr(0, 1)).docs("default")}
		reply, err = co.Rebalance(t.Context(), 3, 2)
		if err != nil || reply.OK || !strings.Contains(reply.Error, "every member of group 0") {
			t.Fatalf("%+v, %v", reply, err)
		}
		for k := range 2 {
			if !maps.Equal(before[k], f.at(addr(0, k)).docs("default")) {
				t.Error("a document was changed")
			}
		}
		for _, id := range stay[:2] {
			f.at(addr(0, 0)).setRefuse(id, false)
			f.at(addr(0, 1)).setRefuse(id, false)
		}
		if rec, err := co.ended(t, reply.Job); err != nil || rec.State != Done {
			t.Fatalf("%+v, %v", rec, err)
		}
		<-time.After(2 * refusedEvery)
		f.same("default", byID)
	})
}

// TestASchemaThatIsRefusedKeepsNothingFromOtherIndexes: documents of an index whose schema does not fit the member's step aside, others do not.
func TestASchemaThatIsRefusedKeepsNothingFromOtherIndexes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, byID := pair(t, 2, 50)
		co := f.keeper(Options{})
		defer co.shut(t)
		f.at(addr(0, 0)).put("odd", `{"id":"1","n":"some words"}`)
		f.at(addr(0, 1)).put("odd", `{"id":"2","n":7}`)
		byID["pkg/3"] = doc("pkg/3", 4)
		f.at(addr(0, 0)).put("default", byID["pkg/3"])
		if _, err := co.q.Add(addr(0, 1), "odd", []string{"1"}); err != nil {
			t.Fatal(err)
		}
		co.missed(t, addr(0, 1), "pkg/3")
		<-time.After(20 * time.Second)
		if got := co.aside(addr(0, 1)); !slices.Equal(got, []string{"odd/1"}) {
			t.Errorf("aside: %v", got)
		}
		f.same("default", byID)
	})
}

// TestADocumentThatIsTooLongKeepsNothingFromOthers: a member that does not look into a call with it is given the others without it.
func TestADocumentThatIsTooLongKeepsNothingFromOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, byID := pair(t, 2, 100)
		co := f.keeper(Options{})
		defer co.shut(t)
		f.at(addr(0, 1)).longest = 200
		ids := slices.Sorted(maps.Keys(byID))
		for i, id := range ids {
			byID[id] = doc(id, 5)
			if i == 33 || i == 34 {
				byID[id] = fmt.Sprintf(`{"id":%q,"v":5,"text":%q}`, id, strings.Repeat("x", 300))
			}
			f.at(addr(0, 0)).put("default", byID[id])
		}
		co.missed(t, addr(0, 1), ids...)
		<-time.After(20 * time.Second)
		if got := co.aside(addr(0, 1)); !slices.Equal(got, []string{"default/" + ids[33], "default/" + ids[34]}) {
			t.Errorf("aside: %v", got)
		}
		for i, id := range ids {
			if got := f.at(addr(0, 1)).docs("default")[id]; got != byID[id] && i != 33 && i != 34 {
				t.Errorf("%s: %s", id, got)
			}
		}
	})
}

// TestAnOverflowEndsBesideARefusal: a member that missed more than was kept is compared, and what it refuses is aside after that; where that is more
// than can be aside it is compared again later, and has everything else.
func TestAnOverflowEndsBesideARefusal(t *testing.T) {
	for _, many := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f, byID := pair(t, 2, 2500)
			q, err := hints.Open("hints", memfs.New(nil), hints.Options{MaxBytes: 2000})
			if err != nil {
				t.Fatal(err)
			}
			co := &keeper{f.coordinator(Options{Hints: q}), q}
			defer co.shut(t)
			m, has := f.at(addr(0, 1)), f.at(addr(0, 0))
			m.setDown(true)
			ids := slices.Sorted(maps.Keys(byID))
			n := 3
			if many {
				n = hints.MaxAside + 100
			}
			for i, id := range ids {
				byID[id] = doc(id, 5)
				has.put("default", byID[id])
				m.setRefuse(id, i < n)
				if _, err := q.Add(m.addr, "default", []string{id}); err != nil {
					t.Fatal(err)
				}
			}
			m.setDown(false)
			<-time.After(3 * time.Minute)
			p := q.Pending()
			if len(p) != 1 || p[0].Overflowed != many || !many && p[0].Refused != n {
				t.Errorf("%+v", p)
			}
			missing := 0
			for id, d := range m.docs("default") {
				if byID[id] != d {
					missing++
				}
			}
			if missing != n {
				t.Errorf("%d documents are missing of which %d are refused", missing, n)
			}
			for _, id := range ids {
				m.setRefuse(id, false)
			}
			<-time.After(15 * time.Minute)
			if p := q.Pending(); len(p) != 0 {
				t.Errorf("%+v", p)
			}
			f.same("default", byID)
		})
	}
}

// TestAnOverflowTakesNothingFromWhatOthersKnowToBeRefused: a member that is compared as a whole gets what it lacks also from one that refuses a document
// of which only another coordinator knows which, and keeps its own state of what differs.
func TestAnOverflowTakesNothingFromWhatOthersKnowToBeRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, byID := pair(t, 2, 300)
		one := f.keeper(Options{})
		defer one.shut(t)
		q, err := hints.Open("hints", memfs.New(nil), hints.Options{MaxBytes: 1000})
		if err != nil {
			t.Fatal(err)
		}
		two := &keeper{f.coordinator(Options{Hints: q}), q}
		defer two.shut(t)
		m, ref := f.at(addr(0, 1)), f.at(addr(0, 0))
		byID["pkg/7"] = doc("pkg/7", 2)
		m.put("default", byID["pkg/7"])
		ref.setRefuse("pkg/7", true)
		one.missed(t, ref.addr, "pkg/7")
		<-time.After(time.Minute)
		m.setDown(true)
		for i := range 100 {
			id := fmt.Sprintf("new/%d", i)
			byID[id] = doc(id, 1)
			ref.put("default", byID[id])
			if _, err := q.Add(m.addr, "default", []string{id}); err != nil {
				t.Fatal(err)
			}
		}
		if p := q.Pending(); len(p) != 1 || !p[0].Overflowed {
			t.Fatalf("%+v", p)
		}
		<-time.After(time.Minute)
		m.setDown(false)
		<-time.After(2 * time.Minute)
		if got := m.docs("default"); !maps.Equal(got, byID) {
			t.Errorf("it has %d documents of %d, and %s", len(got), len(byID), got["pkg/7"])
		}
		if got := two.aside(m.addr); !slices.Equal(got, []string{"default/pkg/7"}) {
			t.Errorf("aside: %v", got)
		}
		if p := q.Pending(); len(p) != 1 || p[0].Short() {
			t.Errorf("%+v", p)
		}
		// It is written anew.
		ref.setRefuse("pkg/7", false)
		byID["pkg/7"] = doc("pkg/7", 3)
		m.put("default", byID["pkg/7"])
		ref.put("default", byID["pkg/7"])
		<-time.After(2 * mostUnknown)
		if p := two.q.Pending(); len(p) != 0 || two.Behind(m.addr) {
			t.Errorf("it refused nothing, and is behind: %+v", p)
		}
		<-time.After(2 * refusedEvery)
		if p := slices.Concat(one.q.Pending(), two.q.Pending()); len(p) != 0 {
			t.Errorf("%+v", p)
		}
		f.same("default", byID)
	})
}

// TestWhatNobodyHasForCertainIsTriedAgainSoon gives a member a document of which the two others have different states for a while, where
// these refuse other documents: it refuses nothing, and is not to stay behind.
func TestWhatNobodyHasForCertainIsTriedAgainSoon(t *testing.T) {
	for _, long := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f, byID := pair(t, 3, 300)
			co, other := f.keeper(Options{}), f.keeper(Options{})
			defer co.shut(t)
			defer other.shut(t)
			m, a, b := f.at(addr(0, 0)), f.at(addr(0, 1)), f.at(addr(0, 2))
			for i, by := range []*model{a, b} {
				id := fmt.Sprintf("pkg/%d", 20+i)
				byID[id] = doc(id, 2)
				for _, o := range f.all() {
					if o != by {
						o.put("default", byID[id])
					}
				}
				by.setRefuse(id, true)
				other.missed(t, by.addr, id)
			}
			<-time.After(time.Minute)
			byID["pkg/7"], byID["pkg/8"] = doc("pkg/7", 2), doc("pkg/8", 2)
			a.put("default", byID["pkg/7"])
			a.put("default", byID["pkg/8"])
			b.put("default", byID["pkg/8"])
			co.missed(t, m.addr, "pkg/7", "pkg/8")
			<-time.After(10 * time.Second)
			if got := co.aside(m.addr); len(got) != 0 || !co.short(m.addr) || co.count.refused.Load() != 0 {
				t.Errorf("aside: %v, short %v, %d refused", got, co.short(m.addr), co.count.refused.Load())
			}
			if got := m.docs("default")["pkg/8"]; got != byID["pkg/8"] {
				t.Error("it waits for another document")
			}
			if long {
				// It keeps nothing up for ever, and counts as no refusal then either.
				<-time.After(2 * disputedFor)
				if got := co.aside(m.addr); !slices.Equal(got, []string{"default/pkg/7"}) || co.short(m.addr) || co.count.refused.Load() != 0 {
					t.Errorf("aside: %v, short %v, %d refused", got, co.short(m.addr), co.count.refused.Load())
				}
				m.put("default", byID["pkg/7"])
			}
			b.put("default", byID["pkg/7"])
			<-time.After(2 * mostUnknown)
			if p := co.q.Pending(); len(p) != 0 || co.Behind(m.addr) {
				t.Errorf("%+v", p)
			}
			if got := m.docs("default")["pkg/7"]; got != byID["pkg/7"] {
				t.Errorf("it has %s", got)
			}
		})
	}
}

// TestRefusalsLoseNothing draws writes that members miss, or refuse, while comparisons, replays and restarts go on: the last state that was
// acknowledged of each document is at some member at any time, and at all of them in the end.
func TestRefusalsLoseNothing(t *testing.T) {
	rounds := 24
	if raced {
		rounds = 4
	}
	for seed := range rounds {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(seed), 31))
			size := 2 + rng.IntN(2)
			f, byID := pair(t, size, 30)
			f.every = 5 * time.Second // the map stays as it is, for hours
			disk := memfs.New(nil)
			one := f.keeperOn(disk, Options{RepairEvery: time.Minute})
			two := f.keeper(Options{RepairEvery: 90 * time.Second})
			defer func() { one.shut(t) }()
			defer two.shut(t)
			ids := slices.Sorted(maps.Keys(byID))
			holds := func(when string) {
				for id, d := range byID {
					if !slices.ContainsFunc(f.all(), func(m *model) bool { return m.docs("default")[id] == d }) {
						t.Fatalf("seed %d, %s: nobody has %s any more", seed, when, d)
					}
				}
			}
			version := 10
			settled := func() bool {
				return !slices.ContainsFunc(slices.Concat(one.q.Pending(), two.q.Pending()), func(p hints.MemberPending) bool { return p.Short() })
			}
			write := func(id string, down string) {
				version++
				d := doc(id, version)
				var missed []string
				short := map[string]bool{}
				for _, p := range slices.Concat(one.q.Pending(), two.q.Pending()) {
					if p.Short() {
						short[p.Member] = true
					}
				}
				for _, m := range f.all() {
					m.mu.Lock()
					no := m.refuse[id]
					m.mu.Unlock()
					if m.addr == down || no {
						missed = append(missed, m.addr)
						short[m.addr] = true
					}
				}
				if len(missed) > 0 && len(short) == size {
					return // where all are to be given something the first is right, whatever was acknowledged
				}
				for _, m := range f.all() {
					if !slices.Contains(missed, m.addr) {
						m.put("default", d)
					}
				}
				byID[id] = d
				k := []*keeper{one, two}[rng.IntN(2)]
				for _, addr := range missed {
					k.missed(t, addr, id)
				}
			}
			for step := range 60 {
				// Members miss writes one after the other: of two that lack some at once the first is right, whatever was acknowledged.
				down := ""
				if rng.IntN(3) == 0 && settled() {
					down = addr(0, rng.IntN(size))
					f.at(down).setDown(true)
				}
				for range rng.IntN(6) {
					id := ids[rng.IntN(len(ids))]
					if rng.IntN(3) == 0 {
						f.at(addr(0, rng.IntN(size))).setRefuse(id, rng.IntN(2) == 0)
					}
					write(id, down)
					<-time.After(time.Duration(rng.IntN(3000)) * time.Millisecond)
				}
				if down != "" {
					f.at(down).setDown(false)
				}
				<-time.After(time.Duration(rng.IntN(90)) * time.Second)
				if down != "" {
					<-time.After(2 * time.Minute)
				}
				holds(fmt.Sprint("step ", step))
				if rng.IntN(8) == 0 {
					one.kill()
					one.shut(t)
					one = f.keeperOn(disk, Options{RepairEvery: time.Minute})
				}
			}
			for _, m := range f.all() {
				for _, id := range ids {
					m.setRefuse(id, false)
				}
			}
			<-time.After(15 * time.Minute)
			holds("at the end")
			for _, m := range f.all() { // each of these refused a state of its own
				for _, id := range ids {
					e := hints.Entry{Index: "default", ID: id}
					if one.refuses(m.addr, e) || two.refuses(m.addr, e) {
						write(id, "")
					}
				}
			}
			<-time.After(15 * time.Minute)
			if p := slices.Concat(one.q.Pending(), two.q.Pending()); len(p) != 0 {
				t.Errorf("seed %d: %+v", seed, p)
			}
			f.same("default", byID)
			if t.Failed() {
				t.Logf("seed %d", seed)
			}
		})
	}
}

func TestWhoRefusesASchema(t *testing.T) {
	conflict := api.NewProblem(api.SchemaConflict, "no")
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{&memberError{"a", "PutIndex", conflict}, true},
		{fmt.Errorf("x: %w", &memberError{"a", "PutIndex", conflict}), true},
		{&memberError{"b", "PutIndex", conflict}, false},
		{&memberError{"a", "Info", conflict}, false},
		{&memberError{"a", "PutIndex", api.NewProblem(api.StaleMap, "no")}, false},
		{&memberError{"a", "PutIndex", api.NewProblem(api.DiskFull, "no")}, false},
		{&memberError{"a", "PutIndex", errors.New("no")}, false},
	} {
		if got := schemaRefused(c.err, "a"); got != c.want {
			t.Errorf("%v: %v", c.err, got)
		}
	}
}
