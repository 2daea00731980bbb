//go:build race

package h2

// racing says that the race detector is there, which learns what comes before what from the calls of package syscall alone.
const racing = true
