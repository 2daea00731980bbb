//go:build !race

package jobs

// raced says that the tests run with the race detector, ten times slower: they take fewer rounds then.
const raced = false
