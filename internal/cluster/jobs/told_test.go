package jobs

import (
	"encoding/hex"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/weft-search/weft/internal/cluster/hints"
	"github.com/weft-search/weft/internal/store"
)

func TestListsOfDocumentsComeBack(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	lists := []*waitsFor{{}, {cut: true}, {list: []hints.Kept{{Hash: 0, Last: 1}, {Hash: math.MaxUint64, Last: 1 << 61}}}}
	for range 200 {
		w := &waitsFor{cut: rng.IntN(2) == 0}
		for range rng.IntN(50) {
			last := rng.Uint64N(1 << 52)
			if rng.IntN(3) == 0 {
				last = hints.Unacknowledged
			}
			w.list = append(w.list, hints.Kept{Hash: rng.Uint64() >> (40 * rng.IntN(2)), Last: max(last, hints.Unacknowledged)})
		}
		slices.SortFunc(w.list, func(a, b hints.Kept) int {
			if a.Hash < b.Hash {
				return -1
			}
			return 1
		})
		w.list = slices.CompactFunc(w.list, func(a, b hints.Kept) bool { return a.Hash == b.Hash })
		lists = append(lists, w)
	}
	for _, w := range lists {
		b := w.encode()
		got, err := decodeWaits(b)
		if err != nil || got.cut != w.cut || !slices.Equal(got.list, w.list) {
			t.Fatalf("%+v comes back as %+v, %v", w, got, err)
		}
		for _, k := range w.list {
			if at := got.waiting(k.Hash); at != (hints.Waiting{Wait: hints.Does, Last: k.Last}) {
				t.Errorf("%+v: %+v", k, at)
			}
			if !slices.ContainsFunc(w.list, func(o hints.Kept) bool { return o.Hash == k.Hash-1 }) && k.Hash > 0 && got.waiting(k.Hash-1).Wait != hints.Not {
				t.Errorf("what is not in the list is waited for")
			}
		}
		if n := len(w.list); n > 0 && w.list[n-1].Hash < math.MaxUint64 {
			if got := got.waiting(math.MaxUint64).Wait; (got == hints.May) != w.cut {
				t.Errorf("behind the last one, cut %v: %v", w.cut, got)
			}
		}
		for n := range b {
			if _, err := decodeWaits(b[:n]); !errors.Is(err, errWaitsVersion) {
				t.Fatalf("cut short after %d of %d bytes: %v", n, len(b), err)
			}
		}
		if _, err := decodeWaits(append(slices.Clone(b), 0)); !errors.Is(err, errWaitsVersion) {
			t.Error("with a byte too many it is taken")
		}
	}
	if (*waitsFor)(nil).waiting(7).Wait != hints.May {
		t.Error("without a list it does not wait for any")
	}
}

func FuzzListOfDocuments(f *testing.F) {
	f.Add((&waitsFor{}).encode())
	f.Add((&waitsFor{list: []hints.Kept{{Hash: 5, Last: 1}, {Hash: 1 << 63, Last: 1 << 60}}, cut: true}).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		w, err := decodeWaits(b)
		if err != nil {
			return
		}
		if again, err := decodeWaits(w.encode()); err != nil || again.cut != w.cut || !slices.Equal(again.list, w.list) {
			t.Errorf("%x: %+v comes back as %+v, %v", b, w, again, err)
		}
	})
}

// What a list of version 1 is in bytes.
func TestListOfDocumentsGolden(t *testing.T) {
	w := &waitsFor{list: []hints.Kept{{Hash: 0x0102, Last: 1_700_000_000_000_000}, {Hash: 0x0183, Last: hints.Unacknowledged}, {Hash: 0x0184, Last: 1_700_000_000_000_127}}, cut: true}
	const want = "0101" + "03" + "8080f9c0c1c48203" + "8202" + "01" + "8101" + "00" + "01" + "8001"
	if got := hex.EncodeToString(w.encode()); got != want {
		t.Errorf("it is %s, want %s", got, want)
	}
}

// before is what coordinators of before docs read and write of what one tells.
type before struct {
	ID      string   `json:"id"`
	Beat    uint64   `json:"beat"`
	Members []string `json:"members"`
	All     bool     `json:"all,omitzero"`
	Refuse  []string `json:"refuse,omitempty"`
}

type bookBefore struct {
	Format       int       `json:"format"`
	Rev          uint64    `json:"rev"`
	Coordinators []*before `json:"coordinators"`
}

// A coordinator that does not know docs reads what is told with them, and what it writes back has none: the members may wait for any document.
func TestWhoDoesNotKnowDocsReadsAndLeavesThemOut(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("testdata", "missed_v1_docs.json"))
	if err != nil {
		t.Fatal(err)
	}
	now, err := decodeMissed(raw)
	if err != nil {
		t.Fatal(err)
	}
	var was bookBefore
	if err := json.Unmarshal(raw, &was); err != nil || was.Format != 1 {
		t.Fatalf("it cannot be read: %+v, %v", was, err)
	}
	for i, by := range was.Coordinators {
		if o := now.Coordinators[i]; !reflect.DeepEqual(*by, before{o.ID, o.Beat, o.Members, o.All, o.Refuse}) {
			t.Errorf("it reads %+v of %+v", by, o)
		}
	}
	raw, err = json.Marshal(was, json.Deterministic(true))
	if err != nil {
		t.Fatal(err)
	}
	back, err := decodeMissed(raw)
	if err != nil {
		t.Fatal(err)
	}
	now.Coordinators, back.Coordinators = now.Coordinators[:1], back.Coordinators[:1] // the other one keeps something for all
	var with, without witnesses
	with.heard(time.Now(), now, "")
	without.heard(time.Now(), back, "")
	e := hints.Hash(hints.Entry{Index: "default", ID: "pkg/1"})
	if got := with.waiting("a:1", e); got.Wait != hints.Does || with.unlisted("a:1") {
		t.Errorf("with a list: %+v", got)
	}
	if got := with.waiting("a:1", e+1); got.Wait != hints.Not {
		t.Errorf("what is not in the list: %+v", got)
	}
	for _, addr := range []string{"a:1", "b:1"} {
		if got := without.waiting(addr, e+1); got.Wait != hints.May || !without.unlisted(addr) {
			t.Errorf("%s without a list: %+v", addr, got)
		}
	}
	// Who has heard the list before keeps it: it is of the same beat.
	with.heard(time.Now(), back, "")
	if got := with.waiting("a:1", e+1); got.Wait != hints.Not {
		t.Errorf("heard before: %+v", got)
	}
}

// Coordinators tell which documents members wait for, once nothing is added any more, and take that back as soon as something is. While that goes on
// the object is seldom written.
func TestCoordinatorsTellWhichDocumentsAreMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := pairs(t, 50)
		writes := 0
		counted := &hookedStore{Store: f.store, before: func(key string, _ []byte) {
			if key == missedKey {
				writes++
			}
		}}
		one, two := f.keeper(Options{Store: counted}), f.keeper(Options{})
		defer one.shut(t)
		defer two.shut(t)
		a := addr(0, 0)
		hears := func(id string, want hints.Wait) {
			t.Helper()
			if err := two.heed(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := two.waiting(a, hints.Entry{Index: "default", ID: id}).Wait; got != want {
				t.Errorf("%s: %v, want %v", id, got, want)
			}
		}
		hears("pkg/1", hints.Not)
		f.at(a).setDown(true)
		one.missed(t, a, "pkg/1")
		<-time.After(missedWait)
		hears("pkg/1", hints.May)
		hears("pkg/2", hints.May)
		<-time.After(missedCalm + missedWait)
		hears("pkg/1", hints.Does)
		hears("pkg/2", hints.Not)
		one.missed(t, a, "pkg/2")
		<-time.After(missedWait)
		hears("pkg/2", hints.May)
		<-time.After(2*missedCalm + missedWait)
		hears("pkg/2", hints.Does)
		if mine, theirs := one.waiting(a, hints.Entry{Index: "default", ID: "pkg/2"}), two.waiting(a, hints.Entry{Index: "default", ID: "pkg/2"}); mine != theirs {
			t.Errorf("they are not of one mind: %+v, %+v", mine, theirs)
		}
		// What this one misses from now on it has missed later, whatever its clock says.
		two.missed(t, addr(0, 1), "pkg/2")
		if first, then := two.waiting(a, hints.Entry{Index: "default", ID: "pkg/2"}), two.waiting(addr(0, 1), hints.Entry{Index: "default", ID: "pkg/2"}); then.Last <= first.Last {
			t.Errorf("%+v was heard of, and then %+v", first, then)
		}
		before := writes
		for i := range 600 { // for half an hour
			one.missed(t, a, []string{"pkg/3", "pkg/4"}[i%2])
			<-time.After(3 * time.Second)
		}
		if n := writes - before; n > 200 {
			t.Errorf("the object was written %d times in half an hour", n)
		}
		one.missed(t, a, "pkg/3")
		<-time.After(missedWait)
		hears("pkg/9", hints.May)
		<-time.After(missedUneasy + missedCalm + missedWait)
		hears("pkg/9", hints.Not)
		hears("pkg/4", hints.Does)
		f.at(a).setDown(false)
		<-time.After(time.Minute)
		hears("pkg/4", hints.Not)
	})
}

// More documents than are told are told of from the lowest hash on, and the rest may be any.
func TestMoreDocumentsThanAreToldAreCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := pairs(t, 50)
		one, two := f.keeper(Options{}), f.keeper(Options{})
		defer one.shut(t)
		defer two.shut(t)
		a := addr(0, 0)
		f.at(a).setDown(true)
		var ids []string
		for i := range 2 * maxMissedDocs {
			ids = append(ids, "pkg/"+string(rune('a'+i%26))+time.Duration(i).String())
		}
		one.missed(t, a, ids...)
		<-time.After(missedCalm + missedWait)
		if err := two.heed(t.Context()); err != nil {
			t.Fatal(err)
		}
		n := map[hints.Wait]int{}
		for _, id := range ids {
			n[two.waiting(a, hints.Entry{Index: "default", ID: id}).Wait]++
		}
		if n[hints.Does] != maxMissedDocs || n[hints.Not] > 0 {
			t.Errorf("%v", n)
		}
		_, in, err := store.ReadAll(t.Context(), f.store, missedKey, maxMissedBook)
		if err != nil || in.Size > 100<<10 {
			t.Errorf("%d bytes, %v", in.Size, err)
		}
	})
}
