package segment

// Format versions. One line for each, with what changed.
//
//	1  first version
//	2  sections of vectors
const (
	// FormatVersion is the version that Writer writes and the newest that Reader reads.
	FormatVersion = 2
	// MinReaderVersion is written into new files: readers that know a lower FormatVersion refuse them. A reader of format 1 would
	// lose the vectors in a merge.
	MinReaderVersion = 2
	// WriterVersion grows with changes of the writer that change bytes but not the format.
	// 2 has blocks of sources of 4 KiB; 1 had them of 16.
	WriterVersion = 2
)

const (
	magicHead = "weftseg\n"
	magicTail = "gestfew\n"

	tableEntrySize = 32
	trailerSize    = 48

	// BlockSize is the number of postings in a full block.
	BlockSize = 128
	// ColumnBlock is the number of documents in a block of a column.
	ColumnBlock = 1024

	tableBlock = 16 // strings in a block of a table

	// MaxStringLen is the longest key, term or column value in bytes.
	MaxStringLen = 1<<16 - 1
	// MaxField is the greatest field id.
	MaxField = 1<<16 - 1
	// MaxSourceLen is the longest source of a document in bytes.
	MaxSourceLen = 1 << 28
	// MaxDocs is the greatest number of documents of a segment.
	MaxDocs = 1<<32 - 2

	// A block of sources is closed when it has as many bytes. To read a source its block is taken apart whole, which was a third of the time
	// of a short search with blocks of 16 KiB; with these, indexes are a twelfth larger.
	sourceBlock     = 4 << 10
	mostSourceBlock = 16 << 10 // as blocks were before; readers take any up to it, and one source besides
	maxSourceRatio  = 256      // blocks that would compress better are stored as they are, so that a reader can bound its memory
	sourceRatioBase = 64 << 10

	headerSize = 8  // of a list in blocks
	entrySize  = 28 // of a block of such a list

	inlinePositions = 8 // singletons with at most as many positions keep them in the dictionary
	shortImpacts    = 16
	blockImpacts    = 4 // at most, for a block
	listImpacts     = 8 // at most, for a list

	tailMark = 0xFF // in place of a width: varints follow
)

// tag names the kind of a section.
type tag uint16

const (
	tagKeys     tag = 1  // table of keys
	tagCommit   tag = 2  // column of commit timestamps
	tagPostings tag = 3  // lists of one field
	tagTerms    tag = 4  // table of terms of one field
	tagLengths  tag = 5  // u16 for each document of one field
	tagNumbers  tag = 6  // column of numbers
	tagStrings  tag = 7  // table of the values of a text column
	tagOrdinals tag = 8  // column of their ordinals
	tagPresence tag = 9  // set of documents with a value
	tagSources  tag = 10 // compressed sources
	tagFields   tag = 11 // names and counts of the fields
	tagVectors  tag = 12 // dense or binary vectors of one field, as package vector writes them
	tagSparse   tag = 13 // sparse vectors of one field, as package vector/sparse writes them
)

var tagNames = [...]string{
	tagKeys: "keys", tagCommit: "commit", tagPostings: "postings", tagTerms: "terms", tagLengths: "lengths",
	tagNumbers: "numbers", tagStrings: "strings", tagOrdinals: "ordinals", tagPresence: "presence", tagSources: "sources", tagFields: "fields",
	tagVectors: "vectors", tagSparse: "sparse",
}

func (t tag) String() string {
	if int(t) < len(tagNames) && tagNames[t] != "" {
		return tagNames[t]
	}
	return "unknown"
}

// ofField tells whether sections of this kind belong to a field.
func (t tag) ofField() bool {
	return t >= tagPostings && t <= tagPresence || t == tagVectors || t == tagSparse
}

// flags of a field in the fields section
const (
	flagInverted = 1 << iota
	flagPositions
	flagNumbers
	flagStrings
	flagPresence
	flagVectors
	flagSparse
)
