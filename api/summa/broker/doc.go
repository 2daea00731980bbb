// Package brokerpb is the wire on which a Summa broker tells of the nodes behind it, generated from broker.proto together with
// package summapb.
package brokerpb
