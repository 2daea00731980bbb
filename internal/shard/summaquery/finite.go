package summaquery

import (
	"math"
)

// Scores are finite: what is infinite has no order among its equals, and what is no number has none at all. A query whose boosts could
// carry scores out of binary32 is refused before it runs, as what ranks would go by numbers that do not compare; what vectors and
// their combiners make is looked at when it is there.

// mostIDF is above the inverse document frequency of any word: ln of 2^65.
const mostIDF = 46

// errTooFar is the refusal of such a query.
func errTooFar() error {
	return failed("the query can produce a non-finite score; use smaller boosts")
}

// errNotFinite is the refusal of one that did produce such a score.
func errNotFinite() error {
	return failed("the query produced a non-finite score (overflow)")
}

// checkReach refuses a part whose scores can pass what a float32 holds, at any place within it. k is how many documents a vector within
// it nominates.
func (r *runner) checkReach(p *part, k int) error {
	_, err := r.reach(p, k)
	return err
}

// reach is at least as far from 0 as any score of a part.
func (r *runner) reach(p *part, k int) (far float64, err error) {
	switch p.kind {
	case kindNothing, kindStops:
		return 0, nil
	case kindFilter, kindExact:
		far = 1
	case kindText, kindPassages:
		f := &r.ix.Schema.Fields[p.field]
		words, word := 0.0, mostIDF*(1+float64(f.K1))
		for _, t := range p.terms {
			words += float64(t.times)
		}
		if far = words * word; p.near != nil {
			far += float64(p.near.weight) * 1.5 * word * float64(len(p.terms))
		}
	case kindVector:
		g, err := r.nearestList(p, k)
		if err != nil {
			return 0, err
		}
		for _, l := range g {
			for _, s := range l.Scores {
				far = max(far, math.Abs(float64(s)))
			}
		}
	case kindBoost:
		if far, err = r.reach(p.of, k); err != nil {
			return 0, err
		}
		far *= math.Abs(float64(p.factor))
	case kindBool:
		for _, list := range [][]*part{p.must, r.someShould(p)} {
			for _, kid := range list {
				one, err := r.reach(kid, k)
				if err != nil {
					return 0, err
				}
				far += one
			}
		}
	}
	if far > math.MaxFloat32/2 { // the other half is for rounding
		return 0, errTooFar()
	}
	return far, nil
}

func finiteScore(s float32) bool { return s-s == 0 }

// finiteHits refuses hits of which a score is not finite.
func finiteHits(hits []hit) error {
	for i := range hits {
		if err := finiteHit(&hits[i]); err != nil {
			return err
		}
	}
	return nil
}

func finiteHit(h *hit) error {
	if !finiteScore(h.score) {
		return errNotFinite()
	}
	for _, row := range h.rows {
		if !finiteScore(row.Score) {
			return errNotFinite()
		}
	}
	return nil
}
