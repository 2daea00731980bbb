package main

import (
	"encoding/json"
	"math"
	"slices"
	"testing"
	"time"
)

func TestGeneratedDocuments(t *testing.T) {
	docs, err := goDocs(t.Context())
	if err != nil {
		t.Skip(err)
	}
	if docs.n < 5000 {
		t.Fatalf("%d documents of Go", docs.n)
	}
	c, again := generated(docs, 1000, 3, true), generated(docs, 1000, 3, true)
	ids, vectors := map[string]bool{}, 0
	for i := range c.n {
		line := c.doc(i)
		if string(line) != string(again.doc(i)) {
			t.Fatalf("document %d is another the second time", i)
		}
		var d struct {
			ID, Kind, Package, Title, Body string
			Size                           int
			At                             time.Time
			V                              []float32
		}
		if err := json.Unmarshal(line, &d); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if ids[d.ID] || d.Title == "" || d.Body == "" || !slices.Contains(c.groups, d.Package) || d.At.Before(epoch) {
			t.Fatalf("document %d: %s", i, line)
		}
		ids[d.ID] = true
		if d.V != nil {
			vectors++
			if len(d.V) != dims {
				t.Fatalf("a vector of %d", len(d.V))
			}
		}
		if !slices.Equal(words(d.Body), c.text(i)) {
			t.Fatalf("the words of document %d are %q, its body is %q", i, c.text(i), d.Body)
		}
	}
	if vectors != c.n/10 {
		t.Errorf("%d of %d documents have vectors", vectors, c.n)
	}
	for _, from := range []*corpus{docs, c} {
		list, second := queries(from), queries(from)
		names := map[string]bool{}
		for k := range list {
			names[list[k].name] = true
			x, err := list[k].bodies(false)
			if err != nil {
				t.Fatal(err)
			}
			y, err := second[k].bodies(false)
			if err != nil {
				t.Fatal(err)
			}
			if len(x) != perClass || !slices.EqualFunc(x, y, slices.Equal) {
				t.Errorf("%s: %s: %d queries, or others the second time", from.name, list[k].name, len(x))
			}
		}
		if len(names) != 10 {
			t.Errorf("%s: classes %v", from.name, names)
		}
	}
}

func TestFigures(t *testing.T) {
	var list []time.Duration
	for i := range 200 {
		list = append(list, time.Duration(200-i))
	}
	if f := figuresOf([][]time.Duration{list[:50], list[50:]}); f != (figures{100, 180, 198}) {
		t.Errorf("figures %v", f)
	}
	if f := figuresOf([][]time.Duration{{7}}); f != (figures{7, 7, 7}) {
		t.Errorf("figures of one %v", f)
	}
	if g := geomean([]float64{1, 4, 16}); math.Abs(g-4) > 1e-12 {
		t.Errorf("mean %v", g)
	}
	if m := median([]float64{9, 1, 5}); m != 5 {
		t.Errorf("median %v", m)
	}
}

func TestAnswersThatDiffer(t *testing.T) {
	read := func(s string) *answer {
		var a answer
		if err := json.Unmarshal([]byte(s), &a); err != nil {
			t.Fatal(err)
		}
		return &a
	}
	base := `{"total":2,"hits":[{"id":"a","score":1.5,"source":{"x":1}}],"facets":{"k":[]}}`
	for _, c := range []struct {
		other         string
		local, scored bool
	}{
		{base, true, true},
		{`{"total":3,"hits":[{"id":"a","score":1.5,"source":{"x":1}}],"facets":{"k":[]}}`, false, false},
		{`{"total":2,"hits":[],"facets":{"k":[]}}`, false, false},
		{`{"total":2,"hits":[{"id":"a","score":1.5,"source":{"x":1}}],"facets":{"k":[1]}}`, false, false},
		{`{"total":2,"hits":[{"id":"b","score":1.5,"source":{"x":1}}],"facets":{"k":[]}}`, true, false},
		{`{"total":2,"hits":[{"id":"a","score":1.25,"source":{"x":1}}],"facets":{"k":[]}}`, true, false},
		{`{"total":2,"hits":[{"id":"a","score":1.5,"source":{"x":2}}],"facets":{"k":[]}}`, true, false},
	} {
		if same(read(base), read(c.other), false) != c.local || same(read(base), read(c.other), true) != c.scored {
			t.Errorf("%s", c.other)
		}
	}
}
