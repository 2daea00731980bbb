package grpcmsg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/gzip" // registers gzip
	"google.golang.org/grpc/status"
)

// Names of compressions in grpc-encoding.
const (
	Zstd = "zstd"
	Gzip = "gzip"
)

// LeastCompressed is the length below which a reply is sent as it is: compressed it would be longer, or as good as.
const LeastCompressed = 64

func init() {
	if encoding.GetCompressor(Zstd) == nil {
		encoding.RegisterCompressor(&zstdCodec{})
	}
}

// zstdCodec is the compressor of gRPC. Encoders and decoders work in their callers, without goroutines.
type zstdCodec struct {
	encoders, decoders sync.Pool
}

// maxWindow bounds the memory that a compressed message makes its reader hold: what libzstd uses up to its level 19.
const maxWindow = 8 << 20

// Name implements encoding.Compressor.
func (*zstdCodec) Name() string { return Zstd }

type zstdWriter struct {
	*zstd.Encoder
	home *sync.Pool
}

// Close implements io.Closer.
func (w zstdWriter) Close() error {
	err := w.Encoder.Close()
	w.Encoder.Reset(nil)
	w.home.Put(w.Encoder)
	return err
}

// Compress implements encoding.Compressor.
func (c *zstdCodec) Compress(w io.Writer) (io.WriteCloser, error) {
	e, ok := c.encoders.Get().(*zstd.Encoder)
	if !ok {
		var err error
		if e, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(1<<20), zstd.WithLowerEncoderMem(true)); err != nil {
			return nil, fmt.Errorf("make a zstd encoder: %w", err)
		}
	}
	e.Reset(w)
	return zstdWriter{e, &c.encoders}, nil
}

func (c *zstdCodec) decoder(r io.Reader) (*zstd.Decoder, error) {
	d, ok := c.decoders.Get().(*zstd.Decoder)
	if !ok {
		var err error
		if d, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow)); err != nil {
			return nil, fmt.Errorf("make a zstd decoder: %w", err)
		}
	}
	return d, d.Reset(r)
}

func (c *zstdCodec) giveBack(d *zstd.Decoder) {
	if d.Reset(nil) == nil {
		c.decoders.Put(d)
	}
}

type zstdReader struct {
	*zstd.Decoder
	home *zstdCodec
}

// Close implements io.Closer.
func (r zstdReader) Close() error {
	r.home.giveBack(r.Decoder)
	return nil
}

// Decompress implements encoding.Compressor.
func (c *zstdCodec) Decompress(r io.Reader) (io.Reader, error) {
	d, err := c.decoder(r)
	if err != nil {
		return nil, err
	}
	return zstdReader{d, c}, nil
}

var ownZstd zstdCodec

// Decompressor reads what was compressed by the named encoding. done ends it. The error has a status for the caller.
func Decompressor(name string, in io.Reader) (r io.Reader, done func(), err error) {
	switch name {
	case Zstd:
		d, err := ownZstd.decoder(in)
		if err != nil {
			return nil, nil, ErrDamaged
		}
		return d, func() { ownZstd.giveBack(d) }, nil
	case Gzip:
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, nil, ErrDamaged
		}
		return z, func() { errors.Join(z.Close()) }, nil
	case "", encoding.Identity:
		return nil, nil, errNoEncoding
	}
	return nil, nil, status.Errorf(codes.Unimplemented, "Content is compressed with `%s` which isn't supported", name)
}

// Inflate decompresses a whole message of at most most bytes. need is asked for what that takes in all before it is taken; once the message is
// there, its length counts twice. The errors have a status, but those of need.
func Inflate(name string, in io.Reader, most int, need func(bytes int64) error) ([]byte, error) {
	z, done, err := Decompressor(name, in)
	if err != nil {
		return nil, err
	}
	defer done()
	var parts [][]byte
	for total, size := 0, min(FreeBytes, most+1); ; size = min(2*size, MaxStep, most+1-total) {
		if err := need(int64(total + size)); err != nil {
			return nil, err
		}
		part := make([]byte, size)
		// Not io.ReadFull, which tells a cut message and a short one alike.
		n, err := 0, error(nil)
		for n < size && err == nil {
			var m int
			m, err = z.Read(part[n:])
			n += m
		}
		if total += n; total > most {
			return nil, TooLongInside(most)
		}
		parts = append(parts, part[:n])
		switch {
		case err == io.EOF && len(parts) == 1:
			return parts[0], nil
		case err == io.EOF:
			if err := need(int64(2 * total)); err != nil {
				return nil, err
			}
			return slices.Concat(parts...), nil
		case err != nil:
			return nil, ErrDamaged
		}
	}
}

// ErrDamaged is the status of a message that cannot be decompressed.
var ErrDamaged = status.Error(codes.Internal, "Error decompressing: the message is damaged")

// errNoEncoding is the status of a message that says that it is compressed, of a call that names no encoding.
var errNoEncoding = status.Error(codes.Internal, "protocol error: received message with compressed-flag but no grpc-encoding was specified")

// BestCompressor is what a reply is compressed with: zstd where the caller takes it, else gzip, else nothing.
func BestCompressor(ctx context.Context) string {
	names, err := grpc.ClientSupportedCompressors(ctx)
	if err != nil {
		return ""
	}
	return Best(names)
}

// Best is what a reply is compressed with for who takes the named encodings: zstd, else gzip, else nothing.
func Best(names []string) string {
	for _, want := range []string{Zstd, Gzip} {
		if slices.Contains(names, want) {
			return want
		}
	}
	return ""
}
