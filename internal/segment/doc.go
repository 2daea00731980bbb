// Package segment is the immutable, memory-mapped segment file: writer, reader and merger.
//
// The documents of a segment stand in primary-key order, so document number order is key order. For each indexed text field
// it holds a front-coded term dictionary, postings in blocks of 128 with impacts, token positions and exact document
// lengths; for each field that asks for it a column of numbers or of dictionary-coded text and the set of documents that
// have a value; and the compressed sources. FORMAT.md, beside this file, describes every byte.
//
// The file is canonical: the same documents give the same bytes whether they are written at once or merged from any number of
// segments.
//
// A Reader, its columns and its sets are immutable and safe to use at once. A Postings is a plain value for one reader at a
// time: copy it to share. A Writer belongs to one goroutine.
//
// Everything a Reader lends (lengths, postings, terms) is a view of mapped memory and dies at Close: the owner counts the
// users of a reader and closes it after the last one.
//
// Mapped integers are read in place, so the package builds on little-endian machines only; it is meant for 64-bit ones.
//
// Damage never panics and never allocates beyond a fixed multiple of the file: it becomes a *CorruptError that Err keeps.
package segment
