//go:build !race

package simulate

// fewer is by how much the simulations are shorter.
const fewer = 1
