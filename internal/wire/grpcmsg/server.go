package grpcmsg

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/keepalive"

	"github.com/weft-search/weft/internal/wire/grpcconn"
)

// maxOther is the longest message of services that do not take their own, those of health and reflection.
const maxOther = 64 << 10

// ServerOptions are those of a server whose clients are Summa's, node and broker alike: plain HTTP/2 with its windows, streams and pings.
// The connections are those that ConnOf finds; they are ended when their clients take nothing of a reply for stall, and cut is told, which
// may be nil. mostSent is the longest message that is sent.
func ServerOptions(stall time.Duration, mostSent int, cut func()) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(encoding.GetCodecV2(protocodec.Name)),
		grpc.Creds(Credentials(insecure.NewCredentials(), grpcconn.Options{Stall: stall, Replies: true, Cut: cut})),
		grpc.InTapHandle(grpcconn.Tap),
		grpc.WaitForHandlers(true),
		grpc.MaxRecvMsgSize(maxOther),
		grpc.MaxSendMsgSize(mostSent),
		grpc.MaxConcurrentStreams(256),
		grpc.InitialWindowSize(2 << 20),
		grpc.InitialConnWindowSize(4 << 20),
		grpc.MaxHeaderListSize(16 << 10),
		grpc.ConnectionTimeout(10 * time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		// Summa's servers do not count pings.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Nanosecond, PermitWithoutStream: true}),
	}
}
