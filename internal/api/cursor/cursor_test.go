package cursor

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/weft-search/weft/internal/score"
)

func drawStats(t *rapid.T) *score.Stats {
	if !rapid.Bool().Draw(t, "has stats") {
		return nil
	}
	s := &score.Stats{Docs: rapid.Uint64Range(0, maxDocs).Draw(t, "docs"), Fields: map[string]score.FieldStats{}, DF: map[score.Term]uint64{}}
	word := rapid.StringMatching(`[ab]{0,6}`)
	for range rapid.IntRange(0, 4).Draw(t, "fields") {
		s.Fields[word.Draw(t, "field")] = score.FieldStats{
			SumLen: rapid.Uint64Range(0, s.Docs*maxTokens).Draw(t, "tokens"), Docs: rapid.Uint64Range(0, s.Docs).Draw(t, "field docs"),
		}
	}
	for range rapid.IntRange(0, 20).Draw(t, "terms") {
		s.DF[score.Term{Field: word.Draw(t, "field of term"), Text: word.Draw(t, "term")}] = rapid.Uint64Range(0, s.Docs).Draw(t, "df")
	}
	return s
}

func draw(t *rapid.T) *Cursor {
	c := &Cursor{ID: rapid.StringN(0, 40, maxID).Draw(t, "id"), Stats: drawStats(t)}
	copy(c.Digest[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "digest"))
	for range rapid.IntRange(0, MaxValues).Draw(t, "values") {
		v := Value{Kind: Kind(rapid.IntRange(0, 3).Draw(t, "kind"))}
		switch v.Kind {
		case Number:
			v.Num = rapid.Uint64().Draw(t, "number")
		case Text:
			v.Text = rapid.String().Draw(t, "text")
		case Score:
			v.Score = rapid.Float32Range(-math.MaxFloat32, math.MaxFloat32).Draw(t, "score")
		}
		c.Values = append(c.Values, v)
	}
	return c
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := draw(t)
		text, ok := want.Encode()
		if !ok {
			t.Fatal("too large")
		}
		got, err := Decode(text)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
			t.Fatal(d)
		}
	})
}

// TestEveryDamageIsSeen changes, cuts and lengthens the text of a cursor.
func TestEveryDamageIsSeen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, _ := draw(t).Encode()
		at := rapid.IntRange(0, len(text)-1).Draw(t, "at")
		other := rapid.SampledFrom([]byte("ABCwxyz019-_")).Filter(func(b byte) bool { return b != text[at] }).Draw(t, "character")
		for _, bad := range []string{text[:at] + string(other) + text[at+1:], text[:at], text + "A", text + "=", "=" + text} {
			if _, err := Decode(bad); !errors.Is(err, ErrDamaged) {
				t.Fatalf("%q was read: %v", bad, err)
			}
		}
	})
}

func TestWhatIsTooLarge(t *testing.T) {
	long := &Cursor{Values: []Value{{Kind: Text, Text: strings.Repeat("a", MaxText)}}}
	if text, ok := long.Encode(); ok || text != "" {
		t.Error("a text over the limit was made")
	}
	if _, err := Decode(strings.Repeat("A", MaxText+1)); !errors.Is(err, ErrDamaged) {
		t.Error("a text over the limit was read")
	}
	// Terms that share all but their end are short in the text and long in memory.
	many := &Cursor{Stats: &score.Stats{Docs: 1, DF: map[score.Term]uint64{}}}
	for i := range 1000 {
		many.Stats.DF[score.Term{Field: "f", Text: strings.Repeat("a", 8000) + fmt.Sprint(i)}] = 1
	}
	if _, ok := many.Encode(); ok {
		t.Error("terms over the limit were written")
	}
	b := appendStats(append(append(append([]byte{version}, make([]byte, 16)...), 0), 0), many.Stats)
	if _, err := decode(b); !errors.Is(err, ErrDamaged) {
		t.Error("terms over the limit were read")
	}
}

// FuzzDecode reads arbitrary bytes as what stands before the checksum: what is accepted is the only form of its cursor.
func FuzzDecode(f *testing.F) {
	for _, c := range []*Cursor{
		{},
		{ID: "a", Values: []Value{{}, {Kind: Number, Num: 300}, {Kind: Text, Text: "x"}, {Kind: Score, Score: 1.5}}},
		{Stats: &score.Stats{Docs: 7, Fields: map[string]score.FieldStats{"t": {SumLen: 9, Docs: 3}}, DF: map[score.Term]uint64{{Field: "t", Text: "ab"}: 2, {Field: "u", Text: "ac"}: 1}}},
	} {
		text, _ := c.Encode()
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := Decode(text); err != nil && !errors.Is(err, ErrDamaged) {
			t.Fatal(err)
		}
		c, err := decode([]byte(text))
		if err != nil {
			return
		}
		again, ok := c.Encode()
		if !ok {
			return
		}
		back, err := Decode(again)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(c, back, cmpopts.EquateEmpty(), cmpopts.EquateNaNs()); d != "" {
			t.Fatal(d)
		}
	})
}
