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

	// Corpus is N for the fields that it has, in the place of Docs: statistics of others may count documents for each field. It stands
	// only in statistics that are given, and is not summed.
	Corpus map[string]uint64
}

// Add adds o, the statistics of other documents.
func (s *Stats) Add(o *Stats) {
	s.Docs += o.Docs
	if s.Fields == nil && len(o.Fields) > 0 {
		s.Fields = make(map[string]FieldStats, len(o.Fields))
	}
	for name, f := range o.Fields {
		sum := s.Fields[name]
		sum.Add(f)
		s.Fields[name] = sum
	}
	if s.DF == nil && len(o.DF) > 0 {
		s.DF = make(map[Term]uint64, len(o.DF))
	}
	for t, n := range o.DF {
		s.DF[t] += n
	}
}
