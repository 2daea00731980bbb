package exec

import (
	"cmp"
	"strings"
)

// MaxSortKeys bounds the keys of one order.
const MaxSortKeys = 8

// SortBy says what a key of an order compares.
type SortBy uint8

// What a SortKey compares.
const (
	ByScore SortBy = iota
	ByID           // the document key, byte by byte
	ByField        // the values of a column: numbers and dates by value, text byte by byte
)

// Mode chooses the value of a document that has several.
type Mode uint8

// Modes.
const (
	AnyMode  Mode = iota // Least when ascending, Greatest when descending
	Least                // the smallest
	Greatest             // the largest
)

// SortKey is one key of an order.
type SortKey struct {
	By           SortBy
	Field        string // ByField
	Desc         bool
	MissingFirst bool // ByField: documents without a value stand before the others, whatever the direction; else behind them
	Mode         Mode // ByField
}

// ValueKind is the type of a SortValue.
type ValueKind uint8

// Kinds of sort values.
const (
	MissingValue ValueKind = iota // the document has no value
	NumberValue                   // Number, in the order-preserving encoding of package schema
	TextValue                     // Text
	ScoreValue                    // Score
)

// SortValue is what a document has for one key of an order.
type SortValue struct {
	Kind   ValueKind
	Number uint64
	Text   string
	Score  float32
}

// After describes the last document that a caller has: the next page begins behind it.
type After struct {
	Values []SortValue // one for each key of Request.Sort; for the default order one ScoreValue
	Key    string
}

// AfterHit describes a hit, whatever the order it was found with. The hit needs its key (Request.NoKeys).
func AfterHit(h *Hit) *After {
	if h.Sort == nil {
		return &After{Values: []SortValue{{Kind: ScoreValue, Score: h.Score}}, Key: h.Key}
	}
	return &After{Values: h.Sort, Key: h.Key}
}

// CompareHits compares two hits in the order of the keys, then by id ascending: negative when a stands before b. With no keys the
// order is by score descending. It is the order of Search, so that answers of several shards merge into that of one. Values of
// different kinds, which one order never gives, compare by kind.
func CompareHits(keys []SortKey, a, b *Hit) int {
	if len(keys) == 0 {
		return cmp.Or(cmp.Compare(b.Score, a.Score), strings.Compare(a.Key, b.Key))
	}
	for i := range keys {
		if c := keys[i].compare(&a.Sort[i], &b.Sort[i]); c != 0 {
			return c
		}
	}
	return strings.Compare(a.Key, b.Key)
}

func (k *SortKey) compare(a, b *SortValue) int {
	if (a.Kind == MissingValue) != (b.Kind == MissingValue) {
		if (a.Kind == MissingValue) == k.MissingFirst {
			return -1
		}
		return 1
	}
	c := cmp.Compare(a.Kind, b.Kind)
	if c == 0 {
		switch a.Kind {
		case NumberValue:
			c = cmp.Compare(a.Number, b.Number)
		case TextValue:
			c = strings.Compare(a.Text, b.Text)
		case ScoreValue:
			c = cmp.Compare(a.Score, b.Score)
		}
	}
	if k.Desc {
		return -c
	}
	return c
}
