package sparse

import (
	"fmt"
	"math"
	"strconv"

	"github.com/weft-search/weft/internal/schema"
)

// Weights says how the records of a field keep weights.
type Weights uint8

// The kinds of weights. Float32 keeps what was given, Float16 rounds to the nearest half float, ties to even and at most ±65,504. Uint8
// and Uint4 keep lo + step·u for each weight, with lo and step for each vector and u of 8 or 4 bits: with lo and hi the least and greatest
// weight, step is 1 if all weights are whole and hi−lo fits into u, else (hi−lo) divided by the greatest u.
const (
	Float32 Weights = iota
	Float16
	Uint8
	Uint4
)

// DefaultMinTerms is the number of weights up to which a vector is not cropped when the schema has no min_terms; it is Summa's.
const DefaultMinTerms = 4

// Params are the options of a field that change what is stored. They act on each vector by itself, so that neither a flush nor a merge
// changes a score.
//
// Of the options of indexed<…>, quantization sets Weights, and weight_threshold, doc_mass and min_terms crop vectors as they are
// written. All others are read and change nothing here: format (bmp, maxscore, seismic) and its bmp_, seismic_ and block_size options
// choose between index layouts, of which there is one, with the exact result; dims and max_weight size such layouts; pruning drops
// parts of lists, which would make a score depend on the segment that a document is in; query<…> concerns whoever makes the query.
// None of them is refused.
type Params struct {
	U16       bool    // indices are at most 65,535: sparse_vector<u16>
	Weights   Weights // quantization
	Threshold float32 // weight_threshold: smaller absolute weights are dropped; 0 = none
	// Mass is doc_mass: of the weights by absolute value descending, as many are kept as have this share of their sum. 0 = all.
	Mass     float64
	MinTerms int // min_terms: a vector of at most so many weights is not cropped by Threshold or Mass
}

// ParamsOf reads the options of a sparse vector field. It fails for fields of other types and for options that a schema refuses.
func ParamsOf(f *schema.Field) (Params, error) {
	if f.Type != schema.SparseVector {
		return Params{}, fmt.Errorf("field %s is no sparse vector field", f.Name)
	}
	p := Params{U16: f.Element == "u16", MinTerms: DefaultMinTerms}
	for _, o := range f.Options {
		var err error
		switch o.Name {
		case "quantization":
			switch o.Value {
			case "float32", "f32":
				p.Weights = Float32
			case "float16", "f16":
				p.Weights = Float16
			case "uint8", "u8":
				p.Weights = Uint8
			case "uint4", "u4":
				p.Weights = Uint4
			default:
				err = strconv.ErrSyntax
			}
		case "weight_threshold":
			var v float64
			if v, err = strconv.ParseFloat(o.Value, 32); err == nil {
				p.Threshold = float32(v)
			}
		case "doc_mass":
			var v float64
			// A share of 1 or more keeps everything, and 0 cannot be meant.
			if v, err = strconv.ParseFloat(o.Value, 64); err == nil && v > 0 && v < 1 {
				p.Mass = v
			}
		case "min_terms":
			var v uint64
			if v, err = strconv.ParseUint(o.Value, 10, 64); err == nil {
				p.MinTerms = int(min(v, math.MaxInt32))
			}
		}
		if err != nil {
			return Params{}, fmt.Errorf("field %s: option %s: %q: %w", f.Name, o.Name, o.Value, err)
		}
	}
	return p, nil
}
