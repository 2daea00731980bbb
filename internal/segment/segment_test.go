package segment

import (
	"math/rand/v2"
	"testing"
)

func TestWriteRead(t *testing.T) {
	for _, n := range []int{0, 1, 2, 15, 16, 17, 127, 128, 129, 300, 1024, 1025, 3000} {
		rng := rand.New(rand.NewPCG(1, uint64(n)))
		m := randomModel(rng, n)
		r, err := FromBytes("test", m.bytes(t))
		if err != nil {
			t.Fatalf("%d documents: %v", n, err)
		}
		m.check(t, r)
	}
}
