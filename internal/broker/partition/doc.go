// Package partition does what a Summa broker does for an index that lies on several shards, except ranking that the broker coordinates.
//
// # Contract
//
// The rules are those of contracts/coordinated-search.md; doc comments name the section that a rule comes from, and a B with a number is
// that line of contracts/differences.md. The package has no transport, no topology and no hash: it asks partitions through a Caller and
// learns from an Index which there are and where a key belongs.
//
// Requests and replies are bytes of the Summa wire (api/summa). Documents and hits stay the bytes that they were: unknown fields and the
// order of map entries come through (B11). What is small is decoded. Replies may be damaged or hostile: a field of another type than its
// own is passed over, what cannot be read is refused with INTERNAL, and what is kept of a message is bounded by a constant times its
// bytes, or by the largest window.
//
// Errors carry a gRPC status. Those of a partition keep their code and details, their text says which partition it was. Where a call is
// refused because of its request, no partition is asked.
//
// All functions are safe for concurrent use. Each waits for every call that it began, so a Caller has to end a call soon when its
// context ends. An answer may share memory with replies, a request to a partition with the caller's request.
package partition
