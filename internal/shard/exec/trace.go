package exec

// Trace says how a search was run. One Trace serves one call.
type Trace struct {
	Leaves []LeafTrace
}

// LeafTrace is the part of one leaf.
type LeafTrace struct {
	Memtable bool
	Docs     uint32 // document numbers
	Live     uint32 // live documents
	Filters  []FilterTrace
	Accepted uint32 // live documents that every filter finds
	// Path is how the matches were found: "none" (nothing to search), "pruned" (lists of postings, skipping what cannot enter the answer),
	// "count" (counted only), "walk" (one match after the other), "filter" (the documents of a selective filter one after the other) or
	// "set" (all matches at once, as a set).
	Path    string
	Offered uint64 // documents that were compared with the best found so far
}

// FilterTrace is how one filter was answered on one leaf.
type FilterTrace struct {
	How   string // "cache", "index" (lists of postings only), "scan" (a column or the documents were read)
	Found uint32 // documents left by it, dead ones included: of the leaf, or where it was not kept of those that the filters before left
}
