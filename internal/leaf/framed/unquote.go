package framed

import (
	"bytes"
	"io"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// unquoter reads what a JSON string says, a piece at a time, so that a bulk load is not held twice. raw is the string without its
// quotes; a decoder has accepted it.
type unquoter struct {
	raw  []byte
	rune [4]byte // of an escape that did not fit
	left []byte  // within rune
}

// Read implements io.Reader.
func (u *unquoter) Read(p []byte) (int, error) {
	n := copy(p, u.left)
	u.left = u.left[n:]
	for n < len(p) && len(u.raw) > 0 {
		if u.raw[0] != '\\' {
			run := bytes.IndexByte(u.raw, '\\')
			if run < 0 {
				run = len(u.raw)
			}
			k := copy(p[n:], u.raw[:run])
			n, u.raw = n+k, u.raw[k:]
			continue
		}
		escaped := u.escape()
		k := copy(p[n:], escaped)
		n += k
		u.left = escaped[k:]
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// escape takes the escape at the front of raw and returns what it stands for, in rune.
func (u *unquoter) escape() []byte {
	c := u.raw[1]
	u.raw = u.raw[2:]
	switch c {
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'u':
		r := u.hex()
		if utf16.IsSurrogate(r) && len(u.raw) >= 6 { // the second half follows
			u.raw = u.raw[2:]
			r = utf16.DecodeRune(r, u.hex())
		}
		return u.rune[:utf8.EncodeRune(u.rune[:], r)]
	}
	u.rune[0] = c
	return u.rune[:1]
}

// hex takes four hexadecimal digits.
func (u *unquoter) hex() rune {
	n, err := strconv.ParseUint(string(u.raw[:4]), 16, 16)
	u.raw = u.raw[4:]
	if err != nil {
		return utf8.RuneError // the decoder would not have accepted it
	}
	return rune(n)
}
