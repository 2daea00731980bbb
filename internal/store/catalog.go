package store

import (
	"context"
	"errors"
)

// Catalog finds, publishes and collects the versions of collections in a Store. Safe for concurrent use.
type Catalog struct{ s Store }

// Version is a loaded manifest with what is needed to publish the next one.
type Version struct {
	Manifest *Manifest
	Pointer  Pointer
	HeadETag string // etag of the head that named it; empty when it was opened by pointer
}

// Object is a written object.
type Object struct {
	Key      string
	Bytes    int64
	Checksum string
}

var errNotBuilt = errors.New("not built")

// NewCatalog returns a catalog over s.
func NewCatalog(s Store, o CatalogOptions) *Catalog { return &Catalog{s: s} }

// CatalogOptions tune a catalog.
type CatalogOptions struct{}

// List returns every collection that has a head.
func (c *Catalog) List(ctx context.Context) ([]Name, error) { return nil, errNotBuilt }

// Create publishes the first version (1) of a collection; ErrPrecondition when it exists.
func (c *Catalog) Create(ctx context.Context, n Name, m *Manifest) (*Version, error) {
	return nil, errNotBuilt
}

// Open loads the version that the head names. ErrNotFound when the collection does not exist.
func (c *Catalog) Open(ctx context.Context, n Name) (*Version, error) { return nil, errNotBuilt }

// OpenAt loads exactly the version that p names; a missing or different object fails, the head is never put in its place.
func (c *Catalog) OpenAt(ctx context.Context, n Name, p Pointer) (*Version, error) {
	return nil, errNotBuilt
}

// Publish makes m the version after prev: it sets Namespace, Collection, Version, Previous and Created, writes the manifest and moves
// the head if it is still prev's. ErrPrecondition: somebody else moved it, nothing changed. ErrUncertain: open again to see.
func (c *Catalog) Publish(ctx context.Context, prev *Version, m *Manifest) (*Version, error) {
	return nil, errNotBuilt
}

// Drop removes the head, then the objects that no pin holds.
func (c *Catalog) Drop(ctx context.Context, n Name) error { return errNotBuilt }

// Pin keeps the version's objects from collection until release is called. ErrNotFound when collection has begun to take them.
func (c *Catalog) Pin(v *Version) (release func(), err error) { return nil, errNotBuilt }

// NewObject starts an object under a fresh key; kind is KindSegment or KindDeletes. The object is protected from collection until its
// ObjectWriter is released, which is to be done after the manifest that names it was published.
func (c *Catalog) NewObject(ctx context.Context, n Name, kind string) (*ObjectWriter, error) {
	return nil, errNotBuilt
}

// Kinds of objects.
const (
	KindSegment = "segments"
	KindDeletes = "deletes"
)

// ObjectWriter writes an object and its checksum. One owner at a time.
type ObjectWriter struct{}

// ID is the object's uuid.
func (w *ObjectWriter) ID() string { return "" }

// Write appends.
func (w *ObjectWriter) Write(b []byte) (int, error) { return 0, errNotBuilt }

// Commit makes the object durable.
func (w *ObjectWriter) Commit(ctx context.Context) (Object, error) { return Object{}, errNotBuilt }

// Release ends the protection, and removes an object that was not committed.
func (w *ObjectWriter) Release() error { return errNotBuilt }

// EncodeDeletes returns the file of a delete set.
func EncodeDeletes(d DeleteSet) []byte { return nil }

// DecodeDeletes reads a delete set; name is for errors.
func DecodeDeletes(name string, b []byte) (DeleteSet, error) { return DeleteSet{}, errNotBuilt }
