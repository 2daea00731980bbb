package jsonscan

import "fmt"

// Error says that a text is not what was expected.
type Error struct {
	Offset int
	Reason string
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("byte %d: %s", e.Offset, e.Reason) }

// Parts walks the members of an object or the elements of an array, one level deep:
//
//	p := jsonscan.Members(b)
//	for p.Next() {
//		… p.Name, p.Value
//	}
//	if err := p.Err(); err != nil { … }
//
// What is within a value is looked at too, so that without an error the whole text is JSON but for its encoding.
type Parts struct {
	// Name is the name of a member, with its quotes; nil of an element.
	Name []byte
	// Plain says that nothing in Name is escaped.
	Plain bool
	// Value is the text of the value, without white space around it; it is part of what is walked.
	Value []byte

	b      []byte
	i      int
	object bool
	begun  bool
	ended  bool
	err    *Error
}

// Members walks an object.
func Members(b []byte) Parts { return Parts{b: b, object: true} }

// Elements walks an array.
func Elements(b []byte) Parts { return Parts{b: b} }

// Err is why Next ended before the end; nil if it did not.
func (p *Parts) Err() error {
	if p.err == nil {
		return nil
	}
	return p.err
}

func (p *Parts) fail(at int, reason string) bool {
	p.err, p.ended = &Error{at, reason}, true
	p.Name, p.Value = nil, nil
	return false
}

// at is the byte at a place, 0 behind the end.
func (p *Parts) at(i int) byte {
	if i < len(p.b) {
		return p.b[i]
	}
	return 0
}

// Next goes to the next part. It is false at the end, behind which nothing but white space may stand.
func (p *Parts) Next() bool {
	if p.ended {
		return false
	}
	opening, closing := byte('['), byte(']')
	if p.object {
		opening, closing = '{', '}'
	}
	i := Space(p.b, p.i)
	switch c := p.at(i); {
	case !p.begun:
		if c != opening {
			if p.object {
				return p.fail(i, noObject)
			}
			return p.fail(i, noArray)
		}
		p.begun = true
		if i = Space(p.b, i+1); p.at(i) == closing {
			return p.end(i)
		}
	case c == closing:
		return p.end(i)
	case c != ',' && p.object:
		return p.fail(i, noEnding)
	case c != ',':
		return p.fail(i, noArrayEnd)
	default:
		i = Space(p.b, i+1)
	}
	if p.object {
		from := i
		var reason string
		if i, p.Plain, reason = String(p.b, i); reason != "" {
			return p.fail(i, reason)
		}
		p.Name = p.b[from:i:i]
		if i = Space(p.b, i); p.at(i) != ':' {
			return p.fail(i, noColon)
		}
		i = Space(p.b, i+1)
	}
	end, _, reason := Value(p.b, i, MaxDepth-1)
	if reason != "" {
		return p.fail(end, reason)
	}
	p.Value = p.b[i:end:end]
	p.i = end
	return true
}

// end ends the walk at the closing byte.
func (p *Parts) end(i int) bool {
	p.Name, p.Value = nil, nil
	if i = Space(p.b, i+1); i < len(p.b) {
		return p.fail(i, noMore)
	}
	p.ended = true
	return false
}
