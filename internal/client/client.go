// Package client calls the HTTP API of a weft server.
//
// A Client holds no state between calls but its connections, and is safe for concurrent use. A reply that says the call
// failed becomes a *Problem; a call that did not come through or back is a *TransportError (the server may or may not have done
// the work); every other error is of a reply that cannot be understood. Nothing is retried here: whoever calls knows whether a
// call may be repeated.
package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// DefaultURL is the address that `weft dev` listens on.
const DefaultURL = "http://127.0.0.1:7700"

// DefaultMaxReply bounds the bytes read of one reply.
const DefaultMaxReply = 256 << 20

// ErrReplyTooLarge is returned when a reply is longer than Options.MaxReply.
var ErrReplyTooLarge = errors.New("reply is too large")

// TransportError says that a call did not reach the server, or its reply did not come back whole.
type TransportError struct {
	Call string // method and path
	Err  error
}

// Error gives the call and the reason.
func (e *TransportError) Error() string { return e.Call + ": " + e.Err.Error() }

// Unwrap is the reason.
func (e *TransportError) Unwrap() error { return e.Err }

// Options change how a Client calls. The zero value is ready to use.
type Options struct {
	// HTTP replaces the HTTP client, for tests and for connection limits of a load generator.
	HTTP *http.Client
	// MaxReply bounds the bytes read of one reply; 0 means DefaultMaxReply.
	MaxReply int64
	// UserAgent is sent with every call; empty means "weft".
	UserAgent string
}

// Client calls one server.
type Client struct {
	base     url.URL
	http     *http.Client
	maxReply int64
	agent    string
}

// New returns a client for the server at base, such as http://127.0.0.1:7700. An address without a scheme is taken as http.
func New(base string, o Options) (*Client, error) {
	if base == "" {
		base = DefaultURL
	}
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	u, err := url.Parse(base)
	if err != nil {
		return nil, fmt.Errorf("parse server address: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("server address %q: scheme %q is not http or https", base, u.Scheme)
	}
	if u.Host == "" {
		return nil, fmt.Errorf("server address %q has no host", base)
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("server address %q has a query or a fragment", base)
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	c := &Client{base: *u, http: o.HTTP, maxReply: o.MaxReply, agent: o.UserAgent}
	if c.http == nil {
		c.http = &http.Client{}
	}
	if c.maxReply == 0 {
		c.maxReply = DefaultMaxReply
	}
	if c.agent == "" {
		c.agent = "weft"
	}
	return c, nil
}

// URL returns the address of the server.
func (c *Client) URL() string { return c.base.String() }

// CloseIdle closes the connections that no call is using.
func (c *Client) CloseIdle() { c.http.CloseIdleConnections() }

// Index describes one index of the server.
type Index struct {
	Name     string         `json:"name"`
	Docs     uint64         `json:"docs"`
	Segments uint64         `json:"segments"`
	Bytes    uint64         `json:"bytes"`
	Schema   jsontext.Value `json:"schema"`
}

// PutIndex creates the index, or adds fields to it. schema is SDL.
func (c *Client) PutIndex(ctx context.Context, name, schema string) (Index, error) {
	var out Index
	err := c.call(ctx, http.MethodPut, "/indexes/"+url.PathEscape(name), nil, "text/plain; charset=utf-8", []byte(schema), &out)
	return out, err
}

// Index describes the named index.
func (c *Client) Index(ctx context.Context, name string) (Index, error) {
	var out Index
	err := c.call(ctx, http.MethodGet, "/indexes/"+url.PathEscape(name), nil, "", nil, &out)
	return out, err
}

// Indexes lists the indexes of the server.
func (c *Client) Indexes(ctx context.Context) ([]Index, error) {
	var out struct {
		Indexes []Index `json:"indexes"`
	}
	err := c.call(ctx, http.MethodGet, "/indexes", nil, "", nil, &out)
	return out.Indexes, err
}

// DeleteIndex removes the index and everything in it.
func (c *Client) DeleteIndex(ctx context.Context, name string) error {
	return c.call(ctx, http.MethodDelete, "/indexes/"+url.PathEscape(name), nil, "", nil, nil)
}

// Written is the answer to a write of one document.
type Written struct {
	OK              bool     `json:"ok"`
	ID              string   `json:"id"`
	Deleted         int      `json:"deleted"`
	MembersOK       int      `json:"members_ok"`
	Members         int      `json:"members"`
	FailedAddresses []string `json:"failed_addresses"`
}

// Put indexes one document, a JSON object with a member id.
func (c *Client) Put(ctx context.Context, index string, doc []byte) (Written, error) {
	var out Written
	err := c.call(ctx, http.MethodPost, "/index", indexParam(index), "application/json", doc, &out)
	return out, err
}

// Delete removes one document. Deleting one that is not there is not an error: Deleted is 0.
func (c *Client) Delete(ctx context.Context, index, id string) (Written, error) {
	p := indexParam(index)
	p.Set("id", id)
	var out Written
	err := c.call(ctx, http.MethodDelete, "/index", p, "", nil, &out)
	return out, err
}

// DocError is one document of a bulk that was refused.
type DocError struct {
	Line   int    `json:"line"` // from 1, in the body that was sent
	ID     string `json:"id"`
	Code   string `json:"code"`
	Reason string `json:"reason"`
}

// Committed is the answer to a commit.
type Committed struct {
	Index string `json:"index"`
	// Visibility is when writes to the index show: "commit", or "at_once", where a commit does nothing.
	Visibility string `json:"visibility"`
	Docs       uint64 `json:"docs"` // live documents that show
}

// Commit shows what was written to an index that shows writes on commit.
func (c *Client) Commit(ctx context.Context, index string) (Committed, error) {
	var out Committed
	err := c.call(ctx, http.MethodPost, "/commit", indexParam(index), "", nil, &out)
	return out, err
}

// BulkResult is the answer to a bulk.
type BulkResult struct {
	OK              bool       `json:"ok"`
	Indexed         int        `json:"indexed"`
	Failed          int        `json:"failed"`
	Duplicates      int        `json:"duplicates"`
	TookMS          float64    `json:"took_ms"`
	Errors          []DocError `json:"errors"`
	FailedAddresses []string   `json:"failed_addresses"`
	// Repeated says that the server had taken the load before, by its Idempotency-Key: this is what came of it then.
	Repeated bool `json:"repeated"`
	// Staged says that what was indexed shows when the index is committed.
	Staged bool `json:"staged"`
}

// Bulk indexes the documents of an NDJSON body in order. Documents that were refused are in Errors; that is not an error of
// the call, even if it is all of them.
func (c *Client) Bulk(ctx context.Context, index string, ndjson []byte) (BulkResult, error) {
	var out BulkResult
	err := c.call(ctx, http.MethodPost, "/index/bulk", indexParam(index), "application/x-ndjson", ndjson, &out)
	var p *Problem
	if errors.As(err, &p) && p.Code == "nothing_applied" {
		var all BulkResult
		if json.Unmarshal(p.body, &all) == nil && len(all.Errors) > 0 {
			return all, nil
		}
	}
	return out, err
}

// Doc is a stored document.
type Doc struct {
	ID     string         `json:"id"`
	Source jsontext.Value `json:"source"`
}

// Get returns a document; a *Problem with status 404 says that there is none.
func (c *Client) Get(ctx context.Context, index, id string) (Doc, error) {
	p := indexParam(index)
	p.Set("id", id)
	var out Doc
	err := c.call(ctx, http.MethodGet, "/doc", p, "", nil, &out)
	return out, err
}

// Ready returns nil once the server takes calls.
func (c *Client) Ready(ctx context.Context) error {
	_, err := c.raw(ctx, http.MethodGet, "/readyz", nil, "", nil)
	return err
}

func indexParam(index string) url.Values {
	p := url.Values{}
	if index != "" {
		p.Set("index", index)
	}
	return p
}

// call sends one request and decodes its reply into out, if out is not nil.
func (c *Client) call(ctx context.Context, method, path string, params url.Values, ctype string, body []byte, out any) error {
	raw, err := c.raw(ctx, method, path, params, ctype, body)
	if err != nil || out == nil {
		return err
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return fmt.Errorf("read reply of %s %s: %w", method, path, err)
	}
	return nil
}

func (c *Client) raw(ctx context.Context, method, path string, params url.Values, ctype string, body []byte) ([]byte, error) {
	u := c.base.String() + path
	if len(params) > 0 {
		u += "?" + params.Encode()
	}
	var rd io.Reader
	if body != nil {
		rd = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, u, rd)
	if err != nil {
		return nil, fmt.Errorf("make request %s %s: %w", method, path, err)
	}
	if ctype != "" {
		req.Header.Set("Content-Type", ctype)
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", c.agent)
	resp, err := c.http.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // the rest of it is the address, with the parameters
		}
		return nil, &TransportError{Call: "call " + method + " " + c.base.String() + path, Err: err}
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, c.maxReply+1))
	if cerr := resp.Body.Close(); err == nil && cerr != nil {
		err = cerr
	}
	if err != nil {
		return nil, &TransportError{Call: "read reply of " + method + " " + path, Err: err}
	}
	if int64(len(raw)) > c.maxReply {
		return nil, fmt.Errorf("read reply of %s %s: %w: over %d bytes", method, path, ErrReplyTooLarge, c.maxReply)
	}
	if resp.StatusCode/100 == 2 {
		return raw, nil
	}
	return nil, problemOf(resp, raw)
}

// Problem is a reply that says why a call failed (application/problem+json).
type Problem struct {
	Status       int    `json:"status"`
	Title        string `json:"title"`
	Detail       string `json:"detail"`
	Code         string `json:"code"` // stable, lower_snake; empty when the reply was not a problem document
	Field        string `json:"field"`
	Line         int    `json:"line"`
	Position     *int   `json:"position"`
	RetryAfterMS int64  `json:"retry_after_ms"`
	RequestID    string `json:"request_id"`

	body []byte
}

// Error gives the server's own words and the code.
func (p *Problem) Error() string {
	text := p.Detail
	if text == "" {
		text = p.Title
	}
	if text == "" {
		text = http.StatusText(p.Status)
	}
	if p.Field != "" && p.Field != "q" && !strings.Contains(text, p.Field) {
		text = p.Field + ": " + text
	}
	if p.Code == "" {
		return fmt.Sprintf("server answered %d: %s", p.Status, text)
	}
	return fmt.Sprintf("%s (%s, status %d)", text, p.Code, p.Status)
}

// Refused tells whether the server refused the call before any effect and may take it later (429 and 503), and how long it
// asks to wait; 0 when it does not say.
func (p *Problem) Refused() (wait time.Duration, ok bool) {
	if p.Status != http.StatusTooManyRequests && p.Status != http.StatusServiceUnavailable {
		return 0, false
	}
	return time.Duration(max(p.RetryAfterMS, 0)) * time.Millisecond, true
}

// Retryable tells whether the same call may do well later, sent again as it is, and how long the server asks to wait; 0 when it
// does not say. Besides what Refused tells that is a full disk (507), which may have stopped the call half way: send again only
// what does no harm twice.
func (p *Problem) Retryable() (wait time.Duration, ok bool) {
	if p.Status == http.StatusInsufficientStorage {
		return time.Duration(max(p.RetryAfterMS, 0)) * time.Millisecond, true
	}
	return p.Refused()
}

func problemOf(resp *http.Response, raw []byte) error {
	p := &Problem{}
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err == nil && kind == "application/problem+json" {
		if json.Unmarshal(raw, p) != nil {
			p = &Problem{}
		}
	}
	p.Status, p.body = resp.StatusCode, raw
	if p.Detail == "" && p.Title == "" && p.Code == "" {
		const most = 200
		p.Detail = strings.ToValidUTF8(strings.TrimSpace(string(raw[:min(len(raw), most)])), "\uFFFD")
	}
	if p.RetryAfterMS == 0 {
		if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
			p.RetryAfterMS = int64(s) * 1000
		}
	}
	return p
}

// IsNotFound tells whether err is a reply with status 404.
func IsNotFound(err error) bool {
	var p *Problem
	return errors.As(err, &p) && p.Status == http.StatusNotFound
}
