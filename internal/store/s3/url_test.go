package s3

import (
	"encoding/json"
	"strings"
	"testing"
)

// lookup makes an environment of NAME=value.
func lookup(env ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for _, e := range env {
			if v, ok := strings.CutPrefix(e, name+"="); ok {
				return v, true
			}
		}
		return "", false
	}
}

var testKeys = []string{"AWS_ACCESS_KEY_ID=AKIAWHO", "AWS_SECRET_ACCESS_KEY=hush/hush"}

func TestParseURL(t *testing.T) {
	for _, tc := range []struct {
		url      string
		env      []string
		want     Options // without credentials
		wantsErr string  // part of the error
	}{
		{"s3://b", []string{"AWS_REGION=eu-west-1"}, Options{Bucket: "b", Region: "eu-west-1"}, ""},
		{"s3://b/p/q/?region=r", []string{"AWS_REGION=eu-west-1"}, Options{Bucket: "b", Prefix: "p/q", Region: "r"}, ""},
		{"s3://b/p?endpoint=h:9000&insecure=true", nil, Options{Bucket: "b", Prefix: "p", Endpoint: "h:9000", Insecure: true, Region: "us-east-1"}, ""},
		{"s3://b/p?endpoint=http://h:9000/", nil, Options{Bucket: "b", Prefix: "p", Endpoint: "h:9000", Insecure: true, Region: "us-east-1"}, ""},
		{"s3://b?endpoint=https%3A%2F%2Fh&insecure=false", nil, Options{Bucket: "b", Endpoint: "h", Region: "us-east-1"}, ""},
		{"s3://b", []string{"AWS_ENDPOINT_URL=http://h:1", "AWS_SESSION_TOKEN=tok"}, Options{Bucket: "b", Endpoint: "h:1", Insecure: true, Region: "us-east-1", SessionToken: "tok"}, ""},
		{"s3://b?endpoint=g:2", []string{"AWS_ENDPOINT_URL=http://h:1"}, Options{Bucket: "b", Endpoint: "g:2", Region: "us-east-1"}, ""},

		{"s3://b", nil, Options{}, "AWS_REGION"},
		{"s3://b?region=r", []string{"-"}, Options{}, "AWS_SECRET_ACCESS_KEY"},
		{"s3://AKIAWHO:hush@b?region=r", nil, Options{}, "holds credentials"},
		{"s3://AKIAWHO:hush/b?region=r", nil, Options{}, "not a URL"},
		{"s3://b/%zz?region=r", nil, Options{}, "not a URL"},
		{"s3:///p?region=r", nil, Options{}, "not a URL"},
		{"http://b/p?region=r", nil, Options{}, "not a URL"},
		{"s3://b?region=r&secret=hush", nil, Options{}, "other than"},
		{"s3://b?region=r&region=s", nil, Options{}, "twice"},
		{"s3://b?region=", nil, Options{}, "without a value"},
		{"s3://b?region=%zz", nil, Options{}, "cannot be read"},
		{"s3://b?region=r&insecure=yes", nil, Options{}, "neither true nor false"},
		{"s3://b?endpoint=https://h&insecure=true", nil, Options{}, "https://"},
		{"s3://b?endpoint=ftp://h", nil, Options{}, "neither http"},
		{"s3://b?endpoint=http://h/path", nil, Options{}, "without a path"},
		{"s3://b?endpoint=http://AKIAWHO:hush@h", nil, Options{}, "without a path"},
		{"s3://b/a//b?region=r", nil, Options{}, "empty element"},
		{"s3://b/" + strings.Repeat("x", 101) + "?region=r", nil, Options{}, "the limit is 100"},
	} {
		env := tc.env
		if len(env) == 0 || env[0] != "-" {
			env = append(env, testKeys...)
			tc.want.AccessKey, tc.want.SecretKey = "AKIAWHO", "hush/hush"
		}
		got, err := ParseURL(tc.url, lookup(env...))
		if tc.wantsErr != "" {
			if err == nil || !strings.Contains(err.Error(), tc.wantsErr) || strings.Contains(err.Error(), "hush") || strings.Contains(err.Error(), "WHO") {
				t.Errorf("%s: error %v, want %q in it", tc.url, err, tc.wantsErr)
			}
			continue
		}
		if err != nil || got != tc.want {
			t.Errorf("%s: %+v, %v; want %+v", tc.url, got, err, tc.want)
			continue
		}
		s, err := Open(got)
		if err != nil {
			t.Errorf("%s: open: %v", tc.url, err)
			continue
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if b, err := json.Marshal(Options{SecretKey: "hush"}); err != nil || strings.Contains(string(b), "hush") {
		t.Errorf("%s, %v", b, err)
	}
}

func TestOpenRefusesWhatTheClientDoes(t *testing.T) {
	o := Options{Bucket: "b", Region: "r", Endpoint: "no host:", AccessKey: "a", SecretKey: "hush"}
	if s, err := Open(o); err == nil || strings.Contains(err.Error(), "hush") {
		t.Errorf("%v, %v", s, err)
	}
}

func FuzzParseURL(f *testing.F) {
	f.Add("s3://b/p?endpoint=h:9000&insecure=true", "http://h")
	f.Add("s3://AKIA:xyzzyxyzzy@b", "xyzzyxyzzy")
	f.Fuzz(func(t *testing.T, where, endpoint string) {
		const secret = "xyzzyxyzzy"
		o, err := ParseURL(where, lookup(append([]string{"AWS_ENDPOINT_URL=" + endpoint}, testKeys...)...))
		switch {
		case err == nil && (o.Bucket == "" || o.Region == "" || len(o.Prefix) > maxPrefix || strings.ContainsAny(o.Endpoint, "/?#@")):
			t.Fatalf("%+v of %q", o, where)
		case err != nil && strings.Contains(err.Error(), secret) && !strings.Contains(err.Error(), "prefix of keys"):
			t.Fatalf("%v quotes %q", err, where)
		}
	})
}
