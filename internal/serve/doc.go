// Package serve is the serving tree: one way to ask many shards at once, to bear with those that fail or are late, and to merge what
// the others say. It is generic: it knows no protocol, no query and no wire.
//
// # The tree
//
// A Leaf answers a request. Scatter asks many leaves and gathers what becomes of each; MergeTopK interleaves the ranked lists of those
// that answered; a Coordinator does both, checks a good-enough Floor between them, and is a Leaf itself. So a root over aggregators and
// an aggregator over shards are one type, and a tree of any depth gives the page that a flat fan-out gives:
//
//	root        Coordinator
//	              ├── Coordinator ── leaf, leaf, leaf
//	              ├── Coordinator ── leaf, leaf
//	              └── leaf
//
// # The contract
//
//   - A failed or late call is data, never the end of a sibling. Each shard ends in exactly one Outcome, covered + missing = total
//     always, and what a hole means is decided by the Floor and the caller, not by the fan-out.
//   - Every list in a reply is sorted by the leaf. The merge never sorts; it detects a list that is not in order and says which.
//   - Deadlines only shrink on the way down, and the absence of one stays absent. A Budget gives each call a deadline from what is left
//     of the caller's time when the call starts, and keeps something back for the merge and the way up. There is no timer for
//     stragglers besides: the sub-deadline ends them.
//   - Each call's context ends with the call. A fan-out returns after every call has returned, so nothing runs on when a caller has
//     its answer or has left. It relies on leaves that return promptly when their context ends.
//   - In a nested tree the reply carries the Tally of the leaves below it (CoordinatorOptions.Tally reads what Merge wrote), and a
//     Sized child that does not answer is missing with all of its leaves: floors and tallies at every level speak of leaves.
//   - A panic in a call is a Failed shard with a *PanicError. A Canary keeps a class of queries that crashed one leaf from being sent
//     to all of them again.
//
// # Concurrency
//
// Coordinator and Canary are safe for concurrent use, and so must be every Leaf. Budget, Floor, Tally and the options are values. A
// Gathered belongs to the caller of Scatter. MergeTopK only reads the lists.
//
// # What it costs
//
// Results go into slices made beforehand, one element for each shard, so that the fan-out needs no lock and no channel: goroutines draw
// the next shard by an atomic counter, and the caller's goroutine is one of them. The number of allocations does not depend on the
// number of shards, but for leaves that wait for their context or derive from it: such a call gets a cancelable context of its own when
// it first asks. So does a call that waited for its turn, where a Share below 1 gives it a deadline of its own. A goroutine for each shard and a context for each call (the way of an error group) was the alternative: it costs five
// allocations and the lock of the parent context for each shard, also where the leaf is in this process and has its answer at hand.
//
// Sub-packages: hedging of slow calls, choice among replicas, live latencies, result caches, and a simulation of all of it.
package serve
