//go:build race

package shard

// raceEnabled says that pools drop what is put into them at random.
const raceEnabled = true
