package subword

import (
	"container/heap"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// pairs is the model BPE (byte pair encoding): a word is cut into characters, and of those that stand side by side the two that were merged first
// in training become one, again and again.
type pairs struct {
	vocab   map[string]uint32
	merges  map[[2]uint32]merged
	unknown int64 // −1: none
	fuse    bool  // unknown characters that stand side by side are one
	bytes   bool  // an unknown character is its bytes
	whole   bool  // a word that is a token is that
}

// merged is what two tokens become.
type merged struct{ rank, id uint32 }

func (t *Tokenizer) readBPE(m *fileModel) (*pairs, error) {
	switch {
	case m.Dropout != nil && *m.Dropout != 0:
		return nil, refuse("its model leaves out merges by chance, which is not known")
	case m.Prefix != nil && *m.Prefix != "" || m.Suffix != nil && *m.Suffix != "":
		return nil, refuse("its model marks words by a prefix or suffix, which is not known of BPE")
	}
	out := &pairs{vocab: t.vocab, merges: map[[2]uint32]merged{}, unknown: -1, fuse: m.FuseUnknown, bytes: m.ByteFallback, whole: m.IgnoreMerges}
	if m.Unknown != nil {
		id, ok := t.vocab[*m.Unknown]
		if !ok {
			return nil, refuse("its unknown token %q is not in its vocabulary", *m.Unknown)
		}
		out.unknown = int64(id)
	}
	var list []jsontext.Value
	if err := json.Unmarshal(m.Merges, &list); err != nil {
		return nil, refuse("/model/merges is not what it should be")
	}
	if len(list) > maxMerges {
		return nil, refuse("it has %d merges; at most %d are taken", len(list), maxMerges)
	}
	for rank, v := range list {
		var two []string
		if v.Kind() == '"' {
			var one string
			if err := json.Unmarshal(v, &one); err != nil {
				return nil, broken(err)
			}
			two = strings.Split(one, " ")
		} else if err := json.Unmarshal(v, &two); err != nil {
			return nil, refuse("/model/merges/%d is not what it should be", rank)
		}
		if len(two) != 2 {
			return nil, refuse("merge %d is not one of two tokens", rank)
		}
		a, okA := t.vocab[two[0]]
		b, okB := t.vocab[two[1]]
		id, ok := t.vocab[two[0]+two[1]]
		if !okA || !okB || !ok {
			return nil, refuse("merge %d is of tokens that are not in its vocabulary", rank)
		}
		out.merges[[2]uint32{a, b}] = merged{uint32(rank), id}
	}
	return out, nil
}

// symbol is a token of a word under way, in a list.
type symbol struct {
	id         uint32
	prev, next int  // −1: none
	gone       bool // it has become part of the one before
}

// pending are merges that may be done: the earliest in training first, of equals the leftmost.
type pending []pendingMerge

type pendingMerge struct {
	merged
	at    int
	pair  [2]uint32 // of which it was when it was found
	after int       // the place of the second
}

func (p pending) Len() int { return len(p) }
func (p pending) Less(i, j int) bool {
	return p[i].rank < p[j].rank || p[i].rank == p[j].rank && p[i].at < p[j].at
}
func (p pending) Swap(i, j int) { p[i], p[j] = p[j], p[i] }
func (p *pending) Push(x any)   { *p = append(*p, x.(pendingMerge)) }
func (p *pending) Pop() any {
	old := *p
	x := old[len(old)-1]
	*p = old[:len(old)-1]
	return x
}

// word implements model.
func (m *pairs) word(w string, dst []uint32) []uint32 {
	if m.whole {
		if id, ok := m.vocab[w]; ok {
			return append(dst, id)
		}
	}
	list := m.symbols(w)
	for i := range list {
		list[i].prev, list[i].next = i-1, i+1
	}
	if len(list) > 0 {
		list[len(list)-1].next = -1
	}
	var todo pending
	look := func(at int) {
		if at < 0 || list[at].next < 0 {
			return
		}
		pair := [2]uint32{list[at].id, list[list[at].next].id}
		if one, ok := m.merges[pair]; ok {
			todo = append(todo, pendingMerge{one, at, pair, list[at].next})
		}
	}
	for i := range list {
		look(i)
	}
	heap.Init(&todo)
	for len(todo) > 0 {
		one := heap.Pop(&todo).(pendingMerge)
		a := &list[one.at]
		if a.gone || a.next != one.after || list[one.after].id != one.pair[1] || a.id != one.pair[0] {
			continue // it is another pair now
		}
		b := &list[a.next]
		b.gone = true
		a.id, a.next = one.id, b.next
		if a.next >= 0 {
			list[a.next].prev = one.at
		}
		for _, at := range [2]int{a.prev, one.at} {
			n := len(todo)
			if look(at); len(todo) > n {
				heap.Fix(&todo, n)
			}
		}
	}
	for i := range list {
		if !list[i].gone {
			dst = append(dst, list[i].id)
		}
	}
	return dst
}

// symbols are the characters of a word.
func (m *pairs) symbols(w string) (out []symbol) {
	unknown := false // the last one is
	for i := 0; i < len(w); {
		_, n := utf8.DecodeRuneInString(w[i:])
		c := w[i : i+n]
		i += n
		if id, ok := m.vocab[c]; ok {
			out, unknown = append(out, symbol{id: id}), false
			continue
		}
		if ids, ok := byteTokens(m.vocab, c, m.bytes); ok {
			for _, id := range ids {
				out = append(out, symbol{id: id})
			}
			unknown = false
			continue
		}
		if m.unknown >= 0 && !(m.fuse && unknown) {
			out = append(out, symbol{id: uint32(m.unknown)})
		}
		unknown = m.unknown >= 0
	}
	return out
}

// byteTokens are the tokens of the bytes of a text, as <0xE2>; false where one is missing, or they are not wanted.
func byteTokens(vocab map[string]uint32, s string, wanted bool) (ids []uint32, ok bool) {
	if !wanted {
		return nil, false
	}
	for _, b := range []byte(s) {
		id, ok := vocab[fmt.Sprintf("<0x%02X>", b)]
		if !ok {
			return nil, false
		}
		ids = append(ids, id)
	}
	return ids, true
}
