// Package summanode serves summa.SearchService and summa.IndexService over the indexes of a node: a client of Summa talks to it as to a
// Summa server.
//
// # Contract
//
// The services hold no index and no document. They check a request against its limits, look the index up, and ask the engine; texts and
// codes are those of package summa. What a message takes in memory is charged before it is decoded, step by step as it arrives, and again
// for what it becomes; who finds no room waits for a bounded time and is refused. Those that have begun do not wait for each other. What a
// reply takes is charged before it is made, and until it is read. Every input of a batch or a stream is accepted or has
// exactly one error at its own position.
//
// A Server is made for one listener, and safe for concurrent use. Calls end with the contexts of their callers, but for commits and merges,
// which go on.
package summanode
