package shard

import (
	"time"

	"github.com/zeebo/xxh3"
)

// departedSlots is over how many times the deletions of a shard are spread: 64 KiB. With a thousand deletions in the time of Undisturbed one
// new key of seventeen falls on the slot of one.
const departedSlots = 1 << 14

// departed knows of every key whether it may have been deleted within Undisturbed, in fixed memory: a key shares its slot with others, so the
// answer yes may be wrong, and no is right. The zero value knows that nothing was deleted.
type departed struct {
	unknown time.Time // until then every key may have been
	began   time.Time
	slots   []uint32 // seconds since began, rounded up, of the last deletion of a key of the slot; 0: none. nil: none at all
}

// all notes that any key may have been deleted.
func (d *departed) all(now time.Time) { d.unknown, d.slots = now.Add(Undisturbed), nil }

// add notes the deletion of a key.
func (d *departed) add(key string, now time.Time) {
	if d.slots == nil {
		d.began, d.slots = now, make([]uint32, departedSlots)
	}
	d.slots[slotOf(key)] = uint32(now.Sub(d.began)/time.Second) + 1
}

// lately tells whether a key may have been deleted within Undisturbed.
func (d *departed) lately(key string, now time.Time) bool {
	if now.Before(d.unknown) {
		return true
	}
	if d.slots == nil {
		return false
	}
	at := d.slots[slotOf(key)]
	return at > 0 && now.Sub(d.began) <= time.Duration(at)*time.Second+Undisturbed
}

func slotOf(key string) uint64 { return xxh3.HashString(key) % departedSlots }
