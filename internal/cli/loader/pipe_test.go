package loader

import "io"

// chanReader reads what is sent on a channel. Unlike a pipe of the system it may be used in a bubble of virtual time.
type chanReader struct {
	ch   <-chan []byte
	rest []byte
}

func newPipe() (io.Reader, chan<- []byte) {
	ch := make(chan []byte)
	return &chanReader{ch: ch}, ch
}

func (c *chanReader) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		b, ok := <-c.ch
		if !ok {
			return 0, io.EOF
		}
		c.rest = b
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}
