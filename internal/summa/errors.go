package summa

import (
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

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

// GRPCStatus makes the error the status of a call, of no more than MaxErrorText bytes.
func (e *Error) GRPCStatus() *status.Status { return status.New(e.Code, Cut(e.Text, MaxErrorText)) }

// MaxErrorText bounds the text of an error in bytes. It stands in a trailer, where it can take three times as many; clients commonly end
// connections whose headers have more than 8 KiB.
const MaxErrorText = 2 << 10

// Cut returns a text that is no longer than so many bytes, with … in the place of what is too much. Characters stay whole.
func Cut(s string, most int) string {
	const more = "…"
	if len(s) <= most {
		return s
	}
	n := max(most-len(more), 0)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + more
}

func invalid(format string, args ...any) *Error {
	return &Error{codes.InvalidArgument, Cut(fmt.Sprintf(format, args...), MaxErrorText)}
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
