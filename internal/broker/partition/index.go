package partition

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Index is one partitioned index, as one view of the topology has it. It is not changed while a call uses it.
type Index struct {
	Name   string
	Shards []string // in the order of the placement rule, which is the order of the partitions
	// Missing are the partitions, ascending, that no node can be asked about: nobody has a copy that can be read, or, for writes, no master.
	Missing []int
	// Locate tells which partition the document with a key belongs to (section Placement and partitions). Writes of documents need it.
	Locate func(key []byte) int
	// Blame is told whose reply a call was refused for: that of a node which does not honour what it was asked, or does not account for it.
	// The text of such a refusal names no node. Nil: nobody is told.
	Blame func(part int, err error)
}

// blame tells of a refusal whose reply it was.
func (ix *Index) blame(part int, err error) error {
	if ix.Blame != nil {
		ix.Blame(part, err)
	}
	return err
}

// Whole refuses with UNAVAILABLE where a partition cannot be asked (section Routing): what every write and every strict read begins with.
func (ix *Index) Whole() error {
	if len(ix.Missing) == 0 {
		return nil
	}
	return status.Errorf(codes.Unavailable, "index '%s' is partitioned over %d shards but partition(s) [%s] carry no healthy copy",
		ix.Name, len(ix.Shards), ix.names(ix.Missing))
}

// names lists shards.
func (ix *Index) names(parts []int) string {
	out := make([]string, len(parts))
	for i, p := range parts {
		out[i] = ix.Shards[p]
	}
	return strings.Join(out, ", ")
}

// present are the partitions that can be asked.
func (ix *Index) present() []int {
	out := make([]int, 0, len(ix.Shards))
	m := ix.Missing
	for p := range ix.Shards {
		if len(m) > 0 && m[0] == p {
			m = m[1:]
			continue
		}
		out = append(out, p)
	}
	return out
}

// Fault tells that a partition failed (section Routing). Code and details are kept.
func (ix *Index) Fault(part int, err error) error {
	st := statusOf(err).Proto()
	st.Message = fmt.Sprintf("index '%s' partition on shard '%s': %s", ix.Name, ix.Shards[part], st.Message)
	return status.ErrorProto(st)
}

// statusOf is the status of an error; the end of a context has its own codes. The caller may change it.
func statusOf(err error) *status.Status {
	if st, ok := status.FromError(err); ok {
		return st
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return status.FromContextError(err)
	}
	return status.New(codes.Unknown, err.Error())
}
