// Package wal is a shard's append-only log of opaque records.
//
// # Contract
//
// Append returns once the record is on stable storage (SyncAlways). Records get consecutive numbers from 1. Writers that append
// at once share one write and one fsync (a group). After Open and Replay every acknowledged record is there, in order, exactly once.
// A record whose Append failed, or whose caller went away before the answer, may be there too: at the end of what was acknowledged
// before it, whole or not at all. A batch is not atomic: a prefix of one that was not acknowledged may be there. What must be atomic goes into one record.
//
// # Failure
//
// After a failing write or fsync nothing is known of what the disk holds, and asking again proves nothing; so the log stops for good:
// every Append from then on returns an ErrFailed. One case is milder: a write that ran out of space (ENOSPC, EDQUOT) and was cut back
// leaves a log that refuses with ErrFailed and ErrNoSpace both, until Probe finds room or the log is opened again. Open rewrites
// and syncs the end of the last file, since what can be read back after a failed fsync need not be on the disk.
//
// # Torn tail or corruption
//
// A crash can damage only what was written since the last fsync. Each record says how far before its own start the durable part of the file
// ended when it was written (back). So bytes that do not read as a record are a torn tail, and are cut, if no whole record after them says they were durable;
// otherwise they are corruption, and Open or Replay stops with a *CorruptError. When the log falls idle after a commit, and when it is closed, it writes
// a mark (a record without payload that says "all before me is durable"); the mark itself need not be synced. So after the end of the process, orderly or not,
// damage to any acknowledged record is told from a torn tail; after a power cut the same holds for all but the last group.
// Only the last file may have a torn tail.
//
// The byte layout is in FORMAT.md.
//
// # Concurrency
//
// A Log is safe for concurrent use. The files belong to whoever has the turn: a writer whose context cannot end, for its own group and those
// of others in it, and for all else one goroutine, started by Open and ended by Close. The log does not lock its folder; who owns
// the data folder does (vfs.FS.Lock).
package wal
