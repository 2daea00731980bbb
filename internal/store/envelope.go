package store

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/zeebo/xxh3"
)

// FormatVersion is the version of heads and manifests that this code writes and the newest that it reads. FORMAT.md describes it.
//
//	1  first
const FormatVersion = 1

// Kinds of sealed objects.
const (
	kindHead     = "head"
	kindManifest = "manifest"
)

// Checksum returns the checksum of b as manifests write it: "xxh3:" and the 64-bit xxh3 in 16 hex digits.
func Checksum(b []byte) string { return checksum(xxh3.Hash(b)) }

func checksum(sum uint64) string { return fmt.Sprintf("xxh3:%016x", sum) }

func validChecksum(s string) bool {
	if len(s) != 21 || s[:5] != "xxh3:" {
		return false
	}
	sum, err := strconv.ParseUint(s[5:], 16, 64)
	return err == nil && checksum(sum) == s
}

// seal wraps a body: {"format":1,"kind":…,"checksum":…,"body":…} and a newline, without other space. The checksum is of the body's bytes.
func seal(kind string, body any) ([]byte, error) {
	b, err := json.Marshal(body, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", kind, err)
	}
	return sealed(kind, b), nil
}

func sealed(kind string, body []byte) []byte {
	return fmt.Appendf(nil, `{"format":%d,"kind":%q,"checksum":%q,"body":%s}`+"\n", FormatVersion, kind, Checksum(body), body)
}

// unseal decodes a sealed object into body, strictly: whatever seal would not have written byte for byte is corrupt. name is for errors.
func unseal(name, kind string, b []byte, body any) error {
	var env struct {
		Format int            `json:"format"`
		Body   jsontext.Value `json:"body"`
	}
	if err := json.Unmarshal(b, &env); err != nil {
		return jsonError(name, err)
	}
	if env.Format > FormatVersion {
		return fmt.Errorf("%w: %s has format %d, this reader knows up to %d", ErrNewerFormat, name, env.Format, FormatVersion)
	}
	if want := sealed(kind, env.Body); !bytes.Equal(b, want) {
		at := 0
		for at < len(b) && at < len(want) && b[at] == want[at] {
			at++
		}
		return &CorruptError{Object: name, Place: fmt.Sprintf("offset %d", at), Reason: "format, kind or checksum does not match the body"}
	}
	if err := json.Unmarshal(env.Body, body, json.RejectUnknownMembers(true)); err != nil {
		return jsonError(name, err)
	}
	return nil
}

func jsonError(name string, err error) error {
	e := &CorruptError{Object: name, Reason: err.Error()}
	var sem *json.SemanticError
	var syn *jsontext.SyntacticError
	switch {
	case errors.As(err, &sem):
		e.Place = fmt.Sprintf("%s (offset %d)", sem.JSONPointer, sem.ByteOffset)
	case errors.As(err, &syn):
		e.Place = fmt.Sprintf("%s (offset %d)", syn.JSONPointer, syn.ByteOffset)
	}
	return e
}
