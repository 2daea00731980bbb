package node

import (
	"net"
	"testing"

	"github.com/weft-search/weft/internal/leaf/leaftest"
	"github.com/weft-search/weft/internal/leaf/rpc"
)

func TestConformanceRPC(t *testing.T) { leaftest.Run(t, envRPC) }

func TestMemberConformanceRPC(t *testing.T) { leaftest.RunMember(t, envRPC) }

// envRPC is a node behind shard gRPC.
func envRPC(t *testing.T) leaftest.Env {
	n := newSuiteNode(t)
	inner := n.node.Leaf()
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g, _ := rpc.NewServer(inner, rpc.ServerOptions{Failed: func(call string, err error) { t.Errorf("%s: %v", call, err) }}).GRPC()
	served := make(chan error, 1)
	go func() { served <- g.Serve(listen) }()
	client, err := rpc.Dial(listen.Addr().String(), rpc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		if err := inner.Close(); err != nil {
			t.Error(err)
		}
		g.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return leaftest.Env{Leaf: client, Node: n}
}
