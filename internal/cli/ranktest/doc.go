// Package ranktest holds a Summa broker in front of several shards against what one node with all documents answers, and against nodes that
// answer what no node should.
//
// Documents and requests are made by chance (package oracletest): WEFT_SEED and WEFT_ROUND do one again, WEFT_LONG does many more.
package ranktest
