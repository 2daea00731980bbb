// Package service is the Summa broker: one address for a fleet of Summa servers and weft nodes, by contracts/coordinated-search.md.
//
// It joins what stands below it: package fleet knows the nodes, route decides who is asked, relay takes the calls and passes them on as bytes,
// partition does what concerns several shards, coordinate ranks what they nominate. What is left to it is admission, health, the admin service, metrics, and the order of it
// all: shutting down, route, permits, checks, the call.
//
// A call of an index on one shard is passed through: nothing of it is decoded but the index's name. Searches that the broker ranks itself
// (section "When the broker coordinates") are decoded, on one shard as on several: package coordinate says what nodes are asked and ranks
// what they answer.
//
// A Broker is made, started, and closed once; its goroutines end with Close.
package service
