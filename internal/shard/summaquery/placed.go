package summaquery

import (
	"encoding/binary"

	"github.com/weft-search/weft/internal/shard/exec"
)

// placed gives the documents of a leaf keys that sort as their places do: package knn tells equals apart by key, and which of them are
// among the best has to be told here as everywhere on this wire.
type placed struct {
	exec.Leaf
	n int
}

func (placed) KeyOrdered() bool { return true }

func (l placed) Key(doc uint32, dst []byte) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(dst, uint32(l.n)), doc)
}

// byPlace are the leaves with such keys.
func (r *runner) byPlace() []exec.Leaf {
	if r.placed == nil {
		for i, l := range r.ix.Leaves {
			r.placed = append(r.placed, placed{l, i})
		}
	}
	return r.placed
}
