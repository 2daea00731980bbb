package front

import (
	"fmt"

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
	bad := func(what string) (string, *api.Problem) {
		return "", api.NewProblem(api.InvalidParameter, KeyHeader+": "+what).On(KeyHeader).Within(maxKey)
	}
	key := values[0]
	if len(values) > 1 {
		return bad("it is given more than once")
	}
	if key == "" || len(key) > maxKey {
		return bad(fmt.Sprintf("it has 1 to %d characters", maxKey))
	}
	for i := range len(key) {
		if key[i] < ' ' || key[i] > '~' {
			return bad("it has printable characters of ASCII only")
		}
	}
	return key, nil
}
