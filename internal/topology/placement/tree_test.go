package placement

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// brokerLine is a broker of an example: what it listens at, its rule, and its shards.
var brokerLine = regexp.MustCompile(`(?m)^weft broker --(?:shard-port|http) (\S+)(?: --shard-mode (\S+))? --shards "([^"]+)"`)

// TestTheDocumentedTreeFillsAllLeaves places documents as the tree of docs/cluster.md does: each leaf gets about as many as the others.
func TestTheDocumentedTreeFillsAllLeaves(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "cluster.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(b), "\n## Coordinators over coordinators\n")
	if !ok {
		t.Fatal("the section about trees is gone")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	type broker struct {
		place  *Placement
		shards []string
	}
	brokers := map[string]broker{}
	root := ""
	for _, m := range brokerLine.FindAllStringSubmatch(section, -1) {
		rule, shards := Rule(m[2]), strings.Split(m[3], ",")
		if rule == "" {
			rule = Ring
		}
		brokers[m[1]] = broker{mustNew(t, Spec{Rule: rule, Shards: len(shards)}), shards}
		root = m[1] // the last is on top
	}
	if len(brokers) != 3 {
		t.Fatalf("the tree has the brokers %v", brokers)
	}
	const docs, leaves = 4000, 4
	counts := map[string]int{}
	for i := range docs {
		at := root
		for b, is := brokers[at]; is; b, is = brokers[at] {
			at = b.shards[b.place.Shard("pkg/"+strconv.Itoa(i))]
		}
		counts[at]++
	}
	if len(counts) != leaves {
		t.Errorf("the leaves have %v", counts)
	}
	for leaf, n := range counts {
		if n < docs/leaves*3/4 || n > docs/leaves*5/4 {
			t.Errorf("%s has %d of %d documents: %v", leaf, n, docs, counts)
		}
	}
	t.Log(counts)
}

// TestThreeLevelsOfThreeRulesFillAllLeaves is the advice of docs/cluster.md for one level more; the same rule at the top and at the bottom leaves
// leaves empty, whatever stands between.
func TestThreeLevelsOfThreeRulesFillAllLeaves(t *testing.T) {
	const docs, each = 32000, 2
	spread := func(rules ...Rule) map[int]int {
		counts := map[int]int{}
		for i := range docs {
			leaf := 0
			for _, r := range rules {
				leaf = leaf*each + mustNewOnce(t, Spec{Rule: r, Shards: each}).Shard("pkg/"+strconv.Itoa(i))
			}
			counts[leaf]++
		}
		return counts
	}
	counts := spread(Ring, Rendezvous, Modulo)
	for leaf := range each * each * each {
		if n := counts[leaf]; n < docs/8*3/4 || n > docs/8*5/4 {
			t.Errorf("leaf %d has %d of %d documents: %v", leaf, n, docs, counts)
		}
	}
	if counts := spread(Ring, Rendezvous, Ring); len(counts) != each*each {
		t.Errorf("with two rings of three levels: %v", counts)
	}
}

// placed keeps what tests place by.
var placed Cache

func mustNewOnce(t testing.TB, s Spec) *Placement {
	t.Helper()
	p, err := placed.Get(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
