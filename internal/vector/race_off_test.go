//go:build !race

package vector

// raceEnabled makes tests of large data smaller under the race detector.
const raceEnabled = false
