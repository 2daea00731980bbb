// Command gen writes the AVX2 assembly of package kernel and its declarations.
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
	dir := flag.String("dir", ".", "folder of package kernel")
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
	stubs, asm, err := write()
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		"avx2_gen_amd64.go": stubs,
		"avx2_gen_amd64.s":  asm,
	}, nil
}
