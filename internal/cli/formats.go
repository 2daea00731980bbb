package cli

import (
	"github.com/weft-search/weft/internal/node"
	"github.com/weft-search/weft/internal/segment"
)

// formats lists what is on disk. Each format's own page says what its versions hold.
func formats() []formatOfFile {
	return []formatOfFile{
		{Name: "data folder", Writes: node.Format, Oldest: 1},
		{Name: "segment", Writes: segment.FormatVersion, Oldest: 1},
	}
}
