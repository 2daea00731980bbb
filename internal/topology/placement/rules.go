package placement

import (
	"math/bits"
	"slices"
	"strconv"
	"sync"
)

// Placement answers by one spec. It never changes and is safe for concurrent use.
type Placement struct {
	spec Spec
	ring ring // of Ring alone
}

// New prepares a placement. A ring costs about 16 bytes and half a µs for each virtual node of each shard; keep it, or see Cache.
func New(s Spec) (*Placement, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	p := &Placement{spec: s.Normal()}
	if s.Rule == Ring {
		p.ring = newRing(p.spec)
	}
	return p, nil
}

// Spec is what the placement goes by, in its normal form.
func (p *Placement) Spec() Spec { return p.spec }

// Shard is the ordinal of the shard that owns the document with this id.
func (p *Placement) Shard(id string) int { return p.ShardOfHash(Hash(id)) }

// ShardOfKey is Shard for an id in bytes.
func (p *Placement) ShardOfKey(id []byte) int { return p.ShardOfHash(Hash(id)) }

// ShardOfHash is Shard for an id whose Hash is h. It allocates nothing and, but for Rendezvous, takes the same few nanoseconds
// whatever the number of shards.
func (p *Placement) ShardOfHash(h uint32) int {
	switch p.spec.Rule {
	case Ring:
		return p.ring.owner(h)
	case Modulo:
		return int(h % uint32(p.spec.Shards))
	default:
		return heaviest(h, p.spec.Shards)
	}
}

func heaviest(h uint32, shards int) int {
	best, owner := weight(h, 0), 0
	for s := 1; s < shards; s++ {
		if w := weight(h, s); w > best {
			best, owner = w, s
		}
	}
	return owner
}

func weight(h uint32, shard int) uint64 { return mix64(uint64(shard)<<32 | uint64(h)) }

// Owns tells whether the shard of this ordinal owns the documents with the hash h.
func (p *Placement) Owns(ordinal int, h uint32) bool { return p.ShardOfHash(h) == ordinal }

// Point is a point of a ring.
type Point struct {
	Hash  uint32
	Shard int // the ordinal
}

// Points are the points of a ring in ascending order, no two with the same hash; nil for other rules.
func (p *Placement) Points() []Point {
	if p.spec.Rule != Ring {
		return nil
	}
	out := make([]Point, len(p.ring.points))
	for i := range out {
		out[i] = Point{p.ring.points[i], int(p.ring.owners[i])}
	}
	return out
}

// ring keeps the points sorted, with a table that leads near the place of a hash: with more buckets than points a search looks at
// one or two of them.
type ring struct {
	points  []uint32
	owners  []uint16
	buckets []uint32 // for each bucket of hashes, the first point that is not below it
	shift   uint     // hash >> shift is its bucket
}

func newRing(s Spec) ring {
	// A point and its shard in one number sort by the point, then by the ordinal.
	all := make([]uint64, 0, s.Shards*s.VNodes)
	var name []byte
	for shard := range s.Shards {
		for v := range s.VNodes {
			name = strconv.AppendInt(append(name[:0], "shard:"...), int64(shard), 10)
			name = strconv.AppendInt(append(name, '#'), int64(v), 10)
			all = append(all, uint64(Hash(name))<<32|uint64(shard))
		}
	}
	slices.Sort(all)
	all = slices.CompactFunc(all, func(a, b uint64) bool { return a>>32 == b>>32 }) // keeps the first: the lowest ordinal
	width := bits.Len(uint(2*len(all) - 1))
	r := ring{
		points: make([]uint32, len(all)), owners: make([]uint16, len(all)),
		buckets: make([]uint32, 1<<width), shift: uint(32 - width),
	}
	for i, e := range all {
		r.points[i], r.owners[i] = uint32(e>>32), uint16(e)
	}
	at := 0
	for b := range r.buckets {
		for at < len(r.points) && r.points[at]>>r.shift < uint32(b) {
			at++
		}
		r.buckets[b] = uint32(at)
	}
	return r
}

func (r *ring) owner(h uint32) int {
	i := int(r.buckets[h>>r.shift])
	for i < len(r.points) && r.points[i] < h {
		i++
	}
	if i == len(r.points) {
		i = 0
	}
	return int(r.owners[i])
}

// Description says how a placement divides the hashes among the shards.
type Description struct {
	Rule   Rule       `json:"rule"`
	Points int        `json:"points"` // of the ring, those of all shards; 0 for other rules
	Shards []Division `json:"shards"` // by ordinal
}

// Division is the part of one shard.
type Division struct {
	Shard  int     `json:"shard"`
	Points int     `json:"points"` // of the ring
	Share  float64 `json:"share"`  // of all 2^32 hashes, 0 to 1
}

// Describe says how the hashes are divided. Shares are exact, but for Rendezvous, where they are what is drawn for: one in N.
func (p *Placement) Describe() Description {
	d := Description{Rule: p.spec.Rule, Points: len(p.ring.points), Shards: make([]Division, p.spec.Shards)}
	hashes := p.hashes()
	for s := range d.Shards {
		d.Shards[s] = Division{Shard: s, Share: hashes[s] / (1 << 32)}
	}
	for _, s := range p.ring.owners {
		d.Shards[s].Points++
	}
	return d
}

// hashes counts the hashes of each shard.
func (p *Placement) hashes() []float64 {
	n := make([]float64, p.spec.Shards) // whole numbers up to 2^32 are exact
	switch p.spec.Rule {
	case Ring:
		before := p.ring.points[len(p.ring.points)-1]
		for i, at := range p.ring.points {
			arc := uint64(at - before) // around the end, too
			if len(p.ring.points) == 1 {
				arc = 1 << 32
			}
			n[p.ring.owners[i]] += float64(arc)
			before = at
		}
	case Modulo:
		each, more := uint64(1<<32)/uint64(len(n)), uint64(1<<32)%uint64(len(n))
		for s := range n {
			n[s] = float64(each)
			if uint64(s) < more {
				n[s]++
			}
		}
	default:
		for s := range n {
			n[s] = float64(1<<32) / float64(len(n))
		}
	}
	return n
}

// cached is how many placements a Cache holds: those of one map, of a move, and of the map before them.
const cached = 4

// Cache gives placements by their specs and makes each only once while it is in use. The zero value is ready, and safe for
// concurrent use.
type Cache struct {
	mu struct {
		sync.Mutex
		last []*Placement // the latest used first, at most cached
	}
}

// Get is New, or what New gave before.
func (c *Cache) Get(s Spec) (*Placement, error) {
	want := s.Normal()
	c.mu.Lock()
	for i, p := range c.mu.last {
		if p.spec == want {
			copy(c.mu.last[1:i+1], c.mu.last[:i])
			c.mu.last[0] = p
			c.mu.Unlock()
			return p, nil
		}
	}
	c.mu.Unlock()
	p, err := New(s) // not under the lock: a large ring takes a while
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.mu.last) < cached {
		c.mu.last = append(c.mu.last, nil)
	}
	copy(c.mu.last[1:], c.mu.last)
	c.mu.last[0] = p
	return p, nil
}
