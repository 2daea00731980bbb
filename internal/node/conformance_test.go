package node

import (
	"context"
	"sync"
	"testing"

	"github.com/weft-search/weft/internal/admit"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/leaf/leaftest"
)

// suiteNode is a node as the suite of package leaftest looks into it.
type suiteNode struct {
	*server
	leaf leaf.Leaf
}

// newSuiteNode starts a node for the suite.
func newSuiteNode(t *testing.T) *suiteNode {
	t.Helper()
	s := &suiteNode{server: newServer(t, Config{Version: "suite"})}
	s.leaf = s.node.Leaf()
	return s
}

func (s *suiteNode) Leaf() leaf.Leaf { return s.leaf }

func (s *suiteNode) Create(t testing.TB, index, sdl string) {
	t.Helper()
	s.do("PUT", "/indexes/"+index, "text/plain", sdl).want(201)
}

func (s *suiteNode) Flush(t testing.TB, index string) {
	t.Helper()
	l, err := s.node.catalog.use(context.Background(), index)
	if err != nil {
		t.Fatal(err)
	}
	defer l.release()
	if err := l.eng.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func (s *suiteNode) Running() int { return s.node.front.Drain().UnderWay() }

func (s *suiteNode) gate(kind leaftest.Place) *admit.Gate {
	return map[leaftest.Place]*admit.Gate{
		leaftest.Searches: s.node.searches, leaftest.Writes: s.node.writes, leaftest.Bulks: s.node.bulks, leaftest.Scans: s.node.scans,
	}[kind]
}

func (s *suiteNode) Waiting(kind leaftest.Place) int { return int(s.gate(kind).Waiting()) }

func (s *suiteNode) Occupy(t testing.TB, kind leaftest.Place) (release func()) {
	t.Helper()
	g := s.gate(kind)
	place, err := g.Enter(context.Background(), g.Limit())
	if err != nil {
		t.Fatal(err)
	}
	release = sync.OnceFunc(place.Release)
	t.Cleanup(release)
	return release
}

func TestConformanceInProcess(t *testing.T) {
	leaftest.Run(t, func(t *testing.T) leaftest.Env {
		n := newSuiteNode(t)
		return leaftest.Env{Leaf: n.node.Leaf(), Node: n}
	})
}
