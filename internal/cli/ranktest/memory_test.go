package ranktest

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	brokerpb "github.com/weft-search/weft/api/summa/broker"
	"github.com/weft-search/weft/internal/broker/coordinate"
	"github.com/weft-search/weft/internal/cli/proctest"
)

// transferMiB is the allowance for the replies to one search that a broker has by default, and shareMiB what each of three nodes has of it.
const transferMiB = 64

// weighed is a broker that is a process of its own, before liars.
type weighed struct {
	*server
	pid   int
	liars [3]*liar
}

// weigh starts one before three nodes that have the index h; the nodes say what lies says.
func weigh(t *testing.T, env ...string) *weighed {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the memory of another process is looked up in /proc")
	}
	bin, err := proctest.BuildPlain()
	if err != nil {
		t.Fatal(err)
	}
	w := &weighed{}
	node := startNode(t)
	if _, err := node.index.CreateIndex(t.Context(), &summapb.CreateIndexRequest{IndexName: "h", Schema: hostileSDL}); err != nil {
		t.Fatal(err)
	}
	args := []string{"broker", "--summa", "127.0.0.1:0", "--metrics-addr", "off", "--discovery", "static", "--placement", "h=s0,s1,s2", "--list-timeout-secs", "60"}
	for i := range w.liars {
		w.liars[i] = lying(t, node)
		args = append(args, "--backend", fmt.Sprintf("id=%c,addr=%s,shard=s%d", 'a'+i, w.liars[i].addr, i))
	}
	cmd := exec.Command(bin, args...)
	cmd.Env = append(os.Environ(), env...)
	p, err := proctest.StartCommand(1, cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
		if strings.Contains(p.Stderr.String(), "panic") {
			t.Errorf("the broker said:\n%s", p.Stderr)
		}
	})
	w.server, w.pid = dial(t, p.Listening["summa"]), p.Cmd.Process.Pid
	soon(t, "all nodes are healthy", func() bool {
		r, err := w.admin.GetBackends(t.Context(), &brokerpb.GetBackendsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range r.Backends {
			if n.Health != "healthy" {
				return false
			}
		}
		return len(r.Backends) == len(w.liars)
	})
	return w
}

// tell has all nodes answer searches with a message each.
func (w *weighed) tell(replies [3]*said) {
	for i, l := range w.liars {
		l.tell(func(rpc string, _, _ []byte) *said {
			if rpc != "Search" {
				return nil
			}
			return replies[i]
		})
	}
}

// most is the memory that the process has had at most since the last forget, in MiB: all of it that lay in RAM, code and garbage included.
func (w *weighed) most(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.pid))
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(string(b)) {
		var kib int
		if rest, ok := strings.CutPrefix(l, "VmHWM:"); ok {
			if _, err := fmt.Sscan(rest, &kib); err != nil {
				t.Fatal(err)
			}
			return kib >> 10
		}
	}
	t.Fatal("the system does not tell")
	return 0
}

func (w *weighed) forget(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", w.pid), []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
}

// nominated is a reply of about so many bytes, in which each of so many branches nominates the documents of one segment, with so many bytes of
// fields each.
func nominated(segment, branches, size, fields int) []byte {
	name := fmt.Sprintf("%032x", segment+1)
	var extra []byte
	if fields > 0 {
		extra = wireOfMessage(&summapb.SearchHit{Fields: map[string]*summapb.FieldValueList{"body": {Values: []*summapb.FieldValue{
			{Value: &summapb.FieldValue_Text{Text: strings.Repeat("x", fields)}},
		}}}})
	}
	out := wireOfMessage(&summapb.SearchResponse{RankingMethod: "fusion_candidates_v1"})
	var list, at, one []byte // all branches nominate the same
	for doc := uint64(1); ; doc++ {
		at = protowire.AppendString(protowire.AppendTag(at[:0], 1, protowire.BytesType), name)
		at = protowire.AppendVarint(protowire.AppendTag(at, 2, protowire.VarintType), doc)
		one = protowire.AppendBytes(protowire.AppendTag(one[:0], 1, protowire.BytesType), at)
		if len(out)+branches*(len(list)+len(one)+24)+len(one)+len(extra)+16 > size {
			break
		}
		out = protowire.AppendVarint(protowire.AppendTag(out, 1, protowire.BytesType), uint64(len(one)+len(extra)))
		out = append(append(out, one...), extra...)
		list = protowire.AppendVarint(protowire.AppendTag(list, 2, protowire.BytesType), uint64(len(one)+5))
		list = append(list, one...)
		list = protowire.AppendFixed32(protowire.AppendTag(list, 2, protowire.Fixed32Type), math.Float32bits(1/float32(doc)))
	}
	for i := range branches {
		index := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(i))
		out = protowire.AppendVarint(protowire.AppendTag(out, 7, protowire.BytesType), uint64(len(index)+len(list)))
		out = append(append(out, index...), list...)
	}
	return out
}

func wireOfMessage(m proto.Message) []byte {
	b, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	return b
}

// everyNode is what all three nodes answer.
func everyNode(make func(i int) *said) (out [3]*said) {
	for i := range out {
		out[i] = make(i)
	}
	return out
}

// nominations has each of them nominate for two branches.
func nominations(size, fields int) [3]*said {
	return everyNode(func(i int) *said { return &said{body: nominated(i, 2, size, fields)} })
}

// heavy is a search for a fusion of two branches.
func heavy(limit int) *summapb.SearchRequest {
	every := &summapb.Query{Query: &summapb.Query_All{All: &summapb.AllQuery{}}}
	f := &summapb.FusionQuery{Queries: []*summapb.WeightedQuery{{Query: every}, {Query: every}}}
	return &summapb.SearchRequest{IndexName: "h", Query: &summapb.Query{Query: &summapb.Query_Fusion{Fusion: f}}, Limit: uint32(limit)}
}

// share is what each of three nodes may answer one search.
const share = transferMiB << 20 / 3

// garbageMiB is what is let for garbage, and for memory that the process has and the system has not got back yet.
const garbageMiB = 64

// TestMemoryOfARankedSearchIsBounded has nodes answer one search after another with as much as they may, with what takes the most memory for
// its bytes, and with bombs. A broker whose garbage is collected soon is within the transfer allowance and the constant that are stated, with
// everything that its process has.
func TestMemoryOfARankedSearchIsBounded(t *testing.T) {
	const bound = transferMiB + coordinate.MostHeld>>20 + garbageMiB
	w := weigh(t, "GOGC=10")
	// An ordinal 0 with score 0 takes two bytes.
	passages := func(n int) [3]*said {
		return everyNode(func(i int) *said {
			m := &summapb.SearchResponse{}
			if err := proto.Unmarshal(nominated(i, 2, 400, 0), m); err != nil {
				t.Fatal(err)
			}
			candidate := append(wireOfMessage(m.FusionCandidates[0].Candidates[0]), bytes.Repeat([]byte{3<<3 | 2, 0}, n)...)
			list := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), candidate)
			m.FusionCandidates = m.FusionCandidates[1:]
			return &said{body: append(wireOfMessage(m), protowire.AppendBytes(protowire.AppendTag(nil, 7, protowire.BytesType), list)...)}
		})
	}
	packed := func(replies [3]*said) [3]*said {
		for _, r := range replies {
			r.body, r.encoding = zstdOf(r.body), "zstd"
		}
		return replies
	}
	for _, c := range []struct {
		name    string
		limit   int
		replies func() [3]*said
		code    codes.Code
	}{
		{"small candidates", 5000, func() [3]*said { return nominations(share/8*7, 0) }, codes.OK},
		{"hits of 4 KiB, all on the page", 5000, func() [3]*said { return nominations(share, 4<<10) }, codes.OK},
		{"hits of 1 MiB", 5000, func() [3]*said { return nominations(share, 1<<20) }, codes.OK},
		{"small candidates, compressed", 5000, func() [3]*said { return packed(nominations(share/8*7, 0)) }, codes.OK},
		{"hits of 4 KiB, compressed", 5000, func() [3]*said { return packed(nominations(share, 4<<10)) }, codes.OK},
		{"ten million passages of a document", 10, func() [3]*said { return passages(10_000_000) }, codes.ResourceExhausted},
		{"bombs of gzip", 10, func() [3]*said {
			return everyNode(func(int) *said { return &said{body: bomb("gzip"), encoding: "gzip"} })
		}, codes.ResourceExhausted},
		{"bombs of zstd", 10, func() [3]*said {
			return everyNode(func(int) *said { return &said{body: bomb("zstd"), encoding: "zstd"} })
		}, codes.ResourceExhausted},
		{"a byte too long", 10, func() [3]*said { return everyNode(func(int) *said { return &said{body: make([]byte, share+1)} }) }, codes.ResourceExhausted},
	} {
		w.tell(c.replies())
		w.forget(t)
		r, err := w.search.Search(t.Context(), heavy(c.limit))
		if status.Code(err) != c.code {
			t.Errorf("%s: %v, want %v", c.name, clip(fmt.Sprint(err)), c.code)
		}
		most := w.most(t)
		t.Logf("%s: %d MiB, %d hits, %v", c.name, most, len(r.GetHits()), status.Code(err))
		if most > bound {
			t.Errorf("%s: %d MiB, want at most %d", c.name, most, bound)
		}
	}
}

// TestMemoryOfManyRankedSearchesIsBounded has eight callers search at once for what takes the most. They share what a broker has for requests
// and replies, 1 GiB: some wait, and may be refused.
func TestMemoryOfManyRankedSearchesIsBounded(t *testing.T) {
	w := weigh(t, "GOGC=10")
	w.tell(nominations(share/8*7, 0))
	var searching sync.WaitGroup
	var mu sync.Mutex
	ended := map[codes.Code]int{}
	for range 8 {
		searching.Go(func() {
			_, err := w.search.Search(t.Context(), heavy(10))
			mu.Lock()
			defer mu.Unlock()
			ended[status.Code(err)]++
		})
	}
	searching.Wait()
	most := w.most(t)
	t.Logf("%d MiB, searches ended with %v", most, ended)
	if ended[codes.OK]+ended[codes.ResourceExhausted] != 8 {
		t.Errorf("searches ended with %v", ended)
	}
	if most > 1536 {
		t.Errorf("%d MiB, want at most a half more than 1 GiB", most)
	}
	if _, err := w.search.Search(t.Context(), heavy(10)); err != nil {
		t.Errorf("one alone afterwards: %v", err)
	}
}
