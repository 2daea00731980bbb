package store

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Pointer names one immutable manifest, with what it takes to know it from any other.
type Pointer struct {
	Version  uint64 `json:"version"`
	Object   string `json:"object"` // key
	Bytes    int64  `json:"bytes"`
	Checksum string `json:"checksum"` // of the whole object
}

// head is the body of a head object.
type head struct {
	Namespace  string  `json:"namespace"`
	Collection string  `json:"collection"`
	Manifest   Pointer `json:"manifest"`
}

// Tiers of segments.
const (
	TierHot  = "hot"
	TierWarm = "warm"
	TierCold = "cold"
)

// Segment is an entry of a manifest.
type Segment struct {
	ID          string `json:"id"` // uuid
	Object      string `json:"object"`
	Docs        uint32 `json:"docs"` // dead ones too
	Bytes       int64  `json:"bytes"`
	Checksum    string `json:"checksum"` // of the whole object
	Tier        string `json:"tier"`     // empty means hot when published
	MinKey      string `json:"min_key"`  // of all documents, dead ones too
	MaxKey      string `json:"max_key"`
	MaxCommitTS uint64 `json:"max_commit_ts,string"`
}

// DeleteRef names the delete set of a segment: the dead documents, all of them, as of its generation.
type DeleteRef struct {
	Segment    string `json:"segment"` // id
	Generation uint64 `json:"generation"`
	Object     string `json:"object"`
	Count      uint32 `json:"count"` // dead documents
	Bytes      int64  `json:"bytes"`
	Checksum   string `json:"checksum"`
}

// SchemaRef is the schema of a manifest.
type SchemaRef struct {
	Generation uint64 `json:"generation"`
	Format     string `json:"format"` // "sdl" or "json"
	Text       string `json:"text"`
}

// Manifest is one committed version of a collection. It is never changed once published.
type Manifest struct {
	Namespace  string      `json:"namespace"`
	Collection string      `json:"collection"`
	Version    uint64      `json:"version"`  // from 1, one more than the previous
	Previous   *Pointer    `json:"previous"` // nil for version 1
	Created    time.Time   `json:"created"`  // UTC
	Schema     SchemaRef   `json:"schema"`
	Segments   []Segment   `json:"segments"`
	Deletes    []DeleteRef `json:"deletes"`                     // at most one for a segment
	CommitTS   uint64      `json:"high_water_commit_ts,string"` // no version in the segments has a higher commit_ts
	LogSeq     uint64      `json:"high_water_log_seq,string"`   // the effects of all log records up to this one are in the segments and delete sets
}

// Name is the collection the manifest is of.
func (m *Manifest) Name() Name { return Name{Namespace: m.Namespace, Collection: m.Collection} }

// Validate returns an ErrInvalid listing what is wrong with the manifest, each with its JSON pointer.
func (m *Manifest) Validate() error {
	var errs []error
	bad := func(place, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s", place, fmt.Sprintf(format, args...)))
	}
	if err := m.Name().Validate(); err != nil {
		bad("/collection", "%v", err)
	}
	object := func(place, dir, key, sum string, bytes int64) {
		if rest, ok := strings.CutPrefix(key, m.Name().Prefix()+dir+"/"); !ok || strings.Contains(rest, "/") || ValidKey(key) != nil {
			bad(place+"/object", "%q is not a key under %s", key, m.Name().Prefix()+dir)
		}
		if !validChecksum(sum) {
			bad(place+"/checksum", "%q is no checksum", sum)
		}
		if bytes <= 0 {
			bad(place+"/bytes", "%d", bytes)
		}
	}
	switch p := m.Previous; {
	case m.Version == 0:
		bad("/version", "must be at least 1")
	case (m.Version == 1) != (p == nil):
		bad("/previous", "version 1, and no other, has none")
	case p != nil:
		if p.Version != m.Version-1 {
			bad("/previous/version", "is %d, must be %d", p.Version, m.Version-1)
		}
		object("/previous", "manifests", p.Object, p.Checksum, p.Bytes)
	}
	if m.Schema.Format != "sdl" && m.Schema.Format != "json" {
		bad("/schema/format", "%q is neither sdl nor json", m.Schema.Format)
	}
	docs := make(map[string]uint32, len(m.Segments))
	objects := make(map[string]bool, len(m.Segments)+len(m.Deletes))
	for i, s := range m.Segments {
		place := fmt.Sprintf("/segments/%d", i)
		object(place, KindSegment, s.Object, s.Checksum, s.Bytes)
		switch _, twice := docs[s.ID]; {
		case !validID(s.ID):
			bad(place+"/id", "%q is no uuid", s.ID)
		case twice || objects[s.Object]:
			bad(place, "listed twice")
		}
		docs[s.ID], objects[s.Object] = s.Docs, true
		if s.Docs == 0 {
			bad(place+"/docs", "must be at least 1")
		}
		if s.Tier != TierHot && s.Tier != TierWarm && s.Tier != TierCold {
			bad(place+"/tier", "%q is none of hot, warm, cold", s.Tier)
		}
		if s.MinKey > s.MaxKey {
			bad(place+"/min_key", "is above max_key")
		}
		if s.MaxCommitTS > m.CommitTS {
			bad(place+"/max_commit_ts", "%d is above the manifest's %d", s.MaxCommitTS, m.CommitTS)
		}
	}
	seen := make(map[string]bool, len(m.Deletes))
	for i, d := range m.Deletes {
		place := fmt.Sprintf("/deletes/%d", i)
		object(place, KindDeletes, d.Object, d.Checksum, d.Bytes)
		n, known := docs[d.Segment]
		switch {
		case !known:
			bad(place+"/segment", "%q is not in the manifest", d.Segment)
		case seen[d.Segment]:
			bad(place+"/segment", "%q has two delete sets", d.Segment)
		case d.Count == 0 || d.Count > n:
			bad(place+"/count", "%d of %d documents", d.Count, n)
		}
		if objects[d.Object] {
			bad(place+"/object", "listed twice")
		}
		seen[d.Segment], objects[d.Object] = true, true
	}
	if len(errs) > 0 {
		return fmt.Errorf("%w manifest: %w", ErrInvalid, errors.Join(errs...))
	}
	return nil
}

// EncodeManifest returns the object of a manifest. The same manifest gives the same bytes.
func EncodeManifest(m *Manifest) ([]byte, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	return seal(kindManifest, m)
}

// DecodeManifest reads a manifest's object; key is for errors, which are *CorruptError or ErrNewerFormat.
func DecodeManifest(key string, b []byte) (*Manifest, error) {
	m := new(Manifest)
	if err := unseal(key, kindManifest, b, m); err != nil {
		return nil, err
	}
	if err := m.Validate(); err != nil {
		return nil, &CorruptError{Object: key, Reason: err.Error()}
	}
	return m, nil
}
