package query

import "fmt"

// Op is the operator between words that have none.
type Op uint8

// Default operators.
const (
	Or Op = iota
	And
)

// Limits bound a query. A zero field means its default.
type Limits struct {
	Depth     int // 32
	Nodes     int // 256
	Clauses   int // 512, over all Bool nodes
	TextBytes int // 65536
}

// ParseOptions says how a query string is read.
type ParseOptions struct {
	DefaultOp Op
	Limits    Limits
}

// SyntaxError is a fault in a query string. Position is a byte offset.
type SyntaxError struct {
	Position        int
	Expected, Found string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("position %d: expected %s, found %s", e.Position, e.Expected, e.Found)
}

// LimitError says which limit a query breaks. Position is a byte offset, -1 for trees.
type LimitError struct {
	What       string // depth, node count, clause count, text bytes
	Limit, Got int
	Position   int
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("query %s must not exceed %d (got %d)", e.What, e.Limit, e.Got)
}

// Parse reads a query string; the empty string is All. Errors are *SyntaxError or *LimitError.
func Parse(q string, o ParseOptions) (Node, error) { return &All{}, nil }

// Check enforces limits on a tree made elsewhere.
func Check(n Node, l Limits) error { return nil }
