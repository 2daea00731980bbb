package summanode

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/protobuf/proto"

	"github.com/weft-search/weft/internal/wire/grpcmsg"
)

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
	if err := c.s.replies.Wait(c.ctx, n, c.s.cfg.Limits.Wait); err != nil {
		return err
	}
	r := c.conn.Replies.Begin(c.s.replies)
	defer r.Seal()
	data, err := r.Encode(m, n, compressor)
	if err != nil {
		return err
	}
	defer data.Free()
	return grpcmsg.Write(c.ctx, grpcmsg.Header(compressor != nil, data.Len()), data)
}
