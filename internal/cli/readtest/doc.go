// Package readtest holds reads over groups of nodes against one node that has all the documents.
package readtest
