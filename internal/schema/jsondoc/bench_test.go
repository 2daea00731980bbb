package jsondoc

import (
	"testing"

	"github.com/weft-search/weft/internal/schema"
)

// benchDoc has about 500 bytes in the shape of a catalogue entry.
const benchDoc = `{"id": "pkg/net/http/client-00042", "title": "Client is an HTTP client with a zero value that is usable", ` +
	`"body": "The Client's Transport typically has internal state (cached TCP connections), so Clients should be reused instead of created as needed. ` +
	`Clients are safe for concurrent use by multiple goroutines.", "section": "net", "tags": ["http", "client", "network"], ` +
	`"year": 2024, "rating": 4.75, "stable": true, "updated": "2024-02-29T12:30:00Z", "author": {"name": "The Go Authors", "commits": 1234}}`

func BenchmarkParse(b *testing.B) {
	p := NewParser(schema.NewDynamic("t"), Limits{})
	_, inferred, err := p.Parse([]byte(benchDoc))
	if err != nil {
		b.Fatal(err)
	}
	s, merr := Merge(p.Schema(), inferred)
	if merr != nil {
		b.Fatal(merr)
	}
	p.SetSchema(s)
	doc := []byte(benchDoc)
	b.SetBytes(int64(len(doc)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := p.Parse(doc); err != nil {
			b.Fatal(err)
		}
	}
}

// TestAllocations holds the number of allocations for a document: one for each text value, and a few for all others together.
func TestAllocations(t *testing.T) {
	p := NewParser(testSchema(t), Limits{})
	doc := []byte(`{"id": "a", "n": 1, "i": 2, "f": 3.5, "fs": [1, 2, 3, 4, 5, 6, 7, 8], "day": "2024-02-29T12:30:00Z"}`)
	n := testing.AllocsPerRun(100, func() {
		if _, _, err := p.Parse(doc); err != nil {
			t.Fatal(err)
		}
	})
	// The document, its source, its fields, the arrays of texts and numbers, the key, and the text of 3.5 for its conversion.
	if n > 7 {
		t.Errorf("%v allocations", n)
	}
}
