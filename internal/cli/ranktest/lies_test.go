package ranktest

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
)

// searched is the lie that changes what a node answers to searches.
func searched(change func(m *summapb.SearchResponse)) lie { return edited("Search", change) }

// counted is the lie that changes a node's statistics.
func counted(change func(m *summapb.GetTextStatsResponse)) lie { return edited("GetTextStats", change) }

// more appends bytes to the replies to one call.
func more(rpc string, with []byte) lie {
	return bytesOf(rpc, func(truth []byte) *said { return &said{body: append(truth, with...)} })
}

// elsewhere is an address that two nodes claim.
func elsewhere(m *summapb.SearchResponse) {
	m.Hits = []*summapb.SearchHit{{Address: &summapb.DocAddress{SegmentId: strings.Repeat("ab", 16), DocId: 7}, Score: 1}}
}

// unknown is a field that nobody knows, of a number below the extensions.
var unknown = protowire.AppendString(protowire.AppendTag(nil, 900, protowire.BytesType), "what is this")

// answered looks at the answer to a search.
func answered(look func(t testing.TB, m *summapb.SearchResponse)) func(t testing.TB, m proto.Message) {
	return func(t testing.TB, m proto.Message) { look(t, m.(*summapb.SearchResponse)) }
}

const (
	incomplete = "backend did not return the complete requested candidate contract; complete the Summa rollout"
	notTheSame = "shards returned incompatible ranking methods; complete the Summa rollout"
	twice      = "duplicate candidate address across shards"
)

// TestNodesThatLieAboutHits has nodes answer searches that are merged by score with what cannot be true, or with what only a program can say
// that does not know what it was asked for.
func TestNodesThatLieAboutHits(t *testing.T) {
	b := besiege(t, nil)
	before := stand()
	many := func(m *summapb.SearchResponse) {
		for i := range 10_001 {
			m.Hits = append(m.Hits, &summapb.SearchHit{Address: &summapb.DocAddress{SegmentId: strings.Repeat("cd", 16), DocId: uint32(i)}})
		}
	}
	sieges := []siege{
		{name: "an address of another shard", call: "all", lies: [3]lie{searched(elsewhere), searched(elsewhere), nil}, code: codes.FailedPrecondition, text: twice},
		{
			name: "another method", call: "all", lies: onlyS1(searched(func(m *summapb.SearchResponse) { m.RankingMethod = "mine" })),
			code: codes.FailedPrecondition, text: notTheSame,
		},
		{name: "a method that is no text", call: "all", lies: onlyS1(more("Search", []byte{6<<3 | 2, 2, 0xff, 0xfe})), code: codes.FailedPrecondition, text: notTheSame},
		{
			name: "more hits than anybody asks for", call: "all", lies: onlyS1(searched(many)), code: codes.Internal,
			text: atS1("all") + fmt.Sprintf("the reply has %d hits, more than the 10000 that a partition is asked for at most", 10_001+len(b.hits("all", 1))),
		},
		{name: "an unknown field", call: "all", lies: onlyS1(more("Search", unknown)), same: true},
		{name: "a field of another type", call: "all", lies: onlyS1(more("Search", protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 5))), same: true},
		{
			name: "totals that overflow", call: "all", lies: everybody(searched(func(m *summapb.SearchResponse) { m.TotalHits, m.MissingPartitions = math.MaxUint64, math.MaxUint32 })),
			then: answered(func(t testing.TB, m *summapb.SearchResponse) {
				if m.TotalHits != math.MaxUint64 || m.MissingPartitions != math.MaxUint32 {
					t.Errorf("a total of %d, %d partitions missing", m.TotalHits, m.MissingPartitions)
				}
			}),
		},
		{
			name: "cut off", call: "all", lies: onlyS1(searched(func(m *summapb.SearchResponse) { m.Truncated = true })),
			then: answered(func(t testing.TB, m *summapb.SearchResponse) {
				if !m.Truncated {
					t.Error("is not truncated")
				}
			}),
		},
		{
			// Nothing is said of them where hits are merged by score: they are equal to all others, as they are to the reference.
			name: "scores that are no numbers", call: "all", lies: onlyS1(searched(func(m *summapb.SearchResponse) {
				for i, h := range m.Hits {
					h.Score = []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))}[i%3]
				}
			})),
			then: answered(func(t testing.TB, m *summapb.SearchResponse) {
				if len(m.Hits) != 10 {
					t.Errorf("%d hits", len(m.Hits))
				}
			}),
		},
		{
			name: "without addresses", call: "all", lies: onlyS1(searched(func(m *summapb.SearchResponse) {
				for _, h := range m.Hits {
					h.Address = nil
				}
			})),
			then: answered(func(t testing.TB, m *summapb.SearchResponse) {
				if len(m.Hits) != 10 {
					t.Errorf("%d hits", len(m.Hits))
				}
			}),
		},
	}
	for _, call := range []string{"export", "candidates"} {
		for name, change := range map[string]func(m *summapb.SearchResponse){
			"of a program that knows no exports": func(m *summapb.SearchResponse) { m.RankingMethod = "" },
			"of an older export":                 func(m *summapb.SearchResponse) { m.RankingMethod = "feature_export_v1" },
		} {
			const text = "a shard does not support the requested candidate scoring contract; complete the Summa rollout"
			sieges = append(sieges,
				siege{name: name, call: call, lies: onlyS1(searched(change)), code: codes.FailedPrecondition, text: text},
				siege{name: name + ", all", call: call, lies: everybody(searched(change)), code: codes.FailedPrecondition, text: text},
				siege{name: name, call: call + " of one", lies: onlyS1(searched(change)), code: codes.FailedPrecondition, text: "backend lacks requested candidate scoring contract"},
			)
		}
		sieges = append(sieges, siege{
			name: "more than is asked for", call: call, lies: onlyS1(searched(func(m *summapb.SearchResponse) { many(m) })), code: codes.Internal,
			text: atS1("all") + fmt.Sprintf("the reply has %d hits, more than the 10000 that a partition is asked for at most", 10_001+len(b.hits(call, 1))),
		})
	}
	for _, c := range []struct {
		name, call, text string
		change           func(m *summapb.SearchResponse)
	}{
		{"no features", "export", "shard omitted L1 candidate features", func(m *summapb.SearchResponse) {
			for _, h := range m.Hits {
				h.CandidateScores = nil
			}
		}},
		{"a hit without features", "export", "shard omitted L1 candidate features", func(m *summapb.SearchResponse) { m.Hits[0].CandidateScores = nil }},
		{"no lists", "candidates", "shard omitted a nomination branch", func(m *summapb.SearchResponse) { m.FusionCandidates = nil }},
		{"a list less", "candidates", "shard omitted a nomination branch", func(m *summapb.SearchResponse) { m.FusionCandidates = m.FusionCandidates[:1] }},
		{"a branch twice", "candidates", "invalid exported branch identity", func(m *summapb.SearchResponse) { m.FusionCandidates[1].QueryIndex = 0 }},
		{"a branch that is none", "candidates", "invalid exported branch identity", func(m *summapb.SearchResponse) { m.FusionCandidates[1].QueryIndex = 2 }},
	} {
		sieges = append(sieges, siege{name: c.name, call: c.call, lies: onlyS1(searched(c.change)), code: codes.FailedPrecondition, text: c.text})
	}
	b.endure(t, sieges)
	before.settle(t, b)
}

// hits are those of one node in an answer.
func (b *besieged) hits(call string, node int) []*summapb.SearchHit {
	b.t.Helper()
	var m summapb.SearchResponse
	b.liars[node].tell(func(rpc string, _, truth []byte) *said {
		if rpc == "Search" {
			if err := proto.Unmarshal(truth, &m); err != nil {
				panic(err)
			}
		}
		return nil
	})
	defer b.liars[node].tell(nil)
	if _, err := b.ask(call); err != nil {
		b.t.Fatal(err)
	}
	return m.Hits
}

// TestNodesThatLieAboutStatistics: sums stay at the largest number, what is absurd harms nobody, and what is absent is told.
func TestNodesThatLieAboutStatistics(t *testing.T) {
	b := besiege(t, nil)
	before := stand()
	each := func(change func(f *summapb.TextFieldStats)) lie {
		return counted(func(m *summapb.GetTextStatsResponse) {
			for _, f := range m.Stats.Fields {
				change(f)
			}
		})
	}
	huge := counted(func(m *summapb.GetTextStatsResponse) {
		m.Stats.TotalDocs = math.MaxUint64
		for _, f := range m.Stats.Fields {
			f.CorpusSize, f.TotalTokens, f.DocsWithField = math.MaxUint64, math.MaxUint64, math.MaxUint64
			for _, w := range f.Terms {
				w.DocFreq = math.MaxUint64
			}
			for i := range f.ChunkCounts {
				f.ChunkCounts[i] = math.MaxUint64
			}
		}
	})
	bare := func(f *summapb.TextFieldStats) { // as a program that does not count exactly
		f.TotalTokens, f.DocsWithField, f.ChunkLengths, f.ChunkCounts = 0, 0, nil, nil
	}
	finite := func(t testing.TB, m proto.Message) {
		for _, h := range m.(*summapb.SearchResponse).Hits {
			if h.Score-h.Score != 0 {
				t.Errorf("a score of %v", h.Score)
			}
		}
	}
	var sieges []siege
	for _, call := range []string{"text", "passages"} {
		sieges = append(sieges,
			siege{
				name: "none", call: call, lies: onlyS1(counted(func(m *summapb.GetTextStatsResponse) { m.Stats = nil })), code: codes.FailedPrecondition,
				text: "a shard omitted requested BM25 statistics",
			},
			siege{name: "an empty message", call: call, lies: onlyS1(bytesOf("GetTextStats", func([]byte) *said { return &said{} })), code: codes.FailedPrecondition, text: "a shard omitted requested BM25 statistics"},
			siege{name: "an unknown field", call: call, lies: onlyS1(more("GetTextStats", unknown)), same: true},
			siege{name: "huge", call: call, lies: onlyS1(huge), then: finite},
			siege{name: "huge everywhere", call: call, lies: everybody(huge), then: finite},
			siege{name: "of no documents", call: call, lies: everybody(each(func(f *summapb.TextFieldStats) { f.CorpusSize, f.DocsWithField, f.TotalTokens = 0, 0, 0 })), then: finite},
			siege{name: "lengths without counts", call: call, lies: onlyS1(each(func(f *summapb.TextFieldStats) { f.ChunkLengths, f.ChunkCounts = []uint32{1, 2, math.MaxUint32}, nil })), then: finite},
			siege{name: "lengths that go down", call: call, lies: onlyS1(each(func(f *summapb.TextFieldStats) {
				f.ChunkLengths, f.ChunkCounts = []uint32{math.MaxUint32, 0, 7, 7}, []uint64{1, 2, 3, 4}
			})), then: finite},
			siege{name: "a field that is no text", call: call, lies: onlyS1(more("GetTextStats", []byte{1<<3 | 2, 6, 2<<3 | 2, 4, 1<<3 | 2, 2, 0xff, 0xfe})), code: codes.Internal, text: atS1(call) + undecodable},
			siege{
				name: "millions of words", call: call, lies: onlyS1(counted(func(m *summapb.GetTextStatsResponse) {
					f := &summapb.TextFieldStats{Field: "body", Terms: slices.Repeat([]*summapb.TermDocFreq{{Term: []byte("x"), DocFreq: 1}}, 1_000_000)}
					m.Stats.Fields = append(m.Stats.Fields, f)
				})), code: codes.ResourceExhausted, text: atS1(call) + "the message takes more than 67108864 bytes in memory",
			},
		)
		for name, avg := range map[string]float32{"no number": float32(math.NaN()), "negative": -5, "endless": float32(math.Inf(1)), "tiny": 1e-45, "largest": math.MaxFloat32} {
			sieges = append(sieges, siege{name: "an average that is " + name, call: call, lies: onlyS1(each(func(f *summapb.TextFieldStats) { f.AvgLen = avg })), same: true}) // it is not needed
			bad := each(func(f *summapb.TextFieldStats) { bare(f); f.AvgLen = avg })
			sieges = append(sieges, siege{name: "an average that is " + name + ", alone", call: call, lies: onlyS1(bad), then: finite})
			sieges = append(sieges, siege{name: "averages that are " + name + ", alone", call: call, lies: everybody(bad), then: finite})
		}
	}
	sieges = append(sieges, siege{
		name: "huge everywhere", call: "statistics", lies: everybody(huge), then: func(t testing.TB, m proto.Message) {
			st := m.(*summapb.GetTextStatsResponse).Stats
			for _, f := range st.Fields {
				if st.TotalDocs != math.MaxUint64 || f.CorpusSize != math.MaxUint64 || f.Terms[0].DocFreq != math.MaxUint64 || f.TotalTokens != math.MaxUint64 {
					t.Errorf("sums that wrapped around: %v", st)
				}
			}
		},
	}, siege{
		name: "missing partitions that overflow", call: "statistics", lies: everybody(counted(func(m *summapb.GetTextStatsResponse) { m.MissingPartitions = math.MaxUint32 })),
		then: func(t testing.TB, m proto.Message) {
			if n := m.(*summapb.GetTextStatsResponse).MissingPartitions; n != math.MaxUint32 {
				t.Errorf("%d are missing", n)
			}
		},
	})
	b.endure(t, sieges)
	before.settle(t, b)
}

// TestNodesThatLieAboutWrites: a reply has to account for each input, once, and within bounds.
func TestNodesThatLieAboutWrites(t *testing.T) {
	b := besiege(t, nil)
	before := stand()
	const (
		short  = "backend mutation response does not account for every input"
		beyond = "backend mutation error index is out of bounds"
		again  = "backend mutation response repeats an error index"
	)
	at := func(i uint32) *summapb.DocumentError { return &summapb.DocumentError{Index: i, Error: "so it is"} }
	sieges := []siege{
		{name: "an error beyond the batch", call: "batch", lies: onlyS1(edited("BatchIndexDocuments", func(m *summapb.BatchIndexDocumentsResponse) { m.Errors[0].Index = 10_000 })), code: codes.DataLoss, text: beyond},
		{name: "the largest position", call: "batch", lies: onlyS1(edited("BatchIndexDocuments", func(m *summapb.BatchIndexDocumentsResponse) { m.Errors[0].Index = math.MaxUint32 })), code: codes.DataLoss, text: beyond},
		{name: "an error twice", call: "batch", lies: onlyS1(edited("BatchIndexDocuments", func(m *summapb.BatchIndexDocumentsResponse) { m.Errors[1].Index = m.Errors[0].Index })), code: codes.DataLoss, text: again},
		{name: "an error beyond the run", call: "stream", lies: onlyS1(edited("BatchIndexDocuments", func(m *summapb.BatchIndexDocumentsResponse) { m.Errors[0].Index = 10_000 })), code: codes.DataLoss, text: beyond},
		{name: "an unknown field", call: "batch", lies: onlyS1(more("BatchIndexDocuments", unknown)), same: true},
		{name: "an unknown field", call: "upsert", lies: onlyS1(more("UpsertDocuments", unknown)), same: true},
		{
			name: "counts that overflow", call: "batch", lies: everybody(edited("BatchIndexDocuments", func(m *summapb.BatchIndexDocumentsResponse) {
				m.IndexedCount, m.ErrorCount = math.MaxUint32, math.MaxUint32
			})),
			then: func(t testing.TB, m proto.Message) {
				if r := m.(*summapb.BatchIndexDocumentsResponse); r.IndexedCount != math.MaxUint32 || r.ErrorCount != math.MaxUint32 {
					t.Errorf("counts that wrapped around: %d and %d", r.IndexedCount, r.ErrorCount)
				}
			},
		},
	}
	for call, rpc := range map[string]string{"upsert": "UpsertDocuments", "delete": "DeleteDocuments"} {
		for name, l := range map[string]struct {
			change func(m *summapb.DocumentMutationResponse)
			text   string
		}{
			"one too few":       {func(m *summapb.DocumentMutationResponse) { m.AcceptedCount-- }, short},
			"one too many":      {func(m *summapb.DocumentMutationResponse) { m.AcceptedCount++ }, short},
			"the largest count": {func(m *summapb.DocumentMutationResponse) { m.AcceptedCount = math.MaxUint32 }, short},
			"nothing":           {func(m *summapb.DocumentMutationResponse) { *m = summapb.DocumentMutationResponse{} }, short},
			"an error besides":  {func(m *summapb.DocumentMutationResponse) { m.Errors = append(m.Errors, at(1)) }, short},
			"an error beyond the call": {func(m *summapb.DocumentMutationResponse) {
				m.Errors, m.AcceptedCount = append(m.Errors, at(500)), m.AcceptedCount-1
			}, beyond},
			"an error twice": {func(m *summapb.DocumentMutationResponse) {
				m.Errors, m.AcceptedCount = append(m.Errors, at(2), at(2)), m.AcceptedCount-2
			}, again},
			"errors beyond it and more": {func(m *summapb.DocumentMutationResponse) {
				m.Errors = slices.Repeat([]*summapb.DocumentError{at(math.MaxUint32)}, 100_000)
			}, short},
		} {
			sieges = append(sieges, siege{name: name, call: call, lies: onlyS1(edited(rpc, l.change)), code: codes.DataLoss, text: l.text})
		}
		// 2^32 is 0 in 32 bits, and no count of anything.
		sieges = append(sieges, siege{name: "a count above 32 bits", call: call, lies: onlyS1(more(rpc, protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1<<32))), code: codes.DataLoss, text: short})
	}
	sieges = append(sieges,
		siege{name: "no success", call: "commit", lies: onlyS1(edited("Commit", func(m *summapb.CommitResponse) { m.Success = false })), then: func(t testing.TB, m proto.Message) {
			if m.(*summapb.CommitResponse).Success {
				t.Error("success of all, which one had not")
			}
		}},
		siege{name: "counts that overflow", call: "commit", lies: everybody(edited("Commit", func(m *summapb.CommitResponse) { m.NumDocs = math.MaxUint32 })), then: func(t testing.TB, m proto.Message) {
			if n := m.(*summapb.CommitResponse).NumDocs; n != math.MaxUint32 {
				t.Errorf("%d documents", n)
			}
		}},
		siege{name: "counts that overflow", call: "info", lies: everybody(edited("GetIndexInfo", func(m *summapb.GetIndexInfoResponse) {
			m.NumDocs, m.PhysicalNumDocs, m.NumDeletedDocs = math.MaxUint32, math.MaxUint64, math.MaxUint64
		})), then: func(t testing.TB, m proto.Message) {
			if r := m.(*summapb.GetIndexInfoResponse); r.NumDocs != math.MaxUint32 {
				t.Errorf("%v", r)
			}
		}},
		siege{name: "a text that is none", call: "info", lies: onlyS1(more("GetIndexInfo", []byte{4<<3 | 2, 2, 0xff, 0xfe})), code: codes.Internal, text: atS1("info") + undecodable},
	)
	b.endure(t, sieges)
	before.settle(t, b)
}

// TestNodesThatSaySomethingElseOfTheKey are asked for the schema once, when an index is first written to.
func TestNodesThatSaySomethingElseOfTheKey(t *testing.T) {
	b := besiege(t, nil, "k*=s0,s1,s2")
	for i, s := range []struct {
		name string
		said func(m *summapb.GetIndexInfoResponse)
		code codes.Code
		text string
	}{
		{"none", func(m *summapb.GetIndexInfoResponse) { m.Schema = "index x { field id: text [indexed] }" }, codes.FailedPrecondition, "index '%s' is partitioned but its schema declares no primary key field"},
		{"no schema", func(m *summapb.GetIndexInfoResponse) { m.Schema = "" }, codes.FailedPrecondition, "index '%s' is partitioned but its schema declares no primary key field"},
		{"nonsense", func(m *summapb.GetIndexInfoResponse) { m.Schema = strings.Repeat("field \"", 1<<16) }, codes.FailedPrecondition, "index '%s' is partitioned but its schema declares no primary key field"},
	} {
		index := fmt.Sprint("k", i)
		if _, err := b.broker.index.CreateIndex(t.Context(), &summapb.CreateIndexRequest{IndexName: index, Schema: hostileSDL}); err != nil {
			t.Fatal(err)
		}
		req := &summapb.BatchIndexDocumentsRequest{IndexName: index, Documents: b.docs}
		b.liars[0].tell(edited("GetIndexInfo", s.said))
		_, err := b.broker.index.BatchIndexDocuments(t.Context(), req)
		b.liars[0].tell(nil)
		if st := status.Convert(err); st.Code() != s.code || st.Message() != fmt.Sprintf(s.text, index) {
			t.Errorf("%s: %v", s.name, err)
		}
		if r, err := b.broker.index.BatchIndexDocuments(t.Context(), req); err != nil || int(r.IndexedCount) != len(b.docs) {
			t.Errorf("%s, the truth afterwards: %v, %v", s.name, r, err)
		}
	}
}

// TestNodesThatHang answer not at all, or stop within a reply. A call has its deadline; the places that it had are there for the next one.
func TestNodesThatHang(t *testing.T) {
	b := besiege(t, nil)
	before := stand()
	for _, call := range []string{"all", "text", "rrf", "ranks", "statistics", "info", "batch", "upsert", "delete", "commit"} {
		for name, l := range map[string]func(truth []byte) *said{
			"at once":           func([]byte) *said { return &said{nothing: true, hang: true} },
			"within the length": func([]byte) *said { return &said{wire: []byte{0, 0}, hang: true} },
			"within the message": func(truth []byte) *said {
				return &said{wire: framed(append(truth, 0), false)[:5+len(truth)/2], hang: true}
			},
			"before the status": func(truth []byte) *said { return &said{body: truth, hang: true} },
			"within a long message": func([]byte) *said {
				return &said{wire: append([]byte{0, 0, 0x40, 0, 0}, make([]byte, 1<<20)...), hang: true}
			},
		} {
			t.Run(call+"/"+name, func(t *testing.T) {
				b.liars[1].tell(func(rpc string, _, truth []byte) *said {
					if rpc == "ListIndexes" {
						return nil
					}
					return l(truth)
				})
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				_, err := b.calls[call](ctx, b.broker.server)
				cancel()
				if status.Code(err) != codes.DeadlineExceeded {
					t.Errorf("with a deadline: %v", err)
				}
				// A caller who leaves.
				ctx, cancel = context.WithCancel(t.Context())
				heard := b.liars[1].calls()
				left := make(chan error, 1)
				go func() {
					_, err := b.calls[call](ctx, b.broker.server)
					left <- err
				}()
				soon(t, "the node is asked", func() bool { return b.liars[1].calls() > heard || len(left) > 0 })
				cancel()
				if err := <-left; status.Code(err) != codes.Canceled && status.Code(err) != codes.ResourceExhausted {
					t.Errorf("of a caller who left: %v", err)
				}
				b.liars[1].tell(nil)
				var got string
				soon(t, "places are given back", func() bool {
					got, err = b.ask(call)
					return status.Code(err) != codes.ResourceExhausted
				})
				if err != nil || got != b.truth[call] {
					t.Errorf("the truth afterwards: %v, %s", err, clip(got))
				}
			})
		}
	}
	before.settle(t, b)
}
