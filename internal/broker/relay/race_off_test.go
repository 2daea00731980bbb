//go:build !race

package relay

// raceEnabled says that everything takes many times as long.
const raceEnabled = false
