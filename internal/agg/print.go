package agg

import "strconv"

// AppendSpecs appends specs in the form that ParseJSON reads, so that reading gives equal specs, with equal states on the wire. That
// holds of specs that Parse and ParseJSON return; of those of Facets as long as a field has no more than MaxNameBytes bytes, and
// what comes back is then no facet any more, which only the wording of errors and AppendFacets tell. Specs that neither function
// would return make text that ParseJSON refuses, or takes for the plain form of what they say.
func AppendSpecs(b []byte, specs []Spec) []byte {
	b = append(b, '{')
	for i := range specs {
		if i > 0 {
			b = append(b, ',')
		}
		s := &specs[i]
		b = appendString(b, s.Name)
		b = append(b, `:{"kind":`...)
		b = appendString(b, s.Kind.String())
		if s.Field != "" {
			b = appendString(append(b, `,"field":`...), s.Field)
		}
		if s.Kind == Terms || s.Size != 0 {
			b = strconv.AppendInt(append(b, `,"size":`...), int64(s.Size), 10)
		}
		if s.Interval != "" {
			b = appendString(append(b, `,"interval":`...), s.Interval)
		}
		if len(s.Ranges) > 0 {
			b = appendSpans(append(b, `,"ranges":`...), s.Ranges)
		}
		if len(s.Percents) > 0 {
			b = append(b, `,"percents":`...)
			sep := byte('[')
			for _, p := range s.Percents {
				b = appendString(append(b, sep), p)
				sep = ','
			}
			b = append(b, ']')
		}
		if f := s.Filter; f != nil {
			if b = append(b, `,"filter":`...); f.JSON {
				b = append(b, f.Text...)
			} else {
				b = appendString(b, f.Text)
			}
		}
		if len(s.Aggs) > 0 {
			b = AppendSpecs(append(b, `,"aggs":`...), s.Aggs)
		}
		b = append(b, '}')
	}
	return append(b, '}')
}

func appendSpans(b []byte, spans []Span) []byte {
	sep := byte('[')
	for _, r := range spans {
		b = append(b, sep, '{')
		sep = ','
		if r.From != "" {
			b = appendString(append(b, `"from":`...), r.From)
		}
		if r.To != "" {
			if r.From != "" {
				b = append(b, ',')
			}
			b = appendString(append(b, `"to":`...), r.To)
		}
		b = append(b, '}')
	}
	return append(b, ']')
}

// Unplaced returns a copy of specs without their places in the text that they were read from: for those who read a text that is not
// the one a client wrote, so that errors carry no position in it.
func Unplaced(specs []Spec) []Spec {
	if specs == nil {
		return nil
	}
	out := make([]Spec, len(specs))
	for i, s := range specs {
		s.pos, s.Aggs = 0, Unplaced(s.Aggs)
		out[i] = s
	}
	return out
}
