package shard

import (
	"time"

	"github.com/zeebo/xxh3"
)

// disturbedSlots is over how many times the deletions of a shard, and the looks at it, are spread: 64 KiB. With a thousand of them in the time of
// Undisturbed one other key of seventeen falls on the slot of one.
const disturbedSlots = 1 << 14

// disturbances knows of every key whether it may have been deleted or looked at within Undisturbed, in fixed memory: a key shares its slot with
// others, so the answer yes may be wrong, and no is right. The zero value knows that nothing was.
type disturbances struct {
	unknown time.Time // until then every key may have been
	began   time.Time
	slots   []uint32 // seconds since began, rounded up, of the last deletion of a key of the slot or look at it; 0: none. nil: none at all
}

// all notes that any key may have been.
func (d *disturbances) all(now time.Time) { d.unknown, d.slots = now.Add(Undisturbed), nil }

// add notes the deletion of a key, or a look.
func (d *disturbances) add(key string, now time.Time) {
	if d.slots == nil {
		d.began, d.slots = now, make([]uint32, disturbedSlots)
	}
	d.slots[slotOf(key)] = uint32(now.Sub(d.began)/time.Second) + 1
}

// lately tells whether a key may have been within Undisturbed.
func (d *disturbances) lately(key string, now time.Time) bool {
	if now.Before(d.unknown) {
		return true
	}
	if d.slots == nil {
		return false
	}
	at := d.slots[slotOf(key)]
	return at > 0 && now.Sub(d.began) <= time.Duration(at)*time.Second+Undisturbed
}

func slotOf(key string) uint64 { return xxh3.HashString(key) % disturbedSlots }
