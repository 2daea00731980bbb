//go:build never

// Package deps keeps requirements in go.mod while packages are being written.
package deps

import (
	_ "github.com/RoaringBitmap/roaring/v2"
	_ "github.com/alecthomas/kong"
	_ "github.com/blevesearch/snowballstem"
	_ "github.com/blevesearch/snowballstem/english"
	_ "github.com/clipperhouse/uax29/v2/words"
	_ "github.com/cockroachdb/datadriven"
	_ "github.com/getkin/kin-openapi/openapi3"
	_ "github.com/getkin/kin-openapi/openapi3filter"
	_ "github.com/go-json-experiment/json"
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/klauspost/compress/zstd"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/rogpeppe/go-internal/testscript"
	_ "github.com/valyala/fastjson"
	_ "github.com/vbauerster/mpb/v8"
	_ "github.com/zeebo/xxh3"
	_ "go.uber.org/goleak"
	_ "go.yaml.in/yaml/v3"
	_ "golang.org/x/sync/semaphore"
	_ "golang.org/x/sys/unix"
	_ "golang.org/x/text/unicode/norm"
	_ "pgregory.net/rapid"
)
