package grpcraw

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2/hpack"

	"github.com/weft-search/weft/internal/wire/h2"
)

const (
	// FreeWindow is how much of a reply may come before somebody says how much there is room for.
	FreeWindow = h2.DefaultWindow
	// connWindow is how much of all replies may be on its way on a connection.
	connWindow = 4 << 20
	// maxOut is how much may wait to be written before calls wait with more, and maxControl what the peer may make us write on top.
	maxOut     = 256 << 10
	maxControl = 1 << 20
	// firstStreams is how many calls run on a connection whose peer sets no limit.
	firstStreams = 1000
)

// conn is a connection to a node.
type conn struct {
	node *Node
	nc   net.Conn
	sock *h2.Socket // nil: only nc

	mu       sync.Mutex
	streams  map[uint32]*stream
	next     uint32       // id
	room     int64        // send window of the connection
	initial  int64        // send window of a new stream
	frame    int          // longest frame that the peer takes
	most     atomic.Int64 // streams at once that the peer takes
	leaving  bool         // the peer takes no more streams
	err      *Error       // the connection is over
	out      []byte       // frames to be written
	spare    []byte
	rest     []byte // of what is being written
	flushing bool
	one      [1][]byte // what who flushes writes
	blocked  []*stream // that wait with their messages
	turns    turns
	enc      *hpack.Encoder
	encoded  bytes.Buffer
	settled  chan struct{} // closed when the settings of the peer are there
	gone     chan struct{} // closed when the connection is over

	active int // streams that were given out, kept under node.mu

	// Of the reader.
	in     h2.Reader
	blk    block // under way
	owed   int64
	to     *stream // of the DATA frame under way; nil: nobody wants it
	woken  []*stream
	seen   bool // settings
	heard  bool // anything since the deadline was set
	pinged bool
}

// pinned is the part of a chunk that a piece of a reply has to be to keep the chunk.
const pinned = 32

func newConn(n *Node, nc net.Conn) *conn {
	c := &conn{
		node: n, nc: nc, sock: h2.SocketOf(nc), streams: map[uint32]*stream{}, next: 1,
		room: h2.DefaultWindow, initial: h2.DefaultWindow, frame: h2.MaxFrame, settled: make(chan struct{}), gone: make(chan struct{}),
	}
	c.most.Store(firstStreams)
	c.enc = hpack.NewEncoder(&c.encoded)
	c.in.Init(nc, c.sock, c, h2.ReaderOptions{MaxBlock: maxHeaderBlock, MaxString: maxHeaderList, Pinned: pinned})
	c.out = append(c.out, h2.Preface...)
	c.control(h2.Settings, 0, 0, binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(
		binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(nil, h2.SettingPush), 0), h2.SettingHeaderList), maxHeaderList))
	c.control(h2.Window, 0, 0, binary.BigEndian.AppendUint32(nil, connWindow-h2.DefaultWindow))
	return c
}

// control queues a short frame. Called with the lock held, but for the first ones.
func (c *conn) control(kind, flags byte, id uint32, payload []byte) {
	c.out = append(h2.AppendFrame(c.out, kind, flags, id, len(payload)), payload...)
}

func (c *conn) window(id uint32, n int64) {
	c.out = h2.AppendWindow(c.out, id, n)
}

func (c *conn) reset(id, code uint32) {
	c.out = h2.AppendReset(c.out, id, code)
}

// open begins a call. Nothing was sent after errTaken.
func (c *conn) open(s *stream) error {
	c.mu.Lock()
	if c.err != nil || c.leaving || c.next > h2.MaxStreamID {
		c.leaving = true
		c.mu.Unlock()
		return errTaken
	}
	s.id = c.next
	c.next += 2
	s.room = c.initial
	c.streams[s.id] = s
	c.headers(s)
	c.sendSome(s)
	c.mu.Unlock()
	c.flush()
	return nil
}

// headers queues those of a call.
func (c *conn) headers(s *stream) {
	put := func(name, value string) { c.field(hpack.HeaderField{Name: name, Value: value}) }
	c.encoded.Reset()
	put(":method", "POST")
	put(":scheme", "http")
	put(":path", s.call.Method)
	put(":authority", c.node.addr)
	put("content-type", "application/grpc")
	put("te", "trailers")
	put("user-agent", userAgent)
	if s.call.Encoding != "" {
		put("grpc-encoding", s.call.Encoding)
	}
	if s.call.Accept != "" {
		put("grpc-accept-encoding", s.call.Accept)
	}
	if s.call.Timeout > 0 {
		// Of no use in the table of the connection.
		c.field(hpack.HeaderField{Name: "grpc-timeout", Value: FormatTimeout(s.call.Timeout), Sensitive: true})
	}
	c.out = h2.AppendHeaders(c.out, s.id, c.encoded.Bytes(), false, c.frame)
}

func (c *conn) field(f hpack.HeaderField) {
	if err := c.enc.WriteField(f); err != nil {
		panic(err) // a bytes.Buffer takes everything
	}
}

// sendSome queues what the windows allow of a message. Called with the lock held.
func (c *conn) sendSome(s *stream) {
	for s.left > 0 {
		n := min(int64(s.left), s.room, c.room, int64(c.frame))
		if n <= 0 || len(c.out) > maxOut {
			if !s.blocked {
				s.blocked = true
				c.blocked = append(c.blocked, s)
			}
			return
		}
		s.left -= int(n)
		s.room -= n
		c.room -= n
		flags := byte(0)
		if s.left == 0 {
			flags = h2.EndStream
		}
		c.out = h2.AppendFrame(c.out, h2.Data, flags, s.id, int(n))
		c.out = s.next(c.out, int(n))
	}
}

// unblock wakes the calls that wait with their messages. Called with the lock held.
func (c *conn) unblock() {
	for i, s := range c.blocked {
		s.blocked = false
		s.wake()
		c.blocked[i] = nil
	}
	c.blocked = c.blocked[:0]
}

// forget takes a call off the connection.
func (c *conn) forget(s *stream) {
	c.mu.Lock()
	_, on := c.streams[s.id]
	c.remove(s)
	if on && c.err == nil {
		c.reset(s.id, h2.CodeCancel)
	}
	over := c.leaving && len(c.streams) == 0 && c.err == nil
	c.mu.Unlock()
	if on {
		c.flush()
	}
	if over {
		c.end(unreachable("the connection to the node has ended", io.EOF))
	}
}

// alive tells whether the connection takes calls.
func (c *conn) alive() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err == nil && !c.leaving
}

// detach takes a call off that has ended.
func (c *conn) detach(s *stream) {
	c.mu.Lock()
	_, on := c.streams[s.id]
	c.remove(s)
	cut := on && s.left > 0 && c.err == nil
	if cut {
		s.left = 0
		c.reset(s.id, h2.CodeNone)
	}
	over := on && c.leaving && len(c.streams) == 0 && c.err == nil
	c.mu.Unlock()
	if cut {
		c.flush()
	}
	if over {
		c.end(unreachable("the connection to the node has ended", io.EOF))
	}
}

// flush writes what is queued, or leaves it to who writes already. It does not wait for the peer: what that does not take goes on in a
// goroutine of its own.
func (c *conn) flush() {
	c.mu.Lock()
	if c.flushing || len(c.out) == 0 || c.err != nil {
		c.mu.Unlock()
		return
	}
	c.flushing = true
	if len(c.streams) > 1 {
		// Others are about to add theirs.
		c.mu.Unlock()
		runtime.Gosched()
		c.mu.Lock()
	}
	for len(c.out) > 0 && c.err == nil {
		b := c.out
		c.out, c.spare = c.spare[:0], nil
		c.mu.Unlock()
		rest := b
		if c.sock != nil {
			c.one[0] = b
			left, err := c.sock.WriteSome(c.one[:])
			if rest = nil; len(left) > 0 {
				rest = left[0]
			}
			c.one[0] = nil
			if err != nil {
				c.end(unreachable("the connection to the node is lost", err))
			}
		}
		c.mu.Lock()
		if len(rest) > 0 && c.err == nil {
			c.rest = rest
			c.node.wg.Go(c.writeOn)
			c.mu.Unlock()
			return
		}
		c.written(b)
	}
	c.flushing = false
	c.mu.Unlock()
}

// written is after a piece was written. Called with the lock held.
func (c *conn) written(b []byte) {
	if cap(b) <= 2*maxOut {
		c.spare = b[:0]
	}
	if len(c.blocked) > 0 {
		c.unblock()
	}
}

// writeOn writes what the peer did not take at once, and what comes meanwhile.
func (c *conn) writeOn() {
	for {
		c.mu.Lock()
		b := c.rest
		if c.rest = nil; b == nil {
			b = c.out
			c.out, c.spare = c.spare[:0], nil
		}
		if len(b) == 0 || c.err != nil {
			c.flushing = false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		err := c.nc.SetWriteDeadline(time.Now().Add(c.node.o.Stall))
		if err == nil {
			_, err = c.nc.Write(b)
		}
		if err == nil {
			// It would end the next write that does not wait.
			err = c.nc.SetWriteDeadline(time.Time{})
		}
		if err != nil {
			c.end(unreachable("the connection to the node is lost", err))
		}
		c.mu.Lock()
		c.written(b)
		c.mu.Unlock()
	}
}

// end is the end of the connection, and of its calls.
func (c *conn) end(why *Error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = why
	streams := c.streams
	c.streams = map[uint32]*stream{}
	c.blocked = nil
	c.out = nil
	close(c.gone)
	c.turns.stop()
	c.mu.Unlock()
	for _, s := range streams {
		s.fail(why)
		s.wake()
	}
	c.node.drop(c)
	// What closing finds is nothing that anybody could do something about.
	_ = c.nc.Close()
}

// run reads the connection to its end.
func (c *conn) run() {
	err := c.read()
	c.in.Close()
	var b *h2.Broken
	if errors.As(err, &b) {
		c.mu.Lock()
		if c.err == nil {
			c.out = h2.AppendGoAway(c.out, 0, b.Code)
		}
		c.mu.Unlock()
		c.flush()
		c.end(unreachable("the node does not speak gRPC", err))
		return
	}
	c.end(unreachable("the connection to the node is lost", err))
}

// read reads and handles frames until the connection ends.
func (c *conn) read() error {
	if err := c.nc.SetReadDeadline(time.Now().Add(c.node.o.Connect)); err != nil {
		return err
	}
	for {
		n, err := c.in.Read()
		if err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) || !c.seen {
				return err
			}
			if err := c.silent(); err != nil {
				return err
			}
			continue
		}
		if n == 0 {
			return io.EOF
		}
		c.heard = true
		err = c.in.Parse()
		c.settle()
		if err != nil {
			return err
		}
	}
}

var errSilent = errors.New("the node does not answer pings")

// silent is for a time that is over: every Ping the peer is asked whether it is there, and has to say something within Pong. It is asked also where
// something was heard before, since it may be gone after that: nobody is to wait longer than for both.
func (c *conn) silent() error {
	wait := max(c.node.o.Ping-c.node.o.Pong, c.node.o.Pong)
	switch {
	case !c.pinged:
		wait = c.node.o.Pong
		c.mu.Lock()
		c.control(h2.Ping, 0, 0, make([]byte, 8))
		c.mu.Unlock()
		c.flush()
	case !c.heard:
		return errSilent
	}
	c.pinged, c.heard = !c.pinged, false
	return c.nc.SetReadDeadline(time.Now().Add(wait))
}

// settle is after the frames of one read: it wakes the calls that have something new, and sends what is to be said.
func (c *conn) settle() {
	if c.owed >= connWindow/4 {
		c.mu.Lock()
		c.window(0, c.owed)
		c.mu.Unlock()
		c.owed = 0
	}
	c.flush()
	for i, s := range c.woken {
		s.noted = false
		s.wake()
		c.woken[i] = nil
	}
	c.woken = c.woken[:0]
}

func (c *conn) note(s *stream) {
	if !s.noted {
		s.noted = true
		c.woken = append(c.woken, s)
	}
}

// find returns the call of a stream; nil if it has ended here.
func (c *conn) find(id uint32) (*stream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id == 0 || id%2 == 0 || id >= c.next {
		return nil, &h2.Broken{Code: h2.CodeProtocol, What: "a frame of a stream that was never begun"}
	}
	return c.streams[id], nil
}

// over takes a call that the peer has ended off the connection.
func (c *conn) over(s *stream) {
	c.mu.Lock()
	if _, on := c.streams[s.id]; on {
		c.remove(s)
		if s.left > 0 && c.err == nil {
			// The rest of its message is of no use.
			s.left = 0
			c.reset(s.id, h2.CodeNone)
		}
	}
	last := c.leaving && len(c.streams) == 0
	c.mu.Unlock()
	c.note(s)
	if last {
		c.settle()
		c.end(unreachable("the connection to the node has ended", io.EOF))
	}
}

// DataBegins implements h2.Sink.
func (c *conn) DataBegins(id uint32, n, pad int) (err error) {
	c.owed += int64(n)
	if c.to, err = c.find(id); c.to == nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.arrived(c.to, int64(n))
	if pad == 0 {
		return nil
	}
	// What was let come was without it.
	c.window(id, int64(pad))
	return c.checkOut()
}

// Data implements h2.Sink.
func (c *conn) Data(_ uint32, n int) error {
	s := c.to
	if s == nil {
		return nil
	}
	piece := c.in.Take(n)
	switch taken, tell := s.deliver(piece); {
	case !taken:
		piece.Free()
		c.giveUp(s, h2.CodeFlowControl, internal("the node sent more than it was asked for"))
		c.to = nil
	case tell:
		c.note(s)
	}
	return nil
}

// DataEnds implements h2.Sink.
func (c *conn) DataEnds(uint32) error {
	if s := c.to; s != nil {
		s.fail(internal("the node ended the call without a status"))
		c.over(s)
	}
	return nil
}

// giveUp ends a call for what its stream did.
func (c *conn) giveUp(s *stream, code uint32, why error) {
	c.mu.Lock()
	if _, on := c.streams[s.id]; on {
		c.remove(s)
		c.reset(s.id, code)
	}
	c.mu.Unlock()
	s.fail(why)
	c.note(s)
}

// Frame implements h2.Sink.
func (c *conn) Frame(kind, flags byte, id uint32, p []byte) error {
	switch kind {
	case h2.Reset:
		return c.resetFrame(id, p)
	case h2.Settings:
		return c.settingsFrame(flags, p)
	case h2.Ping:
		if flags&h2.Ack == 0 {
			return c.answer(h2.Ping, p)
		}
	case h2.GoAway:
		c.goAway(p)
	case h2.Window:
		return c.windowFrame(id, p)
	}
	return nil
}

// answer queues an acknowledgment, unless the peer reads none of them.
func (c *conn) answer(kind byte, p []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.checkOut(); err != nil {
		return err
	}
	if c.err == nil {
		c.control(kind, h2.Ack, 0, p)
	}
	return nil
}

// checkOut is where a peer has made us write something. Called with the lock held.
func (c *conn) checkOut() error {
	if len(c.out) > maxOut+maxControl {
		return &h2.Broken{Code: h2.CodeEnhanceYourCalm, What: "it asks and does not read"}
	}
	return nil
}

// HeadersBegin implements h2.Sink.
func (c *conn) HeadersBegin(id uint32, _ bool) error {
	c.blk = block{}
	_, err := c.find(id)
	return err
}

// Field implements h2.Sink.
func (c *conn) Field(f hpack.HeaderField) { c.blk.take(f) }

// Headers implements h2.Sink.
func (c *conn) Headers(id uint32, endStream bool) error {
	s, err := c.find(id)
	if err != nil || s == nil {
		return err
	}
	if err := s.headers(&c.blk, endStream); err != nil {
		if endStream {
			s.fail(err)
			c.over(s)
			return nil
		}
		c.giveUp(s, h2.CodeProtocol, err)
		return nil
	}
	if endStream {
		c.over(s)
		return nil
	}
	c.note(s)
	return nil
}

func (c *conn) resetFrame(id uint32, p []byte) error {
	s, err := c.find(id)
	if err != nil || s == nil {
		return err
	}
	s.fail(resetError(binary.BigEndian.Uint32(p)))
	c.mu.Lock()
	s.left = 0
	c.mu.Unlock()
	c.over(s)
	return nil
}

func (c *conn) settingsFrame(flags byte, p []byte) error {
	if flags&h2.Ack != 0 {
		return nil
	}
	c.mu.Lock()
	for ; len(p) > 0; p = p[6:] {
		v := binary.BigEndian.Uint32(p[2:])
		switch binary.BigEndian.Uint16(p) {
		case h2.SettingTable:
			c.enc.SetMaxDynamicTableSizeLimit(v)
		case h2.SettingStreams:
			c.most.Store(int64(min(v, firstStreams)))
		case h2.SettingWindow:
			if v > h2.MaxWindow {
				c.mu.Unlock()
				return &h2.Broken{Code: h2.CodeFlowControl, What: "a window is too large"}
			}
			change := int64(v) - c.initial
			c.initial = int64(v)
			for _, s := range c.streams {
				s.room += change
			}
		case h2.SettingFrame:
			if v < h2.MaxFrame || v > 1<<24-1 {
				c.mu.Unlock()
				return &h2.Broken{Code: h2.CodeProtocol, What: "a length of frames is out of range"}
			}
			// Longer ones gain nothing here.
		}
	}
	c.unblock()
	c.mu.Unlock()
	if !c.seen {
		c.seen = true
		close(c.settled)
		if err := c.nc.SetReadDeadline(time.Now().Add(c.node.o.Ping)); err != nil {
			return err
		}
	}
	return c.answer(h2.Settings, nil)
}

func (c *conn) windowFrame(id uint32, p []byte) error {
	n := int64(binary.BigEndian.Uint32(p) &^ (1 << 31))
	if n == 0 {
		return &h2.Broken{Code: h2.CodeProtocol, What: "a window of nothing"}
	}
	if id == 0 {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.room += n; c.room > h2.MaxWindow {
			return &h2.Broken{Code: h2.CodeFlowControl, What: "a window is too large"}
		}
		c.unblock()
		return nil
	}
	s, err := c.find(id)
	if err != nil || s == nil {
		return err
	}
	c.mu.Lock()
	s.room += n
	over := s.room > h2.MaxWindow
	c.mu.Unlock()
	if over {
		c.giveUp(s, h2.CodeFlowControl, internal("the node gave the call too large a window"))
		return nil
	}
	c.note(s)
	return nil
}

func (c *conn) goAway(p []byte) {
	last := binary.BigEndian.Uint32(p) &^ (1 << 31)
	c.mu.Lock()
	c.leaving = true
	var none []*stream
	for id, s := range c.streams {
		if id > last {
			c.remove(s)
			s.left = 0
			none = append(none, s)
		}
	}
	empty := len(c.streams) == 0
	c.mu.Unlock()
	for _, s := range none {
		s.fail(errUnprocessed)
		c.note(s)
	}
	c.node.drop(c)
	if empty {
		c.settle()
		c.end(unreachable("the connection to the node has ended", io.EOF))
	}
}

// ready waits until the peer has said what it takes.
func (c *conn) ready(ctx context.Context) error {
	select {
	case <-c.settled:
		return nil
	case <-c.gone:
		return c.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
