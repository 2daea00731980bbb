// Package write writes to the groups of a cluster as one node with all the documents would: it is the writing half of a leaf.Member
// that is made of others.
//
// # One write
//
// A document belongs to one group, or to two while it is being moved. A write goes to every member of these at once, under the epoch of
// the shard map; where a member refuses the map, the Writer asks for a newer one and repeats the whole write. A write is whole only
// if every member has it. A member that has not is named in the reply, and a hint is kept for it. A write that no member has taken is an
// error: the problem that the members have with the document, their want of room, or api.GroupUnavailable where nobody can be
// reached. Where nobody has confirmed it and somebody may have it all the same, the error is api.WriteUncertain.
//
// Two writers of one document may cross: each is the last at another member. So when all members have confirmed, their checksums of the
// document are compared, and where they differ the members are made equal to the first of them with a compare and swap. Whoever of the
// writers is last finds all of it settled, or settles it, before its caller hears that the write is in. What it has found stays: a comparison
// makes a fence at each member (leaf.SumsRequest.Fence), behind which nothing is put that another writer decided on by an earlier look.
//
// Copies cross writes too: while a write is on its way to one member, a repair may make another, which has it, equal to that one, for it does not
// see what is on its way. So what a copy has put is no example for other members (leaf.SumsReply.Synced) where any has something that was
// written there, for that is not older than the write whose Writer looks. Where all have copies, and not of what was written, that
// is put there once more. It is as if it had been written at that moment: nobody was told before that it is in. A load that is sent again
// is not put once more, for others may have written since; what only copies tell of, and the load has otherwise, is not known to be in.
//
// A write is not compared where every member calls it fresh: nothing was done with its id for far longer than a write is under way. Nothing was
// written or deleted, and nobody looked at the document to copy it. Then no other write of the id came before it at any member while it was under
// way: what is under way beside it comes behind it at all of them, and so does not cross it; of two writes one at most is fresh everywhere, and the
// others are compared. What the members had before need not be equal. And a copy that somebody makes of what he saw at one member before the
// write came there, and puts where it had come already, is not missed: he has looked at that member, so the write is not fresh there.
//
// Nor is a write compared that came directly behind the same other one at every member (leaf.IndexReply.Behind). Each single write has a mark, a
// random number; a member knows of the documents that were written last which mark the last of all that was done with one had, and forgets it when
// anything without a mark is done: a deletion, a load, a copy, a look of somebody who may copy. Of two writes that cross, one comes before the other here and
// behind it there; so what the two are behind is not the same everywhere for both of them, unless a third crosses both, and of these again one is
// the first to cross: that is compared, and looks behind all it has crossed. When a writer looks at what came of its write it says its mark: where the write is
// still the last thing that was done, it becomes one that was seen, and where it is not the next write is behind nothing. So a write that comes
// between the looks at two members is not behind the same at both. Where a write is the last thing at all members it stands in the same place at all
// of them, and is acknowledged whatever the checksums say, which are of a moment later: copying by them would undo a write that need not look. Property
// tests run some 100,000 schedules of writers, deletions, loads and repairs with random delays, and fail if any of this is left out.
//
// # Schemas
//
// An index has one schema over all members. The Writer takes documents apart itself, against that schema; new fields go to the first
// member of group 0 that can be reached, one change at a time, and what comes of that to all others. A member is given the schema
// before its first document, and again after every failure of the member, so that it never guesses a type by itself.
//
// Where there is a store, coordinators agree on a new index and on new fields there before any member is given them (Options.Store, agreed.go):
// two that reach different members would let each of these decide. It is asked when something is new and at no other write.
//
// # What is not as on one node
//
//   - While no member of group 0 can be reached, no index and no field can be made; documents without new fields are written.
//     The same holds while the store cannot be used, in which no index can be deleted either.
//   - A bulk load goes to the groups in parallel: documents of different groups become visible in another order than that of the lines.
//     Two documents with one id are in one group, and keep theirs.
//   - A bulk load under way while its index is deleted may make the index again, with the first new fields that come behind that.
//
// # Concurrency
//
// A Writer is safe for concurrent use. Goroutines belong to calls and end with them, as many as the call has members; a bulk load has one
// more for each group. How many calls there may be at once is for who calls: the gates of a front. The exception is settling that a
// caller did not wait for: at most maxFinishing go on in the background, until Close.
package write
