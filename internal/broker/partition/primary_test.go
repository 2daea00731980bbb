package partition_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/broker/partition"
	"github.com/weft-search/weft/internal/corpus"
	"github.com/weft-search/weft/internal/summa"
	"github.com/weft-search/weft/internal/summa/summagolden"
)

func TestPrimaryFields(t *testing.T) {
	for schema, want := range map[string]string{
		"": "",
		"index _ {\n    max_l1_phrase_terms: 64\n    field id: text<raw> [indexed, stored, fast, primary]\n}": "id",
		"field a: text [indexed]\nfield b: text [primary]\nfield c: text [primary]":                           "b",
		"field a: text [ primary ]":                                    "a",
		"field a: text [primary":                                       "",
		"field a: text":                                                "",
		"field primary: text [stored]":                                 "",
		"field a: text [primary_key, stored]":                          "",
		"fields a: text [primary]":                                     "",
		"  \tfield a : text [stored , primary]":                        "a",
		"field a: text<raw>[primary]":                                  "a",
		`field "a:b\"c": text [primary]`:                               `a:b"c`,
		`field a: text [indexed<common_grams: ["primary"]>]`:           "",
		`field a: text [indexed<common_grams: ["x", "]>"]>, primary]`:  "a",
		`field a: text<lex(by: lang, default: "x[primary]")> [stored]`: "",
		"field a: sparse_vector<u32> [indexed<query<tokenizer: \"a\", weighting: one>>, stored<multi>]\n\r": "",
		"field a: text [stored] # [primary]":                        "",
		"field a: text [stored] [primary]":                          "",
		"# field a: text [primary]\r\n field b: text [primary]\r\n": "b",
		"field : text [primary]":                                    "",
		`field "": text [primary]`:                                  "",
		`field "a`:                                                  "",
		`field "a\`:                                                 "",
		"field a":                                                   "",
		"field a: text [stored<]>, primary]":                        "",
	} {
		if got := partition.PrimaryField(schema); got != want {
			t.Errorf("%q: %q, want %q", schema, got, want)
		}
	}
}

// TestPrimaryFieldsOfPrintedSchemas goes through the printer of a weft node.
func TestPrimaryFieldsOfPrintedSchemas(t *testing.T) {
	for src, want := range map[string]string{
		`index a { field "my key": text<raw> [primary, stored] field b: text [indexed<common_grams: ["primary"]>, stored] }`:                   "my key",
		`index a { field b: dense_vector<8> [indexed<flat>, stored] field c: u64 [fast] }`:                                                     "",
		`index a { field b: text [indexed<common_grams: ["a]", "<"], positions>, stored<multi>] field id: text<raw> [fast, stored, primary] }`: "id",
	} {
		s, err := summa.ParseSchema(src)
		if err != nil {
			t.Fatalf("%s: %v", src, err)
		}
		if got := partition.PrimaryField(summa.SDL(s)); got != want {
			t.Errorf("%s\n%s\n%q, want %q", src, summa.SDL(s), got, want)
		}
	}
}

func TestPrimaryFieldsOfRecordedSchemas(t *testing.T) {
	found := map[string]int{}
	dir := corpus.Dir(t, "summa-golden")
	for _, file := range []string{"node", "cluster", "broker-plain"} {
		cases, err := summagolden.Load(dir, file)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cases {
			if c.RPC != "GetIndexInfo" || c.Code != "OK" {
				continue
			}
			m := unmarshal[summapb.GetIndexInfoResponse](t, c.ResponseB64)
			want := ""
			if s, err := summa.ParseSchema(m.Schema); err == nil {
				if k := s.PrimaryField(); k >= 0 {
					want = s.Fields[k].Name
				}
			}
			if got := partition.PrimaryField(m.Schema); got != want {
				t.Errorf("%s: %q, want %q of\n%s", c.Name, got, want, m.Schema)
			}
			found[want]++
		}
	}
	if found["id"] == 0 || found[""] == 0 {
		t.Errorf("found %v", found)
	}
}

func infoReply(schema string) ([]byte, error) {
	return proto.Marshal(&summapb.GetIndexInfoResponse{IndexName: "i", Schema: schema})
}

const withKey = "index _ {\n    field id: text<raw> [primary]\n}"

// TestThePrimaryFieldIsAskedOnce by many at once, without a deadline, of the first partition.
func TestThePrimaryFieldIsAskedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p partition.Primaries
		var calls atomic.Int32
		node := callerFunc(func(ctx context.Context, part int, method string, req []byte) ([]byte, error) {
			calls.Add(1)
			m := &summapb.GetIndexInfoRequest{}
			if _, ok := ctx.Deadline(); ok || part != 0 || method != summapb.SearchService_GetIndexInfo_FullMethodName || proto.Unmarshal(req, m) != nil || m.IndexName != "i" {
				t.Errorf("%s of partition %d: %v, deadline %v", method, part, m, ok)
			}
			if err := (turn{after: time.Second}).wait(ctx); err != nil {
				return nil, err
			}
			return infoReply(withKey)
		})
		if p.Known("i") != "" {
			t.Error("known before")
		}
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if got, err := p.Of(ctx, shards(2), node); got != "id" || err != nil {
					t.Errorf("%q, %v", got, err)
				}
			})
		}
		wg.Wait()
		if calls.Load() != 1 || p.Known("i") != "id" {
			t.Errorf("%d calls, %q known", calls.Load(), p.Known("i"))
		}
		p.Forget("i")
		if p.Known("i") != "" {
			t.Error("known after it was forgotten")
		}
		if _, err := p.Of(t.Context(), shards(2), node); err != nil || calls.Load() != 2 {
			t.Errorf("%d calls, %v", calls.Load(), err)
		}
	})
}

// TestAnAskerWhoLeavesTakesNobodyAlong: its question ends with its deadline, and another asks again.
func TestAnAskerWhoLeavesTakesNobodyAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p partition.Primaries
		var calls atomic.Int32
		node := callerFunc(func(ctx context.Context, _ int, _ string, _ []byte) ([]byte, error) {
			if calls.Add(1) == 1 {
				return nil, turn{after: forever}.wait(ctx)
			}
			return infoReply(withKey)
		})
		var wg sync.WaitGroup
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := p.Of(ctx, shards(1), node); status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("who asked: %v", err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if got, err := p.Of(t.Context(), shards(1), node); got != "id" || err != nil {
				t.Errorf("who waited: %q, %v", got, err)
			}
		})
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			if _, err := p.Of(ctx, shards(1), node); status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("who had less time: %v", err)
			}
		})
		wg.Wait()
		if calls.Load() != 2 {
			t.Errorf("%d calls", calls.Load())
		}
	})
}

// TestAnAnswerFromBeforeADeletionIsNotKept: the index may be made anew with another key.
func TestAnAnswerFromBeforeADeletionIsNotKept(t *testing.T) {
	var p partition.Primaries
	node := callerFunc(func(context.Context, int, string, []byte) ([]byte, error) {
		p.Forget("i")
		return infoReply(withKey)
	})
	if got, err := p.Of(t.Context(), shards(1), node); got != "id" || err != nil || p.Known("i") != "" {
		t.Errorf("%q, %v, known %q", got, err, p.Known("i"))
	}
}

func TestPrimaryFieldsThatAreNotKnown(t *testing.T) {
	for name, c := range map[string]struct {
		reply string
		err   error
		code  codes.Code
		text  string
	}{
		"none":     {"index _ {\n field id: text [stored]\n}", nil, codes.FailedPrecondition, "index 'i' is partitioned but its schema declares no primary key field"},
		"failed":   {"", status.Error(codes.Unavailable, "away"), codes.Unavailable, "index 'i' partition on shard 'a': away"},
		"no state": {"", errors.New("odd"), codes.Unknown, "index 'i' partition on shard 'a': odd"},
	} {
		var p partition.Primaries
		calls := 0
		node := callerFunc(func(context.Context, int, string, []byte) ([]byte, error) {
			if calls++; c.err != nil {
				return nil, c.err
			}
			return infoReply(c.reply)
		})
		for range 2 { // nothing is kept of it
			_, err := partition.UpsertDocuments(t.Context(), shards(2), node, &p, nil)
			if st := status.Convert(err); st.Code() != c.code || st.Message() != c.text {
				t.Errorf("%s: %v", name, err)
			}
		}
		if calls != 2 {
			t.Errorf("%s: %d calls", name, calls)
		}
	}
}

// TestDeletionsDoNotAskForThePrimaryField since they are given keys.
func TestDeletionsDoNotAskForThePrimaryField(t *testing.T) {
	var asked []string
	ix := threeShards(func([]byte) int { return 1 })
	_, err := partition.DeleteDocuments(t.Context(), ix, callerFunc(func(_ context.Context, _ int, method string, _ []byte) ([]byte, error) {
		asked = append(asked, method)
		return proto.Marshal(&summapb.DocumentMutationResponse{AcceptedCount: 1})
	}), marshal(t, &summapb.DeleteDocumentsRequest{PrimaryKeys: []string{""}}))
	if err != nil || !slices.Equal(asked, []string{summapb.IndexService_DeleteDocuments_FullMethodName}) {
		t.Errorf("%v, %v", asked, err)
	}
}
