//go:build !amd64

package main

// readers are loops that do nothing but read. The fastest of them says what memory can deliver to one thread.
func readers() map[string]func([]byte) uint64 {
	return map[string]func([]byte) uint64{"Go": readGo}
}
