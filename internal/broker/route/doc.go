// Package route decides where calls to a fleet of Summa servers go: pure functions over an immutable picture of the fleet.
//
// Placement is the rules of an operator, View is the picture: the nodes in their shards, and which indexes each has told of. A View is
// made once and read from then on by any number of callers without a lock; View.Next makes the next one, and takes over what did not
// change. Read, Write and Create answer for a call either with nodes or with the refusal that the client is to see (*summa.Error: code
// and text), as contracts/coordinated-search.md has it; each function names its section there.
//
// A node is routable when it is ready and not evicted. Only routable nodes make an index be somewhere; the nodes that are not stand in
// the view for operators, and count as members of their shard.
//
// Nothing here calls a node, keeps time or starts a goroutine.
package route
