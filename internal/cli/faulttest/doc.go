// Package faulttest runs a cluster of real processes, nodes and brokers, under a load of writers and readers, and spoils it: connections
// are delayed, cut, stalled and parted one way, processes are killed, stopped and started again, a disk is full, wall clocks jump. It
// holds nothing but tests and what they need; nothing imports it.
//
// The brokers differ: some agree on the shard map in a store, a folder or a bucket, and keep what members missed in a folder, one has
// nothing but a list of members. The bucket is served by this process, and refuses what is signed at a wrong time, as S3 does. Members are spoken to over framed JSON or gRPC. Between every broker and every member, and the bucket, stands a link of this process (package
// link); who has dialled is found in /proc, so the tests run on Linux alone.
//
// Every write has a value of its own, and is recorded with its start, its end and what was said of it. While faults last:
//
//   - a read that calls itself complete gives the last acknowledged write or one that may have come after it, never one that was
//     refused;
//   - an answer that calls itself complete has all documents that were loaded before and never changed: hits, totals and buckets;
//   - a document that is read is the whole of what one write made, with the field that it brought to the schema;
//   - a load that was acknowledged and is sent again under its key changes nothing.
//
// After them, when the cluster has repaired itself:
//
//   - each document is that of the last acknowledged write or of one that may have come after it;
//   - all members of a group hold the same, each document is in one group, and lists, totals and buckets count it once;
//   - all brokers give one schema, and find each field that was inferred in the documents that have it;
//   - searches with global statistics give what one fresh node with the same documents gives, to the last bit.
//
// `go test` sees every kind of fault once. -faults.for goes on for as long as it says, by random choices; -faults.seed repeats the
// choices of a run, not its timing.
//
// -faults.clock turns clocks, too. A process that is linked statically cannot be told another time from outside, so weft is built with a
// package time of which time.Now alone is other than Go's: its calendar is off by what a file says that the test holds in memory, and
// its monotonic part is right. It is made from the installed source by an overlay of the build; no other code differs.
package faulttest
