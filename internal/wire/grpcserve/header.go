package grpcserve

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weft-search/weft/internal/wire/h2"
)

// head is a request's headers.
type head struct {
	path, method, scheme string
	authorities, hosts   int
	contentType          string // of the reply: that of the request if it is one of gRPC
	wrongType            string
	encoding, accepts    string
	timeout              string
	more                 []hpack.HeaderField // that are of neither protocol
	size                 int
	regular              bool // a field that is not one of HTTP/2's own was there
	bad                  bool // it is malformed
}

// mostFields is how many further headers are kept, and of values that were put into one.
const mostFields = 64

// take is for each field.
func (h *head) take(f hpack.HeaderField, most int) {
	h.size += len(f.Name) + len(f.Value) + h2.HeaderOverhead
	if h.size > most || h.bad {
		return
	}
	if !clean(f.Value) {
		h.bad = true
		return
	}
	if strings.HasPrefix(f.Name, ":") {
		h.pseudo(f)
		return
	}
	h.regular = true
	switch f.Name {
	case "content-type":
		rest, ok := strings.CutPrefix(strings.ToLower(f.Value), typeGRPC)
		if ok && (rest == "" || rest[0] == '+' || rest[0] == ';') {
			h.contentType = f.Value
		} else {
			h.wrongType = f.Value
		}
	case "grpc-encoding":
		h.encoding = f.Value
	case "grpc-accept-encoding":
		if h.accepts != "" && f.Value != "" {
			h.accepts += ","
		}
		h.accepts += f.Value
	case "grpc-timeout":
		h.timeout = f.Value
	case "te":
		h.bad = f.Value != "trailers"
	case "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade":
		h.bad = true
	case "host":
		h.hosts++
	case "":
		h.bad = true
	default:
		if h.bad = !lower(f.Name); !h.bad && !reserved(f.Name) && len(h.more) < mostFields {
			h.more = append(h.more, f)
		}
	}
}

func (h *head) pseudo(f hpack.HeaderField) {
	once := func(v *string) {
		h.bad = h.regular || *v != "" || f.Value == ""
		*v = f.Value
	}
	switch f.Name {
	case ":method":
		once(&h.method)
	case ":path":
		once(&h.path)
	case ":scheme":
		once(&h.scheme)
	case ":authority":
		h.bad = h.regular
		h.authorities++
	default:
		h.bad = true
	}
}

const typeGRPC = "application/grpc"

// refusal is what is answered to a request that is none of gRPC: the status, and that of HTTP. nil: it is one.
func (h *head) refusal() (*status.Status, string) {
	switch {
	case h.authorities > 1 || h.hosts > 1:
		return status.New(codes.Internal, "more than one :authority or host"), "400"
	case h.contentType == "":
		return status.Newf(codes.InvalidArgument, "invalid gRPC request content-type %q", shown(h.wrongType)), "415"
	case h.authorities+h.hosts == 0:
		return status.New(codes.Internal, "no host or :authority header present"), "400"
	case h.method != "POST":
		return status.Newf(codes.Internal, "Received a HEADERS frame with :method %q which should be POST", shown(h.method)), "405"
	}
	return nil, ""
}

// maxShown is how many bytes of what a client said are told to it again.
const maxShown = 256

// shown is what is told of a string.
func shown(v string) string {
	if len(v) > maxShown {
		return v[:maxShown] + "…"
	}
	return v
}

// metadata is what handlers of services see. The error has a status.
func (h *head) metadata() (metadata.MD, error) {
	md := metadata.MD{}
	for _, f := range h.more {
		v := f.Value
		if strings.HasSuffix(f.Name, bytesSuffix) {
			// Values of one name may have been put together on the way.
			for one := range strings.SplitSeq(v, ",") {
				if len(md[f.Name]) == mostFields {
					break
				}
				raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(one), "="))
				if err != nil {
					return nil, status.Errorf(codes.Internal, "malformed binary metadata in header %q", shown(f.Name))
				}
				md[f.Name] = append(md[f.Name], string(raw))
			}
			continue
		}
		md[f.Name] = append(md[f.Name], v)
	}
	return md, nil
}

// bytesSuffix is the end of the names of headers whose values are bytes.
const bytesSuffix = "-bin"

// lower tells whether a name may stand in HTTP/2.
func lower(name string) bool {
	for i := range len(name) {
		if c := name[i]; c <= ' ' || c >= 0x7f || c >= 'A' && c <= 'Z' || c == ':' {
			return false
		}
	}
	return name != ""
}

// reserved are the headers that are not an application's.
func reserved(name string) bool {
	switch name {
	case "content-type", "user-agent", "grpc-message-type", "grpc-encoding", "grpc-accept-encoding", "grpc-message", "grpc-status", "grpc-timeout", "te":
		return true
	}
	return strings.HasPrefix(name, ":")
}

// clean tells whether a value may stand in HTTP/2.
func clean(value string) bool {
	for i := range len(value) {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// put writes a field into the block under way. Called with the lock held.
func (c *conn) put(name, value string) {
	c.listed += int64(len(name) + len(value) + h2.HeaderOverhead)
	if err := c.enc.WriteField(hpack.HeaderField{Name: name, Value: value}); err != nil {
		panic(err) // a bytes.Buffer takes everything
	}
}

// ofConnection are the headers of HTTP/1 that make a reply of HTTP/2 malformed (RFC 9113, section 8.2.2), or tell of the length of all of it.
func ofConnection(name string) bool {
	switch name {
	case "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade", "content-length":
		return true
	}
	return false
}

// putMeta writes further headers, but those that may not stand there.
func (c *conn) putMeta(md metadata.MD) {
	for name, values := range md {
		if !lower(name) || reserved(name) || ofConnection(name) {
			continue
		}
		for _, v := range values {
			if strings.HasSuffix(name, bytesSuffix) {
				v = base64.RawStdEncoding.EncodeToString([]byte(v))
			} else if !clean(v) {
				continue
			}
			c.put(name, v)
		}
	}
}

// putStatus writes the status of a call.
func (c *conn) putStatus(st *status.Status, md metadata.MD) {
	c.put("grpc-status", number(st.Code()))
	c.put("grpc-message", escape(st.Message()))
	const details = "grpc-status-details-bin"
	if p := st.Proto(); len(p.GetDetails()) > 0 {
		if b, err := proto.Marshal(p); err == nil {
			c.put(details, base64.RawStdEncoding.EncodeToString(b))
			if _, both := md[details]; both {
				md = md.Copy()
				delete(md, details)
			}
		}
	}
	c.putMeta(md)
}

var numbers = [...]string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16"}

func number(c codes.Code) string {
	if int(c) < len(numbers) {
		return numbers[c]
	}
	return strconv.Itoa(int(c))
}

// escape is the percent encoding of messages, which are of UTF-8.
func escape(v string) string {
	v = strings.ToValidUTF8(v, "\ufffd")
	plain := func(c byte) bool { return c >= ' ' && c <= '~' && c != '%' }
	i := 0
	for i < len(v) && plain(v[i]) {
		i++
	}
	if i == len(v) {
		return v
	}
	out := []byte(v[:i])
	for ; i < len(v); i++ {
		if c := v[i]; plain(c) {
			out = append(out, c)
		} else {
			out = fmt.Appendf(out, "%%%02X", c)
		}
	}
	return string(out)
}

// mostNames is how many names of a list are kept: to look for each among the others takes time.
const mostNames = 32

// lists are the names of a list with commas.
func lists(v string) (names []string) {
	for one := range strings.SplitSeq(v, ",") {
		if len(names) == mostNames {
			break
		}
		if one = strings.TrimSpace(one); one != "" && !slices.Contains(names, one) {
			names = append(names, one)
		}
	}
	return names
}
