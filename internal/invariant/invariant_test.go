package invariant

import (
	"strings"
	"testing"
)

func TestLentBytesDieAfterTheCallWithChecksOn(t *testing.T) {
	own := []byte("abc")
	var kept []byte
	if !Lend(func(b []byte, n int) bool { kept = b; return string(b) == "abc" && n == 7 })(own, 7) {
		t.Error("arguments do not reach the function, or its result is lost")
	}
	want := "abc"
	if Enabled {
		want = "\xdb\xdb\xdb"
	}
	if string(kept) != want || string(own) != "abc" {
		t.Errorf("kept %q, the lender has %q", kept, own)
	}
}

func TestLendingIsFreeWithChecksOff(t *testing.T) {
	fn := func([]byte, uint32) bool { return true }
	if n := testing.AllocsPerRun(100, func() { Lend(fn)(nil, 1) }); n != 0 && !Enabled {
		t.Errorf("%v allocations", n)
	}
}

func TestFailPanicsWithItsMessage(t *testing.T) {
	defer func() {
		if s, ok := recover().(string); !ok || !strings.HasPrefix(s, "invariant violated: ") || !strings.HasSuffix(s, "5 of 3") {
			t.Errorf("panic with %q", s)
		}
	}()
	Fail("%d of %d", 5, 3)
}
