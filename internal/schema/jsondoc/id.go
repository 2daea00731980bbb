package jsondoc

import "bytes"

// ID returns the key of a document for a report about its refusal, as far as it can be read: field is the name of the primary field.
// It is empty if the document breaks off before it. A number is returned as written; a key longer than 512 bytes is cut.
func ID(doc []byte, field string) string {
	if !bytes.Contains(doc, []byte{'"'}) {
		return ""
	}
	var s scanner
	s.reset(doc, Limits{}.withDefaults().Depth)
	s.space()
	if s.peek() != '{' {
		return ""
	}
	id := ""
	s.object(func(name []byte, _ int) bool {
		if string(name) != field {
			return s.skip()
		}
		var v []byte
		ok := false
		switch c := s.peek(); {
		case c == '"':
			v, ok = s.str()
		case c == '-' || c >= '0' && c <= '9':
			v, ok = s.number()
		}
		if ok {
			id = cut(string(v[:min(len(v), 520)]), 512)
		}
		return false // no need to read on
	})
	return id
}
