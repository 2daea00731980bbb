package grpcmsg

import (
	"strings"

	"google.golang.org/grpc/codes"
)

// names are the codes as metrics and logs have them.
var names = func() (out [codes.Unauthenticated + 1]string) {
	for c := range out {
		var b strings.Builder
		for i, r := range codes.Code(c).String() {
			if r >= 'A' && r <= 'Z' && i > 0 && codes.Code(c) != codes.OK {
				b.WriteByte('_')
			}
			b.WriteRune(r)
		}
		out[c] = strings.ToLower(b.String())
	}
	out[codes.Canceled] = "cancelled" // as gRPC has it in every other language
	return out
}()

// CodeName is the name of a code as in ok and not_found; that of unknown for one that is not known.
func CodeName(c codes.Code) string {
	if int(c) < len(names) {
		return names[c]
	}
	return names[codes.Unknown]
}
