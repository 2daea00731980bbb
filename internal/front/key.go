package front

import (
	"fmt"
	"strings"

	"github.com/weft-search/weft/internal/api"
)

// KeyHeader is the header that names a bulk load, so that it can be sent again without being applied twice.
const KeyHeader = "Idempotency-Key"

// maxKey is the longest key in bytes.
const maxKey = 128

// IdempotencyKey is the name that the caller gives to its load, empty if none: 1 to 128 printable characters of ASCII.
func (c *Call) IdempotencyKey() (string, *api.Problem) {
	values := c.r.Header.Values(KeyHeader)
	if len(values) == 0 {
		return "", nil
	}
	key := values[0]
	printable := func(r rune) bool { return r >= ' ' && r <= '~' }
	if len(values) > 1 || key == "" || len(key) > maxKey || strings.ContainsFunc(key, func(r rune) bool { return !printable(r) }) {
		return "", api.NewProblem(api.InvalidParameter, fmt.Sprintf("%s: it is given once, with 1 to %d printable ASCII characters", KeyHeader, maxKey)).
			On(KeyHeader).Within(maxKey)
	}
	return key, nil
}
