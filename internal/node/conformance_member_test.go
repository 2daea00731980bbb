package node

import (
	"testing"

	"github.com/weft-search/weft/internal/leaf/leaftest"
)

func TestMemberConformanceInProcess(t *testing.T) {
	leaftest.RunMember(t, func(t *testing.T) leaftest.Env {
		n := newSuiteNode(t)
		return leaftest.Env{Leaf: n.node.Leaf(), Node: n}
	})
}
