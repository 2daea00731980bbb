// Package jobs does the work of a cluster that goes on behind its answers: moving documents to the shards that own them, making the
// members of groups equal, and giving members what they missed.
//
// # Who does it
//
// One job is done at a time. Jobs are kept in the ledger, one object that is changed by compare and swap and names who does them: the
// holder of the lease, which counts its beats up. Whoever sees no beat for a while takes the lease over, goes by its own clock alone, and
// goes on where the ledger says. Nothing that is said below depends on there being only one who does a job: the lease saves work.
//
// Every change of a document is a compare and swap on the checksum that was seen before (leaf.Member.Sync), and is followed by another
// look. A writer is never overwritten unseen, and whatever somebody has changed meanwhile is seen by the look.
//
// # A move
//
// Readers see each document on the group that owns it by the placement of the shard map, and nowhere else; writers write to one group, or
// to two while the map says copying or switching (package shardmap). A rebalance takes these steps. Each begins with the shard map and nothing else,
// so that it can be ended anywhere, and begun again by anybody; the ledger only saves it from looking at the same documents again.
//
//  1. Sweep. Documents that stand on a group that does not own them are given to their owner, if that lacks them, and deleted. So the
//     move hides no document that could be seen before.
//  2. Copy. The map is made to say preparing, and every member takes it: readers look at what groups own, and not at all that stands there.
//     Then it is made to say copying, and every member takes it. Whoever went by the map before is refused from then on, and its
//     writes have ended. Each source lists its ids, and what another group will own is put at every member of that group.
//  3. Compare. For each two groups the documents that go from one to the other are compared by digests, and one by one where these
//     differ, and made equal, deletions included. So each document was seen equal at its old and new owner at some moment while all
//     writers wrote to both; whatever came later came from a writer to both, or was not acknowledged.
//  4. Cutover. The map is made to say switching, and every member takes it: readers look at the new owners, and writers still write to
//     both. A member that has not heard of it may answer somebody who goes by the map before, and has to have what was acknowledged
//     since. When every member has taken the map, all of these are refused.
//  5. Clean. The map is made to say cleaning, and every member takes it: no writer writes to the old owners any more. What stands on groups
//     that do not own it is deleted. Its owner is asked first, at all members: it was seen to have the document, and has been written to
//     ever since. So if it does not have it, the document was deleted there.
//
// A copy that was sent and not answered may arrive at any time, even after its document was deleted and everything was compared. So
// whoever begins one of these steps, and has not seen the end of all writes before, first gives the map another epoch and has all members
// take it: what arrives later is refused.
//
// A move is given up before its cutover by cleaning, too: the map says cleaning and the old placement.
//
// A job that cannot reach a member waits for it. It never cuts over what was not compared, nor ends a move while anything is left to be
// cleaned away.
//
// # Members that have lost their documents
//
// A member that lacks documents looks as if they had been deleted. Before a document is deleted because another member does not have
// it, that member is asked who it is, and is not taken at its word if its disk was replaced (members.Cluster). An owner that lost
// what was moved to it gets it back from where it stands yet. Only a repair that is forced takes primaries as they are.
//
// # Repair
//
// The primary of a group, its first member, is right: others get what they lack, and lose what it does not have. What readers may see is
// overwritten or deleted only if it differs at a second look a moment later, since a write may be on its way to all members. A member that
// does not answer is a failure. A primary that may have lost its documents is given those of another member first, or the group fails. In the background the same is done, but a primary with far fewer documents than others is left alone.
//
// What differs is found by a Merkle tree over the hashes of ids: its root first, which is all that equal members are asked for, then its
// leaves, each of some 100 documents, and then the documents of leaves that differ.
//
// # What members missed
//
// The hints of this coordinator are replayed as soon as a member answers: each document is made equal to that of a member that does not wait for it,
// and where all do to that of the one that has the last write (right.go). A member that has missed more than was kept is compared as a whole. With a
// store coordinators tell each other for which members they keep something (missed.go), and which documents (told.go): such a member is not taken
// for right while there is another, a move waits where there is none, and in the background its group is left alone, and nothing that differs is
// changed before whoever acknowledged it can have told. What one kept of which nothing is heard any more the others take over (left.go). Without a
// store, what only another coordinator keeps is not known.
//
// A document that a member refuses for good steps aside (refused.go), and holds up neither what else is kept for the member nor comparisons
// and moves.
//
// # Concurrency
//
// A Runner is safe for concurrent use. It has a goroutine for jobs, one for hints, and one that tells others of these; calls of members are
// made from the first two, some at a time. Close waits for all of them.
package jobs
