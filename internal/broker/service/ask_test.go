package service

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
)

func encode(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestNamesOfIndexesAreBounded has more names than are taken, of which a wire of two bytes each would be many times as much in memory.
func TestNamesOfIndexesAreBounded(t *testing.T) {
	many := bytes.Repeat([]byte{0x0a, 0}, 13<<20)
	names, err := indexNames(many, listNames)
	if err != nil || len(names) != listNames {
		t.Errorf("%d names, %v", len(names), err)
	}
	if n := testing.AllocsPerRun(1, func() { indexNames(many, listNames) }); n > 100 { //nolint:errcheck // as above
		t.Errorf("%v allocations", n)
	}
	if _, err := indexNames([]byte{0x0a, 5, 'x'}, 10); err == nil {
		t.Error("a message that is cut short is taken")
	}
}

// FuzzReplies holds what is read of replies without decoding them against decoding.
func FuzzReplies(f *testing.F) {
	f.Add(encode(f, &summapb.ListIndexesResponse{IndexNames: []string{"a", "", strings.Repeat("x", 300)}}))
	f.Add(encode(f, &summapb.GetIndexInfoResponse{IndexName: "a", NumDocs: 1 << 31, NumSegments: 3, Schema: "s", DeletedRatio: 0.5}))
	f.Add([]byte{0x10, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0x10, 7, 0x12, 1, 'x'})
	f.Fuzz(func(t *testing.T, b []byte) {
		var list summapb.ListIndexesResponse
		if err := proto.Unmarshal(b, &list); err == nil {
			if got, err := indexNames(b, 1<<20); err != nil || !slices.Equal(got, list.IndexNames) {
				t.Errorf("%q, %v, want %q", got, err, list.IndexNames)
			}
		}
		var info summapb.GetIndexInfoResponse
		if err := proto.Unmarshal(b, &info); err == nil {
			if docs, segments, err := counts(b); err != nil || docs != info.NumDocs || segments != info.NumSegments {
				t.Errorf("%d and %d, %v, want %d and %d", docs, segments, err, info.NumDocs, info.NumSegments)
			}
		}
	})
}
