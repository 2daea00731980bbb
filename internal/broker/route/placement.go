package route

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// maxIndexName is the length in bytes of the longest name that an index can have.
const maxIndexName = 255

// Placement says where indexes are created and which copy counts where several shards have one ("Placement and partitions" of the
// contract). It does not change, and may be read by many at once. nil is a Placement without rules.
type Placement struct {
	rules  []*Rule
	reject bool
}

// Rule places the indexes whose names match a pattern.
type Rule struct {
	Pattern string // * stands for any run of bytes, also none
	// Parts are the shards. One pins an index to it; several share the documents, in this order, which together with the weights is part
	// of what is stored: it may not change while the index lives.
	Parts []Part

	bounds []uint64 // running sums of the weights, divided by their greatest common divisor
}

// Part is a shard that a rule names.
type Part struct {
	Shard  string
	Weight uint32 // as it was given; 1 where none was
}

// NewPlacement parses rules (each the text of one --placement) and the word of --placement-default, "single" or "reject"; empty means
// single. The error is the refusal at start ("Flags" of the contract).
func NewPlacement(rules []string, otherwise string) (*Placement, error) {
	p := &Placement{}
	switch otherwise {
	case "", "single":
	case "reject":
		p.reject = true
	default:
		return nil, fmt.Errorf("invalid --placement-default '%s': it is single or reject", otherwise)
	}
	for _, text := range rules {
		r, err := ParseRule(text)
		if err != nil {
			return nil, err
		}
		p.rules = append(p.rules, r)
	}
	return p, nil
}

// Rules returns the rules in their order. They are not to be changed.
func (p *Placement) Rules() []*Rule {
	if p == nil {
		return nil
	}
	return p.rules
}

// For returns the first rule that matches the name of an index; nil where none does. A name too long for an index matches none.
func (p *Placement) For(index string) *Rule {
	if len(index) > maxIndexName {
		return nil
	}
	for _, r := range p.Rules() {
		if matches(r.Pattern, index) {
			return r
		}
	}
	return nil
}

// rejects says whether indexes without a rule are not created.
func (p *Placement) rejects() bool { return p != nil && p.reject }

// ParseRule parses pattern=shard[:weight][,shard[:weight]…] ("Placement and partitions"). The error is the refusal at start.
func ParseRule(text string) (*Rule, error) {
	refuse := func(format string, args ...any) (*Rule, error) {
		return nil, fmt.Errorf("invalid --placement '%s': %s", text, fmt.Sprintf(format, args...))
	}
	at := strings.LastIndexByte(text, '=')
	if at < 0 {
		return refuse("it is pattern=shard or pattern=shard,shard,…")
	}
	r := &Rule{Pattern: strings.TrimSpace(text[:at])}
	switch {
	case r.Pattern == "":
		return refuse("the pattern is empty")
	case strings.Contains(r.Pattern, "="):
		return refuse("the pattern holds a '='")
	}
	seen := map[string]bool{}
	weighted := false
	for piece := range strings.SplitSeq(text[at+1:], ",") {
		shard, weight, has := strings.Cut(piece, ":")
		p := Part{Shard: strings.TrimSpace(shard), Weight: 1}
		switch {
		case p.Shard == "":
			return refuse("a shard is empty")
		case seen[p.Shard]:
			return refuse("shard '%s' stands there twice", p.Shard)
		}
		seen[p.Shard] = true
		if has {
			w, err := parseWeight(strings.TrimSpace(weight))
			if err != nil {
				return refuse("the weight of shard '%s' %s", p.Shard, err)
			}
			p.Weight, weighted = w, true
		}
		r.Parts = append(r.Parts, p)
	}
	if weighted && len(r.Parts) == 1 {
		return refuse("a single shard takes no weight")
	}
	r.weigh()
	return r, nil
}

// parseWeight reads a weight of decimal digits, 1 to 4294967295.
func parseWeight(s string) (uint32, error) {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return 0, fmt.Errorf("is not a decimal number without sign and fraction")
		}
	}
	w, err := strconv.ParseUint(s, 10, 32)
	if err != nil || w == 0 {
		return 0, fmt.Errorf("is not 1 to 4294967295")
	}
	return uint32(w), nil
}

// weigh fills the bounds. Their sum stays far from the end of 64 bits: it would take as many shards as there are weights.
func (r *Rule) weigh() {
	var divisor uint64
	for _, p := range r.Parts {
		for a := uint64(p.Weight); a != 0; {
			divisor, a = a, divisor%a
		}
	}
	var sum uint64
	r.bounds = make([]uint64, len(r.Parts))
	for i, p := range r.Parts {
		sum += uint64(p.Weight) / divisor
		r.bounds[i] = sum
	}
}

// Partitioned says whether an index under the rule is spread over several shards. No rule spreads nothing.
func (r *Rule) Partitioned() bool { return r != nil && len(r.Parts) > 1 }

// Partition returns the position in Parts of the shard that has the document with this primary key: the hash modulo the sum of the
// weights, counted through the parts ("Placement and partitions").
func (r *Rule) Partition(key []byte) int {
	h := Hash(key) % r.bounds[len(r.bounds)-1]
	return sort.Search(len(r.bounds), func(i int) bool { return h < r.bounds[i] })
}

// pinned is the shard that a rule with one shard names, else "".
func (r *Rule) pinned() string {
	if r == nil || len(r.Parts) != 1 {
		return ""
	}
	return r.Parts[0].Shard
}

// weight is that of a shard in a rule that spreads, else 0.
func (r *Rule) weight(shard string) uint32 {
	if !r.Partitioned() {
		return 0
	}
	i := slices.IndexFunc(r.Parts, func(p Part) bool { return p.Shard == shard })
	if i < 0 {
		return 0
	}
	return r.Parts[i].Weight
}

// String tells the pattern and what part of the documents each shard has, as in "docs*: 2 (5/14), 3 (5/14), 4 (4/14)", for logs.
func (r *Rule) String() string {
	var b strings.Builder
	b.WriteString(r.Pattern)
	var before uint64
	for i, p := range r.Parts {
		b.WriteString([]string{": ", ", "}[min(i, 1)])
		b.WriteString(p.Shard)
		if r.Partitioned() {
			fmt.Fprintf(&b, " (%d/%d)", r.bounds[i]-before, r.bounds[len(r.bounds)-1])
			before = r.bounds[i]
		}
	}
	return b.String()
}

// Hash is FNV-1a over the bytes of a key, with 64 bits. It decides where stored documents are and will never change.
func Hash(key []byte) uint64 {
	h := uint64(0xcbf29ce484222325)
	for _, c := range key {
		h = (h ^ uint64(c)) * 0x100000001b3
	}
	return h
}

// matches holds a name against a pattern with * in it, in at most len(pattern) × len(name) steps.
func matches(pattern, name string) bool {
	p, n := 0, 0
	star, from := -1, 0 // the last * met, and where in the name what follows it is tried
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, from = p, n
			p++
		case p < len(pattern) && pattern[p] == name[n]:
			p, n = p+1, n+1
		case star >= 0:
			from++
			p, n = star+1, from
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}
