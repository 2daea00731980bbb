package summanode

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/protobuf/proto"

	"github.com/weft-search/weft/internal/wire/grpcmsg"
)

// roomStep is how much room a reply takes at a time that is not short.
const roomStep = 1 << 20

// hydrate charges what a reply is made of before that is made, and as much again for its bytes. Where there is no room waits is called, and
// then it is waited for.
func (c *call) hydrate(bytes int, waits func()) error {
	c.made += 2 * int64(bytes)
	more := c.made - c.room.Held()
	if more <= 0 {
		return nil
	}
	if c.made > grpcmsg.FreeReply {
		more = max(more, roomStep)
	}
	return c.room.Take(c.ctx, more, c.s.cfg.Limits.Wait, waits)
}

// send sends the reply, compressed as the caller likes best.
func (c *call) send(m proto.Message) error {
	n := proto.Size(m)
	if n > c.encode {
		return grpcmsg.TooLong("encoded", int64(n), c.encode)
	}
	var compressor encoding.Compressor
	name := grpcmsg.BestCompressor(c.ctx)
	if name == "" || n < grpcmsg.LeastCompressed {
		name = encoding.Identity
	} else {
		compressor = encoding.GetCompressor(name)
	}
	if err := grpc.SetSendCompressor(c.ctx, name); err != nil {
		return err
	}
	if c.room.Held() == 0 {
		c.room.Hold(int64(n)) // what it is made of, which nobody has charged
	}
	if more := 2*int64(n) - c.room.Held(); more > 0 {
		if err := c.room.Take(c.ctx, more, c.s.cfg.Limits.Wait, nil); err != nil {
			return err
		}
	}
	r := c.conn.Replies.BeginIn(c.room)
	defer r.Seal()
	data, err := r.Encode(m, n, compressor)
	if err != nil {
		return err
	}
	defer data.Free()
	c.room.Give()
	return grpcmsg.Write(c.ctx, grpcmsg.Header(compressor != nil, data.Len()), data)
}
