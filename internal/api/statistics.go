package api

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/weft-search/weft/internal/score"
)

// AppendStatistics appends the members of an object of statistics, without braces: docs, terms and fields, in the order of their names.
func AppendStatistics(b []byte, st *score.Stats) []byte {
	b = append(b, `"docs":`...)
	b = strconv.AppendUint(b, st.Docs, 10)
	b = append(b, `,"terms":[`...)
	terms := make([]score.Term, 0, len(st.DF))
	for t := range st.DF {
		terms = append(terms, t)
	}
	slices.SortFunc(terms, func(x, y score.Term) int { return cmp.Or(cmp.Compare(x.Field, y.Field), cmp.Compare(x.Text, y.Text)) })
	for i, t := range terms {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"term":`...)
		b = AppendString(b, t.Text)
		b = append(b, `,"field":`...)
		b = AppendString(b, t.Field)
		b = append(b, `,"df":`...)
		b = strconv.AppendUint(b, st.DF[t], 10)
		b = append(b, '}')
	}
	b = append(b, `],"fields":{`...)
	fields := make([]string, 0, len(st.Fields))
	for name := range st.Fields {
		fields = append(fields, name)
	}
	slices.Sort(fields)
	for i, name := range fields {
		if i > 0 {
			b = append(b, ',')
		}
		b = AppendString(b, name)
		b = append(b, `:{"sum":`...)
		b = strconv.AppendUint(b, st.Fields[name].SumLen, 10)
		b = append(b, `,"count":`...)
		b = strconv.AppendUint(b, st.Fields[name].Docs, 10)
		b = append(b, '}')
	}
	return append(b, '}')
}
