package node

import (
	"encoding/binary"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/leaf/framed"
	"github.com/weft-search/weft/internal/wire/frame"
)

// announced is a connection of framed JSON that announces a long frame and has sent so much of it.
func (s *server) announced(length, sent int) net.Conn {
	s.t.Helper()
	c, err := net.Dial("tcp", s.address(Shard))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	if _, err := c.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(length)), make([]byte, sent)...)); err != nil {
		s.t.Fatal(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		s.t.Fatal(err)
	}
	return c
}

// Connections that announce long frames and send them slowly leave loads over HTTP and short requests their memory.
func TestLoadsWorkWhileFramesTrickle(t *testing.T) {
	const memory, length = 64 << 20, 63 << 20
	s := newServer(t, Config{ShardAddr: "127.0.0.1:0", Limits: Limits{RequestBytes: memory}})
	l := framed.NewClient(&frame.Client{Addr: s.address(Shard)})
	defer l.Close()
	others := func() {
		t.Helper()
		s.bulk("default", `{"id":"a"}`+"\n"+`{"id":"b","t":"`+strings.Repeat("a ", 100<<10)+`"}`).want(200)
		s.put("default", `{"id":"c","t":"`+strings.Repeat("a ", 100<<10)+`"}`)
		if _, err := l.Search(t.Context(), &leaf.SearchRequest{Limit: 10}); err != nil {
			t.Errorf("search: %v", err)
		}
	}

	// The announcement counts for nothing, and what has come for twice of it at most.
	const peers, sent = 20, 300 << 10
	for range peers {
		s.announced(length, sent)
	}
	until(t, "all have begun", func() bool { return s.node.memory.Used() >= peers*sent })
	if used := s.node.memory.Used(); used > 2*peers*sent {
		t.Errorf("%d bytes are held of %d that came", used, peers*sent)
	}
	others()
	if _, err := l.Index(t.Context(), &leaf.IndexRequest{Body: []byte(`{"id":"d","t":"` + strings.Repeat("a ", 60_000) + `"}`)}); err != nil {
		t.Errorf("a document of 120 KB in a frame: %v", err)
	}

	// What has come holds no more than the share of frames.
	for range 2 {
		before := s.node.memory.Used()
		s.announced(length, 5<<20)
		until(t, "a frame to have come", func() bool { return s.node.memory.Used() == before+8<<20 })
	}
	c := s.announced(length, 5<<20)
	if reply, err := frame.Read(c, 0, nil); err != nil || !strings.Contains(string(reply), `"code":"request_memory_full"`) {
		t.Errorf("a frame beyond the share: %s, %v", reply, err)
	}
	if used := s.node.memory.Used(); used > memory/2 {
		t.Errorf("frames that are being received hold %d bytes", used)
	}
	others()
}
