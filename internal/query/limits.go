package query

import (
	"errors"
	"fmt"
	"math"
)

// Limits bound a query. A zero field means its default.
type Limits struct {
	Depth     int // 32; a single term has depth 1. In a query string also the nesting of parentheses and NOT
	Nodes     int // 256, of all kinds
	Clauses   int // 512, children of all Bool nodes together
	TextBytes int // 65536: length of a query string; of a tree its texts, bounds and field names

	Values     int // 65536, values of all Terms nodes together
	ValueBytes int // 4 MiB, bytes of those; in a query string TextBytes counts them too
}

func (l Limits) withDefaults() Limits {
	for _, d := range []struct {
		v    *int
		deft int
	}{{&l.Depth, 32}, {&l.Nodes, 256}, {&l.Clauses, 512}, {&l.TextBytes, 65_536}, {&l.Values, 65_536}, {&l.ValueBytes, 4 << 20}} {
		if *d.v <= 0 {
			*d.v = d.deft
		}
	}
	return l
}

// What a LimitError is about.
const (
	LimitDepth   = "nesting depth"
	LimitNodes   = "node count"
	LimitClauses = "clause count"
	LimitText    = "text bytes"
	LimitValues  = "value count"
	LimitBytes   = "value bytes"
)

// LimitError says which limit a query breaks. Counting stops there, so Got may be less than the whole.
type LimitError struct {
	What       string // one of the Limit constants
	Limit, Got int
	Position   int // byte offset into the query string, -1 for a tree
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("query %s must not exceed %d (got %d)", e.What, e.Limit, e.Got)
}

// ErrMalformed marks trees that no front should make: a missing child, a boost that is not finite.
var ErrMalformed = errors.New("malformed query tree")

// Check enforces limits and form on a tree that was not made by Parse. It visits at most Limits.Nodes nodes and recurses at most
// Limits.Depth deep, whatever the tree. Errors are *LimitError or wrap ErrMalformed.
func Check(n Node, l Limits) error {
	c := checker{lim: l.withDefaults()}
	return c.node(n, 1)
}

type checker struct {
	lim                  Limits
	nodes, clauses, text int
	values, bytes        int
}

func (c *checker) node(n Node, depth int) error {
	if depth > c.lim.Depth {
		return &LimitError{What: LimitDepth, Limit: c.lim.Depth, Got: depth, Position: -1}
	}
	c.nodes++
	if c.nodes > c.lim.Nodes {
		return &LimitError{What: LimitNodes, Limit: c.lim.Nodes, Got: c.nodes, Position: -1}
	}
	missing := false
	switch n := n.(type) {
	case *Term:
		if missing = n == nil; !missing {
			c.text += len(n.Field) + len(n.Text)
		}
	case *Match:
		if missing = n == nil; !missing {
			c.text += len(n.Field) + len(n.Text)
		}
	case *Phrase:
		if missing = n == nil; !missing {
			c.text += len(n.Field) + len(n.Text)
		}
	case *Prefix:
		if missing = n == nil; !missing {
			c.text += len(n.Field) + len(n.Text)
		}
	case *Range:
		if missing = n == nil; !missing {
			c.text += len(n.Field)
			for _, b := range []*Bound{n.Min, n.Max} {
				if b != nil {
					c.text += len(b.Value)
				}
			}
		}
	case *Terms:
		if missing = n == nil; missing {
			break
		}
		if n.Field == "" {
			return fmt.Errorf("%w: exact values need a field", ErrMalformed)
		}
		c.text += len(n.Field)
		if c.values += len(n.Values); c.values > c.lim.Values {
			return &LimitError{What: LimitValues, Limit: c.lim.Values, Got: c.values, Position: -1}
		}
		for _, v := range n.Values {
			c.bytes += len(v)
		}
		if c.bytes > c.lim.ValueBytes {
			return &LimitError{What: LimitBytes, Limit: c.lim.ValueBytes, Got: c.bytes, Position: -1}
		}
	case *Exists:
		if missing = n == nil; !missing {
			c.text += len(n.Field)
		}
	case *All:
		missing = n == nil
	case *Given:
		missing = n == nil
	case *Words:
		if missing = n == nil; !missing {
			c.text += len(n.Field)
			for _, w := range n.Words {
				c.text += len(w.Text)
			}
		}
	case *Boost:
		if missing = n == nil; missing {
			break
		}
		if f := float64(n.Factor); math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Errorf("%w: a boost has to be finite", ErrMalformed)
		}
		if err := c.node(n.Query, depth+1); err != nil {
			return err
		}
	case *Bool:
		if missing = n == nil; missing {
			break
		}
		for _, list := range [][]Node{n.Must, n.Should, n.MustNot, n.Filter} {
			if c.clauses += len(list); c.clauses > c.lim.Clauses {
				return &LimitError{What: LimitClauses, Limit: c.lim.Clauses, Got: c.clauses, Position: -1}
			}
			for _, child := range list {
				if err := c.node(child, depth+1); err != nil {
					return err
				}
			}
		}
	default:
		missing = true
	}
	if missing {
		return fmt.Errorf("%w: a query is missing", ErrMalformed)
	}
	if c.text > c.lim.TextBytes {
		return &LimitError{What: LimitText, Limit: c.lim.TextBytes, Got: c.text, Position: -1}
	}
	return nil
}
