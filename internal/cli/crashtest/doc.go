// Package crashtest kills a real weft process with SIGKILL at random points of a write load, starts it again on the same folder,
// and compares what it serves with what it had acknowledged. It holds nothing but the test; nothing imports it.
//
// The load is several writers at once, each with keys of its own, so that the order of the writes to a key is known: single
// puts, bulks with repeated keys, deletes. Memtables are so small that flushes and merges run all the time. After each restart:
//
//   - every acknowledged write is there, as the last of its key;
//   - a write whose answer was cut off is there whole or not at all, a bulk with all its documents or none;
//   - nothing else is there, and nothing is there twice: get by id, count and search agree.
//
// `go test` does 20 rounds; WEFT_CRASH_ROUNDS sets another number, WEFT_CRASH_SEED repeats a run's choices (not its timing),
// WEFT_CRASH_DIR names a new folder to use and to leave behind for a look at it.
package crashtest
