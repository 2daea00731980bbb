package node

import (
	"net"
	"testing"

	"github.com/weft-search/weft/internal/leaf/framed"
	"github.com/weft-search/weft/internal/leaf/leaftest"
	"github.com/weft-search/weft/internal/wire/frame"
)

func TestMemberConformanceFramed(t *testing.T) {
	leaftest.RunMember(t, func(t *testing.T) leaftest.Env {
		n := newSuiteNode(t)
		inner := n.node.Leaf()
		server := &frame.Server{Handler: framed.NewHandler(inner, framed.HandlerOptions{}).Handle, Refuse: framed.Refuse}
		listen, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() { served <- server.Serve(listen) }()
		client := framed.NewClient(&frame.Client{Addr: listen.Addr().String()})
		t.Cleanup(func() {
			if err := client.Close(); err != nil {
				t.Error(err)
			}
			if err := server.Close(); err != nil {
				t.Error(err)
			}
			<-served
			if err := inner.Close(); err != nil {
				t.Error(err)
			}
		})
		return leaftest.Env{Leaf: client, Node: n, Wire: leaftest.Wire{QueryStrings: true, Buffered: true, NoBegun: true}}
	})
}
