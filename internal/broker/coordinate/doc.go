// Package coordinate ranks what the nodes of a Summa index nominate: the searches of section "When the broker coordinates" of
// contracts/coordinated-search.md, on one shard and on several.
//
// # Contract
//
// Admit holds a request against the rules and makes a Plan; Plan.Request is what nodes are asked, and Plan.Answer makes the answer of what they
// replied. The package has no transport and asks nobody: package partition makes the rounds. The arithmetic is that of package score and
// package formula, which nodes use as well: one implementation, two callers. A B with a number is that line of contracts/differences.md.
//
// There are four ways to an answer:
//
//   - fusion: nodes nominate (FUSION_CANDIDATES), and the branches are fused over the passages of all shards
//   - formula: nodes score by the formula and return their best documents with cells and rows; each score is computed again and has to come
//     out the same, whatever the sign of a zero (B9)
//   - formula with rrf: nodes return all that they nominated, unscored; the reciprocal ranks are those over all shards
//   - by score: what was asked for is only told besides (traces, votes); hits are merged by the scores that they have
//
// Replies are evidence. What is incomplete, damaged or contradicts itself is refused with FAILED_PRECONDITION, and nothing is ranked without
// it. Requests are refused with INVALID_ARGUMENT before a node is asked.
//
// # Memory
//
// Replies are read where they lie, and hits stay the bytes that they were: unknown fields and the order of map entries come through (B11). The
// replies, what is made of them, and the answer take no more than the transfer allowance (Limits.Transfer) and MostHeld besides, which is
// charged before it is taken and told to Limits.Hold; more is RESOURCE_EXHAUSTED. A hit takes about 100 bytes besides, a passage that is
// ranked about 200.
//
// A Plan is used by one goroutine.
package coordinate
