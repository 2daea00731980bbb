//go:build race

package simulate

// fewer is by how much the simulations are shorter: the race detector makes a call cost more than ten times as much.
const fewer = 10
