package shard

// Condition says which document of a key an operation is meant for: the one that a snapshot showed, or none. A document that was put
// again meanwhile is another one, even if it says the same. The condition outlives its snapshot.
type Condition struct {
	p   *part // nil: there is none
	doc uint32
}

// Look returns the place of the live document with the key, as Find does, with the condition that what was found is still so when an
// operation is applied. The condition of a masked snapshot is nil.
func (sn *Snapshot) Look(key string) (leaf int, doc uint32, ok bool, cond *Condition) {
	leaf, doc, ok = sn.Find(key)
	switch {
	case sn.owner == nil:
	case ok:
		cond = &Condition{sn.parts[leaf], doc}
	default:
		cond = &Condition{}
	}
	return leaf, doc, ok, cond
}

// holds tells whether the document that is alive now, after all applied operations, is the one that is meant. Flushes and merges move
// documents; the places they had lead to those they have. It needs writeMu.
func (c *Condition) holds(p *part, doc uint32, exists bool) bool {
	switch {
	case c == nil:
		return true
	case c.p == nil || !exists:
		return c.p == nil && !exists
	}
	meant, d, ok := current(c.p, c.doc)
	return ok && meant == p && d == doc
}
