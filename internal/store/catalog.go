package store

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/zeebo/xxh3"
)

// Limits of what is read whole, in bytes.
const (
	maxHead     = 64 << 10
	maxManifest = 256 << 20
	maxDeletes  = 1 << 30
)

// CatalogOptions tune a catalog. The zero value is the default.
type CatalogOptions struct {
	Now func() time.Time // default time.Now
}

// Catalog finds, publishes and collects the versions of collections in a Store. Safe for concurrent use. Processes that write
// to the same store may each have one; pins and protection hold within a process, the delays of GCOptions between them.
type Catalog struct {
	s   Store
	now func() time.Time
	mu  struct {
		sync.Mutex
		held      map[string]int  // by key: pins and writers that keep an object from collection
		condemned map[string]bool // keys that a collection is deleting; never in held
	}
}

// NewCatalog returns a catalog over s.
func NewCatalog(s Store, o CatalogOptions) *Catalog {
	c := &Catalog{s: s, now: o.Now}
	if c.now == nil {
		c.now = time.Now
	}
	c.mu.held = map[string]int{}
	c.mu.condemned = map[string]bool{}
	return c
}

// Store is what the catalog stands on.
func (c *Catalog) Store() Store { return c.s }

// Version is a loaded manifest with what is needed to publish the next one. It is never changed.
type Version struct {
	Manifest *Manifest
	Pointer  Pointer
	HeadETag string // etag of the head that named it; empty when it was opened by its pointer
}

// objects are the keys of the version, its manifest first.
func (v *Version) objects() []string {
	keys := []string{v.Pointer.Object}
	for _, s := range v.Manifest.Segments {
		keys = append(keys, s.Object)
	}
	for _, d := range v.Manifest.Deletes {
		keys = append(keys, d.Object)
	}
	return keys
}

// List returns every collection that has a head, in the order of their keys. It lists the store: for a node's start.
func (c *Catalog) List(ctx context.Context) ([]Name, error) {
	var out []Name
	err := c.s.List(ctx, catalogPrefix, func(in Info) error {
		if n, ok := nameOf(in.Key); ok {
			out = append(out, n)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list collections: %w", err)
	}
	return out, nil
}

// readHead returns the head's pointer and etag.
func (c *Catalog) readHead(ctx context.Context, n Name) (Pointer, string, error) {
	if err := n.Validate(); err != nil {
		return Pointer{}, "", err
	}
	b, in, err := ReadAll(ctx, c.s, n.HeadKey(), maxHead)
	if err != nil {
		return Pointer{}, "", err
	}
	var h head
	if err := unseal(in.Key, kindHead, b, &h); err != nil {
		return Pointer{}, "", err
	}
	if (Name{h.Namespace, h.Collection}) != n {
		return Pointer{}, "", &CorruptError{Object: in.Key, Place: "/collection", Reason: fmt.Sprintf("head of %s/%s", h.Namespace, h.Collection)}
	}
	return h.Manifest, in.ETag, nil
}

// Open loads the version that the head names. ErrNotFound and a *MissingError apart: the first without the second means that the collection does not exist.
// A version that is to be read for long wants OpenPinned.
func (c *Catalog) Open(ctx context.Context, n Name) (*Version, error) {
	p, tag, err := c.readHead(ctx, n)
	if err != nil {
		return nil, fmt.Errorf("open collection %s: %w", n, err)
	}
	v, err := c.OpenAt(ctx, n, p)
	if err != nil {
		return nil, err
	}
	v.HeadETag = tag
	return v, nil
}

// MissingError says that an object is gone that a head, manifest or pointer names. It is an ErrCorrupt, not an ErrNotFound: the collection is there, and damaged.
type MissingError struct {
	Object string // key
	Wanted string // who names it
}

// Error names both.
func (e *MissingError) Error() string {
	return fmt.Sprintf("%v: %s is missing, named by %s", ErrCorrupt, e.Object, e.Wanted)
}

// Is makes errors.Is(err, ErrCorrupt) true.
func (e *MissingError) Is(target error) bool { return target == ErrCorrupt }

// OpenAt loads exactly the version that p names. A missing object is a *MissingError, a different one a *CorruptError; the
// head is never put in its place.
func (c *Catalog) OpenAt(ctx context.Context, n Name, p Pointer) (*Version, error) {
	if err := ValidKey(p.Object); err != nil {
		return nil, fmt.Errorf("open collection %s at version %d: %w", n, p.Version, err)
	}
	b, _, err := ReadAll(ctx, c.s, p.Object, maxManifest)
	if errors.Is(err, ErrNotFound) {
		err = &MissingError{Object: p.Object, Wanted: fmt.Sprintf("version %d of %s", p.Version, n)}
	}
	if err == nil && (int64(len(b)) != p.Bytes || Checksum(b) != p.Checksum) {
		// The manifest's own checks may know the place better.
		if _, err = DecodeManifest(p.Object, b); err == nil || errors.Is(err, ErrNewerFormat) {
			err = &CorruptError{Object: p.Object, Reason: "not the content that its pointer names"}
		}
	}
	var m *Manifest
	if err == nil {
		m, err = DecodeManifest(p.Object, b)
	}
	if err == nil && (m.Name() != n || m.Version != p.Version) {
		err = &CorruptError{Object: p.Object, Reason: fmt.Sprintf("holds version %d of %s", m.Version, m.Name())}
	}
	if err != nil {
		return nil, fmt.Errorf("open collection %s at version %d: %w", n, p.Version, err)
	}
	return &Version{Manifest: m, Pointer: p}, nil
}

// OpenPinned opens the head's version and pins it, again from the start if it was collected in between. The caller releases.
func (c *Catalog) OpenPinned(ctx context.Context, n Name) (*Version, func(), error) {
	for {
		v, err := c.Open(ctx, n)
		if err != nil {
			return nil, nil, err
		}
		if release, err := c.Pin(v); err == nil {
			return v, release, nil
		}
	}
}

// Create publishes version 1 of a collection; ErrPrecondition when it exists. It fills in Namespace, Collection, Version, Previous and Created; m is not changed.
func (c *Catalog) Create(ctx context.Context, n Name, m *Manifest) (*Version, error) {
	v, err := c.publish(ctx, n, nil, m)
	if err != nil {
		return nil, fmt.Errorf("create collection %s: %w", n, err)
	}
	return v, nil
}

// Publish makes m the version after prev, which was opened by Open or published: it fills in Namespace, Collection, Version, Previous and Created
// (m is not changed), writes the manifest, and moves the head if it is still prev's.
//
// Errors: ErrPrecondition, somebody else moved or dropped the head, nothing changed. ErrInvalid, m must not follow prev. ErrUncertain: Open tells which of both versions
// stands, once it can.
func (c *Catalog) Publish(ctx context.Context, prev *Version, m *Manifest) (*Version, error) {
	n := prev.Manifest.Name()
	v, err := c.publish(ctx, n, prev, m)
	if err != nil {
		return nil, fmt.Errorf("publish collection %s version %d: %w", n, prev.Pointer.Version+1, err)
	}
	return v, nil
}

func (c *Catalog) publish(ctx context.Context, n Name, prev *Version, m *Manifest) (*Version, error) {
	if err := n.Validate(); err != nil {
		return nil, err
	}
	next := *m
	next.Segments, next.Deletes = slices.Clone(m.Segments), slices.Clone(m.Deletes)
	for i := range next.Segments {
		if next.Segments[i].Tier == "" {
			next.Segments[i].Tier = TierHot
		}
	}
	next.Namespace, next.Collection, next.Version, next.Previous = n.Namespace, n.Collection, 1, nil
	next.Created = c.now().UTC()
	cond := Absent
	if prev != nil {
		if prev.HeadETag == "" {
			return nil, fmt.Errorf("%w: the version before was opened by its pointer, not by the head", ErrInvalid)
		}
		p := prev.Pointer
		next.Version, next.Previous = p.Version+1, &p
		if m.CommitTS < prev.Manifest.CommitTS || m.LogSeq < prev.Manifest.LogSeq || m.Schema.Generation < prev.Manifest.Schema.Generation {
			return nil, fmt.Errorf("%w: commit_ts %d, log record %d or schema %d is below the version before (%d, %d, %d)", ErrInvalid,
				m.CommitTS, m.LogSeq, m.Schema.Generation, prev.Manifest.CommitTS, prev.Manifest.LogSeq, prev.Manifest.Schema.Generation)
		}
		cond = Condition{IfMatch: prev.HeadETag}
	}
	b, err := EncodeManifest(&next)
	if err != nil {
		return nil, err
	}
	// Two writers may each write a manifest of this version; only one becomes the head's. The random part keeps them apart.
	var part [4]byte
	if _, err := rand.Read(part[:]); err != nil {
		return nil, fmt.Errorf("name the manifest: %w", err)
	}
	p := Pointer{Version: next.Version, Bytes: int64(len(b)), Checksum: Checksum(b)}
	p.Object = fmt.Sprintf("%smanifests/%020d-%s.json", n.Prefix(), p.Version, hex.EncodeToString(part[:]))
	h, err := seal(kindHead, head{Namespace: n.Namespace, Collection: n.Collection, Manifest: p})
	if err != nil {
		return nil, err
	}
	defer c.hold(p.Object)()
	if _, err := c.s.Put(ctx, p.Object, bytes.NewReader(b), p.Bytes, Absent); err != nil {
		if errors.Is(err, ErrUncertain) {
			return nil, fmt.Errorf("write the manifest: %v", err) // the head was not touched: for the caller this is certain
		}
		return nil, fmt.Errorf("write the manifest: %w", err)
	}
	tag, err := c.s.Put(ctx, n.HeadKey(), bytes.NewReader(h), int64(len(h)), cond)
	if err != nil {
		if errors.Is(err, ErrPrecondition) {
			err = errors.Join(err, c.s.Delete(context.WithoutCancel(ctx), p.Object))
		}
		return nil, err
	}
	return &Version{Manifest: &next, Pointer: p, HeadETag: tag}, nil
}

// hold keeps keys from collection until the function it returns is called, once or more.
func (c *Catalog) hold(keys ...string) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.holdLocked(keys)
}

func (c *Catalog) holdLocked(keys []string) func() {
	for _, k := range keys {
		c.mu.held[k]++
	}
	var once sync.Once
	return func() {
		once.Do(func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, k := range keys {
				if c.mu.held[k]--; c.mu.held[k] == 0 {
					delete(c.mu.held, k)
				}
			}
		})
	}
}

// Pin keeps the version's objects from collection until release is called; more calls do nothing. When a collection has begun to take them the error is a *MissingError.
func (c *Catalog) Pin(v *Version) (release func(), err error) {
	keys := v.objects()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range keys {
		if c.mu.condemned[k] {
			return nil, fmt.Errorf("pin: %w", &MissingError{Object: k, Wanted: fmt.Sprintf("version %d of %s", v.Pointer.Version, v.Manifest.Name())})
		}
	}
	return c.holdLocked(keys), nil
}

// Drop removes the head, then every object of the collection that nobody holds. ErrNotFound when there is neither. Called again, after pins were released or after a
// crash in between, it removes what is left.
func (c *Catalog) Drop(ctx context.Context, n Name) error {
	if err := n.Validate(); err != nil {
		return err
	}
	_, err := c.s.Stat(ctx, n.HeadKey())
	found := err == nil
	if err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("drop collection %s: %w", n, err)
	}
	if err := c.s.Delete(ctx, n.HeadKey()); err != nil {
		return fmt.Errorf("drop collection %s: %w", n, err)
	}
	var keys []string
	err = c.s.List(ctx, n.Prefix(), func(in Info) error {
		if in.Key != n.HeadKey() { // somebody may create the collection anew
			keys = append(keys, in.Key)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("drop collection %s: %w", n, err)
	}
	if !found && len(keys) == 0 {
		return fmt.Errorf("drop collection %s: %w", n, ErrNotFound)
	}
	for _, k := range keys {
		if _, err := c.remove(ctx, k); err != nil {
			return fmt.Errorf("drop collection %s: %w", n, err)
		}
	}
	return nil
}

// remove deletes an object unless somebody holds it.
func (c *Catalog) remove(ctx context.Context, key string) (bool, error) {
	c.mu.Lock()
	if c.mu.held[key] > 0 {
		c.mu.Unlock()
		return false, nil
	}
	c.mu.condemned[key] = true
	c.mu.Unlock()
	err := c.s.Delete(ctx, key)
	c.mu.Lock()
	delete(c.mu.condemned, key)
	c.mu.Unlock()
	return err == nil, err
}

// Kinds of objects.
const (
	KindSegment = "segments"
	KindDeletes = "deletes"
)

// Object is a written object, with what a manifest says of it.
type Object struct {
	Key      string
	Bytes    int64
	Checksum string
}

// ObjectWriter writes an object and its checksum. One owner at a time.
type ObjectWriter struct {
	id      string
	key     string
	w       Writer
	h       *xxh3.Hasher
	n       int64
	release func()
}

// NewObject starts an object under a fresh key; kind is KindSegment or KindDeletes. The object is kept from collection until Release, which is
// to be called after the manifest that names it was published, or given up.
func (c *Catalog) NewObject(ctx context.Context, n Name, kind string) (*ObjectWriter, error) {
	if err := n.Validate(); err != nil {
		return nil, err
	}
	suffix := map[string]string{KindSegment: ".seg", KindDeletes: ".del"}[kind]
	if suffix == "" {
		return nil, fmt.Errorf("%w kind of object: %q", ErrInvalid, kind)
	}
	id, err := NewID()
	if err != nil {
		return nil, err
	}
	o := &ObjectWriter{id: id, key: n.Prefix() + kind + "/" + id + suffix, h: xxh3.New()}
	o.release = c.hold(o.key)
	if o.w, err = c.s.NewWriter(ctx, o.key); err != nil {
		o.release()
		return nil, err
	}
	return o, nil
}

// ID is the object's uuid.
func (o *ObjectWriter) ID() string { return o.id }

// Key is where the object will be.
func (o *ObjectWriter) Key() string { return o.key }

// Write appends.
func (o *ObjectWriter) Write(b []byte) (int, error) {
	n, err := o.w.Write(b)
	o.n += int64(n)
	if _, hashErr := o.h.Write(b[:n]); hashErr != nil {
		return n, errors.Join(err, hashErr)
	}
	return n, err
}

// Commit makes the object durable.
func (o *ObjectWriter) Commit(ctx context.Context) (Object, error) {
	if _, err := o.w.Commit(ctx, Absent); err != nil {
		return Object{}, err
	}
	return Object{Key: o.key, Bytes: o.n, Checksum: checksum(o.h.Sum64())}, nil
}

// Release ends the protection, and gives up an object that was not committed. It may be called more than once.
func (o *ObjectWriter) Release() error {
	o.release()
	return o.w.Abort()
}

// LoadDeletes reads the delete set that a manifest names for a segment and checks it against both. The errors: *MissingError, *CorruptError, ErrNewerFormat.
func (c *Catalog) LoadDeletes(ctx context.Context, s Segment, ref DeleteRef) (DeleteSet, error) {
	b, _, err := ReadAll(ctx, c.s, ref.Object, maxDeletes)
	if errors.Is(err, ErrNotFound) {
		return DeleteSet{}, &MissingError{Object: ref.Object, Wanted: "segment " + s.ID}
	}
	if err != nil {
		return DeleteSet{}, err
	}
	if int64(len(b)) != ref.Bytes || Checksum(b) != ref.Checksum {
		if _, err := decodeDeletes(ref.Object, b, s.Docs); errors.Is(err, ErrCorrupt) {
			return DeleteSet{}, err
		}
		return DeleteSet{}, &CorruptError{Object: ref.Object, Reason: "not the content that the manifest names"}
	}
	d, err := decodeDeletes(ref.Object, b, s.Docs)
	if err != nil {
		return DeleteSet{}, err
	}
	if d.Segment != s.ID || d.Docs != s.Docs || d.Generation != ref.Generation || d.Dead.Count() != int(ref.Count) {
		return DeleteSet{}, &CorruptError{Object: ref.Object, Reason: fmt.Sprintf("set %d of segment %s (%d of %d documents), not set %d of %s (%d of %d)",
			d.Generation, d.Segment, d.Dead.Count(), d.Docs, ref.Generation, s.ID, ref.Count, s.Docs)}
	}
	return d, nil
}
