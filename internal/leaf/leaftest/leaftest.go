// Package leaftest is the one suite that every leaf.Leaf passes: the node in process, and the client of each wire with a node behind
// it. What a leaf answers is held, to the bit, against what the same node answers in process.
package leaftest

import (
	"testing"

	"github.com/weft-search/weft/internal/leaf"
)

// Env is a leaf under test with the node behind it.
type Env struct {
	// Leaf is the implementation under test, connected to Node. Some tests close it.
	Leaf leaf.Leaf
	Node Node
	Wire Wire
}

// Node is the node behind a leaf, as far as the suite has to look into it. Safe for concurrent use.
type Node interface {
	// Leaf is the node in process; what it answers is taken for right. The suite does not close it.
	Leaf() leaf.Leaf
	// Create makes an index from SDL.
	Create(t testing.TB, index, sdl string)
	// Flush writes the documents of an index that are in memory into a segment.
	Flush(t testing.TB, index string)
	// Running counts the calls that the node has taken and not ended, those that wait for a place among them.
	Running() int
	// Waiting counts the calls that wait for a place of the kind.
	Waiting(kind Place) int
	// Occupy takes every place of the kind, so that calls wait, until release is called. Calling that again does nothing.
	Occupy(t testing.TB, kind Place) (release func())
}

// Place is what calls wait for.
type Place uint8

// Places.
const (
	Searches Place = iota
	Writes
	Bulks
	Scans // of IDs and Export; 32 calls may wait for one
)

// Wire says what the way between the leaf and the node cannot carry. The zero value is a way that carries everything.
type Wire struct {
	// QueryStrings: queries travel in the query-string language, which has no Match and no Filter of a Bool.
	QueryStrings bool
	// Buffered: what other wires stream (ids, exported documents, the body of a bulk load) travels in one message, so that the slower
	// end does not slow the faster one down.
	Buffered bool
	// NoNodeID: the reply to a ping does not name the node.
	NoNodeID bool
	// NoBegun: that a call has got its place is not told before its answer.
	NoBegun bool
}

// Run runs the suite. env makes a leaf with a fresh node of its own, with Limits as node.Config has them by default; what it starts
// ends with t.
func Run(t *testing.T, env func(t *testing.T) Env) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, e Env)
	}{
		{"Read", testRead},
		{"Lists", testLists},
		{"Large", testLarge},
		{"Errors", testErrors},
		{"Limits", testLimits},
		{"Writes", testWrites},
		{"Bulk", testBulk},
		{"Waiting", testWaiting},
		{"Refused", testRefused},
		{"Cancelled", testCancelled},
		{"Close", testClose},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, env(t)) })
	}
}
