package service_test

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/broker/service"
)

// short puts a way before a node on which a connection ends in good order once so many bytes have come back on it.
func short(t *testing.T, n *fake, most int64) {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	to := n.addr
	n.addr = lis.Addr().String()
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", to)
			if err != nil {
				c.Close()
				continue
			}
			all.Go(func() {
				io.Copy(up, c) //nolint:errcheck // whoever is gone is gone
				up.Close()
			})
			all.Go(func() {
				io.CopyN(c, up, most) //nolint:errcheck // likewise
				c.(*net.TCPConn).CloseWrite()
				io.Copy(io.Discard, up) //nolint:errcheck // likewise
				c.Close()
			})
		}
	})
	t.Cleanup(func() {
		if err := lis.Close(); err != nil {
			t.Error(err)
		}
		all.Wait()
	})
}

// TestANodeThatIsLostWithinAReplyThatIsMerged has a partition end its connection within its reply: the call fails, and the broker goes on.
func TestANodeThatIsLostWithinAReplyThatIsMerged(t *testing.T) {
	all := []*fake{{id: "a", shard: "0", indexes: []string{"parts", "whole"}}, {id: "b", shard: "1", indexes: []string{"parts"}}}
	long := encoded(t, &summapb.SearchResponse{RankingMethod: strings.Repeat("x", 300<<10)})
	nodes(t, func(*asked) ([]byte, error) { return long, nil }, all...)
	short(t, all[1], 200<<10)
	s := start(t, service.Config{Source: source(all), Placement: placement(t, "single", "parts=0,1")}, 2)
	for range 3 {
		for _, rpc := range []string{"Search", "GetDocument", "GetIndexInfo", "GetTextStats", "Commit"} {
			_, err := s.call(t.Context(), rpc, searchOf(t, "parts"))
			if rpc == "GetDocument" && err == nil {
				continue // of the other partition
			}
			want(t, rpc, err, codes.Unavailable, "index 'parts' partition on shard '1': the connection to the node is lost")
		}
	}
	if got, err := s.call(t.Context(), "Search", searchOf(t, "whole")); err != nil || string(got) != string(long) {
		t.Errorf("a search elsewhere: %d bytes, %v", len(got), err)
	}
}
