package graph

// fetch asks for the cache lines of both ends of a list, which is then there when its turn comes. It changes nothing else.
//
//go:noescape
func fetch(first, last *uint32)
