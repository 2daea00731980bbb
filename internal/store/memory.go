package store

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/zeebo/xxh3"
)

// Memory is a Store in memory, for tests and trials. Safe for concurrent use.
type Memory struct {
	now func() time.Time
	mu  struct {
		sync.Mutex
		objects map[string]memObject
	}
}

type memObject struct {
	data     []byte // never changed
	etag     string
	modified time.Time
}

// NewMemory returns an empty store. Times come from now, or time.Now if it is nil.
func NewMemory(now func() time.Time) *Memory {
	if now == nil {
		now = time.Now
	}
	m := &Memory{now: now}
	m.mu.objects = map[string]memObject{}
	return m
}

// Put implements Store.
func (m *Memory) Put(ctx context.Context, key string, r io.Reader, size int64, c Condition) (string, error) {
	return putThrough(ctx, m, key, r, size, c)
}

type memWriter struct {
	m    *Memory
	key  string
	buf  bytes.Buffer
	done bool
}

// NewWriter implements Store.
func (m *Memory) NewWriter(ctx context.Context, key string) (Writer, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("put %s: %w", key, err)
	}
	if err := ValidKey(key); err != nil {
		return nil, err
	}
	return &memWriter{m: m, key: key}, nil
}

func (w *memWriter) Write(b []byte) (int, error) { return w.buf.Write(b) }

func (w *memWriter) Abort() error {
	w.done = true
	return nil
}

func (w *memWriter) Commit(ctx context.Context, c Condition) (string, error) {
	if w.done {
		return "", fmt.Errorf("put %s: %w: writer already used", w.key, ErrInvalid)
	}
	w.done = true
	if err := context.Cause(ctx); err != nil {
		return "", fmt.Errorf("put %s: %w", w.key, err)
	}
	if err := c.Validate(); err != nil {
		return "", err
	}
	h := xxh3.New()
	if _, err := h.Write(w.buf.Bytes()); err != nil {
		return "", fmt.Errorf("put %s: %w", w.key, err)
	}
	m := w.m
	m.mu.Lock()
	defer m.mu.Unlock()
	have, ok := m.mu.objects[w.key]
	if c.IfNoneMatch != "" && ok || c.IfMatch != "" && (!ok || have.etag != c.IfMatch) {
		return "", fmt.Errorf("put %s: %w", w.key, ErrPrecondition)
	}
	o := memObject{data: w.buf.Bytes(), etag: etag(h), modified: m.now()}
	m.mu.objects[w.key] = o
	return o.etag, nil
}

func (m *Memory) find(ctx context.Context, key string) (memObject, Info, error) {
	if err := context.Cause(ctx); err != nil {
		return memObject{}, Info{}, fmt.Errorf("get %s: %w", key, err)
	}
	if err := ValidKey(key); err != nil {
		return memObject{}, Info{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.mu.objects[key]
	if !ok {
		return o, Info{}, fmt.Errorf("get %s: %w", key, ErrNotFound)
	}
	return o, Info{Key: key, Size: int64(len(o.data)), ETag: o.etag, Modified: o.modified}, nil
}

// Get implements Store.
func (m *Memory) Get(ctx context.Context, key string) (io.ReadCloser, Info, error) {
	o, in, err := m.find(ctx, key)
	if err != nil {
		return nil, in, err
	}
	return io.NopCloser(bytes.NewReader(o.data)), in, nil
}

// GetRange implements Store.
func (m *Memory) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, Info, error) {
	o, in, err := m.find(ctx, key)
	if err != nil {
		return nil, in, err
	}
	if err := checkRange(key, off, n, in.Size); err != nil {
		return nil, in, err
	}
	in.ETag = ""
	return io.NopCloser(bytes.NewReader(o.data[off:][:min(n, in.Size-off)])), in, nil
}

// Stat implements Store.
func (m *Memory) Stat(ctx context.Context, key string) (Info, error) {
	_, in, err := m.find(ctx, key)
	return in, err
}

// Delete implements Store.
func (m *Memory) Delete(ctx context.Context, key string) error {
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("delete %s: %w", key, err)
	}
	if err := ValidKey(key); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.mu.objects, key)
	return nil
}

// List implements Store.
func (m *Memory) List(ctx context.Context, prefix string, fn func(Info) error) error {
	m.mu.Lock()
	var all []Info
	for key, o := range m.mu.objects {
		if strings.HasPrefix(key, prefix) {
			all = append(all, Info{Key: key, Size: int64(len(o.data)), Modified: o.modified})
		}
	}
	m.mu.Unlock()
	sort.Slice(all, func(i, j int) bool { return all[i].Key < all[j].Key })
	for _, in := range all {
		if err := context.Cause(ctx); err != nil {
			return fmt.Errorf("list %s: %w", prefix, err)
		}
		if err := fn(in); err != nil {
			return err
		}
	}
	return nil
}
