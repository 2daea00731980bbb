package store

import (
	"time"

	"github.com/weft-search/weft/internal/segment/bitset"
)

// Name is a collection.
type Name struct{ Namespace, Collection string }

// Pointer names one immutable manifest.
type Pointer struct {
	Version  uint64 `json:"version"`
	Object   string `json:"object"`
	Bytes    int64  `json:"bytes"`
	Checksum string `json:"checksum"`
}

// Segment is an entry of a manifest.
type Segment struct {
	ID          string `json:"id"`
	Object      string `json:"object"`
	Docs        uint32 `json:"docs"`
	Bytes       int64  `json:"bytes"`
	Checksum    string `json:"checksum"` // of the whole object, as Checksum writes it
	Tier        string `json:"tier"`     // "hot", "warm" or "cold"
	MinKey      string `json:"min_key"`
	MaxKey      string `json:"max_key"`
	MaxCommitTS uint64 `json:"max_commit_ts,string"`
}

// DeleteRef names the delete set of a segment.
type DeleteRef struct {
	Segment    string `json:"segment"`
	Generation uint64 `json:"generation"`
	Object     string `json:"object"`
	Count      uint32 `json:"count"`
	Bytes      int64  `json:"bytes"`
	Checksum   string `json:"checksum"`
}

// SchemaRef is the schema of a manifest.
type SchemaRef struct {
	Generation uint64 `json:"generation"`
	Format     string `json:"format"` // "sdl" or "json"
	Text       string `json:"text"`
}

// Manifest is one committed version of a collection. Immutable once published.
type Manifest struct {
	Namespace  string      `json:"namespace"`
	Collection string      `json:"collection"`
	Version    uint64      `json:"version"`
	Previous   *Pointer    `json:"previous"`
	Created    time.Time   `json:"created"`
	Schema     SchemaRef   `json:"schema"`
	Segments   []Segment   `json:"segments"`
	Deletes    []DeleteRef `json:"deletes"`
	CommitTS   uint64      `json:"high_water_commit_ts,string"` // highest commit_ts of all versions in the segments
	LogSeq     uint64      `json:"high_water_log_seq,string"`   // every log record up to this one is in the segments
}

// DeleteSet is the set of dead documents of one segment.
type DeleteSet struct {
	Segment    string
	Generation uint64
	Docs       uint32 // documents of the segment
	Dead       bitset.Set
}
