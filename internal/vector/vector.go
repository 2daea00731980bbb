// Package vector finds the documents whose vectors are most similar to a query: dense vectors of three element types and
// bit vectors, by an exact scan or through a neighbour graph whose candidates are scored exactly.
//
// A vector is kept as a record, the same bytes in a memtable and in a segment: [Encode] makes it, [InMemory] and [Open]
// read it. [Write] makes the section of a segment, described to the byte in FORMAT.md. The same records give the same
// section, so what a merge writes equals what a flush of the same documents would have written.
//
// # Scores
//
// A score is a similarity: larger is better. It is computed in float32 from the decoded record in one fixed order of
// arithmetic (that of package kernel), so a record has one score for a query, whichever search found it, on every machine.
// What would be infinite or not a number becomes the nearest finite number, or the lowest one.
//
// A document may have several vectors; a [score.Combiner] makes one score of theirs, always of all of them. The graph
// proposes documents by their best vector and then scores them whole.
//
// # Concurrency
//
// An *Index and a *Query are immutable and safe at once. A search allocates nothing once its scratch memory is warm.
package vector

import (
	"fmt"
	"strconv"

	"github.com/weft-search/weft/internal/schema"
)

// Kind says what the components of a vector are.
type Kind uint8

// The kinds of vectors.
const (
	Dense  Kind = iota // numbers
	Binary             // bits
)

// Element says how the components of a dense record are stored.
type Element uint8

// The element types of dense records.
const (
	F32  Element = iota // float32, as given
	F16                 // half floats, rounded to the nearest, ties to even; what is beyond ±65,504 becomes that
	Int8                // unsigned bytes u that stand for lo + step·u, lo and step for each record
)

// Metric says what a score is.
type Metric uint8

// The metrics. q is the query, v a stored vector as decoded from its record.
const (
	Unit    Metric = iota // dot(q,v)·(1/‖q‖): Summa's rule, stored vectors are taken as of unit length
	Cosine                // dot(q,v)/(‖q‖·‖v‖), 0 if v is zero
	Dot                   // dot(q,v)
	L2                    // 1/(1+d²), d the Euclidean distance
	Hamming               // 1 − differing bits/bits; the metric of binary vectors and of no others
)

// Numbers of a graph and bounds on them.
const (
	// GraphFrom is the number of vectors from which on a section has a graph; fewer are scanned.
	GraphFrom = 4096
	// DefaultM is the number of neighbours a vector keeps in the upper levels of a graph; it keeps twice as many in the lowest.
	DefaultM = 16
	// DefaultEfConstruction is the number of candidates among which the neighbours of a new vector are chosen.
	DefaultEfConstruction = 128
	// MaxVectors is the most vectors a section can hold.
	MaxVectors = 1<<30 - 1
)

// Params says how the vectors of a field are stored and compared.
type Params struct {
	Kind    Kind
	Dim     int // components, or bits
	Element Element
	Metric  Metric
	// Graph asks for a neighbour graph in sections of at least GraphFrom vectors.
	Graph bool
	// M and EfConstruction are numbers of the graph; 0 stands for the defaults.
	M, EfConstruction int
	// GraphFrom replaces the constant of that name where it is above 0. It is not stored.
	GraphFrom int
}

// ParamsOf returns the parameters of a dense or binary vector field. The index kind flat has no graph, every other one has.
func ParamsOf(f *schema.Field) (Params, error) {
	p := Params{Dim: f.Dim, Graph: true, M: DefaultM, EfConstruction: DefaultEfConstruction}
	switch f.Type {
	case schema.DenseVector:
		switch f.Metric {
		case "":
			p.Metric = Unit
		case "cosine":
			p.Metric = Cosine
		case "dot":
			p.Metric = Dot
		case "l2":
			p.Metric = L2
		default:
			return Params{}, fmt.Errorf("field %s: unknown metric %q", f.Name, f.Metric)
		}
		switch f.Element {
		case "", "f32":
			p.Element = F32
		case "f16":
			p.Element = F16
		case "int8", "uint8", "u8":
			p.Element = Int8
		default:
			return Params{}, fmt.Errorf("field %s: unknown element type %q", f.Name, f.Element)
		}
	case schema.BinaryVector:
		p.Kind, p.Metric = Binary, Hamming
	default:
		return Params{}, fmt.Errorf("field %s of type %v has no dense or binary vectors", f.Name, f.Type)
	}
	for _, o := range f.Options {
		var err error
		switch {
		case o.Name == "flat", o.Name == "index" && o.Value == "flat":
			p.Graph = false
		case o.Name == "m":
			p.M, err = strconv.Atoi(o.Value)
		case o.Name == "ef_construction":
			p.EfConstruction, err = strconv.Atoi(o.Value)
		}
		if err != nil {
			return Params{}, fmt.Errorf("field %s: option %s: %w", f.Name, o.Name, err)
		}
	}
	if err := p.check(); err != nil {
		return Params{}, fmt.Errorf("field %s: %w", f.Name, err)
	}
	return p, nil
}

// SameRecords tells whether vectors of both parameters are kept and compared alike: only what says how they are found may differ.
func (p Params) SameRecords(q Params) bool {
	return p.Kind == q.Kind && p.Dim == q.Dim && p.Element == q.Element && p.Metric == q.Metric
}

// SameGraph tells whether both parameters ask for the same graph.
func (p Params) SameGraph(q Params) bool {
	p, q = p.withDefaults(), q.withDefaults()
	return p.Graph == q.Graph && (!p.Graph || p.M == q.M && p.EfConstruction == q.EfConstruction)
}

// check says why no section can have the parameters.
func (p Params) check() error {
	switch {
	case p.Kind == Dense && (p.Dim < 1 || p.Dim > schema.MaxDenseDims):
		return fmt.Errorf("a dense vector has 1 to %d dimensions, not %d", schema.MaxDenseDims, p.Dim)
	case p.Kind == Binary && (p.Dim < 8 || p.Dim > schema.MaxBinaryBits || p.Dim%8 != 0):
		return fmt.Errorf("a binary vector has 8 to %d bits, a multiple of 8, not %d", schema.MaxBinaryBits, p.Dim)
	case p.Kind > Binary:
		return fmt.Errorf("unknown kind of vectors %d", p.Kind)
	case p.Element > Int8 || p.Kind == Binary && p.Element != F32:
		return fmt.Errorf("unknown element type %d", p.Element)
	case p.Metric > Hamming || (p.Metric == Hamming) != (p.Kind == Binary):
		return fmt.Errorf("metric %d does not fit vectors of kind %d", p.Metric, p.Kind)
	case p.M != 0 && (p.M < schema.MinGraphM || p.M > schema.MaxGraphM):
		return fmt.Errorf("m is %d to %d, not %d", schema.MinGraphM, schema.MaxGraphM, p.M)
	case p.EfConstruction != 0 && (p.EfConstruction < schema.MinGraphEfConstruction || p.EfConstruction > schema.MaxGraphEfConstruction):
		return fmt.Errorf("ef_construction is %d to %d, not %d", schema.MinGraphEfConstruction, schema.MaxGraphEfConstruction, p.EfConstruction)
	}
	return nil
}

// withDefaults fills in the numbers of the graph.
func (p Params) withDefaults() Params {
	if p.M == 0 {
		p.M = DefaultM
	}
	if p.EfConstruction == 0 {
		p.EfConstruction = DefaultEfConstruction
	}
	if p.GraphFrom <= 0 {
		p.GraphFrom = GraphFrom
	}
	return p
}

// RecordSize is the number of bytes of a record.
func (p Params) RecordSize() int {
	if p.Kind == Binary {
		return p.Dim / 8
	}
	n := p.head()
	switch p.Element {
	case F16:
		return n + 2*p.Dim
	case Int8:
		return n + 8 + p.Dim
	default:
		return n + 4*p.Dim
	}
}

// head is the number of bytes before the components, without lo and step.
func (p Params) head() int {
	if p.Metric == Cosine {
		return 4
	}
	return 0
}
