package framed

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/zeebo/xxh3"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/schema/jsondoc"
)

const (
	// bulkBytes is how many bytes of lines a frame has, unless one line alone is longer; never more than an eighth of a frame, so that
	// they fit however much of them is escaped.
	bulkBytes = 4 << 20
	// maxBulkErrors is how many refused documents a reply lists.
	maxBulkErrors = 10_000
	// bulkIDs is how many ids are remembered to count those that come again in a later frame, in some 40 bytes each.
	bulkIDs = 1 << 20
	// bodyRoom is what a frame needs besides a body.
	bodyRoom = 1 << 10
)

// Bulk implements leaf.Leaf. The stream goes in frames that end with a line, one after the other; each is applied when the next is
// sent. The replies are added up to the one that a single load would give.
//
// Each frame of a load with a key has a key of its own: one that broke off and is sent again goes on where it did, and it is repeated
// if every frame is.
//
// Ids that come again in a later frame are counted here. They are not where the name of the primary field cannot be found out, where
// a frame has more refused documents than are listed, and beyond a million ids: duplicates is a lower bound then, and Approximate
// says so.
func (c *Client) Bulk(ctx context.Context, req *leaf.BulkRequest, body io.Reader) (*leaf.BulkReply, error) {
	if len(req.Key) > leaf.MaxBulkKey {
		return nil, longKey(len(req.Key))
	}
	b := &bulk{client: c, req: req, start: time.Now(), most: min(bulkBytes, c.most/8), in: bufio.NewReaderSize(body, 64<<10)}
	return b.run(ctx)
}

// bulk is one load under way.
type bulk struct {
	client *Client
	req    *leaf.BulkRequest
	start  time.Time
	in     *bufio.Reader
	most   int // bytes of a frame

	number int       // of the line that was read last, from 1
	frame  bulkFrame // that is being filled
	frames int       // sent

	reply   leaf.BulkReply
	applied bool
	stopped *api.Problem // why nothing more is sent
	broken  *api.Problem // why the stream could not be read to its end

	anew bool // a frame was taken that had not been before

	primary string            // the primary field; empty if it is not known
	seen    map[uint64]uint32 // hashes of ids that are in, with the frame that had them last
	forgot  bool              // some ids are not in seen
}

// bulkFrame is a part of the stream.
type bulkFrame struct {
	raw     []byte // lines with their ends
	base    int    // the number of a line less that within raw
	docs    []bulkLine
	refused []api.DocFailure // lines that are not sent
}

// bulkLine is a line of a frame that is not blank.
type bulkLine struct{ number, from, to int }

func (b *bulk) run(ctx context.Context) (*leaf.BulkReply, error) {
	for ctx.Err() == nil {
		line, err := b.line()
		end := errors.Is(err, io.EOF)
		if err != nil && !end && !errors.Is(err, errLongLine) {
			b.broken = bodyProblem(err)
			b.broken.Line = b.number + 1
			break
		}
		if len(line) > 0 || errors.Is(err, errLongLine) {
			if fail := b.add(ctx, line, err); fail != nil {
				return nil, fail
			}
		}
		if end {
			break
		}
	}
	if ctx.Err() != nil {
		return nil, b.ended(context.Cause(ctx))
	}
	if err := b.send(ctx, true); err != nil {
		return nil, err
	}
	return b.answer()
}

// errLongLine is a line that no frame can hold. It was read to its end.
var errLongLine = errors.New("the line is too long")

// line reads a line with its end. It is valid until the next call.
func (b *bulk) line() ([]byte, error) {
	part, err := b.in.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return part, err
	}
	line := bytes.Clone(part)
	for long := false; ; {
		part, err = b.in.ReadSlice('\n')
		if long = long || len(line)+len(part) > b.client.most; long {
			line = nil
		} else {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case long && (err == nil || errors.Is(err, io.EOF)):
			return nil, errLongLine
		default:
			return line, err
		}
	}
}

// add adds a line to the frame, which it sends when it is full.
func (b *bulk) add(ctx context.Context, line []byte, err error) error {
	b.number++
	if f := &b.frame; len(f.raw) > 0 && len(f.raw)+len(line) > b.most {
		if err := b.send(ctx, false); err != nil {
			return err
		}
	}
	f := &b.frame
	if len(f.raw) == 0 {
		f.base = b.number - 1
		if b.number > 1 && bytes.HasPrefix(line, byteOrderMark) { // which the node would take for that of a stream
			f.raw = append(f.raw, '\n')
			f.base--
		}
	}
	text := bytes.TrimSpace(line)
	if b.number == 1 {
		text = bytes.TrimSpace(bytes.TrimPrefix(text, byteOrderMark))
	}
	refuse := func(code api.Code, reason string) {
		f.refused = append(f.refused, api.DocFailure{Line: b.number, Code: string(code), Reason: reason})
		f.raw = append(f.raw, '\n')
	}
	limit := b.client.most - bodyRoom
	switch {
	case errors.Is(err, errLongLine), len(line) > b.most && quotedLen(line) > limit:
		refuse(api.DocumentTooLarge, fmt.Sprintf("the line does not fit into a frame of %d bytes", b.client.most))
	case len(text) == 0:
		f.raw = append(f.raw, '\n')
	case !utf8.Valid(line):
		refuse(api.InvalidUTF8, "the document is not valid UTF-8")
	default:
		f.docs = append(f.docs, bulkLine{b.number, len(f.raw), len(f.raw) + len(line)})
		f.raw = append(f.raw, line...)
	}
	return nil
}

var byteOrderMark = []byte("\xEF\xBB\xBF")

// quotedLen is the length of a text as a JSON string.
func quotedLen(text []byte) int {
	b, err := jsontext.AppendQuote(nil, text)
	if err != nil {
		return 0 // it is not UTF-8, which is told as that
	}
	return len(b)
}

// send sends the frame and adds its reply up. last says that no other follows.
func (b *bulk) send(ctx context.Context, last bool) error {
	f := &b.frame
	defer func() {
		f.raw, f.docs, f.refused = f.raw[:0], f.docs[:0], f.refused[:0]
		if cap(f.raw) > 2*b.most {
			f.raw = nil
		}
	}()
	if b.stopped == nil && (len(f.docs) > 0 || last && b.frames == 0) {
		a := asking{call: "Bulk", op: opBulk, index: b.req.Index, write: true}
		part := &leaf.BulkRequest{Index: b.req.Index, View: b.req.View, Key: b.frameKey(last), Existing: b.req.Existing}
		r, err := ask(b.client, ctx, a, func(w *writer) { appendBulkRequest(w, part, f.raw) },
			func(reply []byte) (*leaf.BulkReply, *api.Problem, error) { return readBulkReply(reply, maxBulkErrors) })
		if err == nil {
			b.frames++
			b.addReply(ctx, r, last)
			return nil
		}
		prob, refused := errors.AsType[*api.Problem](err)
		switch {
		case !refused:
			return b.ended(err)
		case !b.applied:
			return err
		}
		b.stopped = prob
	}
	list := slices.Clone(f.refused)
	for _, l := range f.docs { // none of them, if the frame was not to be sent
		list = append(list, api.DocFailure{Line: l.number, Code: string(b.stopped.Code), Reason: b.stopped.Detail})
	}
	b.reply.Failed += uint64(len(list))
	b.list(list)
	return nil
}

// frameKey is the key of the frame that is sent next: that of the load where it is the only one, so that other ways to the node know
// the load by it, and else one that is made of the key and the place of the frame. The same stream has the same frames.
func (b *bulk) frameKey(last bool) string {
	if b.req.Key == "" || last && b.frames == 0 {
		return b.req.Key
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d", b.req.Key, b.frames))
	return hex.EncodeToString(sum[:])
}

// ended is the error of a load that breaks off.
func (b *bulk) ended(err error) error {
	if !b.applied {
		return err
	}
	return b.client.inPart("Bulk", err)
}

// list lists refused documents of one frame in the order of their lines.
func (b *bulk) list(failures []api.DocFailure) {
	slices.SortStableFunc(failures, func(a, b api.DocFailure) int { return cmp.Compare(a.Line, b.Line) })
	n := min(len(failures), maxBulkErrors-len(b.reply.Errors))
	b.reply.Errors = append(b.reply.Errors, failures[:n]...)
	b.reply.ErrorsOmitted += uint64(len(failures) - n)
}

// addReply adds up the reply to the frame.
func (b *bulk) addReply(ctx context.Context, r *leaf.BulkReply, last bool) {
	f, sum := &b.frame, &b.reply
	b.applied = b.applied || r.Indexed > 0
	b.anew = b.anew || !r.Repeated
	addMeta(&sum.Meta, &r.Meta)
	sum.Indexed += r.Indexed
	sum.Duplicates += r.Duplicates
	sum.DuplicatesAtLeast = sum.DuplicatesAtLeast || r.DuplicatesAtLeast
	sum.Failed += r.Failed + uint64(len(f.refused))
	sum.ErrorsOmitted += r.ErrorsOmitted
	if r.Shards > 0 {
		sum.Shards, sum.Members = r.Shards, r.Members
	}
	for _, i := range r.Inferred {
		if !slices.ContainsFunc(sum.Inferred, func(have api.InferredField) bool { return have.Name == i.Name }) {
			sum.Inferred = append(sum.Inferred, i)
		}
	}
	failures := slices.Concat(r.Errors, f.refused)
	for i := range r.Errors {
		failures[i].Line += f.base
	}
	b.remember(ctx, r, failures[:len(r.Errors)], last)
	if n := len(r.Errors); n > 0 && stops(api.Code(r.Errors[n-1].Code)) {
		// The node stopped in the frame: nothing that comes after it may go in.
		b.stopped = &api.Problem{Code: api.Code(r.Errors[n-1].Code), Detail: r.Errors[n-1].Reason}
	}
	b.list(failures)
}

// stops tells whether a document was refused for a reason that is not its own, from where on a load applies nothing.
func stops(code api.Code) bool {
	status := api.Codes[code].Status
	return code == api.IndexDeleted || status == http.StatusTooManyRequests || status >= http.StatusInternalServerError
}

// remember counts the ids of the frame that were in an earlier one and remembers those that went in.
func (b *bulk) remember(ctx context.Context, r *leaf.BulkReply, failures []api.DocFailure, last bool) {
	f := &b.frame
	if b.frames == 1 {
		if last {
			return // the node has counted
		}
		b.primary = b.primaryField(ctx)
		b.seen = map[uint64]uint32{}
	}
	if b.primary == "" || r.ErrorsOmitted > 0 {
		b.forgot = b.forgot || r.Indexed > 0
		return
	}
	failed := make(map[int]bool, len(failures))
	for i := range failures {
		failed[failures[i].Line] = true
	}
	for _, l := range f.docs {
		if failed[l.number] {
			continue
		}
		line := f.raw[l.from:l.to]
		if l.number == 1 {
			line = bytes.TrimPrefix(line, byteOrderMark)
		}
		id := jsondoc.ID(line, b.primary)
		h := xxh3.HashString(id)
		in, again := b.seen[h]
		switch {
		case id == "" || !again && len(b.seen) >= bulkIDs:
			b.forgot = true
			continue
		case again && in != uint32(b.frames):
			b.reply.Duplicates++
		}
		b.seen[h] = uint32(b.frames)
	}
}

// primaryField is the name of the field that the ids stand in, empty if it cannot be found out.
func (b *bulk) primaryField(ctx context.Context) string {
	info, err := b.client.Info(ctx, &leaf.InfoRequest{Index: b.req.Index})
	if err != nil {
		return ""
	}
	sch, err := schema.ParseSDL(info.Index.Schema, anyTokenizer)
	if err != nil {
		return ""
	}
	if f := sch.PrimaryField(); f >= 0 {
		return sch.Fields[f].Name
	}
	return ""
}

// answer is the reply to the whole.
func (b *bulk) answer() (*leaf.BulkReply, error) {
	r := &b.reply
	if b.broken != nil {
		if !b.applied {
			return nil, b.broken
		}
		r.Errors = append(r.Errors, api.DocFailure{Line: b.broken.Line, Code: string(b.broken.Code), Reason: b.broken.Detail})
	}
	if b.forgot {
		r.DuplicatesAtLeast = true
		r.Approximate = addString(r.Approximate, leaf.ApproximateRepeats)
	}
	r.OK = r.Failed == 0 && b.broken == nil
	r.Repeated = b.frames > 0 && !b.anew
	r.TookMicros = api.Micros(time.Since(b.start))
	return r, nil
}

// bodyProblem is the problem of a stream that broke off.
func bodyProblem(err error) *api.Problem {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return &api.Problem{Code: api.InvalidBody, Detail: "the body ended before the length that was announced", Cause: err}
	}
	return &api.Problem{Code: api.InvalidBody, Detail: "the body could not be read to its end", Cause: err}
}
