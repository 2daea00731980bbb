package loader

import (
	"context"
	"fmt"
	"io"
	"os"
)

// A pipe or a terminal may never give anything, and a read or an open of it cannot be called back. Both are done in a goroutine that
// is left behind when the context ends; it ends with the program, or when there is something to read.

// patientReader is a reader whose Read returns with the context's cause when that ends. What a read that was left behind gets is lost.
type patientReader struct {
	ctx  context.Context
	r    io.Reader
	buf  []byte
	rest []byte // of buf, not given out yet
	err  error  // of the last read, or of the context, and then buf is not ours any more
}

const patientBuffer = 64 << 10

func (p *patientReader) Read(dst []byte) (int, error) {
	for len(p.rest) == 0 {
		if p.err != nil {
			return 0, p.err
		}
		if p.buf == nil {
			p.buf = make([]byte, patientBuffer)
		}
		type result struct {
			n   int
			err error
		}
		done := make(chan result, 1)
		go func() {
			n, err := p.r.Read(p.buf)
			done <- result{n, err}
		}()
		select {
		case got := <-done:
			p.rest, p.err = p.buf[:got.n], got.err
		case <-p.ctx.Done():
			p.err = context.Cause(p.ctx)
		}
	}
	n := copy(dst, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// openPatiently opens what is no regular file.
func openPatiently(ctx context.Context, path string) (*os.File, error) {
	type result struct {
		f   *os.File
		err error
	}
	done := make(chan result)
	go func() {
		f, err := os.Open(path)
		select {
		case done <- result{f, err}:
		case <-ctx.Done():
			if err == nil && f.Close() != nil {
				return // nobody is left to tell
			}
		}
	}()
	select {
	case got := <-done:
		return got.f, got.err
	case <-ctx.Done():
		return nil, fmt.Errorf("open %s: %w", path, context.Cause(ctx))
	}
}
