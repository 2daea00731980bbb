//go:build !race

package h2

const racing = false
