package summa

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// compactJSON checks a JSON value strictly (UTF-8, no name twice, numbers within float64) and returns it without white space.
func compactJSON(src string, depth int) ([]byte, error) {
	d := jsontext.NewDecoder(strings.NewReader(src))
	for {
		t, err := d.ReadToken()
		switch {
		case errors.Is(err, io.EOF) && d.InputOffset() > 0 && d.StackDepth() == 0:
			v := jsontext.Value(src)
			if err := v.Compact(); err != nil { // more than one value
				return nil, plainJSON(err)
			}
			return v, nil
		case err != nil:
			return nil, plainJSON(err)
		case t.Kind() == '0':
			n := t.String()
			if _, err := strconv.ParseFloat(n, 64); err != nil {
				return nil, fmt.Errorf("number out of range at byte %d", d.InputOffset())
			}
		case d.StackDepth() > depth:
			return nil, fmt.Errorf("nested more than %d deep at byte %d", depth, d.InputOffset())
		}
	}
}

// plainJSON leaves the package's name out of an error's text.
func plainJSON(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("unexpected end of the text")
	}
	return errors.New(strings.TrimPrefix(err.Error(), "jsontext: "))
}

var errSource = errors.New("a stored document is damaged")

// cursor walks a source: compact JSON that was checked when it was written. It never reads past the end, whatever the bytes.
type cursor struct {
	b []byte
	i int
}

func (c *cursor) peek() byte {
	if c.i < len(c.b) {
		return c.b[c.i]
	}
	return 0
}

func (c *cursor) take(b byte) bool {
	if c.peek() != b || c.i >= len(c.b) {
		return false
	}
	c.i++
	return true
}

// text moves behind a string and returns it with its quotes.
func (c *cursor) text() ([]byte, error) {
	from := c.i
	if !c.take('"') {
		return nil, errSource
	}
	for c.i < len(c.b) {
		quote := bytes.IndexByte(c.b[c.i:], '"')
		if quote < 0 {
			break
		}
		if escape := bytes.IndexByte(c.b[c.i:c.i+quote], '\\'); escape >= 0 {
			c.i += escape + 2
			continue
		}
		c.i += quote + 1
		return c.b[from:c.i], nil
	}
	return nil, errSource
}

// unquote appends what a string with quotes stands for.
func unquote(dst, quoted []byte) ([]byte, error) {
	if plain := quoted[1 : len(quoted)-1]; bytes.IndexByte(plain, '\\') < 0 && utf8.Valid(plain) {
		return append(dst, plain...), nil
	}
	out, err := jsontext.AppendUnquote(dst, quoted)
	if err != nil {
		return nil, errSource
	}
	return out, nil
}

// value moves behind a value and returns it.
func (c *cursor) value() ([]byte, error) {
	from, depth := c.i, 0
	for c.i < len(c.b) {
		switch c.b[c.i] {
		case '"':
			if _, err := c.text(); err != nil {
				return nil, err
			}
		case '{', '[':
			depth++
			c.i++
		case '}', ']':
			if depth == 0 {
				return c.done(from)
			}
			depth--
			c.i++
		case ',':
			if depth == 0 {
				return c.done(from)
			}
			c.i++
		default:
			c.i++
			continue
		}
		if depth == 0 {
			return c.done(from)
		}
	}
	if depth > 0 {
		return nil, errSource
	}
	return c.done(from)
}

func (c *cursor) done(from int) ([]byte, error) {
	if c.i == from {
		return nil, errSource
	}
	return c.b[from:c.i], nil
}

// eachMember calls do for every member of an object; name is as written, with quotes.
func eachMember(object []byte, do func(name, value []byte) error) error {
	c := cursor{b: object}
	if !c.take('{') {
		return errSource
	}
	if c.take('}') {
		return c.end()
	}
	for {
		name, err := c.text()
		if err != nil {
			return err
		}
		if !c.take(':') {
			return errSource
		}
		v, err := c.value()
		if err != nil {
			return err
		}
		if err := do(name, v); err != nil {
			return err
		}
		if c.take('}') {
			return c.end()
		}
		if !c.take(',') {
			return errSource
		}
	}
}

func (c *cursor) end() error {
	if c.i != len(c.b) {
		return errSource
	}
	return nil
}

// eachElement calls do for every element of an array; of another value for itself, if it may be one.
func eachElement(v []byte, orOne bool, do func(item []byte) error) error {
	c := cursor{b: v}
	if !c.take('[') {
		if !orOne || len(v) == 0 {
			return errSource
		}
		return do(v)
	}
	if c.take(']') {
		return c.end()
	}
	for {
		item, err := c.value()
		if err != nil {
			return err
		}
		if err := do(item); err != nil {
			return err
		}
		if c.take(']') {
			return c.end()
		}
		if !c.take(',') {
			return errSource
		}
	}
}
