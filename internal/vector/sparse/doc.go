// Package sparse searches sparse vectors: values with a weight in few of very many dimensions, such as learned term weights.
//
// # Scores
//
// The score of a value is the sum of query weight times value weight over the dimensions that both have, by dimension ascending, in
// float32: each product is rounded, then added to the sum, which is rounded; nothing is fused. A weight of 0 is no weight: a value or
// a query does not have that dimension. A value matches when it shares a dimension with the query, whatever the score; a document
// matches when one of its values does, and its score is what the combiner makes of the scores of its matching values, in their order.
// Weights may be negative on both sides. A score has the same bits whatever path found it and on every machine.
//
// # Records and weights
//
// Encode turns a value into a record, the same in a memtable and in a segment. Weights are kept as float32 unless the schema asks for
// less; see Params. Scores are those of the weights that the record holds.
//
// # Search
//
// A section of a segment has an inverted list for each dimension, cut into tiers of falling weight, besides the records; FORMAT.md
// sets both out. Search walks tiers in the order of what they can still change, until no vector outside a small set of survivors can
// be among the best K; it then scores the survivors from their records. The result is exactly that of Exhaustive, which scores every
// record. search.go says why. Memtables have no lists and are scanned.
//
// # Use
//
// An *Index and a *Query are immutable and safe to use at once. The bytes given to Open and InMemory must outlive the Index and not
// change.
package sparse
