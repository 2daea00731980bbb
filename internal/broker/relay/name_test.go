package relay

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
)

func TestIndexNames(t *testing.T) {
	for name, c := range map[string]struct {
		in   []byte
		want string
		code codes.Code
	}{
		"nothing":              {nil, "", codes.OK},
		"first":                {named("docs", padded(3)), "docs", codes.OK},
		"the last wins":        {append(named("docs", padded(3)), named("other", nil)...), "other", codes.OK},
		"the last is empty":    {append(named("docs", nil), 1<<3|2, 0), "", codes.OK},
		"behind the rest":      {append(padded(300), named("docs", nil)...), "docs", codes.OK},
		"another type":         {append([]byte{1 << 3, 7}, named("docs", nil)...), "docs", codes.OK},
		"fixed":                {append([]byte{2<<3 | 1, 1, 2, 3, 4, 5, 6, 7, 8, 2<<3 | 5, 1, 2, 3, 4}, named("docs", nil)...), "docs", codes.OK},
		"within a group":       {append([]byte{9<<3 | 3, 1<<3 | 2, 1, 'x', 9<<3 | 4}, named("docs", nil)...), "docs", codes.OK},
		"group of another end": {[]byte{9<<3 | 3, 8<<3 | 4}, "", codes.Internal},
		"group without end":    {[]byte{9<<3 | 3}, "", codes.Internal},
		"groups too deep":      {bytes.Repeat([]byte{9<<3 | 3}, maxGroups+1), "", codes.Internal},
		"cut":                  {named("docs", nil)[:4], "", codes.Internal},
		"cut number":           {[]byte{0x88}, "", codes.Internal},
		"field 0":              {[]byte{2, 0}, "", codes.Internal},
		"type 7":               {[]byte{1<<3 | 7, 0}, "", codes.Internal},
		"long number":          {append(bytes.Repeat([]byte{0xff}, 10), 1), "", codes.Internal},
		"not UTF-8":            {named("\xff", nil), "", codes.Internal},
		"longest":              {named(strings.Repeat("x", maxName), nil), strings.Repeat("x", maxName), codes.OK},
		"too long":             {named(strings.Repeat("x", maxName+1), nil), "", codes.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			for _, cut := range []int{1, 2, 1 << 20} {
				var data mem.BufferSlice
				for b := c.in; len(b) > 0; {
					n := min(cut, len(b))
					data, b = append(data, mem.SliceBuffer(b[:n])), b[n:]
				}
				got, err := indexName(data)
				if got != c.want || status.Code(err) != c.code {
					t.Errorf("in pieces of %d: %q, %v", cut, got, err)
				}
			}
			for _, encoding := range []string{"gzip", "zstd"} {
				got, err := compressedIndexName(mem.BufferSlice{mem.SliceBuffer(compress(t, encoding, c.in))}, encoding, 1<<20)
				if got != c.want || status.Code(err) != c.code {
					t.Errorf("%s: %q, %v", encoding, got, err)
				}
			}
		})
	}
}

// TestCompressedBombs are longer inside than a message may be.
func TestCompressedBombs(t *testing.T) {
	for _, encoding := range []string{"gzip", "zstd"} {
		in := compress(t, encoding, named("x", padded(8<<20)))
		_, err := compressedIndexName(mem.BufferSlice{mem.SliceBuffer(in)}, encoding, 4<<20)
		want(t, err, codes.ResourceExhausted, "Error decompressing: size limit, of `4194304` bytes, exceeded while decompressing compressed message")
	}
	_, err := compressedIndexName(mem.BufferSlice{mem.SliceBuffer("nonsense")}, "zstd", 1<<20)
	want(t, err, codes.Internal, "Error decompressing: the message is damaged")
}

// FuzzIndexName holds the reader against a decoder of Protocol Buffers.
func FuzzIndexName(f *testing.F) {
	f.Add(named("docs", padded(3)), 1)
	f.Add(append(named("docs", nil), named("other", nil)...), 3)
	f.Add([]byte{9<<3 | 3, 1<<3 | 2, 1, 'x', 9<<3 | 4}, 2)
	f.Fuzz(func(t *testing.T, in []byte, cut int) {
		cut = max(cut%16, 1)
		var data mem.BufferSlice
		for b := in; len(b) > 0; {
			n := min(cut, len(b))
			data, b = append(data, mem.SliceBuffer(b[:n])), b[n:]
		}
		got, err := indexName(data)
		if status.Code(err) == codes.InvalidArgument {
			return
		}
		name, bad := "", proto.UnmarshalOptions{}.Unmarshal(in, &emptypb.Empty{})
		for b := in; bad == nil && len(b) > 0; {
			num, typ, n := protowire.ConsumeTag(b)
			if n < 0 {
				bad = protowire.ParseError(n)
				break
			}
			if b = b[n:]; num == 1 && typ == protowire.BytesType {
				v, n := protowire.ConsumeBytes(b)
				if n < 0 {
					t.Fatal("the decoder took a message that is cut")
				}
				name = string(v)
			}
			n = protowire.ConsumeFieldValue(num, typ, b)
			if n < 0 {
				bad = protowire.ParseError(n)
				break
			}
			b = b[n:]
		}
		if bad == nil && err == nil && got != name {
			t.Errorf("%q, and %q by the decoder", got, name)
		}
		// The decoder of messages does not look whether the name is UTF-8, and takes deeper groups.
		if bad != nil && err == nil {
			t.Errorf("%q of a message that is none: %v", got, bad)
		}
	})
}
