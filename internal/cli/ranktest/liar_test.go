package ranktest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"path"
	"strconv"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// raw is a codec whose messages are their bytes.
type raw struct{}

func (raw) Name() string { return "proto" }

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = bytes.Clone(data.Materialize())
	return nil
}

var _ encoding.CodecV2 = raw{}

// said is how a reply goes over the wire.
type said struct {
	body     []byte // the message
	wire     []byte // instead of the message and the prefix of five bytes before it, if not nil
	encoding string // grpc-encoding; body is compressed by it
	nothing  bool   // no message
	code     int    // grpc-status
	text     string // grpc-message
	http     int    // status; 200 if 0
	kind     string // content-type; that of gRPC if empty
	open     bool   // no trailers
	hang     bool   // behind the message, until the caller leaves
}

// lie says what a node answers instead of the truth; nil: the truth. It may be called by many at once.
type lie func(rpc string, req, truth []byte) *said

// liar stands before a node and passes what it says on, or something else.
type liar struct {
	addr string
	node *grpc.ClientConn

	mu    sync.Mutex
	tells lie
	heard int // calls
}

// lying puts a liar before a node. It ends with the test.
func lying(t testing.TB, node *server) *liar {
	t.Helper()
	conn, err := grpc.NewClient(node.addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(512<<20), grpc.MaxCallSendMsgSize(512<<20)))
	if err != nil {
		t.Fatal(err)
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &liar{addr: lis.Addr().String(), node: conn}
	s := &http.Server{Handler: l, Protocols: new(http.Protocols), ErrorLog: log.New(io.Discard, "", 0)}
	s.Protocols.SetUnencryptedHTTP2(true)
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := s.Serve(lis); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), conn.Close()); err != nil {
			t.Error(err)
		}
		serving.Wait()
	})
	return l
}

// tell has the liar lie from now on; nil: not any more.
func (l *liar) tell(tells lie) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tells = tells
}

// calls is how many came, but for the looks of the broker at its nodes.
func (l *liar) calls() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.heard
}

func (l *liar) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	req, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller has left
	}
	if len(req) < 5 || req[0] != 0 {
		http.Error(w, "no plain message of gRPC", http.StatusBadRequest)
		return
	}
	req = req[5:]
	rpc := path.Base(r.URL.Path)
	l.mu.Lock()
	tells := l.tells
	if rpc != "ListIndexes" {
		l.heard++
	}
	l.mu.Unlock()
	var truth []byte
	err = l.node.Invoke(r.Context(), r.URL.Path, &req, &truth, grpc.ForceCodecV2(raw{}))
	st := status.Convert(err)
	out := &said{body: truth, code: int(st.Code()), text: st.Message(), nothing: err != nil}
	if tells != nil {
		if other := tells(rpc, req, truth); other != nil {
			out = other
		}
	}
	out.write(w, r.Context())
}

func (s *said) write(w http.ResponseWriter, caller context.Context) {
	h := w.Header()
	h.Set("Content-Type", "application/grpc")
	if s.kind != "" {
		h.Set("Content-Type", s.kind)
	}
	if s.encoding != "" {
		h.Set("Grpc-Encoding", s.encoding)
	}
	if s.http != 0 {
		w.WriteHeader(s.http)
	}
	out := s.wire
	if out == nil && !s.nothing {
		out = framed(s.body, s.encoding != "")
	}
	if len(out) > 0 {
		if _, err := w.Write(out); err != nil {
			return
		}
	}
	if s.hang {
		if err := http.NewResponseController(w).Flush(); err != nil {
			return
		}
		<-caller.Done()
		return
	}
	if !s.open {
		h.Set(http.TrailerPrefix+"Grpc-Status", strconv.Itoa(s.code))
		if s.text != "" {
			h.Set(http.TrailerPrefix+"Grpc-Message", s.text)
		}
	}
}

// framed is a message with the prefix of gRPC.
func framed(body []byte, compressed bool) []byte {
	out := make([]byte, 5, 5+len(body))
	if compressed {
		out[0] = 1
	}
	binary.BigEndian.PutUint32(out[1:], uint32(len(body)))
	return append(out, body...)
}

// message is a pointer to a generated message M.
type message[M any] interface {
	*M
	proto.Message
}

// edited is the lie that changes the replies to one call.
func edited[M any, P message[M]](rpc string, change func(m P)) lie {
	return func(called string, _, truth []byte) *said {
		if called != rpc {
			return nil
		}
		m := P(new(M))
		if err := proto.Unmarshal(truth, m); err != nil {
			panic(fmt.Sprintf("the truth cannot be read: %v", err))
		}
		change(m)
		body, err := proto.Marshal(m)
		if err != nil {
			panic(fmt.Sprintf("a lie cannot be told: %v", err))
		}
		return &said{body: body}
	}
}

// bytesOf is the lie that changes the bytes of the replies to one call.
func bytesOf(rpc string, change func(truth []byte) *said) lie {
	return func(called string, _, truth []byte) *said {
		if called != rpc {
			return nil
		}
		return change(bytes.Clone(truth))
	}
}

// refusal is a reply that is a status alone.
func refusal(code codes.Code, text string) *said {
	return &said{nothing: true, code: int(code), text: text}
}
