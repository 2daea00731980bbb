package partition

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// What a broker reads of a query at most. Nodes take much less: 32 levels, 512 clauses, and say so.
const (
	maxNesting = 100
	maxLeaves  = 65_536
)

// Numbers of fields of the messages that are read here (summa-wire.md, Messages of package summa).
const (
	queryTerm    = 1
	queryBoolean = 2
	queryBoost   = 3
	queryMatch   = 7
	queryFusion  = 11
	queryPhrase  = 12
	lastQuery    = 12

	booleanShould = 2

	fusionQueries = 1
	fusionMethod  = 2
	fusionFilters = 6

	fusionCandidates = 2 // the method FUSION_CANDIDATES
)

// member is the member that a Query has, and what it holds. Odd encoders may write more than one: the last one counts, several of one kind
// are one message, and plain is false.
func member(query []byte) (num protowire.Number, val []byte, plain bool, err error) {
	plain = true
	var vals joined
	for len(query) > 0 {
		f, rest, err := next(query)
		if err != nil {
			return 0, nil, false, err
		}
		query = rest
		if f.typ != protowire.BytesType || f.num > lastQuery {
			continue
		}
		plain = num == 0
		if f.num != num {
			num, vals = f.num, joined{}
		}
		vals.add(f.val)
	}
	return num, vals.val, plain, nil
}

// leaves collects the leaves of a query that BM25 scores (section Reads of partitioned indexes).
type leaves struct {
	found [][]byte // each an encoded Query
}

// query takes the leaves of an encoded Query: terms, matches and phrases, in Booleans (must, then should, then must_not), boosts and
// fusions (filters, then branches).
func (l *leaves) query(q []byte, depth int) error {
	if depth > maxNesting {
		return status.Error(codes.Internal, "failed to decode Protobuf message: recursion limit reached")
	}
	num, val, plain, err := member(q)
	if err != nil {
		return err
	}
	switch num {
	case queryTerm, queryMatch, queryPhrase:
		if !plain {
			q = appendBytes(nil, num, val)
		}
		if len(l.found) == maxLeaves {
			return status.Errorf(codes.InvalidArgument, "query has more than %d terms, matches and phrases", maxLeaves)
		}
		l.found = append(l.found, q)
	case queryBoost:
		return l.inside(val, depth)
	case queryBoolean:
		for list := protowire.Number(1); list <= 3; list++ {
			if err := each(val, list, func(q []byte) error { return l.query(q, depth+1) }); err != nil {
				return err
			}
		}
	case queryFusion:
		if err := each(val, fusionFilters, func(q []byte) error { return l.query(q, depth+1) }); err != nil {
			return err
		}
		return each(val, fusionQueries, func(branch []byte) error { return l.inside(branch, depth) })
	}
	return nil
}

// inside takes the leaves of the query in field 1 of a boost or branch.
func (l *leaves) inside(b []byte, depth int) error {
	var q joined
	err := each(b, 1, func(v []byte) error {
		q.add(v)
		return nil
	})
	if err != nil {
		return err
	}
	return l.query(q.val, depth+1)
}

// each visits the messages in one field of a message.
func each(b []byte, num protowire.Number, visit func([]byte) error) error {
	for len(b) > 0 {
		f, rest, err := next(b)
		if err != nil {
			return err
		}
		if b = rest; f.is(num, protowire.BytesType) {
			if err := visit(f.val); err != nil {
				return err
			}
		}
	}
	return nil
}

// statsRequest is the encoded GetTextStatsRequest for the leaves: one as it is, several as SHOULD of one Boolean.
func (l *leaves) statsRequest(index string) []byte {
	q := l.found[0]
	if len(l.found) > 1 {
		size := 0
		for _, leaf := range l.found {
			size += 1 + protowire.SizeBytes(len(leaf))
		}
		should := make([]byte, 0, size)
		for _, leaf := range l.found {
			should = appendBytes(should, booleanShould, leaf)
		}
		q = appendBytes(nil, queryBoolean, should)
	}
	return appendBytes(appendBytes(nil, 1, []byte(index)), 2, q)
}
