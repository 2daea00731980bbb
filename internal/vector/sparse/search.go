package sparse

// Search appends the best documents to dst exactly as Exhaustive does.
func (x *Index) Search(q *Query, o Options, dst []Hit) ([]Hit, Work, error) {
	return x.Exhaustive(q, o, dst)
}
