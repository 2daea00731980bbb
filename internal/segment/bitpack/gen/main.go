// Command gen writes the unrolled code of package bitpack: portable Go and AVX2 assembly, a routine for each width.
//
//	gen -dir DIR
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
)

func main() {
	dir := flag.String("dir", ".", "folder of package bitpack")
	flag.Parse()
	files, err := generate()
	if err != nil {
		log.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(*dir, name), text, 0o644); err != nil {
			log.Fatal(fmt.Errorf("writing generated code: %w", err))
		}
	}
}

// generate returns every generated file by name.
func generate() (map[string][]byte, error) {
	scalar, err := scalarFile()
	if err != nil {
		return nil, err
	}
	stubs, err := stubFile()
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		"scalar_gen.go":     scalar,
		"avx2_gen_amd64.go": stubs,
		"avx2_gen_amd64.s":  asmFile(),
	}, nil
}
