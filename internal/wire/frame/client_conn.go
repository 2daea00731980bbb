package frame

import (
	"context"
	"io"
	"net"
	"time"
)

// earlyWait is how long a client whose write failed waits for the answer that may have come before.
const earlyWait = time.Second

// clientConn is one socket of a Client. One call of Do has it at a time.
type clientConn struct {
	stream
	prober prober
	place  int       // in the client's list of connections in use
	used   time.Time // when it was last given back

	watchman watchman
	watched  struct {
		ctx  context.Context // of the request under way; nil where it has no end
		quit chan struct{}   // tells watch to end
		cut  chan bool       // what watch says at its end: it reset the connection
	}
}

func newClientConn(nc net.Conn) *clientConn {
	k := &clientConn{}
	k.watchman.watch = k.watch
	k.init(nc)
	k.prober.init(nc)
	return k
}

// exchange sends a request and reads the reply. op is how far it came: OpWrite if the request was not handed to the system whole, else
// OpRead. A reply with op OpWrite is one that the server gave without reading the request: the connection is at its end.
func (k *clientConn) exchange(ctx context.Context, request []byte, limit int, o Options) (reply []byte, op Op, err error) {
	k.startWatch(ctx)
	op = OpWrite
	n, err := k.begin(len(request), request)
	if n == int64(len(request))+HeaderSize {
		op = OpRead
		reply, err = k.receive(limit, o)
	} else if ctx.Err() == nil {
		// The server may have refused the frame by its header, answered and closed.
		if k.nc.SetReadDeadline(time.Now().Add(earlyWait)) == nil {
			if early, readErr := k.receive(limit, o); readErr == nil {
				reply, err = early, nil
			}
		}
	}
	if k.stopWatch() && err == nil {
		op = OpWrite // whole, but on a socket that is gone
	}
	return reply, op, err
}

// receive reads a reply.
func (k *clientConn) receive(limit int, o Options) ([]byte, error) {
	for k.w-k.r < HeaderSize {
		k.compact()
		n, err := k.nc.Read(k.buf[k.w:])
		if k.w += n; err != nil && k.w < HeaderSize {
			if err == io.EOF { // the server owed a reply: this is no end between frames
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	n, err := bodyLength(k.buf[k.r:k.r+HeaderSize], limit)
	if k.r += HeaderSize; err != nil {
		return nil, err
	}
	if o.Room == nil {
		return readBody(k, o.Buf, n, nil)
	}
	return readBody(k, o.Buf, n, o.Room.Grow)
}

// Read reads what was read ahead, then from the connection.
func (k *clientConn) Read(p []byte) (int, error) {
	if k.r < k.w {
		n := copy(p, k.buf[k.r:k.w])
		k.r += n
		return n, nil
	}
	return k.nc.Read(p)
}

func (k *clientConn) startWatch(ctx context.Context) {
	w := &k.watched
	if ctx.Done() == nil {
		return
	}
	w.ctx = ctx
	if w.quit == nil {
		w.quit, w.cut = make(chan struct{}, 1), make(chan bool, 1)
	}
	k.watchman.begin()
}

// stopWatch reports whether the connection was reset because the context ended.
func (k *clientConn) stopWatch() bool {
	w := &k.watched
	if w.ctx == nil {
		return false
	}
	cut := false
	if k.watchman.end() {
		w.quit <- struct{}{}
		cut = <-w.cut
	}
	w.ctx = nil
	return cut
}

// watch resets the connection when the context of the request ends: the server learns at once that nobody waits.
func (k *clientConn) watch() {
	w := &k.watched
	select {
	case <-w.ctx.Done():
		reset(k.nc)
		w.cut <- true
	case <-w.quit:
		w.cut <- false
	}
}
