//go:build race

package fleet

// raceEnabled says that everything takes ten times as long.
const raceEnabled = true
