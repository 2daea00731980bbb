package summa

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	summapb "github.com/weft-search/weft/api/summa"
)

// CheckDelete bounds a deletion. What is wrong with one key is for DeleteKeyFault.
func CheckDelete(req *summapb.DeleteDocumentsRequest) error {
	n, size := len(req.PrimaryKeys), 0
	if n <= maxDeleteKeys {
		for _, k := range req.PrimaryKeys {
			size += len(k)
		}
	}
	if n > maxDeleteKeys || size > maxDeleteBytes {
		return &Error{codes.ResourceExhausted, "deletion request exceeds 100000 keys or 8 MiB of key bytes"}
	}
	return nil
}

// CheckUpsert bounds an upsert. A single document may be as large as the transport allows.
func CheckUpsert(req *summapb.UpsertDocumentsRequest) error {
	n, most := len(req.Documents), maxUpsertBytes
	if n == 1 {
		most = maxUpsertOneBytes
	}
	if n > maxUpsertDocs || proto.Size(req) > most {
		return &Error{codes.ResourceExhausted, "upsert request exceeds 1000 documents or 32 MiB encoded bytes"}
	}
	return nil
}

// DeleteKeyFault says why a key cannot be deleted by, or "". A key that no document has is good.
func DeleteKeyFault(key string) string {
	if len(key) == 0 || len(key) > maxDeleteKeyBytes {
		return "Document error: deletion key must contain 1..=65536 bytes"
	}
	return ""
}

// NoPrimaryKey is the refusal of a deletion or upsert in an index without a primary key.
func NoPrimaryKey() *Error {
	return &Error{codes.FailedPrecondition, "document mutations require a primary-key schema"}
}

// DuplicateKey is what a document with the key of another one is refused with.
func DuplicateKey(key string) string { return Cut("Duplicate primary key: "+key, MaxErrorText) }

// CheckAddress reads the address of a document: its segment id as 32 hexadecimal digits, padded, in lower case.
func CheckAddress(a *summapb.DocAddress) (segment string, doc uint32, err error) {
	if a == nil {
		return "", 0, invalid("address is required")
	}
	id := []byte("00000000000000000000000000000000")
	given := a.SegmentId
	for len(given) > len(id) && given[0] == '0' {
		given = given[1:]
	}
	n := len(given)
	bad := n == 0 || n > len(id)
	for i := 0; i < n && !bad; i++ {
		c := given[i]
		if c >= 'A' && c <= 'F' {
			c += 'a' - 'A'
		}
		bad = (c < '0' || c > '9') && (c < 'a' || c > 'f')
		id[len(id)-n+i] = c
	}
	if bad {
		return "", 0, invalid("Invalid segment_id: %s", Cut(a.SegmentId, maxQuoted))
	}
	return string(id), a.DocId, nil
}
