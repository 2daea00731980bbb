package partition_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/broker/partition"
)

// TestStreamsAreRegrouped holds the runs of random streams against a model.
func TestStreamsAreRegrouped(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	sizes := []int{0, 10, 1000, 1 << 20, 2 << 20, 4<<20 - 40, 4 << 20, 5 << 20}
	for round := range 12 {
		type run struct {
			index string
			docs  []string
		}
		var want []run
		var msgs [][]byte
		open, bytes := false, 0
		switches := 1 + r.IntN(400)
		index := "a"
		for i := range 1 + r.IntN(1200) {
			if r.IntN(switches) == 0 {
				index = string(rune('a' + r.IntN(3)))
			}
			size := sizes[r.IntN(3)]
			if round%4 == 0 && i < 10 {
				size = sizes[r.IntN(len(sizes))]
			}
			doc := textDocument("id", fmt.Sprint(i), "t", strings.Repeat("x", size))
			msg := marshal(t, &summapb.IndexDocumentRequest{IndexName: index, Fields: doc.Fields})
			msgs = append(msgs, append(msg, field(33, []byte("new"))...))
			if open && want[len(want)-1].index != index {
				open = false
			}
			if !open {
				want, open, bytes = append(want, run{index: index}), true, 0
			}
			last := &want[len(want)-1]
			last.docs = append(last.docs, string(marshal(t, doc)))
			bytes += proto.Size(doc)
			if len(last.docs) == 512 || bytes >= 4<<20 {
				open = false
			}
		}
		var got []run
		indexed := uint32(0)
		var errs []*summapb.DocumentError
		s := partition.Stream{
			Send: func(_ context.Context, index string, batch []byte) ([]byte, error) {
				m := &summapb.BatchIndexDocumentsRequest{}
				if err := proto.Unmarshal(batch, m); err != nil || m.IndexName != index {
					t.Fatalf("%v, index %q", err, m.IndexName)
				}
				g := run{index: index}
				for _, d := range m.Documents {
					g.docs = append(g.docs, string(marshal(t, d)))
				}
				got = append(got, g)
				e := &summapb.DocumentError{Index: uint32(r.IntN(len(m.Documents))), Error: "no"}
				errs = append(errs, e)
				indexed += uint32(len(m.Documents)) - 1
				return proto.Marshal(&summapb.BatchIndexDocumentsResponse{IndexedCount: uint32(len(m.Documents)) - 1, ErrorCount: 1, Errors: []*summapb.DocumentError{e}})
			},
		}
		reply, err := feed(t.Context(), &s, msgs)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.EqualFunc(got, want, func(a, b run) bool { return a.index == b.index && slices.Equal(a.docs, b.docs) }) {
			t.Fatalf("round %d: %d runs, want %d", round, len(got), len(want))
		}
		if m := unmarshal[summapb.IndexDocumentsResponse](t, reply); !proto.Equal(m, &summapb.IndexDocumentsResponse{IndexedCount: indexed, Errors: errs}) {
			t.Fatalf("round %d: %v", round, m)
		}
	}
}

func TestAStreamOfNothingIndexesNothing(t *testing.T) {
	var s partition.Stream
	if got, err := s.Close(t.Context()); len(got) != 0 || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestAFailedRunEndsAStream(t *testing.T) {
	runs := 0
	s := partition.Stream{Send: func(context.Context, string, []byte) ([]byte, error) {
		if runs++; runs == 2 {
			return nil, status.Error(codes.Unavailable, "away")
		}
		return nil, nil
	}}
	var msgs [][]byte
	for i := range 1600 {
		msgs = append(msgs, marshal(t, &summapb.IndexDocumentRequest{IndexName: "i", Fields: textDocument("id", fmt.Sprint(i)).Fields}))
	}
	if _, err := feed(t.Context(), &s, msgs); status.Code(err) != codes.Unavailable || runs != 2 {
		t.Errorf("%v after %d runs", err, runs)
	}
}

func TestAStreamWhoseTimeIsSpentSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		runs := 0
		s := partition.Stream{Send: func(context.Context, string, []byte) ([]byte, error) { runs++; return nil, nil }}
		msg := func(index string) []byte { return marshal(t, &summapb.IndexDocumentRequest{IndexName: index}) }
		if err := errors.Join(s.Add(ctx, msg("a")), s.Add(ctx, msg("b"))); err != nil || runs != 1 {
			t.Errorf("%v, %d runs", err, runs)
		}
		<-ctx.Done()
		_, err := s.Close(ctx)
		if st := status.Convert(err); st.Code() != codes.DeadlineExceeded || st.Message() != "client deadline exhausted mid-stream" || runs != 1 {
			t.Errorf("%v, %d runs", err, runs)
		}
	})
}

// Errors of many runs are bounded as a reply is.
func TestErrorsOfAStreamAreBounded(t *testing.T) {
	reply := field(3, field(2, []byte(strings.Repeat("e", 1<<20))))
	s := partition.Stream{Send: func(context.Context, string, []byte) ([]byte, error) { return reply, nil }}
	runs := 0
	for ; runs < 100; runs++ {
		if err := s.Add(t.Context(), marshal(t, &summapb.IndexDocumentRequest{IndexName: fmt.Sprint(runs)})); err != nil {
			if status.Code(err) != codes.ResourceExhausted {
				t.Error(err)
			}
			break
		}
	}
	if runs != 64 {
		t.Errorf("ends at run %d", runs)
	}
}
