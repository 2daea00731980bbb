package store

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Name is a collection. Both parts are 1 to 64 bytes of UTF-8.
type Name struct{ Namespace, Collection string }

// maxName keeps an escaped name below the limit of a key's element, three bytes for each.
const maxName = 64

const (
	catalogPrefix = "catalog/"
	headName      = "manifest_committed_head.json"
)

// String is for people: namespace/collection.
func (n Name) String() string { return n.Namespace + "/" + n.Collection }

// Validate returns an ErrKey for a name that is empty, too long or not UTF-8.
func (n Name) Validate() error {
	for _, s := range []string{n.Namespace, n.Collection} {
		if s == "" || len(s) > maxName || !utf8.ValidString(s) {
			return fmt.Errorf("%w: collection %q: both parts must be 1 to %d bytes of UTF-8", ErrKey, n.String(), maxName)
		}
	}
	return nil
}

// EscapeName returns a name as an element of a key: letters, digits, - _ and . stand for themselves, but for a dot at the begin and the end; every other byte is %XX.
// Upper and lower case are kept, so a folder store needs a file system that tells them apart.
func EscapeName(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if plain(s[i]) && (s[i] != '.' || i > 0 && i < len(s)-1) && !(s[i] == '.' && strings.EqualFold(s[i:], ".tmp")) {
			b.WriteByte(s[i])
		} else {
			fmt.Fprintf(&b, "%%%02X", s[i])
		}
	}
	return b.String()
}

// unescapeName is the inverse of EscapeName.
func unescapeName(s string) (string, bool) {
	var out []byte
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			out = append(out, s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", false
		}
		c, err := hex.DecodeString(s[i+1 : i+3])
		if err != nil {
			return "", false
		}
		out = append(out, c[0])
		i += 2
	}
	return string(out), EscapeName(string(out)) == s
}

// Prefix is what the keys of all objects of the collection begin with. It ends in a slash.
func (n Name) Prefix() string {
	sum := sha256.Sum256([]byte(n.Namespace))
	return catalogPrefix + hex.EncodeToString(sum[:1]) + "/" + EscapeName(n.Namespace) + "/" + EscapeName(n.Collection) + "/"
}

// HeadKey is the key of the collection's head.
func (n Name) HeadKey() string { return n.Prefix() + headName }

// nameOf returns the collection that a head's key belongs to.
func nameOf(key string) (Name, bool) {
	parts := strings.Split(key, "/")
	if len(parts) != 5 || parts[4] != headName {
		return Name{}, false
	}
	ns, ok1 := unescapeName(parts[2])
	coll, ok2 := unescapeName(parts[3])
	n := Name{Namespace: ns, Collection: coll}
	return n, ok1 && ok2 && n.Validate() == nil && n.HeadKey() == key
}

// NewID returns a random UUID (version 4).
func NewID() (string, error) {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", fmt.Errorf("draw a uuid: %w", err)
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]), nil
}

// validID tells whether s has the form that NewID gives.
func validID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		if dash != (s[i] == '-') || !dash && !strings.ContainsRune("0123456789abcdef", rune(s[i])) {
			return false
		}
	}
	return true
}
