// Package shardtest runs a real weft node and speaks the shard protocols with it: in good order, out of it, and across restarts.
package shardtest
