package service

import (
	"log/slog"
	"time"

	"github.com/weft-search/weft/internal/broker/fleet"
	"github.com/weft-search/weft/internal/broker/relay"
	"github.com/weft-search/weft/internal/broker/route"
	"github.com/weft-search/weft/internal/obs"
	"github.com/weft-search/weft/internal/wire/grpcraw"
)

// Config says what is served. Source, Placement, Log and Metrics have to be set; a zero field means its default otherwise.
type Config struct {
	Addr        string // host:port of the services
	MetricsAddr string // of /metrics; empty: it is not served

	Source    fleet.Source
	Placement *route.Placement

	BackendSearches int // in flight for each address of a node: 16
	Searches        int // in flight in all; 0: no bound but those of the nodes

	// Adaptive has reads of an index on one shard go to the copy that is expected to answer first, and to a second one when that is slow. Without
	// it they go to the healthy copies in turn.
	Adaptive bool
	// FirstDelay is after how long such a read goes to a second copy while it is not known how long reads take: 100 ms.
	FirstDelay time.Duration

	Partial   bool          // reads of partitioned indexes are answered by what is left
	Straggler time.Duration // with Partial: how long others have once one partition has answered; 0: as long as the call

	// Transfer bounds the replies of all nodes to one search that the broker ranks itself, in bytes without compression, and the answer: 64 MiB.
	// Such a search takes coordinate.MostHeld besides, at most.
	Transfer int

	PollInterval, ProbeInterval, Grace, ListTimeout time.Duration // as in fleet.Options

	Limits       relay.Limits
	RequestBytes int64 // memory for requests under way, and for replies that are merged: 1 GiB
	Nodes        grpcraw.Options

	Log     *slog.Logger
	Metrics *obs.Metrics
}

func (c Config) withDefaults() Config {
	if c.BackendSearches <= 0 {
		c.BackendSearches = 16
	}
	if c.ListTimeout <= 0 {
		c.ListTimeout = 3 * time.Second
	}
	if c.FirstDelay <= 0 {
		c.FirstDelay = firstDelay
	}
	if c.RequestBytes <= 0 {
		c.RequestBytes = 1 << 30
	}
	if c.Transfer <= 0 {
		c.Transfer = 64 << 20
	}
	c.Limits = c.Limits.WithDefaults()
	return c
}
