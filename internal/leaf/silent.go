package leaf

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
)

// Silent tells whether an error says that nothing was heard of a node, and why: in a few words for whoever has named the node, without its
// address, which errors of connections repeat, and without the call.
func Silent(err error) (why string, silent bool) {
	_, transport := errors.AsType[*TransportError](err)
	if !transport && !errors.Is(err, context.DeadlineExceeded) {
		return "", false
	}
	if timed, ok := errors.AsType[net.Error](err); ok && timed.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		return "it took too long", true
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error(), true
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
		return "there is no host of this name", true
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "the connection was closed", true
	}
	// Each layer puts its words before those of the one below: the last are what happened.
	text := err.Error()
	return strings.Trim(text[strings.LastIndex(text, ": ")+1:], ` "`), true
}
