package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
)

// set is what a file holds.
type set struct{ vectors, queries [][]float32 }

// readSet reads the numbers of dimensions, vectors and queries, 32 bits each, and then the components of vectors and queries as
// 32-bit floats, all little-endian.
func readSet(path string) (set, error) {
	f, err := os.Open(path)
	if err != nil {
		return set{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return set{}, err
	}
	var head [12]byte
	r := bufio.NewReaderSize(f, 1<<20)
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return set{}, fmt.Errorf("%s: the head: %w", path, err)
	}
	dim, n, q := uint64(binary.LittleEndian.Uint32(head[:])), uint64(binary.LittleEndian.Uint32(head[4:])), uint64(binary.LittleEndian.Uint32(head[8:]))
	if dim == 0 || dim > 1<<16 || n == 0 || q == 0 || uint64(info.Size()) != 12+4*dim*(n+q) {
		return set{}, fmt.Errorf("%s: %d bytes are not %d vectors and %d queries of %d dimensions", path, info.Size(), n, q, dim)
	}
	rows := func(n uint64) ([][]float32, error) {
		out := make([][]float32, n)
		b := make([]byte, 4*dim)
		for i := range out {
			if _, err := io.ReadFull(r, b); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			out[i] = make([]float32, dim)
			for j := range out[i] {
				out[i][j] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*j:]))
			}
		}
		return out, nil
	}
	var s set
	if s.vectors, err = rows(n); err != nil {
		return s, err
	}
	s.queries, err = rows(q)
	return s, err
}
