package obs

import (
	"context"
	"crypto/rand"
	"encoding/hex"
)

// RequestIDHeader carries a request's id in both directions.
const RequestIDHeader = "X-Request-Id"

// maxRequestID bounds an id taken over from a caller; longer ones are replaced.
const maxRequestID = 64

type requestIDKey struct{}

// NewRequestID returns a fresh random id of 32 hexadecimal digits.
func NewRequestID() string {
	var b [16]byte
	// crypto/rand.Read never returns an error; it ends the program when the system has no randomness.
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// AcceptRequestID returns the id that a caller gave if it is safe to log and to send back (1 to 64 letters, digits, '-', '_',
// '.' or ':'), else a fresh one.
func AcceptRequestID(given string) string {
	if given == "" || len(given) > maxRequestID {
		return NewRequestID()
	}
	for i := range len(given) {
		c := given[i]
		ok := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.' || c == ':'
		if !ok {
			return NewRequestID()
		}
	}
	return given
}

// WithRequestID returns a context that carries the id.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestIDKey{}, id)
}

// RequestID returns the id of the request that ctx belongs to, empty if there is none.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}
