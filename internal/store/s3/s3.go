// Package s3 keeps objects in a bucket of S3, or of a server that speaks its protocol.
//
// # Contract
//
// Store is a store.Store. Conditions are those of S3: If-None-Match and If-Match on one PUT. The client's own upload sends large objects in parts
// and then drops the condition without a word, so every object is sent as one PUT, which takes up to 5 GiB; a larger one is refused.
//
// What the server answers becomes:
//
//	412, and 404 for If-Match     ErrPrecondition
//	409                           sent again; in the end ErrPrecondition where there was a condition: others keep writing
//	404 for a read                ErrNotFound, but not for a bucket that does not exist
//	429, 408, not sent at all     sent again
//	5xx, no answer, standstill    sent again; a write that does not succeed then is ErrUncertain
//	anything else                 an error at once, nothing was written
//
// An attempt that may have taken place makes every later refusal doubtful, for that may be its doing: it is ErrUncertain then, never
// ErrPrecondition. Attempts are counted and wait a little longer each time; there are none after the context has ended.
//
// A write is held until it is sent, in memory up to 1 MiB, else in a temporary file: its SHA-256 goes with it, and the server refuses what
// came to it otherwise. Objects and ranges up to 1 MiB are read as a whole before Get returns, and again if they break off. Of larger ones the
// reader tells of a break.
//
// Credentials are in no error and no log.
//
// # Concurrency
//
// Store is safe for concurrent use. It starts no goroutines that outlive its calls, its open readers, and, until Close, idle connections.
package s3

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/weft-search/weft/internal/store"
)

// Store is a store.Store in a bucket.
type Store struct {
	o      Options
	core   *minio.Core
	tr     *http.Transport
	prefix string // Options.Prefix with a slash, or empty
}

var _ store.Store = (*Store)(nil)

// Open returns a store. It asks nothing of the server; Check does.
func Open(o Options) (*Store, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Second
	}
	if o.Attempts == 0 {
		o.Attempts = 4
	}
	s := &Store{o: o}
	if o.Prefix != "" {
		s.prefix = o.Prefix + "/"
	}
	tr, err := minio.DefaultTransport(!o.Insecure)
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", o.Bucket, err)
	}
	tr.DialContext = (&net.Dialer{Timeout: min(10*time.Second, o.Timeout)}).DialContext
	tr.ResponseHeaderTimeout = 0 // an attempt has its own clock
	endpoint := o.Endpoint
	if endpoint == "" {
		endpoint = "s3.amazonaws.com" // the client makes it that of the region
	}
	core, err := minio.NewCore(endpoint, &minio.Options{
		Creds:      credentials.NewStaticV4(string(o.AccessKey), string(o.SecretKey), string(o.SessionToken)),
		Secure:     !o.Insecure,
		Region:     o.Region,
		Transport:  tr,
		MaxRetries: 1, // only try knows which request may be sent twice
	})
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %s", o.Bucket, s.redact(err.Error()))
	}
	s.core, s.tr = core, tr
	return s, nil
}

// Close closes idle connections. Calls and readers must have ended.
func (s *Store) Close() error {
	s.tr.CloseIdleConnections()
	return nil
}

// probeKey is the object that Check writes. It stays, so that checks at the same time do not disturb each other.
const probeKey = "conditions.probe"

// Check writes to the bucket and makes sure that the server heeds the conditions of writes: one that does not know them takes any write,
// and coordinators would undo each other's changes. It leaves an object of a few bytes behind.
func (s *Store) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	content := []byte("weft")
	put := func(c store.Condition) error {
		_, err := s.Put(ctx, probeKey, bytes.NewReader(content), int64(len(content)), c)
		return err
	}
	if err := put(store.Absent); err != nil && !errors.Is(err, store.ErrPrecondition) {
		return fmt.Errorf("check bucket %s: %w", s.o.Bucket, err)
	}
	for _, c := range []store.Condition{store.Absent, {IfMatch: strings.Repeat("0", 32)}} {
		switch err := put(c); {
		case err == nil:
			return fmt.Errorf("check bucket %s: the server does not heed conditions of writes (If-None-Match, If-Match)", s.o.Bucket)
		case !errors.Is(err, store.ErrPrecondition):
			return fmt.Errorf("check bucket %s: %w", s.o.Bucket, err)
		}
	}
	return nil
}

// ready checks what every call checks first.
func ready(ctx context.Context, what, key string) error {
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("%s %s: %w", what, key, err)
	}
	return store.ValidKey(key)
}

// Put implements store.Store.
func (s *Store) Put(ctx context.Context, key string, r io.Reader, size int64, c store.Condition) (string, error) {
	if err := ready(ctx, "put", key); err != nil {
		return "", err
	}
	if size < 0 || size > maxObject {
		return "", fmt.Errorf("put %s: %w: %d bytes, one request may carry %d", key, store.ErrInvalid, size, int64(maxObject))
	}
	p := newSpool(s.o.TempDir)
	n, err := io.Copy(p, io.LimitReader(ctxReader{ctx, r}, size+1))
	if err == nil && n != size {
		err = fmt.Errorf("%w: %d bytes or more where %d were announced", store.ErrInvalid, n, size)
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("put %s: %w", key, err), p.release())
	}
	return s.send(ctx, key, p, c)
}

// ctxReader ends with the context.
type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (r ctxReader) Read(b []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.r.Read(b)
}

// NewWriter implements store.Store. What is written stays here until Commit.
func (s *Store) NewWriter(ctx context.Context, key string) (store.Writer, error) {
	if err := ready(ctx, "put", key); err != nil {
		return nil, err
	}
	return &writer{s: s, key: key, p: newSpool(s.o.TempDir)}, nil
}

// send writes what a spool holds, and releases it.
func (s *Store) send(ctx context.Context, key string, p *spool, c store.Condition) (etag string, err error) {
	defer func() {
		// What was sent is sent: a temporary file that does not close cannot change it.
		if rerr := p.release(); rerr != nil && err != nil {
			err = errors.Join(err, rerr)
		}
	}()
	if err := errors.Join(c.Validate(), context.Cause(ctx), p.err); err != nil {
		return "", fmt.Errorf("put %s: %w", key, err)
	}
	opts := minio.PutObjectOptions{
		DisableContentSha256: true, // of chunks: the whole has one
	}
	switch {
	case c.IfNoneMatch != "":
		opts.SetMatchETagExcept("*")
	case c.IfMatch == "*" || strings.ContainsFunc(c.IfMatch, func(r rune) bool { return r < ' ' || r == '"' || r > '~' }):
		return "", fmt.Errorf("put %s: %w", key, store.ErrPrecondition) // no object has this etag; S3 takes a star for any
	case c.IfMatch != "":
		opts.SetMatchETag(c.IfMatch)
	}
	verdict := func(err error, last bool) error {
		code, bucket := status(err)
		switch {
		case code == http.StatusPreconditionFailed, code == http.StatusNotFound && !bucket && c.IfMatch != "":
			return store.ErrPrecondition
		case code == http.StatusConflict && last && c != (store.Condition{}):
			return fmt.Errorf("%w: others keep writing it", store.ErrPrecondition)
		}
		return nil
	}
	sum := p.sha256()
	err = s.try(ctx, "put", key, true, verdict, func(a *attempt) error {
		up, err := s.core.PutObject(a.ctx, s.o.Bucket, s.prefix+key, &movingReader{r: p.reader(), a: a}, p.size, "", sum, opts)
		etag = up.ETag
		return err
	})
	if err == nil && etag == "" {
		return "", fmt.Errorf("put %s: %w: the server gave no etag", key, store.ErrUncertain)
	}
	if err != nil {
		return "", err
	}
	return etag, nil
}

// movingReader tells an attempt when something moves. It does not seek, so that the client does not send it twice.
type movingReader struct {
	r io.Reader
	a *attempt
}

func (m *movingReader) Read(b []byte) (int, error) {
	m.a.moved()
	return m.r.Read(b)
}

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, key string) (io.ReadCloser, store.Info, error) {
	if err := ready(ctx, "get", key); err != nil {
		return nil, store.Info{}, err
	}
	return s.get(ctx, key, minio.GetObjectOptions{}, absent, func(oi minio.ObjectInfo, _ http.Header) (store.Info, error) { return info(key, oi) })
}

// info makes an Info of an answer about a whole object.
func info(key string, oi minio.ObjectInfo) (store.Info, error) {
	if oi.Size < 0 || oi.ETag == "" {
		return store.Info{}, brokenAnswer("the server gave no length or no etag")
	}
	return store.Info{Key: key, Size: oi.Size, ETag: oi.ETag, Modified: oi.LastModified}, nil
}

// get opens what the options name; describe makes the Info, or says what is wrong with the answer.
func (s *Store) get(ctx context.Context, key string, opts minio.GetObjectOptions, verdict func(error, bool) error,
	describe func(minio.ObjectInfo, http.Header) (store.Info, error),
) (body io.ReadCloser, in store.Info, err error) {
	err = s.try(ctx, "get", key, false, verdict, func(a *attempt) (err error) {
		r, oi, head, err := s.core.GetObject(a.ctx, s.o.Bucket, s.prefix+key, opts)
		if err != nil {
			return err
		}
		st := &stream{key: key, a: a, r: r}
		in, err = describe(oi, head)
		switch {
		case err != nil:
			return errors.Join(err, r.Close())
		case oi.Size > inMemory:
			a.rest()
			a.kept, body = true, st
			return nil
		}
		b := make([]byte, oi.Size)
		_, err = io.ReadFull(&movingReader{r: r, a: a}, b)
		if err = errors.Join(err, r.Close()); err != nil {
			return err
		}
		body = io.NopCloser(bytes.NewReader(b))
		return nil
	})
	if err != nil {
		return nil, store.Info{}, err
	}
	return body, in, nil
}

// absent is the verdict on a read.
func absent(err error, _ bool) error {
	if code, bucket := status(err); code == http.StatusNotFound && !bucket {
		return store.ErrNotFound
	}
	return nil
}

// stream reads a large object. Its clock runs only while somebody waits for bytes.
type stream struct {
	key string
	a   *attempt
	r   io.ReadCloser
}

func (st *stream) Read(b []byte) (int, error) {
	st.a.moved()
	n, err := st.r.Read(b)
	st.a.rest()
	if err != nil && err != io.EOF {
		if cause := context.Cause(st.a.ctx); cause != nil {
			err = cause
		}
		return n, fmt.Errorf("get %s: %w", st.key, err)
	}
	return n, err
}

// Close ends the request, also before its end.
func (st *stream) Close() error {
	st.a.end()
	return st.r.Close()
}

// GetRange implements store.Store.
func (s *Store) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, store.Info, error) {
	if err := ready(ctx, "get", key); err != nil {
		return nil, store.Info{}, err
	}
	if off < 0 || n < 0 {
		return nil, store.Info{}, rangeError(key, off, n, "")
	}
	n = min(n, math.MaxInt64-off)
	if n > 0 {
		var opts minio.GetObjectOptions
		if err := opts.SetRange(off, off+n-1); err != nil {
			return nil, store.Info{}, rangeError(key, off, n, "")
		}
		r, in, err := s.get(ctx, key, opts, beyond, func(oi minio.ObjectInfo, head http.Header) (store.Info, error) {
			whole, err := rangeAnswer(head.Get("Content-Range"), off, n, oi.Size)
			return store.Info{Key: key, Size: whole, Modified: oi.LastModified}, err
		})
		if !errors.Is(err, errBeyond) {
			return r, in, err
		}
	}
	// HTTP knows no empty range: the length says whether it may be asked for.
	in, err := s.Stat(ctx, key)
	if err != nil {
		return nil, in, err
	}
	if off > in.Size || n > 0 && off < in.Size { // the latter: it has grown since
		return nil, store.Info{}, rangeError(key, off, n, fmt.Sprintf(" in %d", in.Size))
	}
	in.ETag = ""
	return io.NopCloser(bytes.NewReader(nil)), in, nil
}

// errBeyond: the server says that a range begins behind the object.
var errBeyond = errors.New("range behind the end")

// beyond is the verdict on a read of a range.
func beyond(err error, last bool) error {
	if code, _ := status(err); code == http.StatusRequestedRangeNotSatisfiable {
		return errBeyond
	}
	return absent(err, last)
}

func rangeError(key string, off, n int64, of string) error {
	return fmt.Errorf("get %s: %w: range of %d bytes at %d%s", key, store.ErrInvalid, n, off, of)
}

// rangeAnswer checks that got bytes with this Content-Range are the n bytes at off, or what there is of them, and returns the length of the whole.
func rangeAnswer(header string, off, n, got int64) (int64, error) {
	bad := brokenAnswer(fmt.Sprintf("asked for %d bytes at %d, the server gave %d with Content-Range %q", n, off, got, header))
	rest, ok := strings.CutPrefix(header, "bytes ")
	span, total, ok2 := strings.Cut(rest, "/")
	from, to, ok3 := strings.Cut(span, "-")
	first, err := strconv.ParseInt(from, 10, 64)
	last, err2 := strconv.ParseInt(to, 10, 64)
	whole, err3 := strconv.ParseInt(total, 10, 64)
	if !ok || !ok2 || !ok3 || errors.Join(err, err2, err3) != nil {
		return 0, bad
	}
	if first != off || last < first || last >= whole || got != last-first+1 || got != min(n, whole-off) {
		return 0, bad
	}
	return whole, nil
}

// Stat implements store.Store.
func (s *Store) Stat(ctx context.Context, key string) (in store.Info, err error) {
	if err := ready(ctx, "get", key); err != nil {
		return in, err
	}
	err = s.try(ctx, "get", key, false, absent, func(a *attempt) error {
		oi, err := s.core.StatObject(a.ctx, s.o.Bucket, s.prefix+key, minio.StatObjectOptions{})
		if err != nil {
			return err
		}
		in, err = info(key, oi)
		return err
	})
	return in, err
}

// Delete implements store.Store.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := ready(ctx, "delete", key); err != nil {
		return err
	}
	return s.try(ctx, "delete", key, true, keep, func(a *attempt) error {
		err := s.core.RemoveObject(a.ctx, s.o.Bucket, s.prefix+key, minio.RemoveObjectOptions{})
		if code, bucket := status(err); code/100 == 2 || code == http.StatusNotFound && !bucket {
			return nil // the client wants a 204; some servers say that there was nothing
		}
		return err
	})
}

// keep is the verdict that leaves an error as it is.
func keep(error, bool) error { return nil }

// pageSize is how many keys are listed by one request, the most that S3 gives.
const pageSize = 1000

// List implements store.Store. Objects in the bucket that are not named by a key are passed over.
func (s *Store) List(ctx context.Context, prefix string, fn func(store.Info) error) error {
	if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
		if err := store.ValidKey(prefix[:i]); err != nil {
			return err
		}
	}
	after := ""
	for {
		if err := context.Cause(ctx); err != nil {
			return fmt.Errorf("list %s: %w", prefix, err)
		}
		page, err := s.page(ctx, prefix, after)
		if err != nil {
			return err
		}
		for _, oi := range page {
			if oi.Key <= after {
				return fmt.Errorf("list %s: %w", prefix, brokenAnswer("the server does not list in the order of bytes"))
			}
			after = oi.Key
			key, ok := strings.CutPrefix(oi.Key, s.prefix)
			if !ok || !strings.HasPrefix(key, prefix) || store.ValidKey(key) != nil {
				continue
			}
			if err := context.Cause(ctx); err != nil {
				return fmt.Errorf("list %s: %w", prefix, err)
			}
			if err := fn(store.Info{Key: key, Size: oi.Size, Modified: oi.LastModified}); err != nil {
				return err
			}
		}
		if len(page) < pageSize {
			return nil
		}
	}
}

// page lists up to pageSize objects behind a name in the bucket.
func (s *Store) page(ctx context.Context, prefix, after string) (page []minio.ObjectInfo, err error) {
	noOwner := false
	opts := minio.ListObjectsOptions{Prefix: s.prefix + prefix, StartAfter: after, Recursive: true, MaxKeys: pageSize, FetchOwner: &noOwner}
	err = s.try(ctx, "list", prefix, false, keep, func(a *attempt) error {
		page = page[:0]
		for oi := range s.core.ListObjectsIter(a.ctx, s.o.Bucket, opts) {
			if oi.Err != nil {
				return oi.Err
			}
			page = append(page, oi)
			a.moved()
			if len(page) == pageSize {
				return nil
			}
		}
		return context.Cause(a.ctx) // the iterator ends without a word where the context does
	})
	return page, err
}
