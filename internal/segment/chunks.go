package segment

// Chunked text: each value of a field is a passage that is scored on its own. Its postings are those of any text with positions, by
// document; in the column of numbers of the field stands what else is needed, a number for each value in the order of the values.

// ChunkStride separates the passages of a document among its positions: a passage begins at the first multiple that lies at least
// ChunkGap behind the last position of the one before.
const (
	ChunkStride = 1 << 16
	ChunkGap    = 128
)

// MaxChunks is how many passages of one field a document may have. With it, and with as many tokens as a document can have, positions
// stay far below 32 bits.
const MaxChunks = 1 << 15

// MaxChunkLength is where the token count of a passage saturates.
const MaxChunkLength = 1<<16 - 1

// EncodeChunk is a passage as the column holds it: its tokens, and by how many strides more than one the next passage lies behind it.
func EncodeChunk(length, more uint32) uint64 {
	return uint64(min(length, MaxChunkLength)) | uint64(more)<<16
}

// DecodeChunk is the inverse of EncodeChunk.
func DecodeChunk(v uint64) (length, more uint32) {
	return uint32(v & MaxChunkLength), uint32(v >> 16)
}
