// Package clustertest holds the tests that need nodes and coordinators together: that a cluster answers exactly as one node does, that
// what is claimed of placement, moves and repairs is so, and that nothing acknowledged is lost whatever dies.
package clustertest
