// Package summagolden reads the recorded answers of the reference (data set summa-golden) for tests that replay them. What a case and
// its members mean is told in the data set's README.
package summagolden

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	summapb "github.com/weft-search/weft/api/summa"
	brokerpb "github.com/weft-search/weft/api/summa/broker"
)

// Files are the recordings, without their ending.
var Files = []string{"node", "cluster", "broker-plain", "broker-fusion", "broker-formula"}

// Case is one call and its answer.
type Case struct {
	Seq         int             `json:"seq"` // order of recording over all files
	Name        string          `json:"name"`
	Target      string          `json:"target"`
	RPC         string          `json:"rpc"`
	Request     json.RawMessage `json:"request"`
	RequestB64  Messages        `json:"request_b64"`  // several for a stream; none where RequestRule tells how to make it
	RequestRule string          `json:"request_rule"` // for a request too large to keep
	Code        string          `json:"code"`         // as in NOT_FOUND
	Message     string          `json:"message"`
	Response    json.RawMessage `json:"response"`
	ResponseB64 []byte          `json:"response_b64"`
	Rule        string          `json:"rule"`
	Note        string          `json:"note"`
	Nodes       []Call          `json:"nodes"`
	NodeBatches []int           `json:"node_batches"`
}

// Call is one call that a broker made of a scripted node, and what the node answered.
type Call struct {
	Node        string          `json:"node"`
	RPC         string          `json:"rpc"`
	Request     json.RawMessage `json:"request"`
	RequestB64  []byte          `json:"request_b64"`
	Encoding    string          `json:"encoding"`
	Deadline    bool            `json:"deadline"`
	Code        string          `json:"code"`
	Message     string          `json:"message"`
	Response    json.RawMessage `json:"response"`
	ResponseB64 []byte          `json:"response_b64"`
}

// Messages are wire bytes: of one message, or of a stream's.
type Messages [][]byte

// UnmarshalJSON takes a text in base64 or a list of them.
func (m *Messages) UnmarshalJSON(b []byte) error {
	if bytes.HasPrefix(b, []byte("[")) {
		return json.Unmarshal(b, (*[][]byte)(m))
	}
	var one []byte
	if err := json.Unmarshal(b, &one); err != nil {
		return err
	}
	*m = Messages{one}
	return nil
}

// Load reads one of Files from the folder of the data set, in the order of recording.
func Load(dir, file string) ([]Case, error) {
	f, err := os.Open(filepath.Join(dir, file+".jsonl.gz"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	var out []Case
	lines := bufio.NewScanner(z)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var c Case
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return nil, fmt.Errorf("%s: case %d: %w", file, len(out)+1, err)
		}
		out = append(out, c)
	}
	return out, lines.Err()
}

// Documents reads the documents of an index (notes, plain or parts) in the order in which they were indexed.
func Documents(dir, index string) ([]*summapb.NamedDocument, error) {
	b, err := os.ReadFile(filepath.Join(dir, "documents-"+index+".jsonl"))
	if err != nil {
		return nil, err
	}
	var out []*summapb.NamedDocument
	for line := range strings.SplitSeq(strings.TrimSpace(string(b)), "\n") {
		d := &summapb.NamedDocument{}
		if err := protojson.Unmarshal([]byte(line), d); err != nil {
			return nil, fmt.Errorf("document %d of %s: %w", len(out)+1, index, err)
		}
		out = append(out, d)
	}
	return out, nil
}

// Schema reads the SDL of an index as it was declared.
func Schema(dir, index string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, "schema-"+index+".sdl"))
	return string(b), err
}

// Method describes a call by its name, such as Search; nil if there is none.
func Method(rpc string) protoreflect.MethodDescriptor {
	for _, f := range []protoreflect.FileDescriptor{summapb.File_summa_summa_proto, brokerpb.File_summa_broker_broker_proto} {
		for i := range f.Services().Len() {
			if m := f.Services().Get(i).Methods().ByName(protoreflect.Name(rpc)); m != nil {
				return m
			}
		}
	}
	return nil
}

// Decode reads the wire bytes of a message of the described type.
func Decode(m protoreflect.MessageDescriptor, wire []byte) (proto.Message, error) {
	t, err := protoregistry.GlobalTypes.FindMessageByName(m.FullName())
	if err != nil {
		return nil, err
	}
	out := t.New().Interface()
	return out, proto.Unmarshal(wire, out)
}

// Requests decodes what the case sends.
func (c *Case) Requests() ([]proto.Message, error) {
	m := Method(c.RPC)
	if m == nil {
		return nil, fmt.Errorf("%s: no call %s", c.Name, c.RPC)
	}
	var out []proto.Message
	for _, wire := range c.RequestB64 {
		msg, err := Decode(m.Input(), wire)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
		out = append(out, msg)
	}
	return out, nil
}

// Reply decodes what the case was answered; nil without an answer.
func (c *Case) Reply() (proto.Message, error) {
	m := Method(c.RPC)
	if m == nil || c.Code != "OK" {
		return nil, nil
	}
	return Decode(m.Output(), c.ResponseB64)
}
