package agg

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"sort"
	"strconv"
	"time"

	"github.com/weft-search/weft/internal/schema"
)

// The oracle works out answers document by document with exact rationals, as trees like those that a JSON reader makes. Whole
// numbers are whole (an exact text), other numbers float64.
type whole string

type object map[string]any

// about is a whole number within five standard errors of a sketch.
type about int

func count(n, size int, inBucket bool) object {
	values, most := 16_384, 2<<20
	if inBucket {
		values, most = 1_024, 16<<10
	}
	if n > values || size > most {
		return object{"value": about(n), "exact": false, "error": 1.04 / 128}
	}
	return object{"value": whole(strconv.Itoa(n)), "exact": true, "error": whole("0")}
}

func fieldOf(name string) (id int, t schema.Type) {
	id, _ = testSchema().Lookup(name)
	return id, testSchema().Fields[id].Type
}

func rat(t schema.Type, v uint64) *big.Rat {
	switch t {
	case schema.U64:
		return new(big.Rat).SetInt(new(big.Int).SetUint64(v))
	case schema.F64:
		return new(big.Rat).SetFloat64(schema.DecodeF64(v))
	}
	return new(big.Rat).SetInt64(schema.DecodeI64(v))
}

func date(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339Nano) }

func floorRat(x *big.Rat) *big.Int {
	return new(big.Int).Div(x.Num(), x.Denom()) // Euclidean: floor for a positive divisor
}

// value prints an exact number as the type of a field has it.
func value(t schema.Type, x *big.Rat) any {
	switch {
	case t == schema.Date:
		return date(floorRat(x).Int64())
	case t != schema.F64 && x.IsInt():
		return whole(x.Num().String())
	}
	f, _ := x.Float64()
	return f
}

func oracle(specs []Spec, docs []doc, inBucket bool) object {
	out := object{}
	for i := range specs {
		s := &specs[i]
		use := docs
		if s.Filter != nil {
			use = nil
			keep := filterFunc(s.Filter.Text)
			for i := range docs {
				if keep(&docs[i]) {
					use = append(use, docs[i])
				}
			}
		}
		out[s.Name] = oracleOne(s, use, inBucket)
	}
	return out
}

func bucket(s *Spec, o object, docs []doc) object {
	o["count"] = whole(strconv.Itoa(len(docs)))
	if len(s.Aggs) > 0 {
		o["aggs"] = oracle(s.Aggs, docs, true)
	}
	return o
}

func oracleOne(s *Spec, docs []doc, inBucket bool) any {
	if s.Kind == Filter {
		return bucket(s, object{}, docs)
	}
	id, t := fieldOf(s.Field)
	if t == schema.Text {
		by := map[string][]doc{}
		for _, d := range docs {
			for _, v := range slices.Compact(slices.Sorted(slices.Values(d.text))) {
				by[v] = append(by[v], d)
			}
		}
		if s.Kind == Cardinality {
			size := 0
			for k := range by {
				size += 48 + len(k)
			}
			return count(len(by), size, inBucket)
		}
		return oracleTerms(s, by, func(k string) any { return k })
	}
	var all []uint64
	by := map[uint64][]doc{}
	for _, d := range docs {
		v := slices.Sorted(slices.Values(d.nums[id]))
		all = append(all, v...)
		for _, v := range slices.Compact(v) {
			by[v] = append(by[v], d)
		}
	}
	slices.Sort(all)
	switch s.Kind {
	case Terms:
		return oracleTerms(s, by, func(k uint64) any { return value(t, rat(t, k)) })
	case Cardinality:
		return count(len(by), 16*len(by), inBucket)
	case Stats:
		if len(all) == 0 {
			return object{"count": whole("0"), "sum": nil, "min": nil, "max": nil, "avg": nil}
		}
		sum := new(big.Rat)
		for _, v := range all {
			sum.Add(sum, rat(t, v))
		}
		o := object{"count": whole(strconv.Itoa(len(all))), "min": value(t, rat(t, all[0])), "max": value(t, rat(t, all[len(all)-1]))}
		avg := new(big.Rat).Quo(sum, big.NewRat(int64(len(all)), 1))
		switch t {
		case schema.Date:
			o["sum"], o["avg"] = whole(sum.Num().String()), date(floorRat(avg).Int64())
		case schema.F64:
			f, _ := sum.Float64()
			if o["sum"] = f; math.IsInf(f, 0) {
				o["sum"] = nil
			}
			o["avg"] = value(t, avg)
		default:
			f, _ := avg.Float64()
			o["sum"], o["avg"] = whole(sum.Num().String()), f
		}
		return o
	case Percentiles:
		vals := object{}
		for _, p := range s.Percents {
			if len(all) == 0 {
				vals[p] = nil
				continue
			}
			x, _ := new(big.Rat).SetString(p)
			x.Mul(x, big.NewRat(int64(len(all)-1), 100))
			k := floorRat(x)
			x.Sub(x, new(big.Rat).SetInt(k))
			lo := rat(t, all[k.Int64()])
			hi := rat(t, all[min(int(k.Int64())+1, len(all)-1)])
			vals[p] = value(t, x.Mul(x, hi.Sub(hi, lo)).Add(x, lo))
		}
		return object{"values": vals}
	case Range:
		list := []any{}
		for _, r := range s.Ranges {
			from, to := bound(t, r.From), bound(t, r.To)
			var in []doc
			for _, d := range docs {
				if slices.ContainsFunc(d.nums[id], func(v uint64) bool {
					x := rat(t, v)
					return (from == nil || x.Cmp(from) >= 0) && (to == nil || x.Cmp(to) < 0)
				}) {
					in = append(in, d)
				}
			}
			o := object{"from": nil, "to": nil}
			if from != nil {
				o["from"] = value(t, from)
			}
			if to != nil {
				o["to"] = value(t, to)
			}
			list = append(list, bucket(s, o, in))
		}
		return object{"buckets": list}
	}
	// Histograms, by the order of their buckets.
	type entry struct {
		order *big.Rat
		key   any
		docs  []doc
	}
	seen := map[string]*entry{}
	for _, d := range docs {
		mine := map[string]bool{}
		for _, v := range d.nums[id] {
			order, key := bucketOf(s, t, v)
			k := fmt.Sprint(key)
			if mine[k] {
				continue
			}
			mine[k] = true
			if seen[k] == nil {
				seen[k] = &entry{order: order, key: key}
			}
			seen[k].docs = append(seen[k].docs, d)
		}
	}
	var entries []*entry
	for _, k := range sortedKeys(seen) {
		entries = append(entries, seen[k])
	}
	sort.SliceStable(entries, func(i, j int) bool { return entries[i].order.Cmp(entries[j].order) < 0 })
	list := []any{}
	for _, e := range entries {
		list = append(list, bucket(s, object{"key": e.key}, e.docs))
	}
	return object{"buckets": list}
}

func bound(t schema.Type, text string) *big.Rat {
	if text == "" {
		return nil
	}
	if t == schema.Date {
		if ms, ok := schema.ParseDate(text); ok {
			return new(big.Rat).SetInt64(ms)
		}
	}
	x, ok := new(big.Rat).SetString(text)
	if !ok {
		panic("bound " + text)
	}
	return x
}

func bucketOf(s *Spec, t schema.Type, v uint64) (order *big.Rat, key any) {
	if s.Kind == DateHistogram {
		at := time.UnixMilli(schema.DecodeI64(v)).UTC()
		y, m, d := at.Date()
		switch s.Interval {
		case "1m":
			at = time.Date(y, m, d, at.Hour(), at.Minute(), 0, 0, time.UTC)
		case "1h":
			at = time.Date(y, m, d, at.Hour(), 0, 0, 0, time.UTC)
		case "1d":
			at = time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
		case "1w":
			at = time.Date(y, m, d-(int(at.Weekday())+6)%7, 0, 0, 0, 0, time.UTC)
		case "1M":
			at = time.Date(y, m, 1, 0, 0, 0, 0, time.UTC)
		case "1q":
			at = time.Date(y, (m-1)/3*3+1, 1, 0, 0, 0, 0, time.UTC)
		case "1y":
			at = time.Date(y, 1, 1, 0, 0, 0, 0, time.UTC)
		}
		return new(big.Rat).SetInt64(at.Unix()), at.Format(time.RFC3339Nano)
	}
	w, _ := new(big.Rat).SetString(s.Interval)
	if t != schema.F64 && w.IsInt() {
		q := floorRat(new(big.Rat).Quo(rat(t, v), w))
		q.Mul(q, w.Num())
		return new(big.Rat).SetInt(q), whole(q.String())
	}
	width, _ := w.Float64()
	x, _ := rat(t, v).Float64()
	q := math.Floor(x / width)
	if q == 0 && x < 0 {
		q = -1
	}
	k := min(max((q+0)*width, -math.MaxFloat64), math.MaxFloat64) + 0
	return new(big.Rat).SetFloat64(q), k
}

func oracleTerms[K interface{ ~string | ~uint64 }](s *Spec, by map[K][]doc, show func(K) any) any {
	keys := sortedKeys(by)
	sort.SliceStable(keys, func(i, j int) bool { return len(by[keys[i]]) > len(by[keys[j]]) })
	list, other := []any{}, 0
	for i, k := range keys {
		if s.Size > 0 && i >= s.Size {
			other += len(by[k])
			continue
		}
		list = append(list, bucket(s, object{"value": show(k)}, by[k]))
	}
	return object{"buckets": list, "other": whole(strconv.Itoa(other))}
}
