package summaquery

// room counts what a search holds beside its reply: the scores of the values of documents, and candidates with theirs.
type room struct {
	used, most int
	tell       func(bytes int) error // of Index.Hold; may be nil
}

func (r *runner) hold(n int) error {
	m := r.room
	if m.used += n; n > 0 && m.used > m.most {
		return failed("the search would hold more than %d bytes of candidates and scores of their values; ask for fewer candidates", m.most)
	}
	if m.tell == nil || n == 0 {
		return nil
	}
	return m.tell(n)
}

// release gives back what hold took.
func (r *runner) release(n int) { _ = r.hold(-n) }

// holdPassages is hold for package passage.
func (r *runner) holdPassages(n int) error { return r.hold(passageBytes * n) }
