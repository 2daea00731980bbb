package agg

import (
	"context"
	"errors"

)

var errUnfinished = errors.New("aggregations are not built in")

// NewState returns the state of no documents.
func (p *Plan) NewState() *State { return &State{} }

// State is what is known of some documents: the partial answer of every aggregation of a plan.
type State struct{}

// Collect adds documents of a leaf: those in docs (bit d of word d/64), or every document below NumDocs if all is set.
// Errors are *SpecError for a limit that the documents break, or the cause of ctx's end.
func (s *State) Collect(ctx context.Context, leaf Leaf, docs []uint64, all bool) error {
	return errUnfinished
}

// Merge adds what o knows; o is not to be used again.
func (s *State) Merge(o *State) error { return errUnfinished }

// AppendBinary appends the wire form.
func (s *State) AppendBinary(b []byte) []byte { return b }

// AppendPartials appends the wire form as a JSON object: {"name": "base64 of the aggregation's state", …}.
func (s *State) AppendPartials(b []byte) []byte { return b }

// Decode reads the wire form of a state of these aggregations.
func Decode(specs []Spec, o Options, b []byte) (*State, error) { return nil, errUnfinished }

// DecodePartials reads what AppendPartials wrote.
func DecodePartials(specs []Spec, o Options, src []byte) (*State, error) {
	return nil, errUnfinished
}

// Finish returns the answer. The state may go on to be merged.
func (s *State) Finish() Results { return Results{} }

// Results are the answers to the aggregations of a plan.
type Results struct{}

// AppendJSON appends {"name": answer, …} in the order asked.
func (r Results) AppendJSON(b []byte) []byte { return append(b, "{}"...) }

// AppendFacets appends {"name": [{"value", "count"}, …], …}, for plans made by Facets.
func (r Results) AppendFacets(b []byte) []byte { return append(b, "{}"...) }
