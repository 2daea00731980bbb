package summa

import (
	"fmt"
	"math"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Error is the refusal of a call, as the client sees it. The gRPC server takes code and text from it; status.Code and errors.As see it
// through wrapping.
type Error struct {
	Code codes.Code
	Text string
}

// Error implements error.
func (e *Error) Error() string { return e.Code.String() + ": " + e.Text }

// GRPCStatus makes the error the status of a call.
func (e *Error) GRPCStatus() *status.Status { return status.New(e.Code, e.Text) }

func invalid(format string, args ...any) *Error {
	return &Error{codes.InvalidArgument, fmt.Sprintf(format, args...)}
}

// number prints a float as the reference does: never with an exponent.
func number(f float64, bits int) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 0):
		if f < 0 {
			return "-inf"
		}
		return "inf"
	}
	return strconv.FormatFloat(f, 'f', -1, bits)
}
