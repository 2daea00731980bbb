// Package hints remembers on disk which documents members of a cluster missed: a write that a member did not acknowledge leaves the
// id of its document, and when the member is there again, a replay takes the present document from another member and gives it to it.
// Ids are all that is kept, so however often a document was missed, its last state is what counts.
//
// # Contract
//
// When Add returns without an error, the entries are on stable storage, or full is true and it is durably known that the member has to
// be compared as a whole. Next gives the oldest entries of a member, again and again until Done says that they were replayed. After a
// crash everything that was not Done is there; some of what was Done may be there again, which costs a replay and changes nothing.
// The order of entries is that of their writing; one that waits already is not stored twice, where that is cheap to know.
//
// # Overflow
//
// A queue is bounded in bytes and age for each member. Beyond, and where entries were damaged or could not be written, the member
// overflows: its entries are dropped, further ones too, and only a comparison of all its documents with another member's can tell what
// it lacks. What is missed while that runs must not be lost, so it is put between two calls: from Compare on entries are kept again,
// and Compared ends the overflow, unless there was another one in between. A crash in between leaves the overflow standing.
//
// # Documents that a member refuses
//
// Some documents a member never takes. They would stand at the head of its queue for ever, so SetAside puts them aside, at most MaxAside for
// a member: a list of its own, as durable as entries are. While there are any the member is Pending: it lacks what others have acknowledged.
//
// # What a member waits for
//
// Waiting tells whether a member waits for a document, by 64 bits of a hash, for up to 65,536 documents of a member; beyond, and after an overflow,
// it may wait for any. Each has a stamp of when it was last missed: of members that all miss something of a document, the one whose last miss
// is the earliest has all that came later. Stamps are in memory, and after a start they are the times of the records. Kept lists all for others,
// and Heard takes over what others have told, so that what is missed after that has later stamps than theirs.
//
// # Torn tail or corruption
//
// A file that ends within a record was being written at a crash: the rest is cut and told to Options.Report. Damage before a whole
// record, in a file that was closed in order, or in any file but a member's last, is corruption: it is told with its offset, and the
// member overflows. FORMAT.md has the bytes.
//
// # Concurrency
//
// A Queue is safe for concurrent use, and starts no goroutine. Adds that come for the same member while one of them syncs share the next
// sync. The queue does not lock its folder; who owns the data folder does.
package hints
