//go:build race

package coordinate_test

// oracleRounds is how many searches are held against the oracle; the race detector makes each ten times as long.
const oracleRounds = 200
