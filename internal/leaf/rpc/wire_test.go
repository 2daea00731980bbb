package rpc

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"
)

// rawPeer is a caller that speaks HTTP/2 by hand, and so as badly as a test wants. It never opens a window, but answers pings.
type rawPeer struct {
	t    testing.TB
	conn net.Conn
	mu   sync.Mutex // of writing
	next uint32
	gone chan struct{} // closed when the server has closed the connection
}

// rawDial connects. The server may send window bytes on each stream.
func rawDial(t testing.TB, r *rig, window uint32) *rawPeer {
	t.Helper()
	p := deafDial(t, r, window)
	go p.read()
	return p
}

// deafDial connects, and reads nothing before somebody calls read.
func deafDial(t testing.TB, r *rig, window uint32) *rawPeer {
	t.Helper()
	conn, err := r.listen.Dial()
	if err != nil {
		t.Fatal(err)
	}
	p := &rawPeer{t: t, conn: conn, next: 1, gone: make(chan struct{})}
	if _, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	p.frame(4, 0, 0, binary.BigEndian.AppendUint32([]byte{0, 4}, window))
	return p
}

func (p *rawPeer) close() {
	p.conn.Close()
	<-p.gone
}

func (p *rawPeer) read() {
	defer close(p.gone)
	for {
		var h [9]byte
		if _, err := io.ReadFull(p.conn, h[:]); err != nil {
			return
		}
		b := make([]byte, int(h[0])<<16|int(h[1])<<8|int(h[2]))
		if _, err := io.ReadFull(p.conn, b); err != nil {
			return
		}
		if h[3] == 6 && h[4] == 0 {
			p.frame(6, 1, 0, b)
		}
	}
}

func (p *rawPeer) frame(kind, flags byte, stream uint32, b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := []byte{byte(len(b) >> 16), byte(len(b) >> 8), byte(len(b)), kind, flags}
	if _, err := p.conn.Write(append(binary.BigEndian.AppendUint32(h, stream), b...)); err != nil {
		p.t.Log(err) // the test says what should have happened to the connection
	}
}

// open begins a call and sends no message.
func (p *rawPeer) open(name string) uint32 { return p.openAt(method{name: name}.path()) }

func (p *rawPeer) openAt(path string) uint32 {
	var b []byte
	for _, f := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", path},
		{":authority", "node"},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
	} {
		b = append(b, 0, byte(len(f[0])))
		b = append(append(b, f[0]...), byte(len(f[1])))
		b = append(b, f[1]...)
	}
	id := p.next
	p.next += 2
	p.frame(1, 4, id, b)
	return id
}

// begin begins a message of a length and sends the first bytes of it.
func (p *rawPeer) begin(stream uint32, length int, first []byte) {
	p.frame(0, 0, stream, append(binary.BigEndian.AppendUint32([]byte{0}, uint32(length)), first...))
}

// call sends a whole call with one message, which is small.
func (p *rawPeer) call(name string, m proto.Message) uint32 {
	p.t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		p.t.Fatal(err)
	}
	id := p.open(name)
	p.frame(0, 1, id, append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(b))), b...))
	return id
}

// reset gives a call up.
func (p *rawPeer) reset(stream uint32) { p.frame(3, 0, stream, []byte{0, 0, 0, 8}) }
