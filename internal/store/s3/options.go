package s3

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weft-search/weft/internal/store"
)

// Secret is a text that prints as stars, so that options can be printed and logged.
type Secret string

// String hides the text.
func (Secret) String() string { return "***" }

// GoString hides the text.
func (s Secret) GoString() string { return s.String() }

// MarshalText hides the text.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Options say where a store is. Bucket, Region, AccessKey and SecretKey are required.
type Options struct {
	Bucket string
	// Prefix stands, with a slash, before every key. It is a key itself, of at most 100 bytes, or empty.
	Prefix   string
	Endpoint string // host or host:port; empty: Amazon's of the region
	Insecure bool   // over HTTP, not HTTPS
	Region   string

	AccessKey    Secret
	SecretKey    Secret
	SessionToken Secret // of credentials that last for a while; else empty

	// TempDir is the folder for what is too large to be kept in memory until it is sent. Empty: os.TempDir.
	TempDir string
	// Timeout is how long a request may stand still. Default: 30 s.
	Timeout time.Duration
	// Attempts is how often a request is sent at most. Default: 4.
	Attempts int
}

// maxPrefix leaves room for the longest key in the 1,024 bytes that S3 takes.
const maxPrefix = 100

// ParseURL reads s3://bucket/prefix?endpoint=…&region=…&insecure=true and takes what is missing from the environment: AWS_ENDPOINT_URL,
// AWS_REGION, and the credentials, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, which are nowhere else.
// An endpoint is host:port or a URL without a path; http:// in it stands for insecure. Where an endpoint is given, the region is us-east-1
// unless said otherwise. Errors never quote the URL, which may hold what should not be in it.
func ParseURL(where string, lookupEnv func(name string) (string, bool)) (Options, error) {
	var o Options
	u, err := url.Parse(where)
	if err != nil || u.Scheme != "s3" || u.Host == "" || u.Opaque != "" || u.Fragment != "" {
		return o, errors.New("not a URL of the form s3://bucket/prefix?endpoint=…&region=…&insecure=true")
	}
	if u.User != nil {
		return o, errors.New("the URL holds credentials; give them in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return o, errors.New("the part of the URL behind the question mark cannot be read")
	}
	for name, values := range query {
		if !slices.Contains([]string{"endpoint", "region", "insecure"}, name) {
			return o, errors.New("the URL has a parameter other than endpoint, region and insecure")
		}
		if len(values) != 1 || values[0] == "" {
			return o, fmt.Errorf("the URL has %s without a value, or twice", name)
		}
	}
	env := func(name string) string {
		v, _ := lookupEnv(name)
		return v
	}
	o.Bucket, o.Prefix = u.Host, strings.Trim(u.Path, "/")
	o.Region = query.Get("region")
	if o.Region == "" {
		o.Region = env("AWS_REGION")
	}
	switch query.Get("insecure") {
	case "":
	case "true":
		o.Insecure = true
	case "false":
	default:
		return o, errors.New("insecure in the URL is neither true nor false")
	}
	endpoint := query.Get("endpoint")
	if endpoint == "" {
		endpoint = env("AWS_ENDPOINT_URL")
	}
	if scheme, host, ok := strings.Cut(endpoint, "://"); ok {
		switch {
		case scheme == "http":
			o.Insecure = true
		case scheme != "https":
			return o, errors.New("the endpoint is neither http:// nor https://")
		case o.Insecure:
			return o, errors.New("insecure=true, and an endpoint with https://")
		}
		endpoint = strings.TrimSuffix(host, "/")
	}
	o.Endpoint = endpoint
	if o.Region == "" && o.Endpoint != "" {
		o.Region = "us-east-1"
	}
	o.AccessKey, o.SecretKey, o.SessionToken = Secret(env("AWS_ACCESS_KEY_ID")), Secret(env("AWS_SECRET_ACCESS_KEY")), Secret(env("AWS_SESSION_TOKEN"))
	return o, o.check()
}

// check tells what is missing or wrong.
func (o *Options) check() error {
	switch {
	case o.AccessKey == "" || o.SecretKey == "":
		return errors.New("no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
	case o.Region == "":
		return errors.New("no region: give region=… in the URL, or set AWS_REGION")
	case strings.ContainsAny(o.Endpoint, "/?#@"):
		return errors.New("the endpoint is not a host, host:port, or URL of these without a path")
	case len(o.Prefix) > maxPrefix:
		return fmt.Errorf("the prefix of keys has %d bytes, the limit is %d", len(o.Prefix), maxPrefix)
	case o.Timeout < 0 || o.Attempts < 0:
		return errors.New("timeout and attempts are not negative")
	}
	if o.Prefix != "" {
		if err := store.ValidKey(o.Prefix); err != nil {
			return fmt.Errorf("prefix of keys: %w", err)
		}
	}
	return nil
}
