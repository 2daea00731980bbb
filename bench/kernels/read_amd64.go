package main

import "golang.org/x/sys/cpu"

// readAVX2 reads n bytes, a multiple of 128, one after the other.
//
//go:noescape
func readAVX2(p *byte, n int) uint64

// readFarAVX2 is readAVX2 with requests for what comes 2 KB later.
//
//go:noescape
func readFarAVX2(p *byte, n int) uint64

// readers are loops that do nothing but read. The fastest of them says what memory can deliver to one thread.
func readers() map[string]func([]byte) uint64 {
	r := map[string]func([]byte) uint64{"Go": readGo}
	if cpu.X86.HasAVX2 {
		r["AVX2"] = func(b []byte) uint64 { return readAVX2(&b[0], len(b)&^127) }
		r["AVX2, requests ahead"] = func(b []byte) uint64 { return readFarAVX2(&b[0], len(b)&^127) }
	}
	return r
}
