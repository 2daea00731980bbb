package coordinate_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weft-search/weft/internal/broker/coordinate"
)

// FuzzAnswer gives replies that anybody may have made to each way of ranking: it does not fail, what it gives fits, and its hits have addresses.
func FuzzAnswer(f *testing.F) {
	requests := []string{fused, listed, plain, ranked, plain + "score_export {} include_rrf_scores: true", "query {all {}} tracing: true"}
	for way := range requests {
		for _, req := range []string{fused, listed, plain, ranked} {
			replies := goodReplies(f, req)
			f.Add(uint8(way), marshal(f, replies[0]), marshal(f, replies[1]))
		}
	}
	f.Fuzz(func(t *testing.T, way uint8, a, b []byte) {
		p, _, err := asked(t, request(t, requests[int(way)%len(requests)]), 2)
		if err != nil {
			t.Fatal(err)
		}
		const most = 1 << 16
		out, err := p.Answer(t.Context(), []coordinate.Reply{{Message: a}, {Part: 1, Message: b}}, 0, time.Now(), coordinate.Limits{Transfer: most}, fault)
		if err != nil {
			return
		}
		if len(out) > most {
			t.Fatalf("%d bytes", len(out))
		}
		for len(out) > 0 {
			num, typ, n := protowire.ConsumeField(out)
			if n < 0 {
				t.Fatalf("the answer is no message: %x", out)
			}
			if num == 1 && typ == protowire.BytesType {
				_, _, tag := protowire.ConsumeTag(out)
				hit, _ := protowire.ConsumeBytes(out[tag:])
				address := false
				for len(hit) > 0 {
					num, _, n := protowire.ConsumeField(hit)
					if n < 0 {
						t.Fatalf("a hit is no message: %x", hit)
					}
					address, hit = address || num == 1, hit[n:]
				}
				if !address {
					t.Fatal("a hit has no address")
				}
			}
			out = out[n:]
		}
	})
}
