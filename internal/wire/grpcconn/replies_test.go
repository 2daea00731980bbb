package grpcconn

import (
	"testing"
	"testing/synctest"
	"time"
)

// after runs the timers for so long.
func after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestRepliesThatStandStill(t *testing.T) {
	const limit = time.Minute
	head := func(stream uint32) frame { return frame{kind: frameHeaders, flags: 4, stream: stream, length: 10} }
	data := func(stream uint32, n int) frame { return frame{kind: frameData, stream: stream, length: n} }
	last := func(stream uint32) frame {
		return frame{kind: frameHeaders, flags: 4 | flagEndStream, stream: stream, length: 10}
	}
	reset := func(stream uint32) frame { return frame{kind: frameReset, stream: stream, length: 4} }
	for _, c := range []struct {
		name string
		play func(out, in func(...frame), r *replies)
		cut  bool
	}{
		{"one that ends", func(out, _ func(...frame), _ *replies) { out(head(1), data(1, 5), last(1)) }, false},
		{"one without a message", func(out, _ func(...frame), _ *replies) { out(head(1)) }, true},
		{"one in the middle", func(out, _ func(...frame), _ *replies) { out(head(1), data(1, 5), head(3), last(3)) }, true},
		{"one that ends with its message", func(out, _ func(...frame), _ *replies) {
			out(head(1), frame{kind: frameData, flags: flagEndStream, stream: 1})
		}, false},
		{"one that the server gives up", func(out, _ func(...frame), _ *replies) { out(head(1), reset(1)) }, false},
		{"one that the peer gives up", func(out, in func(...frame), _ *replies) {
			out(head(1))
			in(reset(1))
		}, false},
		{"one that the peer gave up before it came", func(out, in func(...frame), _ *replies) {
			in(reset(1))
			out(head(1), data(1, 7))
		}, false},
		{"one of many that the peer gave up", func(out, in func(...frame), _ *replies) {
			for i := range uint32(3 * maxResets) {
				in(reset(1 + 2*i))
				out(head(1 + 2*i))
			}
		}, false},
		{"one that moves", func(out, _ func(...frame), _ *replies) {
			out(head(1))
			for range 20 {
				out(data(1, 32*leastRate))
				after(limit / 2)
			}
			out(last(1))
		}, false},
		{"one that moves too slowly", func(out, _ func(...frame), _ *replies) {
			out(head(1))
			for range 20 {
				out(data(1, 100))
				after(limit / 2)
			}
		}, true},
		{"one that waits for others of its connection", func(out, _ func(...frame), _ *replies) {
			out(head(1), head(3))
			for range 20 {
				out(data(1, 10), data(3, 40*leastRate))
				after(limit / 2)
			}
			out(last(1), last(3))
		}, false},
		{"a stream of another service", func(out, _ func(...frame), r *replies) {
			r.sends(r.enter())
			out(head(1), data(1, 5))
		}, false},
		{"a reply beside a stream of another service", func(out, _ func(...frame), r *replies) {
			r.sends(r.enter())
			out(head(1), data(1, 5), head(3))
		}, true},
		{"a reply beside a stream of another service that has sent nothing", func(out, _ func(...frame), r *replies) {
			r.enter()
			out(head(3))
		}, true},
		{"a reply beside a stream of another service that goes on", func(out, _ func(...frame), r *replies) {
			o := r.enter()
			out(head(1), head(3))
			for range 20 {
				r.sends(o)
				out(data(1, 40*leastRate))
				after(limit / 2)
			}
		}, true},
		{"a stream of another service that ends as it is looked at", func(out, _ func(...frame), r *replies) {
			o := r.enter()
			r.sends(o)
			out(head(1))
			after(limit - time.Millisecond)
			r.leave(o)
			after(500 * time.Millisecond)
			out(last(1))
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cuts := 0
				r := newReplies(limit, func() { cuts++ })
				r.read(make([]byte, prefaceBytes))
				feed := func(to func([]byte)) func(...frame) {
					return func(list ...frame) {
						for _, f := range list {
							to(appendFrame(nil, f))
						}
					}
				}
				c.play(feed(r.written), feed(r.read), r)
				after(2 * limit)
				if c.cut != (cuts == 1) || cuts > 1 {
					t.Errorf("cut %d times", cuts)
				}
				if !c.cut && len(r.others) == 0 && len(r.begun) > 0 {
					t.Errorf("%d streams are kept", len(r.begun))
				}
				r.end()
			})
		})
	}
}

// Nothing runs on behind a connection that has ended.
func TestEndedConnectionIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplies(time.Minute, func() { t.Error("cut") })
		r.written(appendFrame(nil, frame{kind: frameHeaders, flags: 4, stream: 1}))
		r.end()
		r.written(appendFrame(nil, frame{kind: frameHeaders, flags: 4, stream: 3}))
		after(time.Hour)
	})
}
