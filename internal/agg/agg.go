// Package agg computes aggregations: a description is parsed (Spec), bound to a schema (Plan), run over the columns of each leaf
// of a snapshot (State), merged, and finished into the answer.
//
// States are exact and merge in any order and grouping with the same last bit: counts are integers, sums are kept whole, terms
// carry every value, percentiles every value with its count, and only the merged state is capped, divided or interpolated. The
// one estimate is cardinality beyond ExactValues values, and which of the two it is depends on the values alone, not on how they
// were split. States have a wire form, see FORMAT.md.
//
// A Plan is immutable and safe for concurrent use; a State belongs to one goroutine at a time.
package agg

import (
	"fmt"
	"strings"
)

// Kind is the kind of an aggregation.
type Kind uint8

// The kinds. Their numbers are part of the wire form.
const (
	Terms         Kind = iota + 1 // documents by value
	Stats                         // count, sum, least, greatest and mean of values
	Histogram                     // documents by steps of a fixed width
	DateHistogram                 // documents by hour, day, week, month or the like
	Range                         // documents by given ranges
	Percentiles                   // values at given ranks
	Cardinality                   // number of distinct values
	Filter                        // documents that match a filter
)

var kindNames = [...]string{Terms: "terms", Stats: "stats", Histogram: "histogram", DateHistogram: "date_histogram", Range: "range", Percentiles: "percentiles", Cardinality: "cardinality", Filter: "filter"}

// String is the name in requests.
func (k Kind) String() string {
	if k >= Terms && k <= Filter {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// buckets tells whether the kind sorts documents into buckets, which may have aggregations of their own.
func (k Kind) buckets() bool {
	return k == Terms || k == Histogram || k == DateHistogram || k == Range || k == Filter
}

func kindOf(name string) (Kind, bool) {
	for k := Terms; k <= Filter; k++ {
		if kindNames[k] == name {
			return k, true
		}
	}
	return 0, false
}

func kindList() string { return strings.Join(kindNames[Terms:], ", ") }

// Limits of requests.
const (
	MaxAggregations = 64        // in one request, those of both levels together
	MaxDepth        = 2         // levels of aggregations
	MaxRanges       = 1_000     // of one range aggregation
	MaxRangesInAll  = 4_000     // of all of a request
	MaxPercents     = 100       // of one percentiles aggregation
	MaxSize         = 1_000_000 // of one terms aggregation
	MaxNameBytes    = 128       // of the name of an aggregation
	MaxFieldBytes   = 512       // of the name of a field
	MaxSourceBytes  = 1 << 20   // of the text of a request
	MaxPairs        = 4_000_000 // of a bucket and a value that one document makes for the aggregations in the buckets of one aggregation
	DefaultSize     = 10        // of a terms aggregation that gives none
)

// Limits of states, where Options says nothing else.
const (
	DefaultBuckets    = 100_000   // of a histogram, empty ones between the first and the last included
	DefaultStateBytes = 128 << 20 // of a State, by the reckoning of FORMAT.md
)

// ExactValues is the number of distinct values up to which a cardinality is exact, unless their text takes more than 2 MiB. In the
// buckets of another aggregation it is ExactValuesInBucket, and 16 KiB.
const (
	ExactValues         = 16_384
	ExactValuesInBucket = 1_024
)

// Options bound the states of a plan. A zero member means its default.
type Options struct {
	Buckets    int // DefaultBuckets
	StateBytes int // DefaultStateBytes; a merge may take as much again, and the collection of a leaf some 50 MB besides
	// AllowUnknown takes a field that the schema lacks for one without values. It is for the shards of an index that grows fields
	// from documents: one that has not seen the field yet has nothing to add.
	AllowUnknown bool

	table, pending, read, pairs int // tests make them small: tableMost, pendingMost, readMost, MaxPairs
}

func (o Options) withDefaults() Options {
	if o.Buckets <= 0 {
		o.Buckets = DefaultBuckets
	}
	if o.StateBytes <= 0 {
		o.StateBytes = DefaultStateBytes
	}
	if o.table <= 0 {
		o.table = tableMost
	}
	if o.read <= 0 {
		o.read = readMost
	}
	if o.pending <= 0 {
		o.pending = pendingMost
	}
	if o.pairs <= 0 {
		o.pairs = MaxPairs
	}
	return o
}

// Code is the stable name of what is wrong with a request.
type Code string

// The codes of SpecError.
const (
	CodeInvalid      Code = "invalid_aggregation" // the description itself
	CodeLimit        Code = "aggregation_limit"   // more than Limit allows
	CodeUnknownField Code = "unknown_field"
	CodeFieldType    Code = "invalid_field"  // the kind does not go with the type of the field
	CodeNoColumn     Code = "field_not_fast" // the field has no column
	CodeMismatch     Code = "type_conflict"  // two shards have the field with different types
)

// SpecError says what is wrong with an aggregation that a client asked for. It is the client's fault: a 4xx.
type SpecError struct {
	Code     Code
	Name     string // of the aggregation, as "outer>inner" for one in buckets; empty for the request as a whole
	Field    string // the field it is about, may be empty
	Param    string // the parameter or member: interval, size, percents, …; may be empty
	Limit    int64  // the limit that is broken, 0 if it is about none
	Reason   string
	Position int // byte offset into the text of the request, −1 if there is none
}

func (e *SpecError) Error() string {
	var b strings.Builder
	if e.Name != "" {
		fmt.Fprintf(&b, "aggregation %q: ", e.Name)
	}
	if e.Field != "" {
		fmt.Fprintf(&b, "field %q: ", e.Field)
	}
	if e.Param != "" && (e.Param != "field" || e.Field == "") {
		b.WriteString(e.Param + ": ")
	}
	b.WriteString(e.Reason)
	return b.String()
}

// Spec describes one aggregation.
type Spec struct {
	Name     string
	Kind     Kind
	Field    string   // all kinds but Filter
	Size     int      // Terms: buckets returned at most, 0 = all
	Interval string   // Histogram: a number above 0; DateHistogram: 1m, 1h, 1d, 1w, 1M, 1q or 1y
	Ranges   []Span   // Range
	Percents []string // Percentiles: decimal numbers from 0 to 100, at most 12 digits behind the point
	Filter   *Expr    // Filter: which documents; other kinds: only these documents count; nil = all
	Aggs     []Spec   // for each bucket

	pos   int  // byte offset into the text it was parsed from, plus 1
	facet bool // made by Facets
}

// Position is the byte offset into the text that the spec was read from; −1 if there is none.
func (s *Spec) Position() int { return s.pos - 1 }

// Span is one range: values from From on and below To. Empty = open.
type Span struct{ From, To string }

// Expr is a filter as it was given; this package does not read it.
type Expr struct {
	Text string // a query string, or a JSON value as written
	JSON bool
}
