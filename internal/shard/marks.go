package shard

import "github.com/zeebo/xxh3"

// Slots of marks: from 1 KiB to 256 KiB, in buckets of one cache line.
const (
	leastMarks = 1 << 6
	mostMarks  = 1 << 14
	bucketLen  = 4
)

// marks knows of keys which marked write was the last thing that was done with them, in bounded memory: those that were written last, about. Keys of
// one hash count as one: what is said of them is what was done with any of them last. The zero value knows of none.
type marks struct {
	buckets []bucket // a power of two; nil: none
	used    int      // slots, about
}

type bucket [bucketLen]marked

// marked is what is known of one key; the mark is 0 where nothing is.
type marked struct{ hash, mark uint64 }

func (m *marks) at(hash uint64) *bucket { return &m.buckets[hash&uint64(len(m.buckets)-1)] }

// find returns the slot of a key; nil if nothing is known of it.
func (m *marks) find(key string) *marked {
	if m.buckets == nil {
		return nil
	}
	h := xxh3.HashString(key)
	b := m.at(h)
	for i := range b {
		if s := &b[i]; s.hash == h && s.mark != 0 {
			return s
		}
	}
	return nil
}

// note notes that something is done with a key, and returns the mark of what was done with it last; 0: that had none, or is not known.
func (m *marks) note(key string, mark uint64) (behind uint64) {
	if s := m.find(key); s != nil {
		behind, s.mark = s.mark, mark
		if mark == 0 {
			m.used--
		}
		return behind
	}
	if mark == 0 {
		return 0
	}
	if n := bucketLen * len(m.buckets); 2*m.used >= n && n < mostMarks {
		m.grow()
	}
	m.put(marked{xxh3.HashString(key), mark})
	return 0
}

func (m *marks) put(s marked) {
	b := m.at(s.hash)
	for i := range b {
		if b[i].mark == 0 {
			b[i] = s
			m.used++
			return
		}
	}
	b[s.mark>>1%bucketLen] = s // marks are random numbers
}

// grow doubles the slots.
func (m *marks) grow() {
	old := m.buckets
	m.buckets, m.used = make([]bucket, max(2*len(old), leastMarks/bucketLen)), 0
	for i := range old {
		for _, s := range old[i] {
			if s.mark != 0 {
				m.put(s)
			}
		}
	}
}

// look notes a look at a key by the writer of a mark, 0 for anybody else, and tells whether that write was the last thing that was done with it.
func (m *marks) look(key string, mark uint64) bool {
	s := m.find(key)
	switch {
	case s == nil:
		return false
	case mark != 0 && s.mark == mark:
		s.mark = mark | 1 // it was seen: writes that are behind this at one member and not at another crossed the look
		return true
	}
	s.mark = 0
	m.used--
	return false
}
