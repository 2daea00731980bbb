package partition

import (
	"context"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	summapb "github.com/weft-search/weft/api/summa"
)

// Primaries remembers the primary fields of partitioned indexes, each asked once (section Placement and partitions). It holds as many as
// there are indexes that were written to; Forget has to be called for one that is deleted. The zero value is ready.
type Primaries struct {
	mu      sync.Mutex
	fields  map[string]string
	asking  map[string]*asking
	forgets uint64
}

// asking is a question on its way, for all who want to know.
type asking struct {
	done  chan struct{} // closed when field and err are there
	field string
	err   error
	left  bool // who asked went away before the answer
}

// Known is the primary field of an index if it was asked already, else "".
func (p *Primaries) Known(index string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fields[index]
}

// Forget makes the next write of an index ask again.
func (p *Primaries) Forget(index string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.fields, index)
	delete(p.asking, index)
	p.forgets++
}

// Keep forgets the indexes that keep says no of: whoever deletes one elsewhere does not call Forget.
func (p *Primaries) Keep(keep func(index string) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for index := range p.fields {
		if !keep(index) {
			delete(p.fields, index)
			p.forgets++
		}
	}
}

// Of returns the primary field of an index, which it asks the first partition for the first time. The question carries no deadline, but
// ends with ctx. Who comes while another asks waits for that answer, and asks again if the other one left before it came.
func (p *Primaries) Of(ctx context.Context, ix *Index, c Caller) (string, error) {
	for {
		p.mu.Lock()
		if field, ok := p.fields[ix.Name]; ok {
			p.mu.Unlock()
			return field, nil
		}
		if a := p.asking[ix.Name]; a != nil {
			p.mu.Unlock()
			select {
			case <-a.done:
			case <-ctx.Done():
				return "", status.FromContextError(ctx.Err()).Err()
			}
			if a.left {
				continue
			}
			return a.field, a.err
		}
		a := &asking{done: make(chan struct{})}
		if p.asking == nil {
			p.asking = map[string]*asking{}
		}
		p.asking[ix.Name] = a
		forgets := p.forgets
		p.mu.Unlock()

		a.field, a.err = askPrimary(ctx, ix, c)
		if a.err != nil && ctx.Err() != nil {
			a.left, a.err = true, status.FromContextError(ctx.Err()).Err()
		}
		p.mu.Lock()
		if p.asking[ix.Name] == a {
			delete(p.asking, ix.Name)
		}
		if a.err == nil && forgets == p.forgets { // else it may be of an index that is deleted by now
			if p.fields == nil {
				p.fields = map[string]string{}
			}
			p.fields[ix.Name] = a.field
		}
		p.mu.Unlock()
		close(a.done)
		return a.field, a.err
	}
}

func askPrimary(ctx context.Context, ix *Index, c Caller) (string, error) {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	reply, err := c.Call(own, 0, summapb.SearchService_GetIndexInfo_FullMethodName, appendBytes(nil, 1, []byte(ix.Name)))
	if err != nil {
		return "", ix.Fault(0, err)
	}
	schema := ""
	for len(reply) > 0 {
		f, rest, err := next(reply)
		if err != nil {
			return "", ix.Fault(0, err)
		}
		if reply = rest; f.is(4, protowire.BytesType) {
			schema = string(f.val)
		}
	}
	field := PrimaryField(schema)
	if field == "" {
		return "", status.Errorf(codes.FailedPrecondition, "index '%s' is partitioned but its schema declares no primary key field", ix.Name)
	}
	return field, nil
}

// PrimaryField finds the primary field in the text of a schema as GetIndexInfo gives it (section Placement and partitions): that of the
// first line `field NAME: … […]` whose attributes have `primary`. It is "" where there is none. A quoted name is taken apart.
func PrimaryField(schema string) string {
	for line := range strings.Lines(schema) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "field")
		if !ok || rest == "" || rest[0] != ' ' && rest[0] != '\t' && rest[0] != '"' {
			continue
		}
		name, rest := fieldName(strings.TrimLeft(rest, " \t"))
		rest, ok = strings.CutPrefix(strings.TrimLeft(rest, " \t"), ":")
		if ok && name != "" && hasPrimary(rest) {
			return name
		}
	}
	return ""
}

// fieldName takes the name off the front of a line.
func fieldName(s string) (name, rest string) {
	if !strings.HasPrefix(s, `"`) {
		n := strings.IndexAny(s, ": \t")
		if n < 0 {
			return "", ""
		}
		return s[:n], s[n:]
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			if i++; i < len(s) {
				b.WriteByte(s[i])
			}
		case '"':
			return b.String(), s[i+1:]
		default:
			b.WriteByte(s[i])
		}
	}
	return "", ""
}

// hasPrimary says whether `primary` is one of the attributes, which stand in the first brackets that are in no others. Options of types and
// attributes hold brackets of each kind and quoted texts.
func hasPrimary(s string) bool {
	depth, list, start := 0, false, 0
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '"':
			for i++; i < len(s) && s[i] != '"'; i++ {
				if s[i] == '\\' {
					i++
				}
			}
		case '<', '(', '[', '{':
			if c == '[' && depth == 0 {
				list, start = true, i+1
			}
			depth++
		case '>', ')', ']', '}':
			if depth--; depth == 0 && list && c == ']' {
				return strings.TrimSpace(s[start:i]) == "primary"
			}
		case ',':
			if list && depth == 1 {
				if strings.TrimSpace(s[start:i]) == "primary" {
					return true
				}
				start = i + 1
			}
		case '#':
			if depth == 0 {
				return false
			}
		}
	}
	return false
}
