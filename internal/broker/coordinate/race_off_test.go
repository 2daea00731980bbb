//go:build !race

package coordinate_test

// oracleRounds is how many searches are held against the oracle.
const oracleRounds = 2000
