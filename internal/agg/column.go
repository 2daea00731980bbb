package agg

// ColumnBlock is the number of documents in a block of a column.
const ColumnBlock = 1024

// NumColumn holds the numbers of a field in the order-preserving encoding of package schema.
type NumColumn interface {
	// Values appends the values of a document in the order they were given.
	Values(doc uint32, dst []uint64) []uint64
	// NumBlocks counts the blocks of ColumnBlock documents.
	NumBlocks() int
	// BlockRange gives the least and greatest value of a block; ok is false when it has none.
	BlockRange(b int) (lo, hi uint64, ok bool)
}

// StrColumn holds the texts of a field as ordinals of a dictionary that is sorted by bytes.
type StrColumn interface {
	// NumOrds is the number of distinct values.
	NumOrds() int
	// Lookup appends the value of an ordinal.
	Lookup(ord int, dst []byte) []byte
	// Ords appends the ordinals of a document's values, in the order they were given.
	Ords(doc uint32, dst []uint32) []uint32
}

// BlockReader is what a NumColumn or StrColumn may have besides: it sets dst to the values (or ordinals) of the documents of
// block b if each has exactly one, and returns how many there are; ok is false if some document has none or several.
type BlockReader interface {
	ReadBlock(b int, dst *[ColumnBlock]uint64) (n int, ok bool)
}

// manyLookup is what a StrColumn may have besides: it appends the values of ascending ordinals and sets ends[i] to where value i
// ends, at less cost than Lookup for each.
type manyLookup interface {
	LookupAscending(ords []uint64, dst []byte, ends []int) []byte
}

// Leaf is one part of a snapshot.
type Leaf interface {
	// NumDocs is the bound of document numbers.
	NumDocs() uint32
	// NumColumn and StrColumn return the column of a field; nil when the leaf has none.
	NumColumn(field int) NumColumn
	StrColumn(field int) StrColumn
	// Filter returns the documents that match filter i of Plan.Filters: bit d of word d/64. all says that every document does.
	Filter(i int) (docs []uint64, all bool)
}
