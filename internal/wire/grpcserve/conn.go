package grpcserve

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/weft-search/weft/internal/wire/grpcraw"
	"github.com/weft-search/weft/internal/wire/h2"
)

const (
	// maxBlock is the longest header block on the wire, in bytes.
	maxBlock = 64 << 10
	// maxRefused is how many streams that are too many may follow one another.
	maxRefused = 1000
	// longFrame is the longest frame that is sent where a client takes longer ones.
	longFrame = 64 << 10
	// pinned is the part of a chunk that a piece of a request has to be to keep the chunk, so that a request keeps no more than twice its bytes.
	pinned = 2
	// gathered is the length of pieces of a request that are put together, however short the frames are that they come in.
	gathered = 8 << 10
	// leastGathered is the least room for them.
	leastGathered = 64
	// tables is the longest table of headers that is kept for a client that would have a longer one.
	tables = 4 << 10
)

// How far a connection is in leaving.
const (
	stays = iota
	told  // the client knows that it should call elsewhere
	left  // no stream is taken any more
)

// farewell is what is asked back between the two.
var farewell = []byte("farewell")

// conn is the connection of a client.
type conn struct {
	srv  *Server
	nc   net.Conn
	sock *h2.Socket // nil: only nc
	own  any
	seen func(n int) // of who counts what is heard; nil: nobody does

	served atomic.Int32 // calls of Services

	mu         sync.Mutex
	streams    map[uint32]*Stream
	running    int    // handlers
	last       uint32 // stream that was taken
	room       int64  // send window
	initial    int64  // send window of a new stream
	frame      int    // longest frame that is sent
	mostListed int64  // list of headers that the client takes
	leaving    int
	half       bool // nothing more is written
	err        error
	timer      *time.Timer // of look and of leave
	parting    *time.Timer
	watching   bool
	stuck      int // streams of which something is pending

	enc     *hpack.Encoder
	encoded bytes.Buffer
	listed  int64 // of the headers under way
	segs    []segment
	arena   []byte
	asked   int // bytes in it that the client has made us write
	queued  int // bytes of messages and frameCost, those that are being written included
	blocks  int // bytes of header blocks, likewise
	sent    int64
	ready   []*Stream // that can go on, from first on
	first   int
	free    mem.BufferSlice // when the lock is given back

	// Of who writes.
	flushing bool
	now      batch
	rest     [][]byte

	// Of the reader.
	in      h2.Reader
	req     head
	isNew   bool // the block under way begins a stream
	to      *Stream
	owed    int64
	recv    int64 // receive window
	started []*Stream
	refused int
	greeted bool
	heard   bool // anything since the deadline was set
	pinged  bool
	drained int // bytes, when nothing is written any more
}

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{
		srv: s, nc: nc, sock: h2.SocketOf(nc), streams: map[uint32]*Stream{}, room: h2.DefaultWindow, initial: h2.DefaultWindow, frame: h2.MaxFrame,
		mostListed: h2.MaxWindow, recv: int64(s.o.Window),
	}
	if h, ok := nc.(interface{ Heard(n int) }); ok && c.sock != nil {
		c.seen = h.Heard
	}
	if s.o.Conn != nil {
		c.own = s.o.Conn()
	}
	c.enc = hpack.NewEncoder(&c.encoded)
	c.enc.SetMaxDynamicTableSizeLimit(tables)
	c.in.Init(nc, c.sock, c, h2.ReaderOptions{Preface: true, MaxBlock: maxBlock, MaxString: maxBlock, Pinned: pinned})
	c.frames(func(b []byte) []byte {
		b = h2.AppendFrame(b, h2.Settings, 0, 0, 2*6)
		b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(b, h2.SettingStreams), uint32(s.o.Streams))
		b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(b, h2.SettingHeaderList), uint32(s.o.HeaderList))
		return h2.AppendWindow(b, 0, int64(s.o.Window)-h2.DefaultWindow)
	})
	return c
}

// run serves the connection to its end.
func (c *conn) run() {
	defer c.srv.left(c)
	c.flush()
	err := c.read()
	c.in.Close()
	if b, ok := errors.AsType[*h2.Broken](err); ok && c.farewell(b.Code) {
		err = c.drain()
	}
	c.end(err)
}

// read reads and handles frames until the connection ends.
func (c *conn) read() error {
	if err := c.nc.SetReadDeadline(time.Now().Add(c.srv.o.Hello)); err != nil {
		return err
	}
	for {
		n, err := c.in.Read()
		if err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) || !c.greeted {
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
		if c.seen != nil && !c.greeted {
			c.seen(n)
		}
		c.heard = true
		if c.closing() {
			if c.in.Discard(); c.drained > maxDrained {
				return ErrClosed
			}
			c.drained += n
			continue
		}
		err = c.in.Parse()
		if err = errors.Join(err, c.settle()); err != nil {
			return err
		}
	}
}

var errSilent = errors.New("the client does not answer pings")

// silent is for a time in which nothing was to be read, or only something before its end: it asks a client that said nothing whether it is there.
func (c *conn) silent() error {
	wait := c.srv.o.Ping
	if c.closing() {
		return ErrClosed
	}
	switch {
	case c.heard:
		c.pinged = false
	case c.pinged:
		return errSilent
	default:
		c.pinged = true
		wait = c.srv.o.Pong
		c.mu.Lock()
		c.frames(func(b []byte) []byte { return append(h2.AppendFrame(b, h2.Ping, 0, 0, 8), make([]byte, 8)...) })
		c.mu.Unlock()
		c.flush()
	}
	c.heard = false
	return c.setDeadline(wait)
}

// closing tells whether nothing is written any more.
func (c *conn) closing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.half
}

// setDeadline is that of reads, unless the connection is at its end, which has one of its own.
func (c *conn) setDeadline(wait time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.half {
		return nil
	}
	return c.nc.SetReadDeadline(time.Now().Add(wait))
}

// settle is after the frames of one read: it begins the calls that are new, and sends what is to be said.
func (c *conn) settle() error {
	c.mu.Lock()
	if c.owed >= int64(c.srv.o.Window)/4 {
		c.window(0, c.owed)
		c.recv += c.owed
		c.owed = 0
	}
	asked := c.asked
	c.mu.Unlock()
	for i, s := range c.started {
		c.srv.begin(s)
		c.started[i] = nil
	}
	c.started = c.started[:0]
	c.flush()
	if asked > maxControl {
		return errAsks
	}
	return nil
}

var errAsks = &h2.Broken{Code: h2.CodeEnhanceYourCalm, What: "it asks and does not read"}

// known tells whether a stream was ever begun.
func (c *conn) known(id uint32) error {
	if id%2 == 0 || id > c.last {
		return &h2.Broken{Code: h2.CodeProtocol, What: "a frame of a stream that was never begun"}
	}
	return nil
}

// DataBegins implements h2.Sink.
func (c *conn) DataBegins(id uint32, n, pad int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.to = nil
	if err := c.known(id); err != nil {
		return err
	}
	c.owed += int64(n)
	if c.recv -= int64(n); c.recv < 0 {
		return &h2.Broken{Code: h2.CodeFlowControl, What: "more data than it may send"}
	}
	s := c.streams[id]
	if s == nil {
		if n == pad {
			return c.in.Empty() // with the end of a stream that has ended here, also over and over
		}
		return nil
	}
	if s.ended {
		c.giveUp(s, h2.CodeStreamClosed)
		return nil
	}
	if s.window -= int64(n); s.window < 0 {
		c.giveUp(s, h2.CodeFlowControl)
		return nil
	}
	c.to = s
	if pad > 0 {
		// Nobody reads it, and who waits for more than is there would not know.
		s.window += int64(pad)
		before := len(c.arena)
		c.window(id, int64(pad))
		c.asked += len(c.arena) - before
	}
	return nil
}

// Data implements h2.Sink.
func (c *conn) Data(_ uint32, n int) error {
	s := c.to
	if s == nil {
		return nil
	}
	var piece mem.Buffer
	if n > gathered {
		piece = c.in.Take(n)
	}
	c.mu.Lock()
	switch {
	case s.dead || s.done:
		if piece != nil {
			c.free = append(c.free, piece)
		}
		c.mu.Unlock()
		return nil
	case piece != nil:
		s.recv, s.open = append(s.recv, piece), false
	default:
		s.gather(c.in.Peek(n))
	}
	s.have += n
	if s.need > 0 && s.have >= s.need {
		s.need = 0
		signal(s.got)
	}
	c.mu.Unlock()
	return nil
}

// DataEnds implements h2.Sink.
func (c *conn) DataEnds(uint32) error {
	if s := c.to; s != nil {
		c.mu.Lock()
		s.end()
		c.mu.Unlock()
	}
	return nil
}

// gather takes a short piece. Frames may be as short as a byte, and each on its own would take many times as much. Called with the lock held.
func (s *Stream) gather(b []byte) {
	if !s.open || cap(s.tail)-len(s.tail) < len(b) {
		// Twice as much as before, so that it is never much more than what has come in short pieces.
		size := leastGathered
		if s.open {
			size = 2 * cap(s.tail)
		}
		s.tail = make([]byte, 0, max(len(b), min(size, gathered)))
		s.recv, s.open = append(s.recv, mem.SliceBuffer(s.tail)), true
	}
	s.tail = append(s.tail, b...)
	last := len(s.recv) - 1
	have := s.recv[last].(mem.SliceBuffer)
	s.recv[last] = have[:len(have)+len(b)]
}

// end is the end of a request. Called with the lock held.
func (s *Stream) end() {
	s.ended = true
	signal(s.got)
}

// giveUp ends a stream for what its client did. Called with the lock held.
func (c *conn) giveUp(s *Stream, code uint32) {
	c.reset(s.id, code)
	c.over(s)
	s.cancel(nil)
}

// HeadersBegin implements h2.Sink.
func (c *conn) HeadersBegin(id uint32, _ bool) error {
	if id%2 == 0 {
		return &h2.Broken{Code: h2.CodeProtocol, What: "a stream with an even number"}
	}
	more := c.req.more[:0]
	clear(c.req.more)
	c.req = head{more: more}
	c.isNew = id > c.last
	return nil
}

// Field implements h2.Sink.
func (c *conn) Field(f hpack.HeaderField) { c.req.take(f, c.srv.o.HeaderList) }

// Headers implements h2.Sink.
func (c *conn) Headers(id uint32, endStream bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isNew {
		return c.begin(id, endStream)
	}
	s := c.streams[id]
	switch {
	case s == nil && (c.req.method != "" || c.req.path != ""):
		// A call that nobody would answer.
		return &h2.Broken{Code: h2.CodeProtocol, What: "it begins a stream with a number that was used or passed over"}
	case s == nil:
		return c.in.Empty() // of a stream that has ended here
	case s.ended:
		c.giveUp(s, h2.CodeStreamClosed)
	case !endStream || c.req.bad || c.req.method != "" || c.req.path != "":
		c.giveUp(s, h2.CodeProtocol)
	default:
		s.end()
	}
	return nil
}

// begin takes a new stream. Called with the lock held.
func (c *conn) begin(id uint32, endStream bool) error {
	c.last = id
	h := &c.req
	switch {
	case c.leaving == left || c.err != nil:
		// The client knows from our farewell that it is not taken.
		return c.in.Empty()
	case len(c.streams) >= c.srv.o.Streams || c.running >= 2*c.srv.o.Streams || c.blocks >= maxBlocks:
		if c.refused++; c.refused > maxRefused {
			return &h2.Broken{Code: h2.CodeEnhanceYourCalm, What: "it begins streams that are too many"}
		}
		c.reset(id, h2.CodeRefused)
		return nil
	case h.size > c.srv.o.HeaderList:
		c.reset(id, h2.CodeEnhanceYourCalm)
		return nil
	case h.bad || h.method == "" || h.scheme == "" || h.path == "":
		c.reset(id, h2.CodeProtocol)
		return nil
	}
	c.in.Settled()
	if st, code := h.refusal(); st != nil {
		return c.refuse(id, endStream, st, code)
	}
	c.refused = 0
	s := &Stream{
		c: c, id: id, path: h.path, contentType: h.contentType, encoding: h.encoding, accepts: h.accepts, window: FirstWindow, ahead: FirstWindow,
		send: c.initial, ended: endStream, got: make(chan struct{}, 1), room: make(chan struct{}, 1),
	}
	s.handler = c.srv.o.Find(h.path)
	if len(h.more) > 0 {
		s.more.more = append([]hpack.HeaderField(nil), h.more...)
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	if h.timeout != "" {
		if d, err := grpcraw.ParseTimeout(h.timeout); err == nil {
			s.timeout, s.limited = d, true
			s.ctx, s.release = context.WithTimeout(s.ctx, d)
		}
	}
	c.streams[id] = s
	c.running++
	c.started = append(c.started, s)
	return nil
}

// refuse answers a request that is none of gRPC. The error is for a client that has many of them and does not read. Called with the lock held.
func (c *conn) refuse(id uint32, endStream bool, st *status.Status, code string) error {
	before := len(c.arena)
	c.put(":status", code)
	c.put("content-type", typeGRPC)
	c.putStatus(st, nil)
	c.block(id, true)
	if !endStream {
		c.reset(id, h2.CodeNone)
	}
	// The answer may be many times as long as what asks for it, so the end of what was read is too late to look at it.
	if c.asked += len(c.arena) - before; c.asked > maxControl {
		return errAsks
	}
	return nil
}

// Frame implements h2.Sink.
func (c *conn) Frame(kind, flags byte, id uint32, p []byte) error {
	switch kind {
	case h2.Reset:
		return c.resetFrame(id)
	case h2.Settings:
		return c.settings(flags, p)
	case h2.Ping:
		c.mu.Lock()
		defer c.mu.Unlock()
		switch {
		case flags&h2.Ack == 0:
			c.control(h2.Ping, h2.Ack, 0, p)
		case c.leaving == told && bytes.Equal(p, farewell):
			c.part()
		}
	case h2.Window:
		return c.windowFrame(id, p)
	}
	// A farewell of the client needs no answer: it ends the connection when it has what it asked for.
	return nil
}

func (c *conn) resetFrame(id uint32) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.known(id); err != nil {
		return err
	}
	s := c.streams[id]
	if s == nil {
		return c.in.Empty()
	}
	c.over(s)
	s.cancel(nil)
	return nil
}

func (c *conn) settings(flags byte, p []byte) error {
	if flags&h2.Ack != 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	window := int64(-1)
	for ; len(p) > 0; p = p[6:] {
		v := binary.BigEndian.Uint32(p[2:])
		switch binary.BigEndian.Uint16(p) {
		case h2.SettingTable:
			c.enc.SetMaxDynamicTableSizeLimit(min(v, tables))
		case h2.SettingPush:
			if v > 1 {
				return &h2.Broken{Code: h2.CodeProtocol, What: "a setting that is neither on nor off"}
			}
		case h2.SettingWindow:
			if v > h2.MaxWindow {
				return &h2.Broken{Code: h2.CodeFlowControl, What: "a window is too large"}
			}
			window = int64(v) // the last of them counts
		case h2.SettingFrame:
			if v < h2.MaxFrame || v > 1<<24-1 {
				return &h2.Broken{Code: h2.CodeProtocol, What: "a length of frames is out of range"}
			}
			c.frame = int(min(v, longFrame))
		case h2.SettingHeaderList:
			c.mostListed = int64(v)
		}
	}
	if window >= 0 && window != c.initial {
		change := window - c.initial
		c.initial = window
		for _, s := range c.streams {
			if s.send += change; s.send > h2.MaxWindow {
				return &h2.Broken{Code: h2.CodeFlowControl, What: "a window is too large"}
			}
			c.list(s)
		}
	}
	c.control(h2.Settings, h2.Ack, 0, nil)
	c.pump()
	if !c.greeted {
		c.greeted = true
		if !c.half {
			return c.nc.SetReadDeadline(time.Now().Add(c.srv.o.Ping))
		}
	}
	return nil
}

func (c *conn) windowFrame(id uint32, p []byte) error {
	n := int64(binary.BigEndian.Uint32(p) &^ (1 << 31))
	c.mu.Lock()
	defer c.mu.Unlock()
	if id == 0 {
		if n == 0 {
			return &h2.Broken{Code: h2.CodeProtocol, What: "a window of nothing"}
		}
		if c.room += n; c.room > h2.MaxWindow {
			return &h2.Broken{Code: h2.CodeFlowControl, What: "a window is too large"}
		}
		c.pump()
		return nil
	}
	if err := c.known(id); err != nil {
		return err
	}
	s := c.streams[id]
	switch {
	case s == nil:
		// It has ended here, and the client did not know.
	case n == 0:
		c.giveUp(s, h2.CodeProtocol)
	default:
		if s.send += n; s.send > h2.MaxWindow {
			c.giveUp(s, h2.CodeFlowControl)
			return nil
		}
		c.list(s)
		c.pump()
	}
	return nil
}

// leave tells the client that it should call elsewhere, and takes no stream any more when it knows.
func (c *conn) leave() {
	c.mu.Lock()
	if c.leaving == stays && c.err == nil {
		c.leaving = told
		c.frames(func(b []byte) []byte {
			return append(h2.AppendFrame(h2.AppendGoAway(b, h2.MaxStreamID, h2.CodeNone), h2.Ping, 0, 0, len(farewell)), farewell...)
		})
		c.parting = time.AfterFunc(c.srv.o.Farewell, func() {
			c.mu.Lock()
			c.part()
			c.mu.Unlock()
			c.flush()
		})
	}
	c.mu.Unlock()
	c.flush()
}

// part takes no stream any more. Called with the lock held.
func (c *conn) part() {
	if c.leaving != told || c.err != nil {
		return
	}
	c.leaving = left
	c.parting.Stop()
	c.frames(func(b []byte) []byte { return h2.AppendGoAway(b, c.last, h2.CodeNone) })
}

// interrupt ends the contexts of the calls under way.
func (c *conn) interrupt(cause error) {
	c.mu.Lock()
	streams := make([]*Stream, 0, len(c.streams))
	for _, s := range c.streams {
		streams = append(streams, s)
	}
	c.mu.Unlock()
	for _, s := range streams {
		s.cancel(cause)
	}
}

// farewell tells a client what it did, and writes nothing more. It is false where nothing can be told.
func (c *conn) farewell(code uint32) bool {
	c.mu.Lock()
	if c.err != nil || c.half {
		c.mu.Unlock()
		return false
	}
	c.leaving = left
	c.frames(func(b []byte) []byte { return h2.AppendGoAway(b, c.last, code) })
	streams := c.streams
	c.streams = map[uint32]*Stream{}
	for _, s := range streams {
		c.over(s)
	}
	c.mu.Unlock()
	for _, s := range streams {
		s.cancel(nil)
	}
	c.flush()
	return true
}

// closeWrite ends our side. The client has until Farewell to take what is on its way: closing a connection with something unread takes that
// away from it.
func (c *conn) closeWrite() {
	err := c.nc.SetReadDeadline(time.Now().Add(c.srv.o.Farewell))
	w, ok := c.nc.(interface{ CloseWrite() error })
	if ok && err == nil {
		err = w.CloseWrite()
	}
	if !ok || err != nil {
		c.end(ErrClosed)
	}
}

// maxDrained is how much is read when nothing is written any more.
const maxDrained = 1 << 20

// drain reads to the end of a connection on which nothing is said any more.
func (c *conn) drain() error {
	b := make([]byte, 4<<10)
	for n := 0; n < maxDrained; {
		m, err := c.nc.Read(b)
		if err != nil {
			return err
		}
		n += m
	}
	return ErrClosed
}

// cut ends the connection of a client that takes nothing.
func (c *conn) cut(why error) {
	if c.end(why) && c.srv.o.Cut != nil {
		c.srv.o.Cut()
	}
}

// end is the end of the connection, and of its calls; false if it had ended.
func (c *conn) end(why error) bool {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return false
	}
	c.err = why
	streams := c.streams
	c.streams = map[uint32]*Stream{}
	for _, s := range streams {
		c.over(s)
	}
	if !c.flushing {
		c.letGo()
	}
	for _, t := range []*time.Timer{c.timer, c.parting} {
		if t != nil {
			t.Stop()
		}
	}
	c.unlock()
	for _, s := range streams {
		s.cancel(nil)
	}
	// What closing finds is nothing that anybody could do something about.
	_ = c.nc.Close()
	return true
}
