// Package graph is a neighbour graph for similarity search: the hierarchical navigable small world of Malkov and Yashunin,
// "Efficient and robust approximate nearest neighbor search using hierarchical navigable small world graphs"
// (https://arxiv.org/abs/1603.09320). It knows nodes by number and distances between them, and nothing of vectors.
//
// # Shape
//
// Every node is in the lowest level, the base, where it has up to 2M neighbours. A level above holds one in M of the nodes
// below it, with up to M neighbours each; levels end where at most 32 nodes are left, all of which a search compares.
//
// Nodes are inserted in the order of a hash of their number, so the order does not follow that of the data: sorted data
// would build a graph that falls apart. The first nodes of that order form the upper levels. A node of an upper level is
// named by its slot, its place in the order, which is the same in all levels; so a level needs no table to the one below.
//
// # What differs from the paper
//
//   - A node's neighbours are chosen for diversity in all levels (the paper's heuristic, Algorithm 4): one is kept only if
//     it is nearer to the node than to every neighbour kept before. In the base a new node takes up to 2M of them.
//   - Nodes are inserted in rounds: those of a round are searched for at once, against the graph before the round and
//     against one another. Rounds are of a size that depends on nothing but the number of nodes, so the graph does not
//     depend on the number of workers.
//   - In the end every node is reachable from slot 0: nodes that lost their last incoming link get a new one.
//   - A search keeps one sorted list of candidates, as in Fu et al., "Fast Approximate Nearest Neighbor Search With The
//     Navigating Spreading-out Graph" (https://arxiv.org/abs/1707.00143), instead of two heaps.
//
// A *Graph is immutable once built and safe at once; a *Searcher belongs to one goroutine.
package graph

import (
	"math"
	"slices"
)

const (
	// None fills up lists of neighbours.
	None = ^uint32(0)
	// MaxNodes is the most nodes a graph can have: keys of candidates leave 30 bits for a node.
	MaxNodes = 1<<30 - 1

	topNodes = 32 // a level with at most so many nodes is compared as a whole
)

// Graph is a built graph, or one read from memory.
type Graph struct {
	N int // nodes
	M int
	// Base has 2M neighbours of each node, nearest first where it is freshly chosen, filled up with None.
	Base []uint32
	// Nodes is the node of each slot of level 1.
	Nodes []uint32
	// Upper has for each level from 1 up M slots for each of its slots, filled up with None.
	Upper [][]uint32
}

// Levels returns the number of nodes of each level from 1 up in a graph of n nodes.
func Levels(n, m int) []int {
	var sizes []int
	for n > topNodes {
		n = (n + m - 1) / m
		sizes = append(sizes, n)
	}
	return sizes
}

// Order returns the first k nodes of n in the order of insertion.
func Order(n, k int) []uint32 {
	keys := make([]uint64, n)
	for i := range keys {
		keys[i] = mix(uint64(i))&^MaxNodes | uint64(i)
	}
	slices.Sort(keys)
	order := make([]uint32, k)
	for i := range order {
		order[i] = uint32(keys[i] & MaxNodes)
	}
	return order
}

// mix is the finaliser of splitmix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Edges is the number of links in the base.
func (g *Graph) Edges() uint64 {
	n := uint64(0)
	for _, u := range g.Base {
		if u != None {
			n++
		}
	}
	return n
}

// A candidate is a number that sorts by distance, then by node: 32 bits of distance, 30 of node, rejected, expanded.
const (
	expanded = 1
	rejected = 2
	idShift  = 2
)

// candidate makes the key of a node at a distance. What is not a number is farthest.
func candidate(dist float32, id uint32) uint64 {
	b := math.Float32bits(dist)
	b ^= uint32(int32(b)>>31) | 1<<31
	if dist != dist {
		b = math.MaxUint32
	}
	return uint64(b)<<32 | uint64(id)<<idShift
}

// distance is the distance in a key.
func distance(key uint64) float32 {
	b := uint32(key >> 32)
	return math.Float32frombits(b ^ (uint32(int32(^b)>>31) | 1<<31))
}

// node is the node, or slot, in a key.
func node(key uint64) uint32 { return uint32(key) >> idShift }

// Reachable counts the nodes of the base that can be reached from that of slot 0, or from node 0 in a graph without levels
// above. Links to what is no node are not followed.
func (g *Graph) Reachable() int {
	if g.N == 0 {
		return 0
	}
	root := uint32(0)
	if len(g.Nodes) > 0 {
		root = min(g.Nodes[0], uint32(g.N)-1)
	}
	seen := make([]bool, g.N)
	seen[root] = true
	queue, n := []uint32{root}, 1
	for len(queue) > 0 {
		u := int(queue[len(queue)-1])
		queue = queue[:len(queue)-1]
		for _, v := range g.Base[u*2*g.M : (u+1)*2*g.M] {
			if int(v) < g.N && !seen[v] {
				seen[v] = true
				queue = append(queue, v)
				n++
			}
		}
	}
	return n
}
