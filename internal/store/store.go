// Package store keeps the immutable objects of collections and the heads that name the current ones.
package store

import (
	"context"
	"errors"
	"io"
	"time"
)

// The sentinels of a Store.
var (
	ErrNotFound     = errors.New("object not found")
	ErrPrecondition = errors.New("object changed by another writer") // a condition did not hold; nothing was written
	ErrUncertain    = errors.New("outcome of the write unknown")     // the write may have taken place; read before writing again
	ErrKey          = errors.New("bad object key")
	ErrReadOnly     = errors.New("store opened for reading only")
)

// Condition guards a write. The zero value always holds; at most one member is set.
type Condition struct {
	IfNoneMatch string // "*": the object must not exist
	IfMatch     string // the object must exist with this etag
}

// Info describes an object.
type Info struct {
	Key      string
	Size     int64     // bytes
	ETag     string    // opaque; changes when the content changes. Empty in List and GetRange where it would cost a read
	Modified time.Time // when it was written
}

// Store holds objects by key. Objects are written whole: a reader sees all of the old content or all of the new.
type Store interface {
	Put(ctx context.Context, key string, r io.Reader, size int64, c Condition) (etag string, err error)
	// NewWriter starts an object whose size is not known yet.
	NewWriter(ctx context.Context, key string) (Writer, error)
	Get(ctx context.Context, key string) (io.ReadCloser, Info, error)
	GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, Info, error)
	Stat(ctx context.Context, key string) (Info, error)
	Delete(ctx context.Context, key string) error // an absent object is no error
	// List calls fn in key order. For doctor, garbage collection and a node's start only: objects are found through heads.
	List(ctx context.Context, prefix string, fn func(Info) error) error
}

// Writer is an object in the making; nothing is visible before Commit. One owner at a time.
type Writer interface {
	io.Writer
	Commit(ctx context.Context, c Condition) (etag string, err error)
	Abort() error // does nothing after Commit
}

// Local is a Store whose objects are files.
type Local interface {
	Store
	LocalPath(key string) (string, error) // path of an object's file, for mmap; the file never changes
}
