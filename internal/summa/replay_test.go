package summa_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/summa"
	"github.com/weft-search/weft/internal/summa/summagolden"
)

// decide is what the request alone tells about a call. known are the indexes that are there.
func decide(req proto.Message, known func(string) bool) error {
	var l summa.Limits
	index := func(name string) error {
		if err := summa.CheckIndexName(name); err != nil {
			return err
		}
		if !known(name) {
			return summa.NoIndex(name)
		}
		return nil
	}
	switch r := req.(type) {
	case *summapb.SearchRequest:
		if _, err := l.CheckSearch(r); err != nil {
			return err
		}
		return index(r.IndexName)
	case *summapb.GetTextStatsRequest:
		if err := l.CheckTextStats(r); err != nil {
			return err
		}
		return index(r.IndexName)
	case *summapb.GetDocumentRequest:
		if err := index(r.IndexName); err != nil {
			return err
		}
		_, _, err := summa.CheckAddress(r.Address)
		return err
	case *summapb.DeleteDocumentsRequest:
		if err := summa.CheckDelete(r); err != nil {
			return err
		}
		return index(r.IndexName)
	case *summapb.UpsertDocumentsRequest:
		if err := summa.CheckUpsert(r); err != nil {
			return err
		}
		return index(r.IndexName)
	case *summapb.CreateIndexRequest:
		return nil // TestRecordedSchemas
	case *summapb.DeleteIndexRequest:
		return summa.CheckIndexName(r.IndexName)
	case interface{ GetIndexName() string }:
		return index(r.GetIndexName())
	}
	return nil
}

// laterChecks are the refusals that need the index, by their texts.
var laterChecks = regexp.MustCompile(`^(` + strings.Join([]string{
	`Invalid query: `,
	`Invalid reranker: `,
	`Query error: (phrase queries on|PrefixQuery |WeightedTopK decay|L1 scoring branch|L1 formula produced|feature export would omit)`,
	`binary nprobe exceeds`,
	`Document not found`,
	`Invalid schema: `,
	`Schema is required`,
	`Index 'notes' already exists`,
	`Schema error: cannot train`,
	`unknown vector field`,
	`field_name and field_schema are required`,
	`field_schema must define a vector index`,
	`document mutations require a primary-key schema`,
	`Internal error: indexing generation failed`,
}, "|") + `)`)

// TestRecordedRefusals replays every call to a node: what the request alone decides is decided alike, and nothing that was taken is refused.
func TestRecordedRefusals(t *testing.T) {
	there := map[string]bool{}
	decided := map[string]int{}
	for _, c := range cases(t, "node") {
		reqs, err := c.Requests()
		if err != nil {
			t.Error(err)
			continue
		}
		var got error
		for _, r := range reqs {
			if got = decide(r, func(n string) bool { return there[n] }); got != nil {
				break
			}
		}
		if c.RPC == "CreateIndex" && c.Code == "OK" {
			there[reqs[0].(*summapb.CreateIndexRequest).IndexName] = true
		}
		group := strings.Join(strings.Split(c.Name, "/")[:2], "/")
		var e *summa.Error
		switch {
		case c.Code == "OK":
			if got != nil {
				t.Errorf("%s: taken by the reference, refused with %v", c.Name, got)
			}
		case errors.As(got, &e):
			decided[group]++
			if codeName(e.Code) != c.Code || e.Text != c.Message {
				t.Errorf("%s:\n got %s %s\nwant %s %s", c.Name, codeName(e.Code), e.Text, c.Code, c.Message)
			}
		case !laterChecks.MatchString(c.Message):
			t.Errorf("%s: not refused, want %s %s", c.Name, c.Code, c.Message)
		}
	}
	for _, group := range []string{"node/limit", "node/name", "node/query", "node/stats", "node/document", "node/unknown"} {
		if decided[group] == 0 {
			t.Errorf("no case of %s was decided", group)
		}
	}
	t.Log(decided)
}

// TestRecordedMutationBounds replays the bounds of deletions and upserts, which a broker checks before it looks for a node.
func TestRecordedMutationBounds(t *testing.T) {
	seen := 0
	for _, c := range cases(t, "broker-plain") {
		if !strings.HasPrefix(c.Name, "broker/limits/") {
			continue
		}
		var req proto.Message
		upsert := func(docs, size int) proto.Message {
			r := &summapb.UpsertDocumentsRequest{IndexName: "absent", Documents: make([]*summapb.NamedDocument, docs)}
			for i := range r.Documents {
				r.Documents[i] = &summapb.NamedDocument{}
			}
			x := strings.Repeat("x", size)
			text := &summapb.FieldValue_Text{Text: x[100:]}
			r.Documents[0].Fields = []*summapb.FieldEntry{{Name: "t", Value: &summapb.FieldValue{Value: text}}}
			text.Text = x[100-(size-proto.Size(r)):]
			return r
		}
		switch c.Name {
		case "broker/limits/delete-bytes-8388609":
			req = &summapb.DeleteDocumentsRequest{IndexName: "absent", PrimaryKeys: []string{strings.Repeat("a", 8388609)}}
		case "broker/limits/upsert-bytes-32MiB+1-of-2":
			req = upsert(2, 32<<20+1)
		case "broker/limits/upsert-bytes-200MiB+0-of-1":
			req = upsert(1, 200<<20)
		default:
			reqs, err := c.Requests()
			if err != nil || len(reqs) != 1 {
				t.Errorf("%s: no request: %v", c.Name, err)
				continue
			}
			req = reqs[0]
		}
		seen++
		got := decide(req, func(string) bool { return true })
		var e *summa.Error
		switch {
		case c.Code == "NOT_FOUND": // the bound itself passes
			if got != nil {
				t.Errorf("%s: refused with %v", c.Name, got)
			}
		case !errors.As(got, &e) || codeName(e.Code) != c.Code || e.Text != c.Message:
			t.Errorf("%s:\n got %v\nwant %s %s", c.Name, got, c.Code, c.Message)
		}
	}
	if seen == 0 {
		t.Error("no case")
	}
}

func TestCodeNames(t *testing.T) {
	for c, want := range map[codes.Code]string{codes.OK: "OK", codes.InvalidArgument: "INVALID_ARGUMENT", codes.NotFound: "NOT_FOUND", codes.Internal: "INTERNAL"} {
		if got := codeName(c); got != want {
			t.Errorf("%v: %s", c, got)
		}
	}
	if summagolden.Method("Search") == nil || summagolden.Method("Nothing") != nil {
		t.Error("methods are not found by name")
	}
}
