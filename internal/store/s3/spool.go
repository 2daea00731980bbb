package s3

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"

	"github.com/weft-search/weft/internal/store"
)

const (
	// maxObject is what one PUT takes. Objects of several parts are not made: conditions do not hold for them everywhere.
	maxObject = 5 << 30
	// inMemory is up to where an object is held in memory, in bytes: until it is sent, and while it is read.
	inMemory = 1 << 20
)

// spool holds an object until it is sent: its length and sum go before it, and it may have to be sent more than once.
type spool struct {
	dir  string
	buf  []byte
	f    *os.File // nil while the object fits into memory
	name string   // of the file, as long as it has to be removed
	size int64
	sum  hash.Hash
	err  error // first failed write
}

func newSpool(dir string) *spool { return &spool{dir: dir, sum: sha256.New()} }

// Write appends.
func (p *spool) Write(b []byte) (int, error) {
	if p.err != nil {
		return 0, p.err
	}
	n, err := p.write(b)
	if err != nil {
		p.err = err
	}
	return n, err
}

func (p *spool) write(b []byte) (int, error) {
	if p.size+int64(len(b)) > maxObject {
		return 0, fmt.Errorf("%w: more than %d bytes, which is what one request may carry", store.ErrInvalid, int64(maxObject))
	}
	if p.f == nil && len(p.buf)+len(b) > inMemory {
		if err := p.toFile(); err != nil {
			return 0, err
		}
	}
	if p.f == nil {
		p.buf = append(p.buf, b...)
	} else if n, err := p.f.Write(b); err != nil {
		return n, fmt.Errorf("write temporary file: %w", err)
	}
	p.size += int64(len(b))
	if _, err := p.sum.Write(b); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (p *spool) toFile() error {
	f, err := os.CreateTemp(p.dir, "weft-put-*.tmp")
	if err != nil {
		return fmt.Errorf("make temporary file: %w", err)
	}
	p.f = f
	// Without a name the file ends with the process. Where an open file keeps its name, it is removed in the end.
	if os.Remove(f.Name()) != nil {
		p.name = f.Name()
	}
	if _, err := f.Write(p.buf); err != nil {
		return fmt.Errorf("write temporary file: %w", err)
	}
	p.buf = nil
	return nil
}

// reader reads the whole from the front. Several may read at once.
func (p *spool) reader() io.Reader {
	if p.f == nil {
		return bytes.NewReader(p.buf)
	}
	return io.NewSectionReader(p.f, 0, p.size)
}

func (p *spool) sha256() string { return hex.EncodeToString(p.sum.Sum(nil)) }

// release gives back the file.
func (p *spool) release() error {
	var errs []error
	if p.f != nil {
		errs = append(errs, p.f.Close())
		p.f = nil
	}
	if p.name != "" {
		errs = append(errs, os.Remove(p.name))
		p.name = ""
	}
	p.buf = nil
	p.err = errors.New("already given back")
	return errors.Join(errs...)
}

// writer is a store.Writer.
type writer struct {
	s    *Store
	key  string
	p    *spool
	done bool
}

func (w *writer) Write(b []byte) (int, error) {
	n, err := w.p.Write(b)
	if err != nil {
		err = fmt.Errorf("put %s: %w", w.key, err)
	}
	return n, err
}

func (w *writer) Commit(ctx context.Context, c store.Condition) (string, error) {
	if w.done {
		return "", fmt.Errorf("put %s: %w: writer already used", w.key, store.ErrInvalid)
	}
	w.done = true
	return w.s.send(ctx, w.key, w.p, c)
}

func (w *writer) Abort() error {
	if w.done {
		return nil
	}
	w.done = true
	if err := w.p.release(); err != nil {
		return fmt.Errorf("give up put of %s: %w", w.key, err)
	}
	return nil
}
