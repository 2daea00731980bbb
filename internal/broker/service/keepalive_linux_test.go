package service_test

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/weft-search/weft/internal/broker/service"
)

// TestSilentClientsAreAskedByTCPAfterAMinute looks at the timer that the system shows of a connection to the broker.
func TestSilentClientsAreAskedByTCPAfterAMinute(t *testing.T) {
	n := &fake{id: "n", shard: "0", indexes: []string{"x"}}
	nodes(t, func(*asked) ([]byte, error) { return nil, nil }, n)
	s := start(t, service.Config{Source: source([]*fake{n}), Placement: placement(t, "single")}, 1)
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	end := func(a net.Addr) string { return fmt.Sprintf(":%04X", a.(*net.TCPAddr).Port) }
	var left int64
	soon(t, "the timer runs", func() bool {
		b, err := os.ReadFile("/proc/net/tcp")
		if err != nil {
			t.Skipf("the system does not show its connections: %v", err)
		}
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) < 6 || !strings.HasSuffix(f[1], end(c.RemoteAddr())) || !strings.HasSuffix(f[2], end(c.LocalAddr())) {
				continue
			}
			kind, when, _ := strings.Cut(f[5], ":") // 02: a timer for a connection on which nothing happens, in hundredths of a second
			if left, err = strconv.ParseInt(when, 16, 64); err == nil && kind == "02" {
				return true
			}
		}
		return false
	})
	if left < 40_00 || left > 60_50 {
		t.Errorf("it is asked in %d hundredths of a second", left)
	}
}
