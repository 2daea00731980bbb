package hostiletest

import (
	"testing"
	"time"
)

// TestABrokerOutlivesItsClients has one broker for all kinds of harm, one after the other: what one of them leaves behind, the next would meet.
func TestABrokerOutlivesItsClients(t *testing.T) {
	began := time.Now()
	f := start(t)
	t.Logf("started after %v", time.Since(began))
	f.fill(t)
	f.idle(t)
	t.Logf("filled after %v", time.Since(began))
	for _, kind := range []struct {
		name string
		run  func(t *testing.T, f *fleet)
	}{
		{"OddCalls", oddCalls},
		{"Vectors", vectors},
		{"NoTime", noTime},
		{"CallersThatLeave", callersThatLeave},
		{"CallersOfJobsThatLeave", callersOfJobsThatLeave},
		{"SlowReaders", slowReaders},
		{"SlowSenders", slowSenders},
	} {
		if !t.Run(kind.name, func(t *testing.T) {
			kind.run(t, f)
			took := f.idle(t)
			now, most := f.broker.memory()
			t.Logf("idle after %v; the broker has %d MiB, at most %d so far", took, now, most)
		}) {
			return
		}
	}
	if n := f.broker.metric("weft_panics_total"); n != 0 {
		t.Errorf("the broker had %v panics", n)
	}
	if n := f.broker.metric(`weft_http_requests_total`); n == 0 {
		t.Error("nothing was asked")
	}
	for _, line := range failures(t, f.broker) {
		t.Errorf("the broker failed: %s", line)
	}
}
