//go:build !race

package cli

// raceEnabled says that everything takes ten times as long.
const raceEnabled = false
