package vector

import (
	"bytes"
	"math"

	"github.com/weft-search/weft/internal/vector/graph"
)

// Verify reads the whole section and says, as a *CorruptError, what no writer would have written. It computes codes and norms
// afresh and walks the graph; only whether each neighbour was the best choice is not told.
func (x *Index) Verify() error {
	if err := x.verifyOwners(); err != nil {
		return err
	}
	v := make([]float32, x.p.Dim)
	for i := range x.n {
		if err := x.verifyRecord(x.Record(i), v); err != "" {
			return corrupt("records", "vector %d: %s", i, err)
		}
	}
	if x.g == nil {
		return nil
	}
	if err := x.verifyCodes(v); err != nil {
		return err
	}
	return x.verifyGraph()
}

// verifyOwners checks which vectors belong to which document.
func (x *Index) verifyOwners() error {
	last, docs, most := uint32(0), 0, uint32(1)
	for d, e := range x.ends {
		if e < last || int(e) > x.n {
			return corrupt("ends", "document %d ends at vector %d after %d, of %d", d, e, last, x.n)
		}
		if e > last {
			docs++
		}
		most = max(most, e-last)
		if x.docs != nil {
			for i := last; i < e; i++ {
				if x.docs[i] != uint32(d) {
					return corrupt("owners", "vector %d is of document %d, not %d", i, x.docs[i], d)
				}
			}
		}
		last = e
	}
	if x.ends != nil && int(last) != x.n {
		return corrupt("ends", "%d of %d vectors belong to documents", last, x.n)
	}
	if x.ends != nil && (docs != x.Docs() || x.most != 0 && int(most) != x.most) {
		return corrupt("ends", "%d documents have up to %d vectors; the header says %d and %d", docs, most, x.Docs(), x.most)
	}
	return nil
}

// verifyRecord says what is wrong with a record, if anything.
func (x *Index) verifyRecord(rec []byte, v []float32) string {
	if x.p.Kind == Binary {
		return ""
	}
	if x.p.Element == Int8 {
		lo, step := int8Head(rec[x.p.head():])
		if lo-lo != 0 || step-step != 0 || step < 0 {
			return "its scale is no scale"
		}
	}
	decode(x.p, rec, v)
	for _, c := range v {
		if c-c != 0 {
			return "a component is not finite"
		}
	}
	if x.p.Metric == Cosine && math.Float32bits(norm(v)) != math.Float32bits(recordNorm(rec)) {
		return "its norm is not that of its components"
	}
	return ""
}

// verifyCodes computes the centre and the codes again.
func (x *Index) verifyCodes(v []float32) error {
	part := x.g
	if part.starts != nil {
		if err := part.verifyGroups(x.n); err != nil {
			return err
		}
	}
	if x.p.Kind == Dense {
		for j, c := range centreOf(x.p, x, v) {
			if math.Float32bits(c) != math.Float32bits(part.centre[j]) {
				return corrupt("centre", "component %d is %v, not %v", j, part.centre[j], c)
			}
		}
		if needsFine(x.p, x, part.centre) != part.fine {
			return corrupt("header", "codes are fine or not against what the vectors need")
		}
	}
	var code []byte
	for i := range x.n {
		rec := x.Record(i)
		if x.p.Kind == Dense {
			code, _, _ = appendCode(x.p, part.fine, code[:0], rec, part.centre, v)
		} else {
			code = append(code[:0], rec...)
		}
		node := uint32(i)
		if part.nodeOf != nil {
			node = part.nodeOf[i]
		}
		if !bytes.Equal(code, part.c.at(node)) {
			return corrupt("codes", "that of vector %d is not of its record", i)
		}
	}
	return nil
}

// verifyGroups checks that every vector is in the group of its node, in order, and that nodes are in order of their first.
func (part *graphPart) verifyGroups(n int) error {
	nodes := len(part.starts) - 1
	if part.starts[0] != 0 || int(part.starts[nodes]) != n {
		return corrupt("starts", "groups do not hold all vectors")
	}
	first := -1
	for k := range nodes {
		from, to := part.starts[k], part.starts[k+1]
		if from >= to || int(to) > n {
			return corrupt("starts", "node %d begins at %d and ends at %d of %d", k, from, to, n)
		}
		for i := from; i < to; i++ {
			ord := part.members[i]
			if int(ord) >= n || i > from && ord <= part.members[i-1] || part.nodeOf[ord] != uint32(k) {
				return corrupt("members", "vector %d in the group of node %d", ord, k)
			}
		}
		if int(part.members[from]) <= first {
			return corrupt("members", "nodes are not in the order of their first vectors")
		}
		first = int(part.members[from])
	}
	return nil
}

// verifyGraph checks the lists of neighbours and that every node is reached.
func (x *Index) verifyGraph() error {
	g := x.g.g
	if edges := g.Edges(); edges != x.g.edges {
		return corrupt("header", "the graph has %d links, the header says %d", edges, x.g.edges)
	}
	if len(g.Upper) > 0 {
		for i, node := range graph.Order(g.N, len(g.Nodes)) {
			if g.Nodes[i] != node {
				return corrupt("slots", "slot %d is of node %d, not %d", i, g.Nodes[i], node)
			}
		}
	}
	if node, ok := badList(g.Base, 2*g.M, g.N); ok {
		return corrupt("base", "neighbours of node %d", node)
	}
	for l, links := range g.Upper {
		if slot, ok := badList(links, g.M, len(links)/g.M); ok {
			return corrupt("levels", "neighbours of slot %d in level %d", slot, l+1)
		}
	}
	if n := g.Reachable(); n != g.N {
		return corrupt("base", "%d of %d nodes can be reached", n, g.N)
	}
	return nil
}

// badList finds a row of links with one that is beyond the n nodes, to itself, there twice, or after the end of the list.
func badList(links []uint32, degree, n int) (row int, ok bool) {
	for row := range n {
		list := links[row*degree : (row+1)*degree]
		ended := false
		for i, u := range list {
			switch {
			case u == graph.None:
				ended = true
				continue
			case ended, int(u) >= n, int(u) == row:
				return row, true
			}
			for _, w := range list[:i] {
				if w == u {
					return row, true
				}
			}
		}
	}
	return 0, false
}
