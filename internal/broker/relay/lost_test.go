package relay

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/wire/grpcmsg"
	"github.com/weft-search/weft/internal/wire/grpcraw"
)

// TestANodeThatIsLostWithinAReplyIsToldCleanly: a client of the usual kind learns that the node is unavailable, and not that a message is cut, for
// as long as a reply is kept until it is whole.
func TestANodeThatIsLostWithinAReplyIsToldCleanly(t *testing.T) {
	type connKey struct{}
	var long, sent int
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{
		ReadHeaderTimeout: time.Minute, Protocols: new(http.Protocols),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ok(w)
			w.Write(grpcmsg.Header(false, long))
			w.Write(make([]byte, sent))
			w.(http.Flusher).Flush()
			r.Context().Value(connKey{}).(net.Conn).Close()
		}),
	}
	srv.Protocols.SetUnencryptedHTTP2(true)
	var wg sync.WaitGroup
	wg.Go(func() { srv.Serve(lis) })
	defer wg.Wait()
	defer srv.Close()
	b := serving(t, lis.Addr().String(), grpcraw.Options{Backoff: time.Nanosecond, MaxBackoff: time.Nanosecond})
	conn, err := grpc.NewClient(b.addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, c := range []struct{ long, sent int }{{10, 0}, {10, 9}, {10_000, 5000}, {1 << 20, 1000}, {1 << 20, 1<<20 - 1}, {replyWindow - grpcraw.PrefixBytes, 1 << 20}} {
		long, sent = c.long, c.sent
		err := conn.Invoke(t.Context(), search, &summapb.SearchRequest{IndexName: "x"}, &summapb.SearchResponse{})
		want(t, err, codes.Unavailable, "the connection to the node is lost")
		if o := <-b.done; o.Code != codes.Unavailable || !o.Transport {
			t.Errorf("%+v: outcome %v", c, o)
		}
	}
}
