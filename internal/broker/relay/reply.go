package relay

import (
	"io"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/weft-search/weft/internal/wire/grpcmsg"
	"github.com/weft-search/weft/internal/wire/grpcraw"
)

const (
	// replyWindow is how much of a reply may be on its way from a node or wait for its client. One that is not longer is handed on when it is
	// whole: where the node is lost within it, the client is told so. Of a longer one it has a part by then, and clients take that for a fault of
	// the connection, whatever the status says.
	replyWindow = 2 << 20
	// heldBytes is about how much is held of a reply whose last piece was taken: what is queued for its connection, and pending.
	heldBytes = (256 + 64) << 10
)

// replying hands a node's reply on.
type replying struct {
	c    *Call
	s    *grpcraw.Stream
	head grpcraw.Head

	prefix [grpcraw.PrefixBytes]byte
	got    int             // bytes of the reply
	want   int             // in all; 0: not known yet
	first  mem.BufferSlice // before the prefix is there, and of a reply that is kept until it is whole

	transcode bool // the client does not take the node's compression
}

// copy takes the reply to its end.
func (r *replying) copy() error {
	defer func() { r.first.Free() }()
	for {
		q, err := r.s.Read()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := r.take(q); err != nil {
			return err
		}
	}
}

// take takes a piece, which it frees.
func (r *replying) take(q mem.BufferSlice) error {
	n := q.Len()
	if r.want == 0 {
		r.first = append(r.first, q...)
		if r.got += n; r.got < grpcraw.PrefixBytes {
			return nil
		}
		q, r.first = r.first, nil
		if err := r.begin(q); err != nil {
			q.Free()
			return err
		}
	} else {
		r.got += n
	}
	if r.transcode {
		return r.decompress(q)
	}
	if r.got < r.want && r.want <= replyWindow {
		r.first = append(r.first, q...)
		return nil
	}
	if len(r.first) > 0 {
		q, r.first = append(r.first, q...), nil
	}
	defer func() { q.Free() }()
	if r.got > r.want {
		return errManyMessages
	}
	if !r.c.sent {
		if err := r.headers(); err != nil {
			return err
		}
	}
	if r.got == r.want {
		return r.finish(&q)
	}
	return r.write(&q)
}

// finish writes the last pieces. What is still held of the reply then is counted until it is written.
func (r *replying) finish(q *mem.BufferSlice) error {
	if r.want <= grpcmsg.LeastCounted {
		return r.write(q)
	}
	out := r.c.conn.Replies.Begin(r.c.s.replies)
	defer out.Seal()
	i := len(*q) - 1
	(*q)[i] = out.Last((*q)[i], int64(min(r.want, heldBytes)))
	return r.write(q)
}

// write hands pieces on, which are the server's then.
func (r *replying) write(q *mem.BufferSlice) error {
	data := *q
	*q = nil
	return r.c.ss.Write(data, r.got == r.want)
}

// pieces reads what is in a reply after its prefix.
type pieces struct {
	r *replying
	q mem.BufferSlice
}

// Read implements io.Reader.
func (p *pieces) Read(b []byte) (int, error) {
	for len(p.q) == 0 {
		q, err := p.r.s.Read()
		if err != nil {
			return 0, err
		}
		p.r.got += q.Len()
		if p.r.got > p.r.want {
			q.Free()
			return 0, errManyMessages
		}
		p.q = q
	}
	n, rest := mem.ReadUnsafe(b, p.q[0])
	if rest == nil {
		p.q = p.q[1:]
	} else {
		p.q[0] = rest
	}
	return n, nil
}

// fill reads until b is full or there is an error; io.EOF may come with bytes. Other than io.ReadFull it does not take a cut message for an
// end.
func fill(r io.Reader, b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var m int
		m, err = r.Read(b[n:])
		n += m
	}
	return n, err
}

var errNoMessage = status.Error(codes.Internal, "Missing response message.")

var errManyMessages = status.Error(codes.Internal, "the node answered with more than one message")

// decompress answers with a plain message of a compressed one, whose first pieces it frees. The length is in front of a message, so that
// all of it has to be there first.
func (r *replying) decompress(q mem.BufferSlice) error {
	c := r.c
	in := &pieces{r: r, q: grpcraw.Cut(q, grpcraw.PrefixBytes)}
	defer func() { in.q.Free() }()
	z, done, err := grpcmsg.Decompressor(r.head.Encoding, in)
	if err != nil {
		return err
	}
	defer done()
	most := min(c.s.cfg.Limits.BackendDecode, c.encode)
	var out mem.BufferSlice
	defer func() { out.Free() }()
	for total, more := 0, true; more; {
		b := mem.DefaultBufferPool().Get(grpcmsg.FreeBytes)
		n, err := fill(z, *b)
		*b = (*b)[:n]
		out = append(out, mem.NewBuffer(b, mem.DefaultBufferPool()))
		if total += n; total > most {
			return grpcraw.TooLongInside(most)
		}
		if err != nil && err != io.EOF {
			if _, of := status.FromError(err); of {
				return err
			}
			return grpcmsg.ErrDamaged
		}
		more = err == nil
		if err := c.Need(int64(c.data.Len() + total)); err != nil {
			return err
		}
	}
	if r.got != r.want {
		return errNoMessage
	}
	if err := r.headers(); err != nil {
		return err
	}
	r.want = grpcraw.PrefixBytes + out.Len()
	whole := append(mem.BufferSlice{mem.SliceBuffer(grpcmsg.Header(false, out.Len()))}, out...)
	out = nil
	defer func() { whole.Free() }()
	r.got = r.want
	return r.finish(&whole)
}

// begin looks at what the reply begins with.
func (r *replying) begin(q mem.BufferSlice) error {
	c := r.c
	for n := 0; n < len(r.prefix); q = q[1:] {
		n += copy(r.prefix[n:], q[0].ReadOnlyData())
	}
	p, err := grpcraw.ParsePrefix(r.prefix)
	if err != nil {
		return err
	}
	if p.Length > c.s.cfg.Limits.BackendDecode {
		return grpcraw.TooLong("decoded", p.Length, c.s.cfg.Limits.BackendDecode)
	}
	if p.Length > c.encode {
		return grpcmsg.TooLong("encoded", int64(p.Length), c.encode)
	}
	r.want = grpcraw.PrefixBytes + p.Length
	if r.want > grpcraw.FreeWindow {
		window := min(r.want, replyWindow)
		if err := c.Need(int64(c.data.Len() + window)); err != nil {
			return err
		}
		r.s.Expect(int64(r.want), int64(window))
	}
	if err := c.s.replies.Wait(c.ctx, min(r.want, replyWindow), c.s.cfg.Limits.Wait); err != nil {
		return err
	}
	if p.Compressed && p.Length > 0 {
		if !slices.Contains(c.offers, r.head.Encoding) {
			r.transcode = true
			return nil
		}
		c.ss.SetSendCompress(r.head.Encoding)
	}
	return nil
}

func (r *replying) headers() error {
	r.c.sent = true
	if len(r.head.Meta) > 0 {
		r.c.ss.SetHeader(r.head.Meta)
	}
	return nil
}

// end is for the end of the node's call.
func (r *replying) end(end *grpcraw.End) error {
	if end.Code == codes.OK && (r.want == 0 || r.got != r.want) {
		return errNoMessage
	}
	if !r.c.sent {
		return r.headers()
	}
	return nil
}
