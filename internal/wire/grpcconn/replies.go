package grpcconn

import (
	"sync"
	"time"
)

const (
	// leastRate is the pace in bytes a second at which a connection has to take replies when one of them is there for longer than the limit.
	leastRate = 64 << 10
	// doubt is how long a reply that seems stuck is looked at once more: the stream of another service may just be ending.
	doubt = time.Second
	// maxResets is how many streams that the peer gave up are remembered: more than can be in what is about to be written.
	maxResets = 512
)

// replies follows the replies of a connection from their first frame to their last.
//
// A stream that has a first frame and no last one is a reply that waits for the peer, or a stream of another service, which may be silent
// for as long as it likes. The frames do not tell which. So it is counted: when more streams stand still than there are streams of
// others that do, one of them is a reply.
type replies struct {
	limit time.Duration
	cut   func()

	mu       sync.Mutex
	in, out  frames
	begun    map[uint32]*begun
	bytes    int64    // of messages, on all streams
	resets   []uint32 // streams that the peer gave up before there was a frame, the last of them
	oldest   int      // where in resets the next one goes, when it is full
	others   map[*other]struct{}
	timer    *time.Timer
	running  bool // the timer is
	doubtful bool // what is seen now was seen a moment ago
	ended    bool
}

// begun is a stream with a first frame.
type begun struct {
	since, moved time.Time
	bytes        int64 // of the connection, then
}

// other is a stream of another service. sent is when it has sent something last.
type other struct{ sent time.Time }

func newReplies(limit time.Duration, cut func()) *replies {
	r := &replies{limit: limit, cut: cut, begun: map[uint32]*begun{}, others: map[*other]struct{}{}}
	r.in.skip = prefaceBytes
	r.timer = stopped(limit, r.look)
	return r
}

// read takes bytes that came from the peer.
func (r *replies) read(b []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.in.feed(b, func(f frame) {
		if f.kind != frameReset {
			return
		}
		if _, ok := r.begun[f.stream]; ok {
			delete(r.begun, f.stream)
			return
		}
		// Its first frames may stand in a buffer of gRPC and come yet. No last one will.
		if len(r.resets) < maxResets {
			r.resets = append(r.resets, f.stream)
			return
		}
		r.resets[r.oldest] = f.stream
		r.oldest = (r.oldest + 1) % maxResets
	})
}

// written takes bytes that are about to be written.
func (r *replies) written(b []byte) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.out.feed(b, func(f frame) {
		last := f.kind == frameReset || f.flags&flagEndStream != 0
		switch f.kind {
		case frameData, frameHeaders, frameReset:
		default:
			return
		}
		if last {
			delete(r.begun, f.stream)
			return
		}
		if f.kind == frameHeaders && r.begun[f.stream] == nil && !r.wasReset(f.stream) {
			r.begun[f.stream] = &begun{now, now, r.bytes}
			r.start(r.limit)
		}
		if f.kind == frameData {
			r.bytes += int64(f.length)
			if s := r.begun[f.stream]; s != nil {
				s.moved = now
			}
		}
	})
}

func (r *replies) wasReset(stream uint32) bool {
	for _, s := range r.resets {
		if s == stream {
			return true
		}
	}
	return false
}

// start lets the timer run if it does not.
func (r *replies) start(d time.Duration) {
	if !r.running && !r.ended {
		r.running = true
		r.timer.Reset(d)
	}
}

// look looks at what stands still.
func (r *replies) look() {
	if r.stuck(time.Now()) {
		r.cut()
	}
}

func (r *replies) stuck(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = false
	if r.ended || len(r.begun) == 0 {
		r.doubtful = false
		return false
	}
	// Both kinds of lateness are weighed against the streams of others that may be late in the same way.
	still, slow, next := 0, 0, r.limit
	for _, s := range r.begun {
		if d := now.Sub(s.moved); d >= r.limit {
			still++
		} else {
			next = min(next, r.limit-d)
		}
		if now.Sub(s.since) > r.limit+time.Duration(r.bytes-s.bytes)*time.Second/leastRate {
			slow++
		}
	}
	for o := range r.others {
		if o.sent.IsZero() {
			continue
		}
		slow--
		if now.Sub(o.sent) >= r.limit {
			still--
		}
	}
	late := still > 0 || slow > 0
	if late && r.doubtful {
		r.ended = true
		return true
	}
	if r.doubtful = late; late {
		next = doubt
	}
	r.start(max(next, doubt))
	return false
}

// end is the end of the connection.
func (r *replies) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	r.timer.Stop()
	clear(r.begun)
}

// enter counts a stream of another service in.
func (r *replies) enter() *other {
	o := &other{}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.others[o] = struct{}{}
	return o
}

func (r *replies) leave(o *other) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.others, o)
}

// sends is before such a stream sends something.
func (r *replies) sends(o *other) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	o.sent = now
}
