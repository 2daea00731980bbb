// Package fleet keeps the picture of a fleet of Summa servers up to date: who is there (a Source tells), who is well and which indexes
// each has (polls tell), as contracts/coordinated-search.md has it in "Topology and health".
//
// # What is kept
//
// View is the present picture, a route.View. It is replaced by another and never changed; reading it takes no lock. View, Serving, Events,
// Refresh and Failed never wait and may be called from any number of requests; Learn waits for the nodes that it names.
//
// # Polls
//
// A ready node is asked for its indexes every 15 s while it is healthy and every 5 s while it is not, and at once when it is found, comes
// back, moves to another address, fails calls (Failed) or when all are to be asked (Refresh, Learn). At most one poll of a node is under
// way. What a poll shows is published by itself, whatever other nodes do (line B1 of contracts/differences.md).
//
// A new node is suspect and has no indexes. An answer makes it healthy. A failed poll makes a healthy node suspect; it keeps its indexes
// and goes on serving. A poll that fails once a node has been suspect for the grace of 60 s evicts it; then two answers in a row bring it
// back. Calls of clients never change health: those that fail only bring the next poll forward.
//
// # Bounds
//
// New polls are begun while fewer than Options.Polls are younger than a quarter of a second; one that takes longer holds nobody up, and a
// node has one at most. An answer has at most 100,000 names, which are valid index names; other names are passed over. Changes of discovery
// are gathered for 50 ms, calls for a poll of everybody for 1 s. Making views takes at most a fifth of one core, or comes twice a second.
//
// The goroutines of a Fleet belong to Run, which waits for them.
package fleet
