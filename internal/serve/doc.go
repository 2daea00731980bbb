// Package serve is the serving tree: one way to ask many shards at once, to bear with those that fail or are late, and to merge what
// the others say.
package serve
