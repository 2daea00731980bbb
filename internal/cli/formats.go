package cli

import (
	"github.com/weft-search/weft/internal/node"
	"github.com/weft-search/weft/internal/segment"
	"github.com/weft-search/weft/internal/shard/wal"
	"github.com/weft-search/weft/internal/store"
)

// formats lists what is on disk. Each format's own page says what its versions hold.
func formats() []formatOfFile {
	return []formatOfFile{
		{Name: "data folder", Writes: node.Format, Oldest: 1}, // node.json and catalog.json
		{Name: "load keys", Writes: node.LoadKeysVersion, Oldest: 1},
		{Name: "log", Writes: wal.FormatVersion, Oldest: 1},
		{Name: "head", Writes: store.FormatVersion, Oldest: 1},
		{Name: "manifest", Writes: store.FormatVersion, Oldest: 1},
		{Name: "delete set", Writes: store.DeletesVersion, Oldest: 1},
		{Name: "segment", Writes: segment.FormatVersion, Oldest: 1},
	}
}
