//go:build linux

package faulttest

import (
	"net/http"
	"time"

	"github.com/weft-search/weft/internal/cli/faulttest/link"
	"github.com/weft-search/weft/internal/store/s3/s3test"
)

// bucket is a store of objects in this process, behind a link.
type bucket struct {
	proxy *link.Proxy
}

// openBucket starts a server with an empty bucket. As S3 does it refuses what was signed at another time than now.
func (c *cluster) openBucket() {
	c.t.Helper()
	h := s3test.Handler(c.t)
	addr := s3test.Serve(c.t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
		if err != nil || time.Since(at).Abs() > signed {
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(http.StatusForbidden)
			if _, err := w.Write([]byte(`<?xml version="1.0" encoding="UTF-8"?><Error><Code>RequestTimeTooSkewed</Code><Message>The difference between the request time and the current time is too large.</Message></Error>`)); err != nil {
				return // the caller has left
			}
			return
		}
		h.ServeHTTP(w, r)
	}))
	p, err := link.Listen(whose)
	if err != nil {
		c.t.Fatal(err)
	}
	p.Point(addr)
	c.bucket = &bucket{p}
}

// url is the bucket as --store takes it.
func (b *bucket) url() string {
	return "s3://" + s3test.Bucket + "/weft?endpoint=http://" + b.proxy.Addr()
}

// env are the credentials, which stand nowhere else.
func (b *bucket) env() []string {
	return []string{"AWS_ACCESS_KEY_ID=" + s3test.AccessKey, "AWS_SECRET_ACCESS_KEY=" + s3test.SecretKey, "AWS_SESSION_TOKEN=", "AWS_REGION=", "AWS_ENDPOINT_URL="}
}
