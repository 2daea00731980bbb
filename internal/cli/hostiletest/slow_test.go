package hostiletest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const (
	// replyStall is how long a caller may take nothing of an answer: docs/http.md, limits.
	replyStall = 10 * time.Second
	// bodyStall is how long a sender may send nothing of a body.
	bodyStall = time.Minute
	// brokerMiB is the most memory that the broker may come to have in all of this, in MiB. Its gates give out 256 MiB to requests and what
	// arrives for them, and 128 and 128 MiB to answers that are being sent; the collector lets that double; and a third is left for what
	// is not charged, and for what the system has not been given back yet.
	brokerMiB = 1536
)

// bystander searches and writes while others misbehave, and counts how it fares.
type bystander struct {
	stop     context.CancelFunc
	wait     sync.WaitGroup
	searches atomic.Int64
	writes   atomic.Int64
	loads    atomic.Int64
	refused  atomic.Int64
	slowest  atomic.Int64 // nanoseconds
}

// stand begins. Refusals for want of room are counted, everything else that is no success is an error.
func (f *fleet) stand(t *testing.T) *bystander {
	ctx, cancel := context.WithCancel(t.Context())
	b := &bystander{stop: cancel}
	again := func(done *atomic.Int64, method, to, ctype, body string) {
		b.wait.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				r, err := f.broker.try(ctx, method, to, ctype, strings.NewReader(body))
				switch {
				case ctx.Err() != nil:
				case err != nil:
					t.Errorf("a bystander: %s %s: %v", method, to, err)
				case r.status == 200:
					done.Add(1)
					took := int64(time.Since(began))
					for {
						if most := b.slowest.Load(); took <= most || b.slowest.CompareAndSwap(most, took) {
							break
						}
					}
				case r.status == 429, r.status == 503 && r.code() == "group_unavailable", r.status == 207:
					b.refused.Add(1) // on a machine that is busy otherwise members do not always answer in time
				default:
					t.Errorf("a bystander: %s %s: %d %.300s", method, to, r.status, r.body)
				}
			}
		})
	}
	again(&b.searches, "GET", "/search?index=docs&q=loom&dfs=true", "", "")
	again(&b.searches, "GET", "/search?index=docs&q=warp&facets=kind", "", "")
	again(&b.writes, "POST", "/index?index=side", asJSON, `{"id":"one","title":"loom"}`)
	again(&b.loads, "POST", "/index/bulk?index=side", ndjson, "{\"id\":\"two\",\"title\":\"warp\"}\n{\"id\":\"three\",\"title\":\"weft\"}\n")
	return b
}

// end tells how it fared, and fails where others were not served.
func (b *bystander) end(t *testing.T) {
	t.Helper()
	b.stop()
	b.wait.Wait()
	t.Logf("meanwhile %d searches, %d writes and %d loads of others, the slowest in %v; %d refused", b.searches.Load(), b.writes.Load(), b.loads.Load(),
		time.Duration(b.slowest.Load()), b.refused.Load())
	if b.searches.Load() == 0 || b.writes.Load() == 0 || b.loads.Load() == 0 || b.refused.Load() > b.searches.Load() {
		t.Error("others were not served")
	}
}

// bounded looks whether the broker has kept to its memory.
func (f *fleet) bounded(t *testing.T) {
	t.Helper()
	now, most := f.broker.memory()
	t.Logf("the broker has %d MiB, at most %d", now, most)
	if most > brokerMiB {
		t.Errorf("the broker came to have %d MiB, which is more than %d", most, brokerMiB)
	}
}

// big is an index whose documents have much to show: all of them are an answer of 40 MiB.
const (
	bigDocs  = 1000
	bigBytes = 40 << 10
)

func (f *fleet) fillBig(t *testing.T) {
	t.Helper()
	f.broker.must(201, "PUT", "/indexes/big", asText, "index big {\n  field id: text<raw> [indexed, stored, fast, primary]\n  field t: text<standard> [indexed, stored]\n  field raw: text<raw> [stored]\n}")
	var b strings.Builder
	for i := range bigDocs {
		fmt.Fprintf(&b, `{"id":"b%04d","t":"loom","raw":"%08d`, i, i)
		// No two documents alike, so that nothing is saved by what is alike.
		for n := uint64(i) + 1; b.Len()%bigBytes < bigBytes-64; {
			n = n*6364136223846793005 + 1442695040888963407
			fmt.Fprintf(&b, "%016x", n)
		}
		b.WriteString("\"}\n")
	}
	f.broker.must(200, "POST", "/index/bulk?index=big", ndjson, b.String())
}

// slowReaders ask for answers as large as there are and take nothing of them. They are cut off when their time is over; until then the broker
// keeps within its memory and serves others.
func slowReaders(t *testing.T, f *fleet) {
	f.fillBig(t)
	one := f.broker.must(200, "GET", "/search?index=big&q=loom&limit=1000", "", "")
	if len(one.body) < bigDocs*bigBytes/2 {
		t.Fatalf("an answer has %d bytes", len(one.body))
	}
	_, before := f.broker.memory()
	// The first come one after the other, each when the one before has begun to be answered, and the others at once.
	first, n, refused := 16, 24, 0
	switch {
	case full:
		first, n = 60, 200
	case testing.Short():
		first, n = 6, 10
	}
	side := f.stand(t)
	began := time.Now()
	conns := make([]raw, n)
	head := func(c raw) {
		t.Helper()
		if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		status := make([]byte, 12)
		if _, err := io.ReadFull(c, status); err != nil {
			t.Errorf("no answer: %v", err)
		} else if string(status) == "HTTP/1.1 429" {
			refused++
		} else if string(status) != "HTTP/1.1 200" {
			t.Errorf("answered with %q", status)
		}
	}
	for i := range conns {
		conns[i] = connect(t, f.broker)
		if err := conns[i].SetReadBuffer(4 << 10); err != nil {
			t.Fatal(err)
		}
		text := request("GET", "/search?index=big&q=loom&limit=1000", "", "")
		if i%3 == 1 {
			text = request("POST", "/search?index=big", asJSON, `{"limit":1000,"sort":[{"key":"id"}],"track_total":"none"}`)
		}
		if _, err := io.WriteString(conns[i], text); err != nil {
			t.Fatal(err)
		}
		if i < first {
			head(conns[i])
		}
	}
	t.Logf("%d of %d that came one after the other are refused, after %v", refused, first, time.Since(began))
	// The same over the shard protocol: documents, and nothing of them is taken.
	var ids []string
	for i := range bigDocs {
		ids = append(ids, fmt.Sprintf(`"b%04d"`, i))
	}
	for i := range n / 4 {
		c := connectTo(t, f.broker.proc.Listening["shard"])
		if err := c.SetReadBuffer(4 << 10); err != nil {
			t.Fatal(err)
		}
		op := []string{"export", "fetch"}[i%2]
		text := fmt.Sprintf(`{"op":%q,"index":"big","ids":[%s]}`, op, strings.Join(ids, ","))
		if op == "fetch" {
			text = text[:len(text)-1] + `,"show":{"source":true}}`
		}
		if _, err := c.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text...)); err != nil {
			t.Fatal(err)
		}
	}
	// They are there, and have their answers or refusals: the rest of what is to be seen is their end.
	for _, c := range conns[first:] {
		head(c)
	}
	t.Logf("%d of %d are refused, the others have an answer of %d MiB, after %v", refused, n, len(one.body)>>20, time.Since(began))
	f.bounded(t)
	if testing.Short() {
		side.end(t)
		for _, c := range conns {
			c.leave()
		}
		return
	}
	answered := time.Now()
	eventually(t, "those that do not read are cut off", func() bool {
		return f.broker.metric(`weft_http_requests_in_flight{route="search"}`) <= 2 && f.broker.metric("weft_shard_calls_in_flight") == 0
	})
	took := time.Since(answered)
	side.end(t)
	if took > replyStall+patience/4 {
		t.Errorf("they were cut off %v after the last had an answer", took)
	}
	whole, cut := 0, 0
	for _, c := range conns {
		// What the system still had to send comes with a window as small as that: it is not read to its end.
		if err := c.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		got, err := io.Copy(io.Discard, c)
		if ne, ok := errors.AsType[net.Error](err); err != nil && !errors.Is(err, syscall.ECONNRESET) && (!ok || !ne.Timeout()) {
			t.Error(err)
		}
		if got >= int64(len(one.body)) {
			whole++
		} else if got > 0 {
			cut++
		}
		c.leave()
	}
	if whole > 0 || cut == 0 {
		t.Errorf("of callers that did not read %d have a whole answer and %d a part", whole, cut)
	}
	_, most := f.broker.memory()
	t.Logf("cut off %v after the last had an answer; memory at most %d MiB, before %d", took, most, before)
	f.bounded(t)
}

// slowSenders send loads a byte a second, and loads of which the second half does not come. Others are served. In the long run all are cut
// off: those of whom nothing came for a minute, and those of whom less came than a KiB a second for longer than that.
func slowSenders(t *testing.T, f *fleet) {
	line := `{"id":"slow","title":"loom"}` + "\n"
	side := f.stand(t)
	var conns []raw
	senders := 6 // of the 8 loads that are taken at once
	if full {
		senders = 8 // until they are cut off, others find no place
	}
	for i := range senders {
		c := connect(t, f.broker)
		head := "POST /index/bulk?index=side HTTP/1.1\r\nHost: x\r\nContent-Type: " + ndjson + "\r\nContent-Length: 1000000\r\n\r\n"
		if i%2 == 0 {
			head += strings.Repeat(line, 100) + line[:10]
		}
		if _, err := io.WriteString(c, head); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	eventually(t, "they have begun", func() bool { return f.broker.metric("weft_admitted_bulks") >= float64(senders) })
	lasting := time.Second
	if full {
		lasting = bodyStall + 15*time.Second
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	end := time.NewTimer(lasting)
	defer end.Stop()
	gone := make([]bool, len(conns))
	for sending, at := true, 0; sending; at++ {
		select {
		case <-tick.C:
			for i, c := range conns {
				if i%2 == 1 && at%10 == 0 && !gone[i] { // a byte a second
					if _, err := c.Write([]byte(line[at/10%len(line):][:1])); err != nil {
						t.Logf("sender %d is cut off after %d bytes: %v", i, at/10, err)
						gone[i] = true
					}
				}
			}
		case <-end.C:
			sending = false
		}
	}
	side.end(t)
	for i, c := range conns {
		if full {
			// What came whole is in, and the line that it broke off at says why.
			if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			b := make([]byte, 64<<10)
			n, err := c.Read(b)
			if err != nil || !strings.HasPrefix(string(b[:n]), "HTTP/1.1 207") || !strings.Contains(string(b[:n]), "body_timeout") {
				t.Errorf("sender %d: %q, %v", i, b[:n], err)
			}
		}
		c.leave()
	}
	f.bounded(t)
}
