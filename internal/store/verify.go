package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/zeebo/xxh3"
)

// Repair is what can be done about a problem.
type Repair uint8

// The repairs, from the harmless to the helpless.
const (
	RepairNone    Repair = iota // nothing to do by itself, or nothing possible: restore the object from a copy
	RepairCollect               // an object that nobody names: Collect deletes it
	RepairRepoint               // the head is lost or names a broken version: Repoint makes the newest whole one the head's
)

// String says it in words.
func (r Repair) String() string {
	switch r {
	case RepairCollect:
		return "delete it, nothing names it"
	case RepairRepoint:
		return "point the head at the newest whole version"
	default:
		return "restore the object from a copy"
	}
}

// Problem is one finding of Verify.
type Problem struct {
	Object string // key
	Err    error  // a *CorruptError, *MissingError, ErrNewerFormat or what the store said
	Repair Repair
}

// String is a line for people.
func (p Problem) String() string {
	return fmt.Sprintf("%s: %v (repair: %s)", p.Object, p.Err, p.Repair)
}

// VerifyOptions say how far Verify goes.
type VerifyOptions struct {
	Deep bool // read every byte of every object and compare checksums, not only sizes
	// Segment, if set, is called for each segment whose object is there and of the right size, to look into it; its error becomes a problem.
	Segment func(ctx context.Context, s Segment) error
}

// VerifyReport is what Verify found.
type VerifyReport struct {
	Version      *Version // the head's; nil when it could not be opened
	Whole        *Version // the newest version all of whose objects are there and of the right size; searched for when the head's is not
	Objects      int      // looked at
	Bytes        int64    // of them
	Problems     []Problem
	Unreferenced []Info // named by neither the head's version nor one before it that is still there; not a problem, Collect takes them
}

// Verify walks head, manifest and objects of a collection, and changes nothing. The error is for a walk that could not be done; what is wrong with the
// collection is in the report.
func (c *Catalog) Verify(ctx context.Context, n Name, o VerifyOptions) (VerifyReport, error) {
	var rep VerifyReport
	if err := n.Validate(); err != nil {
		return rep, err
	}
	v, err := c.Open(ctx, n)
	if err != nil {
		if stop := context.Cause(ctx); stop != nil {
			return rep, stop
		}
		rep.Problems = append(rep.Problems, Problem{Object: n.HeadKey(), Err: err, Repair: RepairRepoint})
	} else {
		rep.Version = v
		rep.Objects, rep.Bytes = 2, v.Pointer.Bytes
		problems, err := c.checkVersion(ctx, v, o, &rep)
		if err != nil {
			return rep, err
		}
		rep.Problems = append(rep.Problems, problems...)
	}
	named := map[string]bool{n.HeadKey(): true}
	for at := v; at != nil; {
		for _, k := range at.objects() {
			named[k] = true
		}
		prev := at.Manifest.Previous
		if at = nil; prev != nil {
			at, err = c.OpenAt(ctx, n, *prev)
			var missing *MissingError
			if err != nil && !errors.As(err, &missing) {
				rep.Problems = append(rep.Problems, Problem{Object: prev.Object, Err: err, Repair: RepairNone})
				named[prev.Object] = true
			}
		}
	}
	var manifests []string
	err = c.s.List(ctx, n.Prefix(), func(in Info) error {
		if strings.HasPrefix(in.Key, n.Prefix()+"manifests/") {
			manifests = append(manifests, in.Key)
		}
		if !named[in.Key] {
			rep.Unreferenced = append(rep.Unreferenced, in)
		}
		return nil
	})
	if err != nil {
		return rep, err
	}
	if rep.Version != nil && len(rep.Problems) == 0 {
		rep.Whole = rep.Version
		return rep, nil
	}
	for i := len(manifests) - 1; i >= 0 && rep.Whole == nil; i-- { // the version is at the front of the name: newest first
		if rep.Whole, err = c.wholeAt(ctx, n, manifests[i]); err != nil {
			return rep, err
		}
	}
	for i := range rep.Problems {
		switch p := &rep.Problems[i]; {
		case rep.Whole == nil || errors.Is(p.Err, ErrNewerFormat):
			p.Repair = RepairNone
		case rep.Version != nil && rep.Whole.Pointer == rep.Version.Pointer && p.Repair == RepairRepoint:
			p.Repair = RepairNone // nothing that the head's version needs to be read
		}
	}
	return rep, nil
}

// checkVersion looks at each object of a version.
func (c *Catalog) checkVersion(ctx context.Context, v *Version, o VerifyOptions, rep *VerifyReport) ([]Problem, error) {
	var out []Problem
	wanted := fmt.Sprintf("version %d", v.Pointer.Version)
	check := func(key string, size int64, sum string, look func() error) error {
		rep.Objects++
		rep.Bytes += size
		err := c.checkObject(ctx, key, size, sum, wanted, o.Deep)
		if err == nil && look != nil {
			err = look()
		}
		if stop := context.Cause(ctx); stop != nil {
			return stop
		}
		if err != nil {
			out = append(out, Problem{Object: key, Err: err, Repair: RepairRepoint})
		}
		return nil
	}
	segments := map[string]Segment{}
	for _, s := range v.Manifest.Segments {
		segments[s.ID] = s
		var look func() error
		if o.Segment != nil {
			look = func() error { return o.Segment(ctx, s) }
		}
		if err := check(s.Object, s.Bytes, s.Checksum, look); err != nil {
			return out, err
		}
	}
	for _, d := range v.Manifest.Deletes {
		look := func() error {
			_, err := c.LoadDeletes(ctx, segments[d.Segment], d)
			return err
		}
		if err := check(d.Object, d.Bytes, d.Checksum, look); err != nil {
			return out, err
		}
	}
	return out, nil
}

// checkObject looks at one object.
func (c *Catalog) checkObject(ctx context.Context, key string, size int64, sum, wanted string, deep bool) (err error) {
	r, in, err := c.s.GetRange(ctx, key, 0, size) // unlike Stat it never reads for an etag
	if errors.Is(err, ErrNotFound) {
		return &MissingError{Object: key, Wanted: wanted}
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if in.Size != size {
		return &CorruptError{Object: key, Place: fmt.Sprintf("offset %d", min(size, in.Size)), Reason: fmt.Sprintf("%d bytes, the manifest says %d", in.Size, size)}
	}
	if !deep {
		return nil
	}
	h := xxh3.New()
	if _, err := io.Copy(h, ctxReader{ctx, r}); err != nil {
		return fmt.Errorf("read %s: %w", key, err)
	}
	if have := checksum(h.Sum64()); have != sum {
		return &CorruptError{Object: key, Reason: fmt.Sprintf("checksum %s, the manifest says %s", have, sum)}
	}
	return nil
}

// wholeAt returns the version whose manifest is at key, if it and all its objects are there; else nil.
func (c *Catalog) wholeAt(ctx context.Context, n Name, key string) (*Version, error) {
	b, _, err := ReadAll(ctx, c.s, key, maxManifest)
	var m *Manifest
	if err == nil {
		m, err = DecodeManifest(key, b)
	}
	if err != nil || m.Name() != n {
		return nil, context.Cause(ctx) // not a whole version, whatever the reason
	}
	v := &Version{Manifest: m, Pointer: Pointer{Version: m.Version, Object: key, Bytes: int64(len(b)), Checksum: Checksum(b)}}
	problems, err := c.checkVersion(ctx, v, VerifyOptions{}, new(VerifyReport))
	if err != nil || len(problems) > 0 {
		return nil, err
	}
	return v, nil
}

// Repoint makes v the head's version, whatever the head names now: the repair of a broken head. v is the Whole of a report. Writers must be stopped; one that is
// not gets ErrPrecondition. The versions after v are given up: what was in them alone is lost.
func (c *Catalog) Repoint(ctx context.Context, v *Version) (*Version, error) {
	n := v.Manifest.Name()
	cond := Absent
	if in, err := c.s.Stat(ctx, n.HeadKey()); err == nil {
		cond = Condition{IfMatch: in.ETag}
	} else if !errors.Is(err, ErrNotFound) {
		return nil, fmt.Errorf("repoint %s: %w", n, err)
	}
	h, err := seal(kindHead, head{Namespace: n.Namespace, Collection: n.Collection, Manifest: v.Pointer})
	if err != nil {
		return nil, err
	}
	tag, err := c.s.Put(ctx, n.HeadKey(), bytes.NewReader(h), int64(len(h)), cond)
	if err != nil {
		return nil, fmt.Errorf("repoint %s: %w", n, err)
	}
	return &Version{Manifest: v.Manifest, Pointer: v.Pointer, HeadETag: tag}, nil
}
