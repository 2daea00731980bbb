package route

import (
	"encoding/binary"
	"hash/fnv"
	"math/big"
	"path"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/corpus"
	"github.com/weft-search/weft/internal/summa/summagolden"
)

func TestParseRule(t *testing.T) {
	for _, c := range []struct {
		text string
		want string // as String has it, or the refusal after "invalid --placement '<text>': "
		bad  bool
	}{
		{text: "documents*=0", want: "documents*: 0"},
		{text: "docs=a b", want: "docs: a b"},
		{text: "parts*=0,1,2", want: "parts*: 0 (1/3), 1 (1/3), 2 (1/3)"},
		{text: " parts* = 0 , 1 ,2 ", want: "parts*: 0 (1/3), 1 (1/3), 2 (1/3)"},
		{text: "wparts*=0:5,1:5,2:4", want: "wparts*: 0 (5/14), 1 (5/14), 2 (4/14)"},
		{text: "w2parts*=0:10,1:10,2:8", want: "w2parts*: 0 (5/14), 1 (5/14), 2 (4/14)"},
		{text: "p=0:2,1", want: "p: 0 (2/3), 1 (1/3)"},
		{text: "p=0 : 7 ,1: 7", want: "p: 0 (1/2), 1 (1/2)"},
		{text: "p=0:4294967295,1:1", want: "p: 0 (4294967295/4294967296), 1 (1/4294967296)"},
		{text: "p=0:007,1:1", want: "p: 0 (7/8), 1 (1/8)"},
		{text: "", bad: true, want: "it is pattern=shard or pattern=shard,shard,…"},
		{text: "documents*", bad: true, want: "it is pattern=shard or pattern=shard,shard,…"},
		{text: "=0", bad: true, want: "the pattern is empty"},
		{text: "  =0", bad: true, want: "the pattern is empty"},
		{text: "a=b=0", bad: true, want: "the pattern holds a '='"},
		{text: "a=", bad: true, want: "a shard is empty"},
		{text: "a=0,", bad: true, want: "a shard is empty"},
		{text: "a=0,,1", bad: true, want: "a shard is empty"},
		{text: "a= :3,1", bad: true, want: "a shard is empty"},
		{text: "a=0,1,0", bad: true, want: "shard '0' stands there twice"},
		{text: "a=0,1, 0:2", bad: true, want: "shard '0' stands there twice"},
		{text: "a=0:1", bad: true, want: "a single shard takes no weight"},
		{text: "a=0:0,1", bad: true, want: "the weight of shard '0' is not 1 to 4294967295"},
		{text: "a=0:,1", bad: true, want: "the weight of shard '0' is not 1 to 4294967295"},
		{text: "a=0:4294967296,1", bad: true, want: "the weight of shard '0' is not 1 to 4294967295"},
		{text: "a=0:99999999999999999999999,1", bad: true, want: "the weight of shard '0' is not 1 to 4294967295"},
		{text: "a=0:+1,1", bad: true, want: "the weight of shard '0' is not a decimal number without sign and fraction"},
		{text: "a=0:-1,1", bad: true, want: "the weight of shard '0' is not a decimal number without sign and fraction"},
		{text: "a=0:1.5,1", bad: true, want: "the weight of shard '0' is not a decimal number without sign and fraction"},
		{text: "a=0:0x1,1", bad: true, want: "the weight of shard '0' is not a decimal number without sign and fraction"},
		{text: "a=0:1_0,1", bad: true, want: "the weight of shard '0' is not a decimal number without sign and fraction"},
		{text: "a=0:1:2,1", bad: true, want: "the weight of shard '0' is not a decimal number without sign and fraction"},
	} {
		r, err := ParseRule(c.text)
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = r.String()
		}
		want := c.want
		if c.bad {
			want = "invalid --placement '" + c.text + "': " + c.want
		}
		if got != want || (err != nil) != c.bad {
			t.Errorf("%q gives %s, not %s", c.text, got, want)
		}
	}
}

func TestPlacementRefusesABadRuleAndABadDefault(t *testing.T) {
	if _, err := NewPlacement([]string{"a=0", "b"}, "single"); err == nil || !strings.HasPrefix(err.Error(), "invalid --placement 'b': ") {
		t.Errorf("a rule without shard gives %v", err)
	}
	if _, err := NewPlacement(nil, "spread"); err == nil || err.Error() != "invalid --placement-default 'spread': it is single or reject" {
		t.Errorf("an unknown default gives %v", err)
	}
}

func TestTheFirstRuleThatMatchesCounts(t *testing.T) {
	p := placement(t, "", "glob*x*y=2", "first*=0", "first_b*=1", "*=3")
	for name, want := range map[string]string{
		"globxy": "2", "glob_x_y": "2", "globxyzy": "2", "globxyz": "3", "globyx": "3", "first_b1": "0", "first": "0", "other": "3", "": "3",
		strings.Repeat("n", maxIndexName): "3",
	} {
		if got := p.For(name); got == nil || got.Parts[0].Shard != want {
			t.Errorf("%q is placed by %v, not on %s", name, got, want)
		}
	}
	if got := p.For(strings.Repeat("n", maxIndexName+1)); got != nil {
		t.Errorf("a name that no index can have is placed by %v", got)
	}
	var none *Placement
	if got := none.For("a"); got != nil {
		t.Errorf("no rules place by %v", got)
	}
}

// Without the other special characters of path.Match, and without slashes, both are the same language.
func TestPatternsMatchAsTheShellDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.StringOfN(rapid.RuneFrom([]rune("ab*")), 0, 12, -1).Draw(t, "pattern")
		name := rapid.StringOfN(rapid.RuneFrom([]rune("abc")), 0, 16, -1).Draw(t, "name")
		want, err := path.Match(pattern, name)
		if err != nil {
			t.Fatal(err)
		}
		if got := matches(pattern, name); got != want {
			t.Fatalf("%q matches %q: %t", pattern, name, got)
		}
	})
}

func TestHashIsFNV1a(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SliceOf(rapid.Byte()).Draw(t, "key")
		h := fnv.New64a()
		h.Write(key)
		if Hash(key) != h.Sum64() {
			t.Fatalf("%x hashes to %x", key, Hash(key))
		}
	})
	if Hash(nil) != 0xcbf29ce484222325 || Hash([]byte("a")) != 0xaf63dc4c8601ec8c {
		t.Error("the hash is not the pinned one")
	}
}

// The part of a key, from the definition alone: divide by the largest number that divides all weights, and count through.
func TestPartitionIsTheCountOfSumsUpToTheHash(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := rapid.SliceOfN(rapid.OneOf(rapid.Uint32Range(1, 12), rapid.Uint32Min(1)), 1, 9).Draw(t, "weights")
		key := binary.BigEndian.AppendUint64(nil, rapid.Uint64().Draw(t, "key"))
		r := &Rule{}
		divisor := new(big.Int)
		for _, w := range weights {
			r.Parts = append(r.Parts, Part{Weight: w})
			divisor.GCD(nil, nil, divisor, big.NewInt(int64(w)))
		}
		r.weigh()
		var sums []uint64
		var sum uint64
		for _, w := range weights {
			sum += uint64(w) / divisor.Uint64()
			sums = append(sums, sum)
		}
		want := 0
		for _, s := range sums {
			if s <= Hash(key)%sum {
				want++
			}
		}
		if got := r.Partition(key); got != want {
			t.Fatalf("weights %d, key %x: part %d, not %d", weights, key, got, want)
		}
		equal := &Rule{Parts: make([]Part, len(weights))}
		for i := range equal.Parts {
			equal.Parts[i].Weight = weights[0]
		}
		equal.weigh()
		if got := equal.Partition(key); uint64(got) != Hash(key)%uint64(len(weights)) {
			t.Fatalf("%d equal weights, key %x: part %d", len(weights), key, got)
		}
	})
}

// Every document that the reference sent to a node by its key goes to the same shard.
func TestPartitionsAreThoseOfTheReference(t *testing.T) {
	cases, err := summagolden.Load(corpus.Dir(t, "summa-golden"), "broker-plain")
	if err != nil {
		t.Fatal(err)
	}
	p := goldenPlacement(t)
	seen := map[string]int{}
	shards := map[string]map[string]bool{}
	check := func(c summagolden.Case, node string, index string, key []byte) {
		t.Helper()
		r := p.For(index)
		if !r.Partitioned() {
			return
		}
		if got := "n" + r.Parts[r.Partition(key)].Shard; got != node {
			t.Errorf("%s: key %q of %s goes to %s, not %s", c.Name, key, index, got, node)
		}
		seen[r.Pattern]++
		if shards[r.Pattern] == nil {
			shards[r.Pattern] = map[string]bool{}
		}
		shards[r.Pattern][node] = true
	}
	primary := func(fields []*summapb.FieldEntry) (key []byte) {
		for _, f := range fields {
			if f.GetName() == "id" {
				return keyOf(f.GetValue())
			}
		}
		return nil
	}
	for _, c := range cases {
		for _, call := range c.Nodes {
			var m interface {
				proto.Message
				GetIndexName() string
			}
			switch call.RPC {
			case "BatchIndexDocuments":
				m = &summapb.BatchIndexDocumentsRequest{}
			case "UpsertDocuments":
				m = &summapb.UpsertDocumentsRequest{}
			case "DeleteDocuments":
				m = &summapb.DeleteDocumentsRequest{}
			default:
				continue
			}
			if err := proto.Unmarshal(call.RequestB64, m); err != nil {
				t.Fatal(err)
			}
			switch m := m.(type) {
			case *summapb.BatchIndexDocumentsRequest:
				for _, d := range m.GetDocuments() {
					check(c, call.Node, m.GetIndexName(), primary(d.GetFields()))
				}
			case *summapb.UpsertDocumentsRequest:
				for _, d := range m.GetDocuments() {
					check(c, call.Node, m.GetIndexName(), primary(d.GetFields()))
				}
			case *summapb.DeleteDocumentsRequest:
				for _, k := range m.GetPrimaryKeys() {
					check(c, call.Node, m.GetIndexName(), []byte(k))
				}
			}
		}
	}
	for _, pattern := range []string{"parts*", "wparts*", "w2parts*"} {
		if seen[pattern] < 10 || len(shards[pattern]) != 3 {
			t.Errorf("%s: only %d documents on %d shards were seen", pattern, seen[pattern], len(shards[pattern]))
		}
	}
	t.Logf("documents by rule: %v", seen)
}

// keyOf is what a primary key is hashed by.
func keyOf(v *summapb.FieldValue) []byte {
	switch v := v.GetValue().(type) {
	case *summapb.FieldValue_Text:
		return []byte(v.Text)
	case *summapb.FieldValue_BytesValue:
		return v.BytesValue
	case *summapb.FieldValue_JsonValue:
		return []byte(v.JsonValue)
	case *summapb.FieldValue_U64:
		return strconv.AppendUint(nil, v.U64, 10)
	case *summapb.FieldValue_I64:
		return strconv.AppendInt(nil, v.I64, 10)
	case *summapb.FieldValue_F64:
		return strconv.AppendFloat(nil, v.F64, 'f', -1, 64)
	}
	return nil
}

func FuzzParseRule(f *testing.F) {
	for _, s := range []string{"documents*=0", "parts*=0:5,1:5,2:4", "a=b=c", "a=0:1", "=,:", "p=0:4294967295,1"} {
		f.Add(s, "documents1")
	}
	f.Fuzz(func(t *testing.T, text, name string) {
		r, err := ParseRule(text)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "invalid --placement '"+text+"': ") {
				t.Fatalf("the refusal is %q", err)
			}
			return
		}
		if r.Pattern == "" || len(r.Parts) == 0 || strings.ContainsRune(r.Pattern, '=') {
			t.Fatalf("%q gives %+v", text, r)
		}
		var again strings.Builder // what was parsed, written out, is the same rule
		again.WriteString(r.Pattern + "=")
		for i, p := range r.Parts {
			if p.Shard == "" || strings.ContainsAny(p.Shard, ",:=") || p.Weight == 0 {
				t.Fatalf("%q gives the part %+v", text, p)
			}
			if i > 0 {
				again.WriteString(",")
			}
			again.WriteString(p.Shard)
			if len(r.Parts) > 1 {
				again.WriteString(":" + big.NewInt(int64(p.Weight)).String())
			}
		}
		if twin, err := ParseRule(again.String()); err != nil || twin.String() != r.String() {
			t.Fatalf("%q is %v, but %q is %v (%v)", text, r, again.String(), twin, err)
		}
		if at := r.Partition([]byte(name)); at < 0 || at >= len(r.Parts) {
			t.Fatalf("%q puts %q into part %d", text, name, at)
		}
		if matches(r.Pattern, name) && !matches(r.Pattern+"*", name+text) {
			t.Fatalf("%q matches %q, but not with more at the end of both", r.Pattern, name)
		}
	})
}

func placement(t testing.TB, otherwise string, rules ...string) *Placement {
	t.Helper()
	p, err := NewPlacement(rules, otherwise)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func goldenPlacement(t testing.TB) *Placement {
	return placement(t, "", "parts*=0,1,2", "wparts*=0:5,1:5,2:4", "w2parts*=0:10,1:10,2:8", "hole*=0,1,2", "nokey*=0,1,2",
		"pinned=1", "lost=9", "lostparts=0,9", "nomaster=3", "follow=4", "twom=5", "repl=6", "repparts=0,6", "glob*x*y=2", "first*=0", "first_b*=1")
}
