// Package faulttest runs a cluster of real processes, nodes and brokers, under a load of writers and readers, and spoils it: connections
// are delayed, cut, stalled and parted one way, processes are killed, stopped and started again, a disk is full. It holds nothing but
// tests and what they need; nothing imports it.
//
// The brokers differ: some agree on the shard map in a store and keep what members missed in a folder, one has nothing but a list of
// members. Members are spoken to over framed JSON or gRPC. Between every broker and every member stands a link of this process (package
// link); who has dialled is found in /proc, so the tests run on Linux alone.
//
// Every write has a value of its own, and is recorded with its start, its end and what was said of it. While faults last:
//
//   - a read that calls itself complete gives the last acknowledged write or one that may have come after it, never one that was
//     refused;
//   - an answer that calls itself complete has all documents that were loaded before and never changed: hits, totals and buckets.
//
// After them, when the cluster has repaired itself:
//
//   - each document is that of the last acknowledged write or of one that may have come after it;
//   - all members of a group hold the same, each document is in one group, and lists, totals and buckets count it once;
//   - searches with global statistics give what one fresh node with the same documents gives, to the last bit.
//
// `go test` sees every kind of fault once. -faults.for goes on for as long as it says, by random choices; -faults.seed repeats the
// choices of a run, not its timing.
package faulttest
