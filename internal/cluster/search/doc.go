// Package search answers searches over a whole cluster exactly as a node answers them over its own snapshot: the same hits with the same
// bits, totals, facets, aggregations, cursors, explanations, fragments, notes and problems. It asks one leaf.Member that stands for all
// shards, and knows neither shards nor wires. What a request means and how an answer is written is in package api/bound, which the node
// goes by as well.
//
// # Phases
//
// A search holds its request against the schema of the whole index; what a node would refuse is refused here, in the same words, before
// anything is sent. Shards are then asked leniently: one that has not seen a field has nothing in it.
//
//   - statistics: sums over all shards, where scores have to be those of the whole. See below.
//   - search, knn: the best of each shard, merged; beside each other where there are both. A page of few hits brings its sources with it.
//   - aggregate: facets and aggregations, beside the search. Those of a search by vectors alone are over its hits, and come after.
//   - fetch: sources, fragments and explanations of the page, by id.
//
// # Statistics
//
// With dfs, and always for the text ranking of a hybrid search, scores are made with the statistics of the whole index. The sum that was last
// seen is remembered for each query and sent with the search at once; every shard answers with its own statistics of the moment, and
// where their sum is another one, the search is repeated with it. So exactness is verified, and mostly costs no round of its own. Where the
// sum still moves after some repeats, or where a shard is missing from it, the reply says so: "dfs" is false, "approximate" has
// "statistics", and a note tells why.
//
// Without dfs each shard scores with its own statistics. The reply has "local" in "approximate" where that were several shards, and its
// cursor holds no statistics. Statistics never decide which documents match, unless a query has a Match with MaxTerms; then they are asked
// for in any case.
//
// # What is missing
//
// A shard that did not answer is data. Each phase has its own accounting: that of search and knn is "shards" and "coverage", shards lost
// while aggregating are "agg_failed_addresses", those lost in other phases stand in "phases". An answer is complete only if nothing was
// lost in any of them. allow_partial=false and min_coverage refuse what covers too little.
//
// # What is not as on one node
//
//   - "explain" has no plan of the vector search, and "profile" speaks of shards and rounds, not of segments.
//   - A request with two faults may be refused for the other one: aggregations are checked before the search.
//   - Between the phases documents may change: a hit that was deleted meanwhile is left out, with a note; a source may be newer than its
//     score. On a small page without fragments and explanations both are of one moment.
//   - Facets and aggregations are made beside the search, on a snapshot of their own.
//   - Limits that a node has on what a query expands to hold for each shard.
//   - knn_recall takes its sample by the hashes of ids, not by the place in a segment: it is the same however documents are spread, and
//     where all vectors are asked for it is all of them.
package search
