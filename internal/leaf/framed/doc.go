// Package framed carries the shard protocol as framed JSON: requests and replies are JSON objects in the frames of package
// wire/frame, one reply for each request. It is a public protocol; docs/shard-protocols.md sets it out for those who speak it by
// hand, and the golden files in testdata pin it.
//
// Handler serves a leaf.Leaf or a leaf.Member to frames; Client is a leaf.Member that asks over frames. For each operation the four
// directions stand in one file: write a request, read it, write a reply, read it.
//
// Requests are read strictly: unknown and repeated members are refused by name, numbers exactly, and counts are checked against the
// limits of package leaf before anything is made of them. Replies are read leniently: a member that is not known is passed over, so
// that a newer node can say more.
//
// Handler and Client are safe for concurrent use.
package framed
