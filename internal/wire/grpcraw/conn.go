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
	"google.golang.org/grpc/mem"
)

// What is used of HTTP/2 (RFC 9113).
const (
	preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

	frameData         = 0x0
	frameHeaders      = 0x1
	frameReset        = 0x3
	frameSettings     = 0x4
	framePush         = 0x5
	framePing         = 0x6
	frameGoAway       = 0x7
	frameWindow       = 0x8
	frameContinuation = 0x9

	flagEndStream  = 0x1
	flagAck        = 0x1
	flagEndHeaders = 0x4
	flagPadded     = 0x8
	flagPriority   = 0x20

	settingTable      = 0x1
	settingPush       = 0x2
	settingStreams    = 0x3
	settingWindow     = 0x4
	settingFrame      = 0x5
	settingHeaderList = 0x6

	frameHeaderBytes = 9
	maxFrame         = 16 << 10 // that we take
	defaultWindow    = 1<<16 - 1
	maxWindow        = 1<<31 - 1
	maxStreamID      = 1<<31 - 1
)

const (
	// FreeWindow is how much of a reply may come before somebody says how much there is room for.
	FreeWindow = defaultWindow
	// connWindow is how much of all replies may be on its way on a connection.
	connWindow = 4 << 20
	// maxOut is how much may wait to be written before calls wait with more, and maxControl what the peer may make us write on top.
	maxOut     = 256 << 10
	maxControl = 1 << 20
	// maxEmpty is how many frames without effect may follow one another.
	maxEmpty = 1000
	// firstStreams is how many calls run on a connection whose peer sets no limit.
	firstStreams = 1000
)

// conn is a connection to a node.
type conn struct {
	node *Node
	nc   net.Conn
	sock *socket // nil: only nc
	dec  *hpack.Decoder
	blk  block // under way

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
	blocked  []*stream // that wait with their messages
	enc      *hpack.Encoder
	encoded  bytes.Buffer
	settled  chan struct{} // closed when the settings of the peer are there
	gone     chan struct{} // closed when the connection is over

	active int // streams that were given out, kept under node.mu

	// Of the reader.
	fill     func() []byte // space, and idle: as values they would be made for each read
	unfill   func()
	chunk    mem.Buffer // what is read into; nil between reads with nothing left over
	data     []byte     // of chunk
	shared   bool       // parts of chunk were handed out
	from, to int
	large    bool // chunks are
	owed     int64
	body     body
	inBlock  uint32 // stream of a header block that goes on; 0: none
	blockEnd bool   // its stream ends with it
	frags    []byte
	empty    int
	woken    []*stream
	seen     bool // settings
	heard    bool // anything since the deadline was set
	pinged   bool
}

// body is a DATA frame under way.
type body struct {
	on   bool
	id   uint32
	left int
	pad  int
	end  bool
}

// Sizes of what is read into at a time.
const (
	smallChunk = 16 << 10
	largeChunk = 128 << 10
	// leastChunk is the room with which a chunk is read into.
	leastChunk = 4 << 10
	// pinned is the part of a chunk that a piece of a reply has to be to keep the chunk; a smaller piece is copied.
	pinned = 32
)

type chunks struct{ small, large sync.Pool }

var pool chunks

// Get implements mem.BufferPool.
func (p *chunks) Get(n int) *[]byte {
	from := &p.small
	size := smallChunk
	if n > smallChunk {
		from, size = &p.large, largeChunk
	}
	if b, ok := from.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, size)
	return &b
}

// Put implements mem.BufferPool.
func (p *chunks) Put(b *[]byte) {
	*b = (*b)[:cap(*b)]
	if len(*b) == largeChunk {
		p.large.Put(b)
		return
	}
	p.small.Put(b)
}

func newConn(n *Node, nc net.Conn) *conn {
	c := &conn{
		node: n, nc: nc, sock: socketOf(nc), streams: map[uint32]*stream{}, next: 1,
		room: defaultWindow, initial: defaultWindow, frame: maxFrame, settled: make(chan struct{}), gone: make(chan struct{}),
	}
	c.most.Store(firstStreams)
	c.fill, c.unfill = c.space, c.idle
	c.enc = hpack.NewEncoder(&c.encoded)
	c.dec = hpack.NewDecoder(4096, func(f hpack.HeaderField) { c.blk.take(f) })
	c.dec.SetMaxStringLength(maxHeaderList)
	c.out = append(c.out, preface...)
	c.control(frameSettings, 0, 0, binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(
		binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(nil, settingPush), 0), settingHeaderList), maxHeaderList))
	c.control(frameWindow, 0, 0, binary.BigEndian.AppendUint32(nil, connWindow-defaultWindow))
	return c
}

func appendFrame(b []byte, kind, flags byte, id uint32, n int) []byte {
	b = append(b, byte(n>>16), byte(n>>8), byte(n), kind, flags)
	return binary.BigEndian.AppendUint32(b, id)
}

// control queues a short frame. Called with the lock held, but for the first ones.
func (c *conn) control(kind, flags byte, id uint32, payload []byte) {
	c.out = append(appendFrame(c.out, kind, flags, id, len(payload)), payload...)
}

func (c *conn) window(id uint32, n int64) {
	c.out = binary.BigEndian.AppendUint32(appendFrame(c.out, frameWindow, 0, id, 4), uint32(n))
}

func (c *conn) reset(id, code uint32) {
	c.out = binary.BigEndian.AppendUint32(appendFrame(c.out, frameReset, 0, id, 4), code)
}

// open begins a call. Nothing was sent after errTaken.
func (c *conn) open(s *stream) error {
	c.mu.Lock()
	if c.err != nil || c.leaving || c.next > maxStreamID {
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
	for b, first := c.encoded.Bytes(), true; first || len(b) > 0; first = false {
		n := min(len(b), c.frame)
		kind, flags := byte(frameHeaders), byte(0)
		if !first {
			kind = frameContinuation
		}
		if n == len(b) {
			flags = flagEndHeaders
		}
		c.out = append(appendFrame(c.out, kind, flags, s.id, n), b[:n]...)
		b = b[n:]
	}
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
			flags = flagEndStream
		}
		c.out = appendFrame(c.out, frameData, flags, s.id, int(n))
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
	delete(c.streams, s.id)
	if on && c.err == nil {
		c.reset(s.id, h2Cancel)
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
	delete(c.streams, s.id)
	cut := on && s.left > 0 && c.err == nil
	if cut {
		s.left = 0
		c.reset(s.id, h2None)
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
		n := 0
		var err error
		if c.sock != nil {
			n, err = c.sock.writeSome(b)
		}
		if err != nil {
			c.end(unreachable("the connection to the node is lost", err))
		}
		c.mu.Lock()
		if n < len(b) && c.err == nil {
			c.rest = b[n:]
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
	c.release()
	var b *broken
	if errors.As(err, &b) {
		c.mu.Lock()
		if c.err == nil {
			c.out = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(appendFrame(c.out, frameGoAway, 0, 0, 8), 0), b.code)
		}
		c.mu.Unlock()
		c.flush()
		c.end(unreachable("the node does not speak gRPC", err))
		return
	}
	c.end(unreachable("the connection to the node is lost", err))
}

func (c *conn) release() {
	if c.chunk != nil {
		c.chunk.Free()
		c.chunk, c.data, c.shared = nil, nil, false
		c.from, c.to = 0, 0
	}
}

// space returns where the next bytes go.
func (c *conn) space() []byte {
	if c.chunk != nil && c.from == c.to && !c.shared {
		c.from, c.to = 0, 0
	}
	if c.chunk == nil || len(c.data)-c.to < leastChunk {
		old, left := c.chunk, c.data[c.from:c.to]
		size := smallChunk
		if c.large || len(left)+leastChunk > smallChunk {
			size = largeChunk
		}
		b := pool.Get(size)
		n := copy(*b, left)
		c.chunk, c.data, c.shared = mem.NewBuffer(b, &pool), *b, false
		c.from, c.to = 0, n
		if old != nil {
			old.Free()
		}
	}
	return c.data[c.to:]
}

// idle lets go of memory while nothing comes.
func (c *conn) idle() {
	if c.from == c.to {
		c.release()
	}
}

// read reads and handles frames until the connection ends.
func (c *conn) read() error {
	if err := c.nc.SetReadDeadline(time.Now().Add(c.node.o.Connect)); err != nil {
		return err
	}
	for {
		n, err := c.readSome()
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
		c.to += n
		c.large = c.to == len(c.data) || n >= smallChunk/2
		err = c.parse()
		c.settle()
		if err != nil {
			return err
		}
	}
}

func (c *conn) readSome() (int, error) {
	if c.sock != nil {
		return c.sock.readInto(c.fill, c.unfill)
	}
	n, err := c.nc.Read(c.space())
	if n > 0 {
		err = nil
	}
	return n, err
}

var errSilent = errors.New("the node does not answer pings")

// silent is for a time in which nothing was to be read, or only something before its end: it asks a peer that said nothing whether it is there.
func (c *conn) silent() error {
	wait := c.node.o.Ping
	switch {
	case c.heard:
		c.pinged = false
	case c.pinged:
		return errSilent
	default:
		c.pinged = true
		wait = c.node.o.Pong
		c.mu.Lock()
		c.control(framePing, 0, 0, make([]byte, 8))
		c.mu.Unlock()
		c.flush()
	}
	c.heard = false
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
		return nil, &broken{h2Protocol, "a frame of a stream that was never begun"}
	}
	return c.streams[id], nil
}

// over takes a call that the peer has ended off the connection.
func (c *conn) over(s *stream) {
	c.mu.Lock()
	if _, on := c.streams[s.id]; on {
		delete(c.streams, s.id)
		if s.left > 0 && c.err == nil {
			// The rest of its message is of no use.
			s.left = 0
			c.reset(s.id, h2None)
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

// parse handles the frames in the chunk.
func (c *conn) parse() error {
	for {
		if c.body.on {
			if err := c.take(); err != nil || c.body.on {
				return err
			}
		}
		b := c.data[c.from:c.to]
		if len(b) < frameHeaderBytes {
			return nil
		}
		n := int(b[0])<<16 | int(b[1])<<8 | int(b[2])
		kind, flags := b[3], b[4]
		id := binary.BigEndian.Uint32(b[5:]) &^ (1 << 31)
		if n > maxFrame {
			return &broken{h2FrameSize, "a frame is too long"}
		}
		if !c.seen && kind != frameSettings {
			return &broken{h2Protocol, "it does not begin with settings"}
		}
		if c.inBlock != 0 && (kind != frameContinuation || id != c.inBlock) {
			return &broken{h2Protocol, "a frame within headers"}
		}
		if kind == frameData {
			if flags&flagPadded != 0 && n > 0 && len(b) < frameHeaderBytes+1 {
				return nil
			}
			c.from += frameHeaderBytes
			if err := c.begin(id, n, flags, b); err != nil {
				return err
			}
			continue
		}
		if len(b) < frameHeaderBytes+n {
			return nil
		}
		c.from += frameHeaderBytes + n
		if err := c.handle(kind, flags, id, b[frameHeaderBytes:frameHeaderBytes+n]); err != nil {
			return err
		}
	}
}

// begin is for the header of a DATA frame.
func (c *conn) begin(id uint32, n int, flags byte, b []byte) error {
	if _, err := c.find(id); err != nil {
		return err
	}
	c.owed += int64(n)
	c.body = body{on: true, id: id, left: n, end: flags&flagEndStream != 0}
	if flags&flagPadded != 0 {
		if n == 0 || int(b[frameHeaderBytes]) >= n {
			return &broken{h2Protocol, "more padding than frame"}
		}
		c.body.pad = int(b[frameHeaderBytes])
		c.body.left--
		c.from++
	}
	if n == 0 || c.body.left == c.body.pad {
		if c.empty++; c.empty > maxEmpty && !c.body.end {
			return &broken{h2EnhanceYourCalm, "frames without end and effect"}
		}
	} else {
		c.empty = 0
	}
	return nil
}

// take hands out what there is of the DATA frame under way.
func (c *conn) take() error {
	b := &c.body
	n := min(b.left, c.to-c.from)
	use := max(min(n, b.left-b.pad), 0)
	s, err := c.find(b.id)
	if err != nil {
		return err
	}
	if s != nil && use > 0 {
		part := c.data[c.from : c.from+use]
		var piece mem.Buffer
		if use >= len(c.data)/pinned {
			piece = c.chunk.Slice(c.from, c.from+use)
			c.shared = true
		} else {
			piece = mem.Copy(part, mem.DefaultBufferPool())
		}
		switch taken, tell := s.deliver(piece); {
		case !taken:
			piece.Free()
			c.giveUp(s, h2FlowControl, internal("the node sent more than it was asked for"))
			s = nil
		case tell:
			c.note(s)
		}
	}
	c.from += n
	b.left -= n
	if b.left > 0 {
		return nil
	}
	b.on = false
	if b.end && s != nil {
		s.fail(internal("the node ended the call without a status"))
		c.over(s)
	}
	return nil
}

// giveUp ends a call for what its stream did.
func (c *conn) giveUp(s *stream, code uint32, why error) {
	c.mu.Lock()
	if _, on := c.streams[s.id]; on {
		delete(c.streams, s.id)
		c.reset(s.id, code)
	}
	c.mu.Unlock()
	s.fail(why)
	c.note(s)
}

// handle handles any frame but DATA.
func (c *conn) handle(kind, flags byte, id uint32, p []byte) error {
	switch kind {
	case frameHeaders:
		return c.headersFrame(flags, id, p)
	case frameContinuation:
		if c.inBlock == 0 {
			return &broken{h2Protocol, "a continuation of nothing"}
		}
		if len(p) == 0 && flags&flagEndHeaders == 0 {
			if c.empty++; c.empty > maxEmpty {
				return &broken{h2EnhanceYourCalm, "frames without end and effect"}
			}
		}
		return c.fragment(p, flags&flagEndHeaders != 0)
	case frameReset:
		return c.resetFrame(id, p)
	case frameSettings:
		return c.settingsFrame(flags, id, p)
	case framePush:
		return &broken{h2Protocol, "a push"}
	case framePing:
		if len(p) != 8 || id != 0 {
			return &broken{h2FrameSize, "a ping of the wrong kind"}
		}
		if flags&flagAck != 0 {
			return nil
		}
		return c.answer(framePing, p)
	case frameGoAway:
		return c.goAway(id, p)
	case frameWindow:
		return c.windowFrame(id, p)
	}
	// Priorities, and kinds that nobody knows.
	if c.empty++; c.empty > maxEmpty {
		return &broken{h2EnhanceYourCalm, "frames without end and effect"}
	}
	return nil
}

// answer queues an acknowledgment, unless the peer reads none of them.
func (c *conn) answer(kind byte, p []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.out) > maxOut+maxControl {
		return &broken{h2EnhanceYourCalm, "it asks and does not read"}
	}
	if c.err == nil {
		c.control(kind, flagAck, 0, p)
	}
	return nil
}

func (c *conn) headersFrame(flags byte, id uint32, p []byte) error {
	if _, err := c.find(id); err != nil {
		return err
	}
	pad := 0
	if flags&flagPadded != 0 {
		if len(p) < 1 {
			return &broken{h2FrameSize, "headers without their padding"}
		}
		pad, p = int(p[0]), p[1:]
	}
	if flags&flagPriority != 0 {
		if len(p) < 5 {
			return &broken{h2FrameSize, "headers without their priority"}
		}
		p = p[5:]
	}
	if pad > len(p) {
		return &broken{h2Protocol, "more padding than frame"}
	}
	p = p[:len(p)-pad]
	c.inBlock, c.blockEnd, c.frags = id, flags&flagEndStream != 0, c.frags[:0]
	return c.fragment(p, flags&flagEndHeaders != 0)
}

// fragment takes a part of a header block.
func (c *conn) fragment(p []byte, last bool) error {
	if len(c.frags)+len(p) > maxHeaderBlock {
		return &broken{h2EnhanceYourCalm, "a header block is too long"}
	}
	if !last || len(c.frags) > 0 {
		c.frags = append(c.frags, p...)
		if !last {
			return nil
		}
		p = c.frags
	}
	id := c.inBlock
	c.inBlock = 0
	c.blk = block{}
	// A block is decoded whoever it is for, for the table that both sides keep.
	if _, err := c.dec.Write(p); err != nil {
		return &broken{h2Compression, err.Error()}
	}
	if err := c.dec.Close(); err != nil {
		return &broken{h2Compression, err.Error()}
	}
	if cap(c.frags) > maxFrame {
		c.frags = nil
	}
	s, err := c.find(id)
	if err != nil || s == nil {
		return err
	}
	if err := s.headers(&c.blk, c.blockEnd); err != nil {
		if c.blockEnd {
			s.fail(err)
			c.over(s)
			return nil
		}
		c.giveUp(s, h2Protocol, err)
		return nil
	}
	if c.blockEnd {
		c.over(s)
		return nil
	}
	c.note(s)
	return nil
}

func (c *conn) resetFrame(id uint32, p []byte) error {
	if len(p) != 4 {
		return &broken{h2FrameSize, "a reset of the wrong length"}
	}
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

func (c *conn) settingsFrame(flags byte, id uint32, p []byte) error {
	if id != 0 || len(p)%6 != 0 {
		return &broken{h2FrameSize, "settings of the wrong kind"}
	}
	if flags&flagAck != 0 {
		if !c.seen {
			return &broken{h2Protocol, "it does not begin with settings"}
		}
		return nil
	}
	c.mu.Lock()
	for ; len(p) > 0; p = p[6:] {
		v := binary.BigEndian.Uint32(p[2:])
		switch binary.BigEndian.Uint16(p) {
		case settingTable:
			c.enc.SetMaxDynamicTableSizeLimit(v)
		case settingStreams:
			c.most.Store(int64(min(v, firstStreams)))
		case settingWindow:
			if v > maxWindow {
				c.mu.Unlock()
				return &broken{h2FlowControl, "a window is too large"}
			}
			change := int64(v) - c.initial
			c.initial = int64(v)
			for _, s := range c.streams {
				s.room += change
			}
		case settingFrame:
			if v < maxFrame || v > 1<<24-1 {
				c.mu.Unlock()
				return &broken{h2Protocol, "a length of frames is out of range"}
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
	return c.answer(frameSettings, nil)
}

func (c *conn) windowFrame(id uint32, p []byte) error {
	if len(p) != 4 {
		return &broken{h2FrameSize, "a window of the wrong length"}
	}
	n := int64(binary.BigEndian.Uint32(p) &^ (1 << 31))
	if n == 0 {
		return &broken{h2Protocol, "a window of nothing"}
	}
	if id == 0 {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.room += n; c.room > maxWindow {
			return &broken{h2FlowControl, "a window is too large"}
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
	over := s.room > maxWindow
	c.mu.Unlock()
	if over {
		c.giveUp(s, h2FlowControl, internal("the node gave the call too large a window"))
		return nil
	}
	c.note(s)
	return nil
}

func (c *conn) goAway(id uint32, p []byte) error {
	if id != 0 || len(p) < 8 {
		return &broken{h2FrameSize, "a farewell of the wrong length"}
	}
	last := binary.BigEndian.Uint32(p) &^ (1 << 31)
	c.mu.Lock()
	c.leaving = true
	var none []*stream
	for id, s := range c.streams {
		if id > last {
			delete(c.streams, id)
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
	return nil
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
