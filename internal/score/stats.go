package score

// FieldStats are the integer statistics of one text field over live documents.
type FieldStats struct {
	SumLen uint64 // tokens of all values of all documents
	Docs   uint64 // documents with at least one token in the field
}

// Add adds o.
func (f *FieldStats) Add(o FieldStats) { f.SumLen += o.SumLen; f.Docs += o.Docs }

// Term names a token of a field.
type Term struct{ Field, Text string }

// Stats are the statistics that a query is scored with: integers over live documents, so that sums over shards are exact.
// Installed in a request they replace the index's own.
type Stats struct {
	Docs   uint64 // N: live documents
	Fields map[string]FieldStats
	DF     map[Term]uint64 // live documents that hold the term
}
