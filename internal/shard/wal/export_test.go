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

// extent is how much is written in the current file, and how long the file is.
func (l *Log) extent() (size, room int64) {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	return l.size, l.room
}

// written is the first of extent.
func (l *Log) written() int64 {
	size, _ := l.extent()
	return size
}
