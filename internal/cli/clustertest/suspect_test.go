package clustertest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weft-search/weft/internal/cluster/coordinator"
)

// behind lists the members that the coordinator says may lack documents.
func behind(t testing.TB, b *front) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for _, g := range b.must(200, "GET", "/_topology", "", nil).object(t)["groups"].([]any) {
		for _, m := range g.(map[string]any)["members"].([]any) {
			m := m.(map[string]any)
			if m["behind"] == true {
				out[m["address"].(string)] = true
			}
		}
	}
	return out
}

// A member that comes back with an empty disk never makes an answer smaller: neither between its return and the next look at the shard map,
// nor until a repair has given it the documents.
func TestAMemberWithAnEmptyDiskIsNotReadFrom(t *testing.T) {
	const n = 300
	f := startFleet(t, 1, 2)
	b, _ := f.broker(t, coordinator.Config{})
	b.must(200, "POST", "/index/bulk", ndjson, packages(n))
	whole := func(when string) {
		t.Helper()
		for range 40 {
			body, shards := answer(t, b, "*")
			if number(t, body, "total") != n || number(t, shards, "failed") != 0 {
				t.Fatalf("%s: %v", when, body)
			}
		}
		b.must(200, "GET", "/doc?id="+anyOf(t, f[0][0].holds()), "", nil)
	}
	whole("at first")
	replica, primary := f[0][1], f[0][0]

	replica.stop()
	replica.empty()
	// It takes writes at once, so that it has the index.
	b.must(200, "POST", "/index", "application/json", []byte(`{"id":"`+anyOf(t, primary.holds())+`","title":"loom"}`))
	whole("with an empty replica")
	eventually(t, "the replica is behind", func() bool { return behind(t, b)[replica.addr] })

	// Without the other there is no answer, which is better than one that looks whole.
	primary.stop()
	if r := b.do("GET", "/search?q=*&limit=0", "", nil); r.status != 503 {
		t.Errorf("with the empty member alone: %d %s", r.status, r.body)
	}
	primary.start()
	eventually(t, "the primary answers", func() bool { return b.do("GET", "/search?q=*&limit=0", "", nil).status == 200 })
	whole("with the primary back")

	b.must(200, "POST", "/_repair", "", nil)
	if left := behind(t, b); len(left) > 0 {
		t.Errorf("behind after a repair: %v", left)
	}
	primary.stop()
	eventually(t, "the replica answers alone", func() bool {
		r := b.do("GET", "/search?q=*&limit=0", "", nil)
		return r.status == 200 && number(t, r.object(t), "total") == n
	})

	primary.empty()
	eventually(t, "the primary is behind", func() bool { return behind(t, b)[primary.addr] })
	if n := primary.docs(); n != 0 {
		t.Fatalf("%d documents", n)
	}
	for range 40 {
		if body, _ := answer(t, b, "*"); number(t, body, "total") != n {
			t.Fatalf("with an empty primary: %v", body)
		}
	}
}

// In the background an empty primary is filled from its group, and never the other way round.
func TestAnEmptyPrimaryIsFilledInTheBackground(t *testing.T) {
	const n = 60 // fewer than a comparison in the background would take for a loss
	f := startFleet(t, 1, 2)
	b, _ := f.brokerThat(t, coordinator.Config{RepairEvery: 300 * time.Millisecond})
	b.must(200, "POST", "/index/bulk", ndjson, packages(n))
	primary, replica := f[0][0], f[0][1]
	primary.stop()
	primary.empty()
	eventually(t, "the primary has the documents", func() bool { return primary.docs() == n })
	eventually(t, "nobody is behind", func() bool { return len(behind(t, b)) == 0 })
	if replica.docs() != n {
		t.Errorf("the replica has %d documents", replica.docs())
	}
}

// A repair beside a primary with an empty disk gives it the documents of its group; before, it took them from the others.
func TestARepairFillsAnEmptyPrimary(t *testing.T) {
	const n = 300
	f := startFleet(t, 1, 2)
	b, _ := f.broker(t, coordinator.Config{})
	b.must(200, "POST", "/index/bulk", ndjson, packages(n))
	primary, replica := f[0][0], f[0][1]
	primary.stop()
	primary.empty()
	r := b.must(200, "POST", "/_repair", "", nil).object(t)
	if number(t, r, "copied") != n || number(t, r, "removed") != 0 || r["error"] != nil {
		t.Errorf("%v", r)
	}
	if primary.docs() != n || replica.docs() != n || len(behind(t, b)) > 0 {
		t.Errorf("%d and %d documents, behind %v", primary.docs(), replica.docs(), behind(t, b))
	}
}

// Where a primary has lost its disk, and the machine of the only other member is gone, the way out is to accept what there is; who comes back after
// all is made equal to that.
func TestTheWayOutWhereTheOnlyOtherMemberIsGone(t *testing.T) {
	const n = 100
	f := startFleet(t, 1, 2)
	b, _ := f.broker(t, coordinator.Config{})
	b.must(200, "POST", "/index/bulk", ndjson, packages(n))
	primary, replica := f[0][0], f[0][1]
	replica.stop()
	primary.stop()
	primary.empty()
	eventually(t, "the primary is behind", func() bool { return behind(t, b)[primary.addr] })
	accept := "/_topology?action=accept&member=" + primary.addr
	if r := b.do("POST", accept, "", nil); r.status != 409 || !strings.Contains(string(r.body), "accept --force") {
		t.Errorf("without force: %d %s", r.status, r.body)
	}
	r := b.must(207, "POST", "/_repair", "", nil).object(t)
	if !strings.Contains(fmt.Sprint(r["error"]), primary.addr+" may have lost its documents") || len(r["failed_addresses"].([]any)) != 2 {
		t.Errorf("%v", r)
	}
	b.must(200, "POST", accept+"&force=true", "", nil)
	b.must(207, "POST", "/index", "application/json", []byte(`{"id":"new","title":"loom"}`))
	body, shards := answer(t, b, "*")
	if number(t, body, "total") != 1 || number(t, shards, "failed") != 0 {
		t.Errorf("%v", body)
	}
	replica.start()
	eventually(t, "the replica is ready", func() bool { return b.do("GET", "/_topology", "", nil).status == 200 && replica.docs() >= n })
	if body, _ := answer(t, b, "*"); number(t, body, "total") != 1 {
		t.Errorf("what was given up is read from: %v", body)
	}
	b.must(200, "POST", "/_repair", "", nil)
	if primary.docs() != 1 || replica.docs() != 1 || len(behind(t, b)) > 0 {
		t.Errorf("%d and %d documents, behind %v", primary.docs(), replica.docs(), behind(t, b))
	}
}

// eventually looks until a condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	end := time.NewTimer(patience)
	defer end.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-end.C:
			t.Fatalf("%s: not in time", what)
		}
	}
}
