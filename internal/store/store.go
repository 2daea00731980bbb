// Package store keeps the immutable objects of collections and the heads that name their current versions.
//
// # Contract
//
// A Store maps keys to whole objects and can make a write depend on what is there (put if absent, put if unchanged). That is all it offers, so that
// a folder, memory and S3 fit. Folder and Memory are here, a bucket of S3 is in package s3; package storetest holds the test that every Store passes.
//
// A Catalog stands on a Store. A collection is a chain of immutable manifests; each lists the segments and delete sets of one version. The
// head, one small object, names the current manifest and moves by compare-and-swap: of two writers one wins, the other gets ErrPrecondition, and
// nothing is overwritten. Objects are found through head and manifest, never by listing. Objects never change; keys are never used again.
//
// Old versions stay for readers that may still name them (GCOptions). Collect deletes what neither the head, a kept version, nor a pin reaches, after a delay
// that protects what is being written. A manifest or object that is missing is an error; another version is never put in its place.
//
// Keys of a collection, with names escaped as EscapeName does:
//
//	catalog/{xx}/{namespace}/{collection}/manifest_committed_head.json
//	catalog/{xx}/{namespace}/{collection}/manifests/{version, 20 digits}-{8 hex digits}.json
//	catalog/{xx}/{namespace}/{collection}/segments/{uuid}.seg
//	catalog/{xx}/{namespace}/{collection}/deletes/{uuid}.del
//
// where xx is the first byte of the SHA-256 of the namespace in hex; SHA-256 because every language and shell has it, so any tool finds a head.
//
// FORMAT.md describes the files.
//
// # Concurrency
//
// Store implementations and Catalog are safe for concurrent use. Writers, readers of objects, and Temp-like values need one owner at a time.
package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/weft-search/weft/internal/vfs"
)

// The kinds of error that callers tell apart with errors.Is.
var (
	// ErrNotFound: there is no such object or collection.
	ErrNotFound = errors.New("object not found")
	// ErrPrecondition: the condition of a write did not hold, somebody else was first; nothing was written.
	ErrPrecondition = errors.New("object changed by another writer")
	// ErrUncertain: the write may or may not have taken place, or may vanish at a crash. Read before writing again.
	ErrUncertain = vfs.ErrUncertain
	// ErrKey: not a key that every Store takes, or not a name of a collection.
	ErrKey = errors.New("bad object key")
	// ErrReadOnly: the store was opened for reading.
	ErrReadOnly = errors.New("store opened for reading only")
	// ErrCorrupt marks every *CorruptError.
	ErrCorrupt = errors.New("object corrupt")
	// ErrNewerFormat: the object needs a newer reader.
	ErrNewerFormat = errors.New("object written by a newer version")
	// ErrInvalid: a manifest or delete set that may not be published.
	ErrInvalid = errors.New("invalid")
)

// CorruptError is an ErrCorrupt with its place.
type CorruptError struct {
	Object string // key or file
	Place  string // offset or JSON pointer; empty: the object as a whole
	Reason string
}

// Error names object, place and reason.
func (e *CorruptError) Error() string {
	if e.Place == "" {
		return fmt.Sprintf("%v: %s: %s", ErrCorrupt, e.Object, e.Reason)
	}
	return fmt.Sprintf("%v: %s at %s: %s", ErrCorrupt, e.Object, e.Place, e.Reason)
}

// Is makes errors.Is(err, ErrCorrupt) true.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// Condition guards a write. The zero value always holds; at most one member is set.
type Condition struct {
	IfNoneMatch string // "*": the object must not exist
	IfMatch     string // the object must exist with this etag
}

// Absent holds when the object does not exist.
var Absent = Condition{IfNoneMatch: "*"}

// Validate returns an ErrInvalid for a condition that says two things, or one that no store knows.
func (c Condition) Validate() error {
	if c.IfNoneMatch != "" && (c.IfNoneMatch != "*" || c.IfMatch != "") {
		return fmt.Errorf("%w: condition %+v", ErrInvalid, c)
	}
	return nil
}

// Info describes an object.
type Info struct {
	Key  string
	Size int64 // bytes
	// ETag is opaque; different content has a different one. It is empty in List and GetRange, and in Get and Stat of a folder's object above
	// 1 MiB, where it would cost reading the whole of it.
	ETag     string
	Modified time.Time // when it was written
}

// Store holds objects by key. An object is written whole: a reader sees all of the old content or all of the new, and what
// was written is durable when the call returns.
type Store interface {
	// Put writes size bytes of r. An r of another length is an error and nothing is written.
	Put(ctx context.Context, key string, r io.Reader, size int64, c Condition) (etag string, err error)
	// NewWriter starts an object whose size is not known yet.
	NewWriter(ctx context.Context, key string) (Writer, error)
	// Get opens an object; the caller closes it.
	Get(ctx context.Context, key string) (io.ReadCloser, Info, error)
	// GetRange opens n bytes from off, fewer if the object ends before; off must not be past its end. The Info is of the whole object.
	GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, Info, error)
	Stat(ctx context.Context, key string) (Info, error)
	// Delete removes an object. An absent one is no error.
	Delete(ctx context.Context, key string) error
	// List calls fn for each object whose key begins with prefix, in byte order of the keys; an error of fn ends it and is returned as it is.
	// For a node's start, doctor and garbage collection only.
	List(ctx context.Context, prefix string, fn func(Info) error) error
}

// Writer is an object in the making; nothing is visible before Commit.
type Writer interface {
	io.Writer
	// Commit makes the object durable and visible. After an error there is nothing more to do with the Writer, and unless
	// the error is ErrUncertain nothing was written.
	Commit(ctx context.Context, c Condition) (etag string, err error)
	// Abort gives up. It does nothing after Commit.
	Abort() error
}

// Local is a Store whose objects are files of this machine.
type Local interface {
	Store
	// LocalPath returns the path of an object's file, for mapping into memory. The file never changes; a replaced or deleted one lives on while it is open.
	LocalPath(key string) (string, error)
}

// Limits of keys: those of the narrowest store.
const (
	maxKey     = 900 // bytes
	maxElement = 200 // bytes of one element; leaves room for a file system's temporary suffix
)

// ValidKey returns an ErrKey unless key can be used with every Store: elements of letters, digits and -_.%+=@, separated by single slashes; no element
// begins with a dot, is longer than 200 bytes or ends in .tmp; 900 bytes in all.
func ValidKey(key string) error {
	if len(key) > maxKey {
		return fmt.Errorf("%w: %d bytes, the limit is %d", ErrKey, len(key), maxKey)
	}
	for _, el := range strings.Split(key, "/") {
		switch {
		case el == "":
			return fmt.Errorf("%w %q: empty element", ErrKey, key)
		case len(el) > maxElement:
			return fmt.Errorf("%w %q: element of %d bytes, the limit is %d", ErrKey, key, len(el), maxElement)
		case el[0] == '.':
			return fmt.Errorf("%w %q: element begins with a dot", ErrKey, key)
		case vfs.IsTemp(el):
			return fmt.Errorf("%w %q: element ends in %s", ErrKey, key, vfs.TempSuffix)
		}
		for i := range len(el) {
			if !plain(el[i]) && !strings.ContainsRune("%+=@", rune(el[i])) {
				return fmt.Errorf("%w %q: byte %#02x", ErrKey, key, el[i])
			}
		}
	}
	return nil
}

// plain tells whether a byte stands for itself in EscapeName.
func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.'
}

// ReadAll returns the content of an object that is at most limit bytes long; a longer one is a *CorruptError, found before anything is allocated.
func ReadAll(ctx context.Context, s Store, key string, limit int64) (b []byte, in Info, err error) {
	r, in, err := s.Get(ctx, key)
	if err != nil {
		return nil, in, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if in.Size > limit {
		return nil, in, &CorruptError{Object: key, Reason: fmt.Sprintf("%d bytes, the limit is %d", in.Size, limit)}
	}
	b = make([]byte, in.Size)
	if _, err := io.ReadFull(r, b); err != nil && len(b) > 0 {
		return nil, in, fmt.Errorf("read %s: %w", key, err)
	}
	return b, in, nil
}

// ctxReader ends with the context.
type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (r ctxReader) Read(b []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.r.Read(b)
}

// putThrough is Put by way of NewWriter.
func putThrough(ctx context.Context, s Store, key string, r io.Reader, size int64, c Condition) (string, error) {
	w, err := s.NewWriter(ctx, key)
	if err != nil {
		return "", err
	}
	n, err := io.Copy(w, io.LimitReader(ctxReader{ctx, r}, size+1))
	if err == nil && n != size {
		err = fmt.Errorf("%w: %d bytes or more where %d were announced", ErrInvalid, n, size)
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("put %s: %w", key, err), w.Abort())
	}
	return w.Commit(ctx, c)
}
