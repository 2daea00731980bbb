//go:build !unix

package segment

import (
	"io"
	"os"
)

// mapFile reads size bytes of f: this system has no mapping we use.
func mapFile(f *os.File, size int) (data []byte, unmap func() error, err error) {
	data = alignedBytes(size)
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, nil, err
	}
	return data, func() error { return nil }, nil
}
