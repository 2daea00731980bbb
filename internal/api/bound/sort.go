package bound

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/shard/exec"
)

// Sort is the order of a search. The zero value is score descending; id ascending follows in any case.
type Sort struct {
	Keys  []exec.SortKey
	Types []schema.Type // of the field of each key; zero for a key that is none
}

// BindSort resolves the keys of an order.
func BindSort(sch *schema.Schema, keys []api.SortKey) (Sort, *api.Problem) {
	var s Sort
	for _, k := range keys {
		out := exec.SortKey{Desc: k.Desc, MissingFirst: k.MissingFirst}
		var kind schema.Type
		switch k.By {
		case api.ByScore:
			out.By = exec.ByScore
		case api.ByID:
			out.By = exec.ByID
		case api.ByField:
			out.By, out.Field, out.Mode = exec.ByField, k.Field, exec.Least
			if k.Pick == api.Greatest {
				out.Mode = exec.Greatest
			}
			f, ok := sch.Lookup(k.Field)
			if !ok {
				return Sort{}, UnknownField(k.Field, "sort")
			}
			fd := &sch.Fields[f]
			if reason := unsortable(fd, k.Numeric); reason != "" {
				return Sort{}, &api.Problem{Code: api.FieldNotSortable, Field: fd.Name, Detail: fmt.Sprintf("sort: field %q %s", fd.Name, reason)}
			}
			kind = fd.Type
		}
		s.Keys, s.Types = append(s.Keys, out), append(s.Types, kind)
	}
	return s, nil
}

// unsortable says why a field cannot be a key, or nothing.
func unsortable(f *schema.Field, numeric bool) string {
	switch f.Type {
	case schema.U64, schema.I64, schema.F64, schema.Date:
		if !f.Fast {
			return "has no column; declare it as fast"
		}
	case schema.Text:
		switch {
		case numeric:
			return "is text, not numbers"
		case !f.Fast:
			return "is text without a column; declare it as fast, or sort by a keyword field"
		}
	case schema.Bytes, schema.JSON, schema.DenseVector, schema.SparseVector, schema.BinaryVector:
		return "of type " + f.Type.String() + " has no order"
	}
	return ""
}

// Scored tells whether the order of what q finds depends on scores that depend on statistics.
func (s Sort) Scored(q *Query) bool {
	if q.Everything {
		return false
	}
	return len(s.Keys) == 0 || slices.ContainsFunc(s.Keys, func(k exec.SortKey) bool { return k.By == exec.ByScore })
}

// AppendValues appends what a hit has for each key of the order, as a JSON array.
func (s Sort) AppendValues(b []byte, values []exec.SortValue) []byte {
	b = append(b, '[')
	for i, v := range values {
		if i > 0 {
			b = append(b, ',')
		}
		switch v.Kind {
		case exec.MissingValue:
			b = append(b, "null"...)
		case exec.TextValue:
			b = api.AppendString(b, v.Text)
		case exec.ScoreValue:
			b = api.AppendScore(b, v.Score)
		case exec.NumberValue:
			b = appendNumber(b, s.Types[i], v.Number)
		}
	}
	return append(b, ']')
}

// appendNumber appends a number of a column as documents have it.
func appendNumber(b []byte, t schema.Type, n uint64) []byte {
	switch t {
	case schema.I64:
		return strconv.AppendInt(b, schema.DecodeI64(n), 10)
	case schema.F64:
		return strconv.AppendFloat(b, schema.DecodeF64(n), 'g', -1, 64)
	case schema.Date:
		return api.AppendString(b, schema.FormatDate(schema.DecodeI64(n)))
	}
	return strconv.AppendUint(b, n, 10)
}
