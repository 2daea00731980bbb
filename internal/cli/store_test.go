package cli

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/weft-search/weft/internal/store"
	"github.com/weft-search/weft/internal/store/s3/s3test"
)

func TestOpenStore(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", s3test.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", s3test.SecretKey)
	for _, name := range []string{"AWS_SESSION_TOKEN", "AWS_REGION", "AWS_ENDPOINT_URL"} {
		t.Setenv(name, "")
	}
	good := s3test.New(t)
	careless := s3test.Handler(t) // does not know If-Match
	bad := s3test.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del("If-Match")
		careless.ServeHTTP(w, r)
	}))
	folder := t.TempDir()
	for _, tc := range []struct {
		where string
		want  string // part of the error; empty: it opens
		usage bool
	}{
		{folder, "", false},
		{"file://" + folder, "", false},
		{"s3://" + s3test.Bucket + "/weft?insecure=true&endpoint=" + good, "", false},
		{"s3://" + s3test.Bucket + "?endpoint=http://" + good, "", false},
		{"s3://" + s3test.Bucket + "?endpoint=http://" + bad, "does not heed", false},
		{"s3://no-such-bucket?endpoint=http://" + good, "NoSuchBucket", false},
		{"s3://B?endpoint=http://" + good, "ucket name", false},
		{"s3://" + s3test.Bucket, "no region", true},
		{"s3://" + s3test.AccessKey + ":hush@bucket", "holds credentials", true},
		{"gs://bucket", "s3://bucket/prefix", false},
	} {
		s, closeStore, err := openStore(t.Context(), tc.where)
		var u *usageError
		switch {
		case tc.want != "":
			if err == nil || !strings.Contains(err.Error(), tc.want) || errors.As(err, &u) != tc.usage || strings.Contains(err.Error(), s3test.AccessKey) || strings.Contains(err.Error(), "hush") {
				t.Errorf("%s: error %v", tc.where, err)
			}
			continue
		case err != nil:
			t.Errorf("%s: %v", tc.where, err)
			continue
		}
		if _, err := s.Put(t.Context(), "k", strings.NewReader("x"), 1, store.Absent); err != nil && !errors.Is(err, store.ErrPrecondition) {
			t.Errorf("%s: %v", tc.where, err)
		}
		if err := closeStore(); err != nil {
			t.Errorf("%s: close: %v", tc.where, err)
		}
	}
}
