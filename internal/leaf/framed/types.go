package framed

import (
	"context"
	"math"
	"strconv"
	"sync"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/shard/exec"
)

// types are the types of the fields of an index, for those who want sort keys as plain JSON values.
type types struct {
	instance uint64
	fields   map[string]schema.Type
}

// numeric tells whether a field holds numbers. A field that is not known is for the search to refuse.
func (t *types) numeric(field string) bool {
	switch t.fields[field] {
	case schema.Text, schema.Bytes, schema.JSON, schema.DenseVector, schema.SparseVector, schema.BinaryVector:
		return false
	}
	return true
}

// encodeNumber is the order-preserving encoding of a number of a field.
func encodeNumber(t schema.Type, number []byte) (uint64, bool) {
	switch t {
	case schema.U64:
		n, err := schema.ParseU64(number)
		return n, err == nil
	case schema.I64, schema.Date:
		n, err := schema.ParseI64(number)
		return schema.EncodeI64(n), err == nil
	case schema.F64:
		n, err := strconv.ParseFloat(string(number), 64)
		return schema.EncodeF64(n), err == nil
	}
	return 0, false
}

// appendNumber appends a number of a column: dates as milliseconds since the epoch. What no JSON number can say is null.
func appendNumber(b []byte, t schema.Type, n uint64) []byte {
	switch t {
	case schema.U64:
		return strconv.AppendUint(b, n, 10)
	case schema.I64, schema.Date:
		return strconv.AppendInt(b, schema.DecodeI64(n), 10)
	case schema.F64:
		if f := schema.DecodeF64(n); !math.IsNaN(f) && !math.IsInf(f, 0) {
			return strconv.AppendFloat(b, f, 'g', -1, 64)
		}
	}
	return append(b, "null"...)
}

// appendKeys appends the plain key of a hit: the value of the only sort key, or an array of those of several.
func (t *types) appendKeys(b []byte, c *searchCall, values []exec.SortValue) []byte {
	if len(values) > 1 {
		b = append(b, '[')
	}
	for i := range values {
		if i > 0 {
			b = append(b, ',')
		}
		switch v := &values[i]; v.Kind {
		case exec.NumberValue:
			b = appendNumber(b, t.fields[c.key(i).Field], v.Number)
		case exec.TextValue:
			b = api.AppendString(b, v.Text)
		case exec.ScoreValue:
			b = api.AppendScore(b, v.Score)
		default:
			b = append(b, "null"...)
		}
	}
	if len(values) > 1 {
		b = append(b, ']')
	}
	return b
}

// typeCache remembers the types of the fields of a few indexes. A field keeps its type as long as the index is the same instance.
type typeCache struct {
	mu sync.Mutex
	m  map[string]*types
}

// maxCachedTypes is how many indexes are remembered; when there are more, all are forgotten.
const maxCachedTypes = 256

func (c *typeCache) get(index string) *types {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.m[index]
}

func (c *typeCache) put(index string, t *types) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m == nil || len(c.m) >= maxCachedTypes {
		c.m = map[string]*types{}
	}
	c.m[index] = t
}

func (c *typeCache) drop(index string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.m, index)
}

// typesOf returns the types of the fields of an index. fits tells whether what is remembered will do.
func (h *Handler) typesOf(ctx context.Context, index string, fits func(t *types) bool) (*types, error) {
	if t := h.types.get(index); t != nil && fits(t) {
		return t, nil
	}
	info, err := h.leaf.Info(ctx, &leaf.InfoRequest{Index: index})
	if err != nil {
		return nil, err
	}
	sch, err := schema.ParseSDL(info.Index.Schema, anyTokenizer)
	if err != nil {
		return nil, err
	}
	t := &types{instance: info.Snapshot.Instance, fields: make(map[string]schema.Type, len(sch.Fields))}
	for i := range sch.Fields {
		t.fields[sch.Fields[i].Name] = sch.Fields[i].Type
	}
	h.types.put(index, t)
	return t, nil
}

func anyTokenizer(string) error { return nil }
