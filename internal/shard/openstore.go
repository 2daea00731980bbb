package shard

import (
	"github.com/weft-search/weft/internal/store"
	"github.com/weft-search/weft/internal/vfs"
)

func openStore(fsys vfs.FS, dir string) (store.Store, error) { return nil, store.ErrNotFound }
