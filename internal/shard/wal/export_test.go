package wal

import "hash/crc32"

func crc(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// pending returns the bytes that wait for the committer.
func (l *Log) pending() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.fill == nil {
		return 0
	}
	return len(l.mu.fill.buf)
}
