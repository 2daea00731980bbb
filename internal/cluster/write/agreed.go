package write

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/store"
	"github.com/weft-search/weft/internal/text"
)

// Two coordinators that reach different members would let each of these decide what type a new field has. Coordinators with a store agree
// there first. Of each index there is one object, which is changed by compare and swap:
//
//	topology/fields/{index}.json
//	{"format":1,"rev":3,"schema":"index logs { … }"}
//
// where schema is what the index was made with, in SDL, with all fields that were added since the object is there, and rev counts its changes. An empty schema
// is as no object. No member is given a field, or an index that no member has, before the object has it. So
//
//   - who finds a new field there in another way types its documents by that, and gives it to the members that it reaches;
//   - what the object has and no member does (a coordinator has died between the two) is given to the members with the next new field, and stands in the
//     way of nothing before;
//   - fields that members have and the object has not, because they are older than it, are written into it with the next new field. Of a field that they have
//     in another way than the object the members are right: what is stored cannot be changed.
//
// The object is read when a field is new to the members that can be reached, or an index is, and at no other write. It is deleted before the index is, so that
// an index of the same name begins anew; a field that is added at the same moment may write it again, and comes to the index that is made then.

const (
	agreedFormat = 1
	// maxAgreed is also up to where a store that is a folder gives an object a tag. A schema beyond is agreed on by the members alone.
	maxAgreed      = 1 << 20 // bytes
	agreedAttempts = 16      // of a swap
	agreedPause    = 20 * time.Millisecond
	agreedTime     = 5 * time.Second // for one call of the store
	// agreedRest is how long a store that has failed is not asked again: whoever adds a field has the turn of its index while it waits.
	agreedRest = time.Second
)

var (
	errAgreedFormat = errors.New("it was written by a newer version")
	errAgreedBusy   = errors.New("others keep changing it")
)

// ofOneObject are errors that say nothing of the store as a whole.
var ofOneObject = []error{store.ErrPrecondition, store.ErrNotFound, store.ErrUncertain, store.ErrCorrupt}

// agreedRecord is the content of the object.
type agreedRecord struct {
	Format int    `json:"format"`
	Rev    uint64 `json:"rev"`
	Schema string `json:"schema"`
}

func agreedKey(index string) string { return "topology/fields/" + store.EscapeName(index) + ".json" }

func decodeAgreed(raw []byte) (*agreedRecord, error) {
	r := &agreedRecord{}
	if err := json.Unmarshal(raw, r); err != nil {
		return nil, err
	}
	if r.Format > agreedFormat {
		return nil, fmt.Errorf("%w: format %d, this one reads up to %d", errAgreedFormat, r.Format, agreedFormat)
	}
	return r, nil
}

func (r *agreedRecord) encode() ([]byte, error) { return json.Marshal(r, json.Deterministic(true)) }

// agreed is what coordinators have agreed on of one index, as it was read.
type agreed struct {
	record agreedRecord
	schema *schema.Schema // nil: nothing yet
	tag    string         // empty: there is no object
}

// book keeps what coordinators agree on. It is safe for concurrent use.
type book struct {
	s store.Store

	mu     sync.Mutex
	failed time.Time // when the store failed last
	cause  error
}

// call calls the store, unless it has failed a moment ago.
func (b *book) call(ctx context.Context, fn func(ctx context.Context) error) error {
	b.mu.Lock()
	cause := b.cause
	if time.Since(b.failed) >= agreedRest {
		cause = nil
	}
	b.mu.Unlock()
	if cause != nil {
		return cause
	}
	cctx, cancel := within(ctx, agreedTime)
	defer cancel()
	began := time.Now()
	err := fn(cctx)
	hurried := errors.Is(err, context.DeadlineExceeded) && time.Since(began) < agreedTime // by its caller
	if err != nil && ctx.Err() == nil && !hurried && !slices.ContainsFunc(ofOneObject, func(e error) bool { return errors.Is(err, e) }) {
		b.mu.Lock()
		b.failed, b.cause = time.Now(), err
		b.mu.Unlock()
	}
	return err
}

// read returns what is agreed on of an index.
func (b *book) read(ctx context.Context, index string) (*agreed, error) {
	a := &agreed{record: agreedRecord{Format: agreedFormat}}
	var raw []byte
	err := b.call(ctx, func(ctx context.Context) error {
		var in store.Info
		var err error
		raw, in, err = store.ReadAll(ctx, b.s, agreedKey(index), maxAgreed)
		a.tag = in.ETag
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		a.tag = ""
		return a, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", agreedKey(index), err)
	}
	r, err := decodeAgreed(raw)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", agreedKey(index), err)
	}
	a.record = *r
	if r.Schema != "" {
		sch, prob := api.ReadSchema(index, false, []byte(r.Schema), text.Check)
		if prob != nil {
			return nil, fmt.Errorf("read %s: %w", agreedKey(index), prob)
		}
		a.schema = sch
	}
	return a, nil
}

// swap puts a schema in the place of what was read; a store.ErrPrecondition says that somebody else was first. fits tells whether it is
// short enough to be kept; else nothing was done.
func (b *book) swap(ctx context.Context, index string, a *agreed, sch *schema.Schema) (next *agreed, fits bool, err error) {
	n := &agreed{record: agreedRecord{Format: agreedFormat, Rev: a.record.Rev + 1}, schema: sch}
	if sch != nil {
		n.record.Schema = sch.SDL()
	}
	raw, err := n.record.encode()
	if err != nil {
		return nil, false, fmt.Errorf("write %s: %w", agreedKey(index), err)
	}
	if len(raw) > maxAgreed {
		return nil, false, nil
	}
	cond := store.Absent
	if a.tag != "" {
		cond = store.Condition{IfMatch: a.tag}
	}
	err = b.call(ctx, func(ctx context.Context) (err error) {
		n.tag, err = b.s.Put(ctx, agreedKey(index), bytes.NewReader(raw), int64(len(raw)), cond)
		return err
	})
	if err != nil {
		return nil, true, fmt.Errorf("write %s: %w", agreedKey(index), err)
	}
	return n, true, nil
}

// forget deletes what is agreed on of an index.
func (b *book) forget(ctx context.Context, index string) error {
	return b.call(ctx, func(ctx context.Context) error { return b.s.Delete(ctx, agreedKey(index)) })
}

// accord is what coordinators agree on.
type accord struct {
	schema *schema.Schema // of which members are to have all fields
	// ok tells whether it has all that was wanted. Else it is to be given to members as it is, and documents have to be typed against it.
	ok bool
	// first tells whether no member has the index.
	first bool
	// before and after are the object around what this call has written into it; nil if nothing.
	before, after *agreed
}

// settle agrees with other coordinators on what an index is to become: want, which is whole with more fields, or what the index is made with
// where no member has it. It needs the turn.
func (ix *index) settle(ctx context.Context, whole *typing, want *schema.Schema) (*accord, error) {
	b := ix.w.book
	if b == nil {
		return &accord{schema: want, ok: true}, nil
	}
	var err error
	for try := range agreedAttempts {
		if try > 0 {
			if err := pause(ctx, rand.N(agreedPause*time.Duration(try))); err != nil {
				return nil, err
			}
		}
		var have *agreed
		if have, err = b.read(ctx, ix.name); err != nil {
			break
		}
		s, next, prob := together(whole, want, have.schema)
		if prob != nil {
			return nil, prob
		}
		if next == have.schema {
			return s, nil
		}
		after, fits, failed := b.swap(ctx, ix.name, have, next)
		switch {
		case failed == nil && !fits:
			ix.w.log.Warn("the schema of an index is too long for coordinators to agree on it; the members decide", "index", ix.name, "limit", maxAgreed)
			return s, nil
		case failed == nil:
			s.before, s.after = have, after
			return s, nil
		case !errors.Is(failed, store.ErrPrecondition) && !errors.Is(failed, store.ErrUncertain):
			return nil, ix.undecided(ctx, "new fields cannot be agreed on with other coordinators", failed)
		}
		err = errAgreedBusy
	}
	return nil, ix.undecided(ctx, "new fields cannot be agreed on with other coordinators", err)
}

// together is what want becomes beside what is agreed on, and what is to be agreed on then: have itself if nothing changes.
func together(whole *typing, want, have *schema.Schema) (s *accord, next *schema.Schema, prob *api.Problem) {
	switch {
	case have == nil:
		return &accord{schema: want, ok: true}, want, nil
	case whole.absent:
		return &accord{schema: have}, have, nil
	}
	sum := overlay(whole.schema, have)
	s = &accord{schema: sum, ok: true}
	with, err := sum.AddFields(want.Fields)
	if _, other := errors.AsType[*schema.ConflictError](err); other && sum != whole.schema {
		s.ok = false
	} else if err != nil {
		if p := api.SchemaProblem(err); p != nil {
			return nil, nil, p
		}
		return nil, nil, &api.Problem{Code: api.Internal, Detail: "the fields of the index cannot be extended", Cause: err}
	} else {
		s.schema = with
	}
	return s, overlay(have, s.schema), nil
}

// overlay adds those fields of another schema that fit: sum itself if there is none.
func overlay(sum, other *schema.Schema) *schema.Schema {
	var add []schema.Field
	for _, f := range other.Fields {
		if _, ok := sum.Lookup(f.Name); !ok {
			add = append(add, f)
		}
	}
	if with, err := sum.AddFields(add); err == nil {
		return with
	}
	for _, f := range add {
		if with, err := sum.AddFields([]schema.Field{f}); err == nil {
			sum = with
		}
	}
	return sum
}

// takeBack undoes what a call has written, after the member that decides has refused it. Whoever has read it meanwhile and changed
// nothing may have given it to other members: these tell of it then.
func (ix *index) takeBack(ctx context.Context, s *accord) {
	if s.after == nil {
		return
	}
	if _, _, err := ix.w.book.swap(ctx, ix.name, s.after, s.before.schema); err != nil && !errors.Is(err, store.ErrPrecondition) {
		ix.w.log.Warn("take back fields that were refused", "index", ix.name, "error", err)
	}
}

// undecided is the refusal of what coordinators cannot agree on now.
func (ix *index) undecided(ctx context.Context, what string, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return &api.Problem{
		Code: api.NotReady, RetryAfterMS: 1000, Cause: err,
		Detail: fmt.Sprintf("index %q: %s: the store in which they do cannot be used; nothing was written, try again", api.Clip(ix.name), what),
	}
}
