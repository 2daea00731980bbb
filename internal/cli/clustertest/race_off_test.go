//go:build !race

package clustertest

// raced says that the tests run with the race detector, ten times slower: they ask less then.
const raced = false
