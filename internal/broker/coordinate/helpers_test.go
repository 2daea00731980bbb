package coordinate_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/broker/coordinate"
)

const mib = 1 << 20

// request reads a SearchRequest.
func request(t testing.TB, text string) *summapb.SearchRequest {
	t.Helper()
	m := &summapb.SearchRequest{}
	if err := prototext.Unmarshal([]byte(text), m); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return m
}

// replyOf reads a SearchResponse.
func replyOf(t testing.TB, text string) *summapb.SearchResponse {
	t.Helper()
	m := &summapb.SearchResponse{}
	if err := prototext.Unmarshal([]byte(text), m); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return m
}

func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// fault tells of a node as a broker does.
func fault(part int, err error) error {
	st := status.Convert(err)
	return status.Errorf(st.Code(), "partition %d: %s", part, st.Message())
}

// asked is what nodes are asked of a search over so many shards.
func asked(t testing.TB, req *summapb.SearchRequest, shards int) (*coordinate.Plan, *summapb.SearchRequest, error) {
	t.Helper()
	p, err := coordinate.Admit(proto.CloneOf(req), shards)
	if err != nil {
		return nil, nil, err
	}
	wire, err := p.Request(nil)
	if err != nil {
		t.Fatal(err)
	}
	m := &summapb.SearchRequest{}
	if err := proto.Unmarshal(wire, m); err != nil {
		t.Fatal(err)
	}
	return p, m, nil
}

// answer makes the answer of replies, one of each shard.
func answer(t testing.TB, req *summapb.SearchRequest, replies ...*summapb.SearchResponse) (*summapb.SearchResponse, error) {
	t.Helper()
	p, _, err := asked(t, req, len(replies))
	if err != nil {
		return nil, err
	}
	return answerOf(t, t.Context(), p, coordinate.Limits{Transfer: 64 * mib}, replies...)
}

func answerOf(t testing.TB, ctx context.Context, p *coordinate.Plan, l coordinate.Limits, replies ...*summapb.SearchResponse) (*summapb.SearchResponse, error) {
	t.Helper()
	var list []coordinate.Reply
	for i, r := range replies {
		list = append(list, coordinate.Reply{Part: i, Shard: fmt.Sprint("s", i), Backend: fmt.Sprint("n", i), Message: marshal(t, r)})
	}
	wire, err := p.Answer(ctx, list, 0, time.Now(), l, fault)
	if err != nil {
		return nil, err
	}
	m := &summapb.SearchResponse{}
	if err := proto.Unmarshal(wire, m); err != nil {
		t.Fatal(err)
	}
	m.TookMs, m.Timings = 0, nil
	return m, nil
}

func wantRefusal(t testing.TB, what string, err error, code codes.Code, text string) {
	t.Helper()
	if st := status.Convert(err); st.Code() != code || st.Message() != text {
		t.Errorf("%s:\n got %s %q\nwant %s %q", what, st.Code(), st.Message(), code, text)
	}
}
