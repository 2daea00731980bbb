package node

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/leaf/framed"
	"github.com/weft-search/weft/internal/wire/frame"
)

// asker is a connection of framed JSON that takes little before it reads.
func (s *server) asker(request string) net.Conn {
	s.t.Helper()
	c, err := net.Dial("tcp", s.address(Shard))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	if err := c.(*net.TCPConn).SetReadBuffer(16 << 10); err != nil {
		s.t.Fatal(err)
	}
	if err := frame.Write(c, []byte(request)); err != nil {
		s.t.Fatal(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		s.t.Fatal(err)
	}
	return c
}

// heap is what is reachable, in bytes.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Callers of framed JSON that ask for long replies and do not read them make the node hold no more than its bound, and keep nobody
// else out.
func TestFramedRepliesThatAreNotReadAreBounded(t *testing.T) {
	const room, doc, docs, peers = 64 << 20, 1 << 20, 28, 16
	s := newServer(t, Config{ShardAddr: "127.0.0.1:0", Limits: Limits{ReplyBytes: room / replyRoom}})
	s.put("default", `{"id":"a","blob":"`+strings.Repeat("x", doc)+`"}`)
	before := heap()
	export := `{"op":"export","ids":["a"` + strings.Repeat(`,"a"`, docs-1) + `]}`
	var held []net.Conn
	for range peers {
		c := s.asker(export)
		head := make([]byte, frame.HeaderSize+60)
		if _, err := io.ReadFull(c, head); err != nil {
			t.Fatal(err)
		}
		switch {
		case binary.LittleEndian.Uint32(head) > docs*doc:
			held = append(held, c)
		case !strings.Contains(string(head), `"code":"request_memory_full"`):
			t.Fatalf("%q", head)
		}
	}
	if used := s.node.front.Replies().Used(); len(held) != 2 || used < 2*docs*doc || used > room {
		t.Errorf("%d replies are being sent, %d bytes are charged", len(held), used)
	}
	if used := s.node.memory.Used(); used != 0 {
		t.Errorf("replies that were made still hold %d bytes of the memory for making them", used)
	}
	if more := heap() - before; more > room+16<<20 {
		t.Errorf("the heap grew by %d MiB", more>>20)
	}

	// Others are served: short replies always, long ones over HTTP as before.
	l := framed.NewClient(&frame.Client{Addr: s.address(Shard)})
	defer l.Close()
	if r, err := l.Search(t.Context(), &leaf.SearchRequest{Limit: 10}); err != nil || len(r.Hits) != 1 {
		t.Errorf("search: %v, %v", r, err)
	}
	if _, err := l.Index(t.Context(), &leaf.IndexRequest{Body: []byte(`{"id":"b"}`)}); err != nil {
		t.Errorf("write: %v", err)
	}
	s.do("GET", "/search?q=id:a", "", "").want(200)

	for _, c := range held {
		c.Close()
	}
	until(t, "the room to be given back", func() bool { return s.node.front.Replies().Used() == 0 })
	n := 0
	if _, err := l.Export(t.Context(), &leaf.ExportRequest{IDs: []string{"a", "a", "a"}}, func(leaf.ExportedDoc) error { n++; return nil }); err != nil || n != 3 {
		t.Errorf("export: %d documents, %v", n, err)
	}
}

// A load is done when its reply finds no room: the reply is short then, and no error.
func TestReplyToALoadIsNeverRefused(t *testing.T) {
	s := newServer(t, Config{ShardAddr: "127.0.0.1:0"})
	s.do("PUT", "/indexes/a", "text/plain", `index a {
  field id: text<raw> [indexed, stored, primary]
  field n: u64 [fast]
}`).want(201)
	full, err := s.node.front.Replies().Enter(context.Background(), s.node.front.Replies().Limit())
	if err != nil {
		t.Fatal(err)
	}
	defer full.Release()
	lines := strings.Repeat(`{"id":"x","n":"no number"}`+"\n", 2000) + `{"id":"y","n":1}` + "\n"
	l := framed.NewClient(&frame.Client{Addr: s.address(Shard)})
	defer l.Close()
	r, err := l.Bulk(t.Context(), &leaf.BulkRequest{Index: "a"}, strings.NewReader(lines))
	if err != nil || r.Indexed != 1 || r.Failed != 2000 || len(r.Errors) == 0 || uint64(len(r.Errors))+r.ErrorsOmitted != 2000 || r.ErrorsOmitted == 0 {
		t.Errorf("%+v, %v", r, err)
	}
}
