// Package clustertest holds clusters of real nodes against one node with all documents. It stands above both, and has tests only.
package clustertest
