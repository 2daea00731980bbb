package frame

import (
	"encoding/binary"
	"net"
	"sync"
	"time"
)

const (
	// readAhead is how much of a connection's input is taken in one read when no body is being read.
	readAhead = 4 << 10
	// watchAfter is how long a request runs before something watches for its end from outside: what is quicker than this does not pay for a
	// goroutine. A timer that is set for each request would cost more than the watch itself, since setting one wakes a thread that waits for
	// events; so one that is set stays set over the requests that follow, and a cancellation is seen at most twice this time after a request
	// began.
	watchAfter = 5 * time.Millisecond
)

// stream is what the two ends of a connection have in common. One goroutine uses it at a time.
type stream struct {
	nc       net.Conn
	vectored bool // nc writes a list of buffers in one system call

	buf  []byte // input that was read and not consumed is buf[r:w]
	r, w int

	header [HeaderSize]byte
	pair   [2][]byte
	out    net.Buffers
}

func (s *stream) init(nc net.Conn) {
	s.nc = nc
	s.buf = make([]byte, readAhead)
	switch nc.(type) {
	case *net.TCPConn, *net.UnixConn:
		s.vectored = true
	}
}

// compact moves the input that is left to the front of the buffer.
func (s *stream) compact() {
	if s.r > 0 {
		s.w = copy(s.buf, s.buf[s.r:s.w])
		s.r = 0
	}
}

// begin sends the header of a frame of length bytes together with the first part of its body, and returns how many bytes of both
// were handed to the connection.
func (s *stream) begin(length int, part []byte) (int64, error) {
	binary.LittleEndian.PutUint32(s.header[:], uint32(length))
	if s.vectored {
		s.pair[0], s.pair[1] = s.header[:], part
		s.out = s.pair[:]
		n, err := s.out.WriteTo(s.nc)
		s.pair[0], s.pair[1], s.out = nil, nil, nil
		return n, err
	}
	// One write where that costs little: it is one record of TLS, one packet of others.
	m := min(len(part), smallFrame-HeaderSize)
	b := takeBuffer()
	b.b = append(append(b.b[:0], s.header[:]...), part[:m]...)
	n, err := s.nc.Write(b.b)
	b.give()
	if err != nil || m == len(part) {
		return int64(n), err
	}
	more, err := s.nc.Write(part[m:])
	return int64(n + more), err
}

// buffer is memory that goes from frame to frame. b may be replaced by a longer slice.
type buffer struct{ b []byte }

var buffers = sync.Pool{New: func() any { return new(buffer) }}

func takeBuffer() *buffer { return buffers.Get().(*buffer) }

// give gives the buffer back. Long ones are left to the garbage collector: the memory that is kept is bounded by the frames under way.
func (b *buffer) give() {
	if cap(b.b) > smallFrame {
		b.b = nil
	}
	buffers.Put(b)
}

// adopt makes room for the next answer of the size of this one. An answer that is not in the buffer's memory is not taken for it: it may be
// anyone's.
func (b *buffer) adopt(answer []byte) {
	if n := len(answer); cap(b.b) < n && n <= smallFrame {
		b.b = make([]byte, 0, min(2*n, smallFrame))
	}
}

// unwrap returns the connection below those that wrap another, as that of TLS does.
func unwrap(nc net.Conn) net.Conn {
	for {
		w, ok := nc.(interface{ NetConn() net.Conn })
		if !ok {
			return nc
		}
		nc = w.NetConn()
	}
}

// reset closes a connection in the hardest way it has: TCP drops what is unsent and tells the peer by a reset, so that the peer learns
// at once that nobody waits. Its error is of no use to anyone: the connection is gone either way.
func reset(nc net.Conn) {
	below := unwrap(nc)
	if l, ok := below.(interface{ SetLinger(sec int) error }); ok {
		if l.SetLinger(0) != nil {
			nc.Close()
			return
		}
	}
	below.Close()
}

// liveness is what can be told about a connection without consuming its input.
type liveness uint8

const (
	unknown liveness = iota // this connection does not tell
	quiet                   // open, and there is no input
	waiting                 // there is input
	dead                    // ended or broken
)

// alarm calls a function some time after it was set. Its methods are called with the lock of its owner held, apart from wait.
type alarm struct {
	call    func() // takes the owner's lock and begins with fired
	timer   *time.Timer
	isSet   bool
	running sync.WaitGroup
}

// set arranges a call after d, unless one is arranged already.
func (a *alarm) set(d time.Duration) {
	if a.isSet {
		return
	}
	a.isSet = true
	a.running.Add(1)
	if a.timer == nil {
		a.timer = time.AfterFunc(d, func() {
			defer a.running.Done()
			a.call()
		})
		return
	}
	a.timer.Reset(d)
}

func (a *alarm) fired() { a.isSet = false }

// stop takes the arranged call back, if it has not begun.
func (a *alarm) stop() {
	if a.isSet && a.timer.Stop() {
		a.isSet = false
		a.running.Done()
	}
}

// wait waits for a call that had begun when the alarm was stopped. The owner's lock must not be held.
func (a *alarm) wait() { a.running.Wait() }

// watchman has requests of a connection watched that run for long. Its timer is set by the first request and looks again as long as requests
// follow. Its methods but fire are for the goroutine that serves the connection.
type watchman struct {
	watch func() // runs beside a request, from some time after its beginning until the request is over; it ends when it is told to

	mu       sync.Mutex
	timer    *time.Timer
	armed    bool // the timer is set, or fire is about to run
	request  bool // one is under way
	seen     bool // it was there when the timer fired before
	watching bool // watch runs; it was begun for the request under way
}

// begin says that a request begins.
func (w *watchman) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.request, w.seen = true, false
	if w.armed {
		return
	}
	w.armed = true
	if w.timer == nil {
		w.timer = time.AfterFunc(watchAfter, w.fire)
		return
	}
	w.timer.Reset(watchAfter)
}

// end says that the request is over, and tells whether it is watched: then the caller ends the watch.
func (w *watchman) end() (watching bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	watching = w.watching
	w.request, w.watching = false, false
	return watching
}

// fire is called by the timer.
func (w *watchman) fire() {
	w.mu.Lock()
	if w.request && !w.seen {
		w.seen = true // it may have begun just now
		w.timer.Reset(watchAfter)
		w.mu.Unlock()
		return
	}
	w.armed = false
	w.watching = w.request
	watching := w.watching
	w.mu.Unlock()
	if watching {
		w.watch()
	}
}
