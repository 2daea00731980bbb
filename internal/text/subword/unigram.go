package subword

import (
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// unigrams is the model Unigram: of all ways to cut a word into tokens, that with the largest sum of their scores.
type unigrams struct {
	vocab   map[string]uint32
	scores  []float64 // by number
	sorted  []string
	unknown int64 // −1: none
	poor    float64
	bytes   bool // an unknown piece is its bytes
}

// unknownPenalty is how much less than the worst token an unknown character scores.
const unknownPenalty = 10

func (t *Tokenizer) readUnigram(m *fileModel) error {
	var list [][2]jsontext.Value
	if err := json.Unmarshal(m.Vocab, &list); err != nil {
		return refuse("/model/vocab is not what it should be")
	}
	if len(list) > maxVocab {
		return refuse("its vocabulary has %d tokens; at most %d are taken", len(list), maxVocab)
	}
	t.vocab = make(map[string]uint32, len(list))
	out := &unigrams{vocab: t.vocab, unknown: -1, poor: math.Inf(1), bytes: m.ByteFallback}
	for i, v := range list {
		var token string
		var score float64
		if err := errors.Join(json.Unmarshal(v[0], &token), json.Unmarshal(v[1], &score)); err != nil {
			return refuse("/model/vocab/%d is not what it should be", i)
		}
		if _, twice := t.vocab[token]; twice {
			return refuse("its vocabulary has %q twice", token)
		}
		t.vocab[token] = uint32(i)
		out.scores = append(out.scores, score)
		out.poor = min(out.poor, score)
	}
	if _, err := t.checkVocab(); err != nil {
		return err
	}
	out.sorted = slices.Sorted(maps.Keys(t.vocab))
	if m.UnknownID != nil {
		if int(*m.UnknownID) >= len(list) {
			return refuse("its unknown token has the number %d, and its vocabulary %d tokens", *m.UnknownID, len(list))
		}
		out.unknown = int64(*m.UnknownID)
		t.special[*m.UnknownID] = true
	}
	out.poor -= unknownPenalty
	t.model = out
	return nil
}

// begins tells whether a token begins with s and is longer.
func (m *unigrams) begins(s string) bool {
	i, found := slices.BinarySearch(m.sorted, s)
	if found {
		i++
	}
	return i < len(m.sorted) && strings.HasPrefix(m.sorted[i], s)
}

// way is the best one to some place of a word.
type way struct {
	score   float64
	from    int // of its last token
	id      int64
	reached bool
}

// word implements model. Unknown characters that stand side by side are one piece.
func (m *unigrams) word(w string, dst []uint32) []uint32 {
	ways := make([]way, len(w)+1)
	better := func(to int, one way) {
		if at := &ways[to]; !at.reached || one.score > at.score {
			*at = one
		}
	}
	for from := 0; from < len(w); {
		_, char := utf8.DecodeRuneInString(w[from:])
		known := false // the character alone
		for to := from + char; ; {
			if id, ok := m.vocab[w[from:to]]; ok {
				better(to, way{ways[from].score + m.scores[id], from, int64(id), true})
				known = known || to == from+char
			}
			if to == len(w) || !m.begins(w[from:to]) {
				break
			}
			_, n := utf8.DecodeRuneInString(w[to:])
			to += n
		}
		if !known {
			better(from+char, way{ways[from].score + m.poor, from, m.unknown, true})
		}
		from += char
	}
	// Back from the end.
	var ids []uint32
	for to := len(w); to > 0; {
		at := ways[to]
		if at.id != m.unknown {
			ids = append(ids, uint32(at.id))
			to = at.from
			continue
		}
		from := at.from
		for from > 0 && ways[from].id == m.unknown {
			from = ways[from].from
		}
		piece, ok := byteTokens(m.vocab, w[from:to], m.bytes)
		switch id, is := m.vocab[w[from:to]]; {
		case is:
			ids = append(ids, id)
		case ok:
			for i := len(piece) - 1; i >= 0; i-- {
				ids = append(ids, piece[i])
			}
		case m.unknown >= 0:
			ids = append(ids, uint32(m.unknown))
		}
		to = from
	}
	for i := len(ids) - 1; i >= 0; i-- {
		dst = append(dst, ids[i])
	}
	return dst
}
