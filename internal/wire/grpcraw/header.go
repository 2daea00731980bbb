package grpcraw

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/weft-search/weft/internal/wire/h2"
)

// Head is what a reply begins with.
type Head struct {
	Encoding string      // of messages that say that they are compressed
	Accepts  string      // encodings that the node takes, empty if it does not say
	Meta     metadata.MD // further headers but those of the protocols; nil if there are none. Values of binary ones are decoded
}

// End is how a call ended.
type End struct {
	Code    codes.Code
	Message string
	Details string      // bytes of google.rpc.Status as the node sent them; empty if it did not
	Meta    metadata.MD // further trailers, like Head.Meta
}

// Bounds of headers in a reply.
const (
	maxHeaderList  = 64 << 10 // the names and values of a block with 32 bytes each, as HTTP/2 counts
	maxHeaderBlock = 64 << 10 // the bytes of a block on the wire
)

// block is a decoded header block.
type block struct {
	httpStatus string
	grpc       bool // the content type is one of gRPC
	code       string
	end        End
	head       Head
	size       int
	bad        string // what is wrong with it; empty if nothing is
}

// hopByHop are headers for one connection, or of a protocol: nobody passes them on.
func hopByHop(name string) bool {
	switch name {
	case "connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization", "transfer-encoding", "upgrade", "te", "trailer",
		"content-length", "content-type", "content-encoding", "date", "server", "grpc-encoding", "grpc-accept-encoding", "grpc-message-type", "grpc-timeout",
		"grpc-previous-rpc-attempts", "grpc-retry-pushback-ms", "user-agent", "host":
		return true
	}
	return strings.HasPrefix(name, ":")
}

// take is for each field of a block.
func (b *block) take(f hpack.HeaderField) {
	b.size += len(f.Name) + len(f.Value) + h2.HeaderOverhead
	if b.size > maxHeaderList {
		b.bad = "too many headers"
		return
	}
	switch f.Name {
	case ":status":
		b.httpStatus = f.Value
	case "content-type":
		rest, ok := strings.CutPrefix(strings.ToLower(f.Value), "application/grpc")
		b.grpc = ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
	case "grpc-encoding":
		b.head.Encoding = f.Value
	case "grpc-accept-encoding":
		b.head.Accepts = f.Value
	case "grpc-status":
		b.code = f.Value
	case "grpc-message":
		b.end.Message = unescape(f.Value)
	case "grpc-status-details-bin":
		raw, err := decodeBinary(f.Value)
		if err != nil {
			b.bad = "damaged details of the status"
			return
		}
		b.end.Details = raw
	default:
		if hopByHop(f.Name) {
			return
		}
		values := []string{f.Value}
		if strings.HasSuffix(f.Name, "-bin") {
			// Those of one name may have been put together on the way.
			values = strings.Split(f.Value, ",")
			if b.size += (len(values) - 1) * h2.HeaderOverhead; b.size > maxHeaderList {
				b.bad = "too many headers"
				return
			}
			for i, v := range values {
				var err error
				if values[i], err = decodeBinary(strings.TrimSpace(v)); err != nil {
					b.bad = "damaged binary header"
					return
				}
			}
		}
		if b.head.Meta == nil {
			b.head.Meta = metadata.MD{}
		}
		b.head.Meta[f.Name] = append(b.head.Meta[f.Name], values...)
	}
}

// trailer makes the end of a call of the block that a stream ended with. The error is for a block that tells no status.
func (b *block) trailer() (*End, error) {
	if b.code == "" {
		return nil, internal("the node ended the call without a status")
	}
	code, err := strconv.ParseUint(b.code, 10, 31)
	if err != nil {
		return nil, internal("the node ended the call with a status that is not a number")
	}
	end := b.end
	end.Code, end.Meta = codes.Code(code), b.head.Meta
	return &end, nil
}

func decodeBinary(v string) (string, error) {
	raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(v, "="))
	if err != nil {
		return "", fmt.Errorf("decode a binary header: %w", err)
	}
	return string(raw), nil
}

// unescape undoes the percent encoding of messages. What is no encoding stays as it is.
func unescape(v string) string {
	if !strings.Contains(v, "%") {
		return v
	}
	var out strings.Builder
	for i := 0; i < len(v); i++ {
		if v[i] == '%' && i+2 < len(v) {
			if n, err := strconv.ParseUint(v[i+1:i+3], 16, 8); err == nil {
				out.WriteByte(byte(n))
				i += 2
				continue
			}
		}
		out.WriteByte(v[i])
	}
	return out.String()
}

// maxTimeoutDigits is the longest number of a grpc-timeout.
const maxTimeoutDigits = 99_999_999

var timeoutUnits = []struct {
	unit time.Duration
	name byte
}{{time.Nanosecond, 'n'}, {time.Microsecond, 'u'}, {time.Millisecond, 'm'}, {time.Second, 'S'}, {time.Minute, 'M'}, {time.Hour, 'H'}}

// FormatTimeout is a positive time as grpc-timeout has it: exact where that has digits enough, else rounded up to a coarser unit. It prefers
// the coarsest unit that is exact.
func FormatTimeout(d time.Duration) string {
	for i := len(timeoutUnits) - 1; i >= 0; i-- {
		if u := timeoutUnits[i]; d%u.unit == 0 && d/u.unit <= maxTimeoutDigits {
			return strconv.FormatInt(int64(d/u.unit), 10) + string(u.name)
		}
	}
	for _, u := range timeoutUnits {
		n := d / u.unit
		if d%u.unit != 0 {
			n++
		}
		if n <= maxTimeoutDigits {
			return strconv.FormatInt(int64(n), 10) + string(u.name)
		}
	}
	return strconv.Itoa(maxTimeoutDigits) + "H"
}

var errTimeout = errors.New("no time of gRPC")

// ParseTimeout reads a grpc-timeout: 1 to 8 digits and a unit of H M S m u n.
func ParseTimeout(s string) (time.Duration, error) {
	if len(s) < 2 || len(s) > 9 {
		return 0, errTimeout
	}
	n := int64(0)
	for _, c := range []byte(s[:len(s)-1]) {
		if c < '0' || c > '9' {
			return 0, errTimeout
		}
		n = n*10 + int64(c-'0')
	}
	for _, u := range timeoutUnits {
		if u.name == s[len(s)-1] {
			if n > int64(1<<63-1)/int64(u.unit) {
				return 1<<63 - 1, nil
			}
			return time.Duration(n) * u.unit, nil
		}
	}
	return 0, errTimeout
}
