package leaf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/weft-search/weft/internal/api"
)

func TestWhyNothingWasHeardOfANode(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	at := func(err error) error { return &TransportError{Address: "127.0.0.1:1", Call: "IDs", Cause: err} }
	for _, tt := range []struct {
		name string
		err  error
		why  string // empty: something was heard
	}{
		{"refused", at(refused), "connection refused"},
		{"refused below a second layer", at(at(fmt.Errorf("connect: %w", refused))), "connection refused"},
		{
			"as gRPC says it",
			at(errors.New(`rpc error: code = Unavailable desc = connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: connect: connection refused"`)),
			"connection refused",
		},
		{"in words alone", at(errors.New("gone")), "gone"},
		{"no such host", at(&net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "a", Server: "127.0.0.53:53", IsNotFound: true}}), "there is no host of this name"},
		{"out of time", context.DeadlineExceeded, "it took too long"},
		{"out of time on the way", at(fmt.Errorf("read: %w", os.ErrDeadlineExceeded)), "it took too long"},
		{"no way there", at(&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ETIMEDOUT)}), "it took too long"},
		{"closed", at(io.ErrUnexpectedEOF), "the connection was closed"},
		{"a problem", api.NewProblem(api.ReadOnly, "the disk failed"), ""},
		{"the caller has left", context.Canceled, ""},
		{"none", nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			why, silent := Silent(tt.err)
			if why != tt.why || silent != (tt.why != "") {
				t.Errorf("%q, %v; want %q", why, silent, tt.why)
			}
		})
	}
}
