// Package oracletest says by brute force what searches of Summa find, and makes documents and requests by chance to ask that of. Package
// summaquery is held against it in process, and a node over the wire.
//
// Nothing here is safe for concurrent use. It is for tests.
package oracletest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
)

// Seed gives the seed of a test that goes by chance, and prints it: WEFT_SEED if set.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("WEFT_SEED"); s != "" {
		if _, err := fmt.Sscan(s, &seed); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("WEFT_SEED=%d", seed)
	return seed
}

// Only tells whether a round is wanted: WEFT_ROUND if set, else every one.
func Only(round int) bool {
	s := os.Getenv("WEFT_ROUND")
	return s == "" || s == fmt.Sprint(round)
}

// Rounds is how often a test does what it does: more with WEFT_LONG.
func Rounds(short, long int) int {
	if os.Getenv("WEFT_LONG") != "" {
		return long
	}
	return short
}
