package api

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/score"
	"github.com/weft-search/weft/internal/vector/sparse"
)

// Fusion is how a lexical and a vector ranking become one.
type Fusion uint8

// Fusions.
const (
	RRF      Fusion = iota // reciprocal ranks
	Weighted               // weighted sum of scores scaled to 0…1 within each ranking
)

// String is the name of the fusion in requests.
func (f Fusion) String() string {
	if f == Weighted {
		return "weighted"
	}
	return "rrf"
}

// KNN is a vector search. Exactly one of Dense, Bits, and Indices with Weights is set.
type KNN struct {
	Field   string
	Dense   []float32
	Bits    []byte
	Indices []uint32
	Weights []float32

	K        int
	Exact    bool
	Ef       int // 0: chosen from K
	Combiner score.Combiner

	GivenK bool // K was asked for
}

// Limits of a vector search.
const (
	MaxPairs   = sparse.MaxQueryDims // indices of a sparse query vector
	MaxEf      = 20_000
	maxSumTopK = 1_024 // top_k of the combiner
	maxWeight  = 1_000_000
)

// combiners are the names of the combiners.
var combiners = map[string]score.CombinerKind{
	"log_sum_exp": score.LogSumExp, "max": score.Max, "avg": score.Avg, "sum": score.Sum, "weighted_top_k": score.WeightedTopK,
}

func (p *parsing) setKNN(v value) *Problem {
	k := &KNN{K: -1, Combiner: score.Combiner{Kind: score.Max}}
	var prob *Problem
	if v.raw == nil {
		prob = k.fromURL(v.texts[0])
	} else {
		prob = k.fromJSON(v.raw, p.lim)
	}
	p.KNN = k
	return prob
}

// finishKNN takes over what stands in parameters of its own.
func (p *parsing) finishKNN() *Problem {
	k := p.KNN
	switch {
	case k.K < 0 && p.knnK < 0:
		k.K = min(DefaultK, p.lim.Hits)
	case k.K < 0:
		k.K = p.knnK
	case p.knnK >= 0 && p.knnK != k.K:
		return &Problem{Code: RepeatedParameter, Field: "knn_k", Detail: "knn_k: knn has another k"}
	}
	k.GivenK = k.GivenK || p.knnK >= 0
	k.Exact = k.Exact || p.knnExact
	if p.After != "" {
		return badParam("after", "a ranking with knn is not paged with a cursor; use offset")
	}
	if p.Sort != nil {
		return badParam("sort", "with knn, hits stand by score descending and then by id")
	}
	return nil
}

// hexBits begins the bits of a binary vector in a URL.
const hexBits = "0x"

// fromURL reads field:v1,v2,… or field:i1=w1,i2=w2,… or field:0x…; what stands before the last colon is the field.
func (k *KNN) fromURL(s string) *Problem {
	colon := strings.LastIndexByte(s, ':')
	if colon <= 0 || colon == len(s)-1 {
		return badParam("knn", "it is field:v1,v2,… (dense), field:i1=w1,i2=w2,… (sparse) or field:0x… (binary)")
	}
	k.Field = s[:colon]
	return k.ofVector(k.vectorFromURL(s[colon+1:]))
}

// ofVector makes a problem one of the field that is searched, if it is known.
func (k *KNN) ofVector(prob *Problem) *Problem {
	if prob != nil && k.Field != "" {
		prob.Field = Clip(k.Field)
		prob.Detail = fmt.Sprintf("knn: field %q: %s", prob.Field, strings.TrimPrefix(prob.Detail, "knn: "))
	}
	return prob
}

func (k *KNN) vectorFromURL(s string) *Problem {
	if digits, ok := strings.CutPrefix(s, hexBits); ok {
		bits, err := hex.DecodeString(digits)
		if err != nil || len(bits) == 0 {
			return badParam("knn", "behind 0x stands an even number of hexadecimal digits")
		}
		if len(bits) > schema.MaxBinaryBits/8 {
			return tooManyBits()
		}
		k.Bits = bits
		return nil
	}
	sparse := strings.IndexByte(s, '=') >= 0
	for item := range strings.SplitSeq(s, ",") {
		if !sparse {
			if prob := k.addComponent(item); prob != nil {
				return prob
			}
			continue
		}
		index, weight, ok := strings.Cut(item, "=")
		if !ok {
			return badParam("knn", "every item of a sparse vector is index=weight")
		}
		if prob := k.addIndex(index); prob != nil {
			return prob
		}
		if prob := k.addWeight(weight); prob != nil {
			return prob
		}
	}
	return nil
}

func (k *KNN) addComponent(s string) *Problem {
	if len(k.Dense) == schema.MaxDenseDims {
		return badParam("knn", fmt.Sprintf("the vector has more than %d numbers", schema.MaxDenseDims)).Within(schema.MaxDenseDims)
	}
	f, prob := float32Of("knn", "each component of the vector", s)
	k.Dense = append(k.Dense, f)
	return prob
}

func (k *KNN) addIndex(s string) *Problem {
	if len(k.Indices) == MaxPairs {
		return tooManyPairs("indices")
	}
	i, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return badParam("knn", "an index is a whole number from 0 to 4294967295")
	}
	k.Indices = append(k.Indices, uint32(i))
	return nil
}

func (k *KNN) addWeight(s string) *Problem {
	if len(k.Weights) == MaxPairs {
		return tooManyPairs("values")
	}
	f, prob := float32Of("knn", "each value of the vector", s)
	k.Weights = append(k.Weights, f)
	return prob
}

// tooManyPairs is a problem as package sparse finds it where the vector is long.
func tooManyPairs(what string) *Problem {
	return (&Problem{Code: InvalidVector, Field: "knn", Detail: fmt.Sprintf("knn: the vector has more than %d %s", MaxPairs, what)}).Within(MaxPairs)
}

func tooManyBits() *Problem {
	return badParam("knn", fmt.Sprintf("the vector has more than %d bits", schema.MaxBinaryBits)).Within(schema.MaxBinaryBits)
}

// decodeBits reads base64 of the standard alphabet with or without padding, as documents have it.
func decodeBits(s string) ([]byte, bool) {
	b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(s, "="))
	return b, err == nil && len(b) > 0
}

func (k *KNN) fromJSON(raw jsontext.Value, l SearchLimits) *Problem {
	if raw.Kind() == '"' {
		return k.fromURL(unquote(raw))
	}
	var unread *Problem // of the vector: told when the field is known
	prob := eachMember("knn", raw, func(member string, v jsontext.Value) *Problem {
		var prob *Problem
		switch member {
		case "vector", "bits", "indices", "values":
			if unread == nil {
				unread = k.vectorFromJSON(member, v)
			}
		case "field":
			k.Field, prob = stringOf("knn", member, v)
		case "k":
			k.K, prob = intOf("knn", member, v, 1, l.Hits)
			k.GivenK = true
		case "exact":
			k.Exact, prob = boolOf("knn", member, v)
		case "ef":
			k.Ef, prob = intOf("knn", member, v, 1, MaxEf)
		case "combiner":
			var s string
			if s, prob = stringOf("knn", member, v); prob != nil {
				return prob
			}
			var ok bool
			if k.Combiner.Kind, ok = combiners[s]; !ok {
				return badParam("knn", "combiner is log_sum_exp, max, avg, sum or weighted_top_k")
			}
		case "temperature":
			k.Combiner.Temperature, prob = positive(member, v)
		case "top_k":
			k.Combiner.TopK, prob = intOf("knn", member, v, 1, maxSumTopK)
		case "decay":
			if k.Combiner.Decay, prob = positive(member, v); prob == nil && k.Combiner.Decay > 1 {
				return badParam("knn", "decay is a number above 0 and up to 1").Within(1)
			}
		default:
			return unknownMember("knn", member, "the object")
		}
		return prob
	})
	if prob != nil {
		return prob
	}
	if unread != nil {
		return k.ofVector(unread)
	}
	given := 0
	for _, has := range []bool{k.Dense != nil, k.Bits != nil, k.Indices != nil || k.Weights != nil} {
		if has {
			given++
		}
	}
	switch {
	case k.Field == "":
		return badParam("knn", "it names no field")
	case given != 1:
		return badParam("knn", "it has one of vector, bits, and indices with values")
	case k.Dense != nil && len(k.Dense) == 0, k.Indices != nil && len(k.Indices) == 0:
		return k.ofVector(badParam("knn", "the vector is empty"))
	case len(k.Indices) != len(k.Weights):
		return k.ofVector(badParam("knn", fmt.Sprintf("there are %d indices and %d values", len(k.Indices), len(k.Weights))))
	}
	if err := k.Combiner.Check(); err != nil {
		return badParam("knn", "combiner: "+Clip(err.Error()))
	}
	return nil
}

// vectorFromJSON reads a member of the object that holds the vector, or half of it.
func (k *KNN) vectorFromJSON(member string, v jsontext.Value) *Problem {
	switch member {
	case "vector":
		k.Dense = []float32{}
		return eachItem("knn", v, func(_ int, v jsontext.Value) *Problem {
			if v.Kind() != '0' {
				return badParam("knn", "vector is an array of numbers")
			}
			return k.addComponent(string(v))
		})
	case "bits":
		s, prob := stringOf("knn", member, v)
		if prob != nil {
			return prob
		}
		var ok bool
		if k.Bits, ok = decodeBits(s); !ok {
			return badParam("knn", "bits is a string in base64, as in documents")
		}
		if len(k.Bits) > schema.MaxBinaryBits/8 {
			return tooManyBits()
		}
		return nil
	case "indices":
		k.Indices = []uint32{}
		return eachItem("knn", v, func(_ int, v jsontext.Value) *Problem { return k.addIndex(string(v)) })
	}
	k.Weights = []float32{}
	return eachItem("knn", v, func(_ int, v jsontext.Value) *Problem {
		if v.Kind() != '0' {
			return badParam("knn", "values is an array of numbers")
		}
		return k.addWeight(string(v))
	})
}

// positive reads a number above 0.
func positive(member string, v jsontext.Value) (float32, *Problem) {
	if v.Kind() != '0' {
		return 0, badParam("knn", member+" is a number")
	}
	f, prob := float32Of("knn", member, string(v))
	if prob == nil && f <= 0 {
		prob = badParam("knn", member+" is a number above 0")
	}
	return f, prob
}

func (p *parsing) setWeights(v value) *Problem {
	bad := func() *Problem {
		return badParam("weights", fmt.Sprintf("it is two numbers from 0 to %d, of the lexical and the vector ranking, not both 0", maxWeight)).Within(maxWeight)
	}
	n := 0
	add := func(s string) *Problem {
		f, prob := float32Of("weights", "each weight", s)
		if prob != nil {
			return prob
		}
		if n == len(p.Weights) || f < 0 || f > maxWeight {
			return bad()
		}
		p.Weights[n] = f
		n++
		return nil
	}
	var prob *Problem
	if v.raw == nil || v.raw.Kind() == '"' {
		text := ""
		if v.raw == nil {
			text = v.texts[0]
		} else {
			text = unquote(v.raw)
		}
		for item := range strings.SplitSeq(text, ",") {
			if prob = add(item); prob != nil {
				return prob
			}
		}
	} else {
		prob = eachItem("weights", v.raw, func(_ int, v jsontext.Value) *Problem {
			if v.Kind() != '0' {
				return bad()
			}
			return add(string(v))
		})
	}
	if prob == nil && (n != 2 || p.Weights[0]+p.Weights[1] == 0) {
		prob = bad()
	}
	return prob
}
