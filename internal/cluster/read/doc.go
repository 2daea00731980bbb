// Package read answers reads over the groups of a cluster as one node with all the documents would: it is the reading half of a
// leaf.Member that is made of others.
//
// # One call
//
// A call takes one members.State and goes by it to its end. It goes to every group of which something is to be seen, there to one
// member, hedged and retried at others; what the groups say is merged. A member that refuses the shard map of the state makes the
// Reader ask for a newer one and repeat the call.
//
// A group of which no member answers is a hole. It is data, not an error: the reply says in Meta.Below what became of every shard at the
// bottom of the tree, and of how many documents it speaks. Whoever asked decides whether that is enough. Three kinds of calls fail
// instead:
//
//   - those that nothing at all answered: with *api.Problem, whose cause is an *UncoveredError, or with what ended their time;
//   - those that one shard refused for the sake of the request, as one node would refuse them;
//   - those that only a complete answer is of use for (IDs, Export, Has, Sums, Digest), where anything is missing.
//
// An index that some shards have and others do not is empty on the others. A shard has it if any of its members that answer has it.
//
// # What is not as on one node
//
//   - Values of an AggregateReply stand in the order of the shards.
//   - SearchReply.Stats are those of the request; without any, and with several shards, there are none, for each was scored by its own.
//   - Limits that one node has on what a query expands to hold for each shard: a query that is just beyond one may pass.
//   - A stream (IDs, Export) that goes on at another member, because the first one failed, speaks of two snapshots.
//   - Snapshot names what all shards said together; as an Instance changes with every version, versions cannot be compared.
//
// # Concurrency
//
// A Reader is safe for concurrent use. Goroutines belong to calls, and end with them. Calls share what is known of members: latencies,
// faults, budgets of hedges.
package read
