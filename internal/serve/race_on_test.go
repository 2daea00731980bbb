//go:build race

package serve

// raceEnabled: the race detector makes sync.Pool drop objects at random, so allocations cannot be counted.
const raceEnabled = true
