package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/weft-search/weft/internal/cluster/coordinator"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/leaf/framed"
	"github.com/weft-search/weft/internal/leaf/rpc"
	"github.com/weft-search/weft/internal/serve/replica"
	"github.com/weft-search/weft/internal/store"
	"github.com/weft-search/weft/internal/store/s3"
	"github.com/weft-search/weft/internal/topology/placement"
	"github.com/weft-search/weft/internal/topology/shardmap"
	"github.com/weft-search/weft/internal/wire/frame"
)

type brokerCmd struct {
	HTTP      string `name:"http" placeholder:"ADDR" help:"Address to serve HTTP on, host:port; port 0 picks a free one."`
	GRPC      string `name:"grpc" placeholder:"ADDR" help:"Address to serve shard gRPC on, to stand as one shard of another coordinator."`
	ShardPort string `name:"shard-port" placeholder:"ADDR" help:"Address to serve framed JSON on, likewise."`
	Shards    string `placeholder:"LIST" help:"The members of the cluster: groups separated by commas, in each the primary and its replicas separated by |. An address is host:port of --shard-port, or grpc://host:port of --grpc of a node."`
	ShardMode string `enum:"ring,modulo,rendezvous" default:"ring" help:"How documents are placed: ring, modulo or rendezvous."`
	VNodes    int    `name:"vnodes" default:"128" help:"Virtual nodes of each group on the ring."`
	Pool      int    `default:"200" help:"Hits that each shard gives to a ranking that is fused of two, where a search does not say."`
	Store     string `placeholder:"URL" help:"Where coordinators agree on the shard map and keep their jobs: a folder, or s3://bucket/prefix. Without it the members keep the map."`
	DataDir   string `placeholder:"DIR" help:"Folder for writes that a member missed, and for jobs where there is no --store. Without it, neither outlives a restart."`
	ReadOrder string `enum:"adaptive,preferred" default:"adaptive" help:"Which member of a group answers a read: the one that is expected to answer first, or the first in order that answers."`

	MapEvery    time.Duration `group:"limits" default:"2s" help:"How often the shard map is looked at."`
	RepairEvery time.Duration `group:"limits" default:"10m" help:"How often the members of groups are compared in the background; 0s for never."`
	MoveDocs    int           `group:"limits" name:"move-docs-per-sec" default:"0" help:"Documents per second that a rebalance or a repair copies; 0 for no limit."`
	MoveMB      int           `group:"limits" name:"move-mb-per-sec" default:"0" help:"MiB per second that a rebalance or a repair copies; 0 for no limit."`
	roleFlags

	Summa       string `name:"summa" group:"summa" placeholder:"ADDR" help:"Address to serve as a Summa broker on, for a fleet of Summa servers and nodes with --summa; no other address is served then."`
	MetricsAddr string `group:"summa" placeholder:"ADDR" help:"With --summa: address of /metrics; off if not given."`
	summaFleet
}

// roleFlags are what a coordinator is told like a node.
type roleFlags struct {
	RequestMB    int64         `group:"limits" name:"request-mb" default:"256" help:"Memory in MiB for the bodies of all requests under way."`
	MaxSearches  int           `group:"limits" default:"256" help:"Searches that run at once."`
	MaxWrites    int           `group:"limits" default:"256" help:"Single writes that are under way at once."`
	MaxBulks     int           `group:"limits" default:"8" help:"Bulk loads that are taken at once."`
	SlowSearch   time.Duration `group:"limits" default:"1s" help:"Searches that take longer are logged, without their text; 0s for none."`
	LameDuck     time.Duration `group:"limits" default:"0s" help:"How long /readyz says no and everything else goes on when the server is told to end, for a load balancer to notice."`
	DrainTimeout time.Duration `group:"limits" default:"30s" help:"How long calls under way may go on when the server is told to end."`
}

// Help is shown below the usage line.
func (*brokerCmd) Help() string {
	return `Serves a cluster of nodes as if it were one node. It owns no documents: any number of brokers may stand before the same nodes, and each
can be killed at any time. Every member of a group holds the same documents; a write is acknowledged when all of them have it.

At least one address to serve on is needed (--http, --grpc or --shard-port), and --shards or --store to know the members by. Where a --store
has a shard map, that counts, and --shards only makes the first one: weft topology changes it.

Examples:
  weft broker --http 127.0.0.1:7700 --shards "127.0.0.1:7901|127.0.0.1:7904,127.0.0.1:7902|127.0.0.1:7905"
  weft broker --http 127.0.0.1:7700 --shards "grpc://10.0.0.1:7701,grpc://10.0.0.2:7701" --store s3://bucket/weft
  weft broker --shard-port 127.0.0.1:7900 --shards 127.0.0.1:7901,127.0.0.1:7902

With --summa it is a Summa broker instead: one address for a fleet of Summa servers and weft nodes with --summa, with the flags of that
program (docs/summa-broker.md).

Example:
  weft broker --summa 127.0.0.1:50051 --discovery static --backend id=a,addr=10.0.0.1:50051,shard=0 --backend id=b,addr=10.0.0.2:50051,shard=1`
}

// heapFloor is the memory that a broker may fill before it is collected, however little of it is in use.
const heapFloor = 64 << 20

// spacious keeps the garbage collector from running every few searches: a broker holds next to nothing between them, and the collector runs
// when the heap is twice what was left of it. The memory is never touched, so that it is none of the process. release ends it. Where the
// memory of the process is limited, nothing is done.
func spacious() (release func()) {
	if debug.SetMemoryLimit(-1) < 8*heapFloor {
		return func() {}
	}
	floor := make([]byte, heapFloor)
	return func() { runtime.KeepAlive(floor) }
}

// Run serves.
func (b *brokerCmd) Run(ctx context.Context, glob *globals, io *IO) error {
	if b.Summa != "" {
		return b.summaBroker(ctx, glob, io)
	}
	if b.MetricsAddr != "" {
		return usage(errors.New("--metrics-addr goes with --summa; a broker of a cluster has /metrics at --http"))
	}
	if b.HTTP == "" && b.GRPC == "" && b.ShardPort == "" {
		return usage(errors.New("nothing to serve: give an address with --http, --grpc or --shard-port"))
	}
	log, err := glob.logger(io)
	if err != nil {
		return err
	}
	cfg, err := b.config(io, log)
	if err != nil {
		return err
	}
	if b.Store != "" {
		s, closeStore, err := openStore(ctx, b.Store)
		if err != nil {
			return fmt.Errorf("--store: %w", err)
		}
		defer func() {
			if cerr := closeStore(); cerr != nil {
				log.Error("close the store", "error", cerr)
			}
		}()
		cfg.Store = s
		if cfg.Shards == nil {
			lacksMap(ctx, log, s)
		}
	}
	defer spacious()()
	return b.roleFlags.serve(ctx, io, cfg, nil)
}

// summaBroker serves as a Summa broker.
func (b *brokerCmd) summaBroker(ctx context.Context, glob *globals, io *IO) error {
	if b.HTTP != "" || b.GRPC != "" || b.ShardPort != "" || b.Shards != "" || b.Store != "" {
		return usage(errors.New("--summa serves a fleet of Summa servers, and none of --http, --grpc, --shard-port, --shards and --store goes with it"))
	}
	log, err := glob.logger(io)
	if err != nil {
		return err
	}
	cfg, err := b.fleetConfig(log)
	if err != nil {
		return usage(err)
	}
	if cfg.Addr, cfg.MetricsAddr, err = serviceAddresses("--summa", b.Summa, b.MetricsAddr); err != nil {
		return usage(err)
	}
	return b.serveSumma(ctx, io, cfg, b.DrainTimeout)
}

// lacksMap says what to do about a store without a shard map, where no --shards make the first one. It is none of an error: another broker
// may be about to make it.
func lacksMap(ctx context.Context, log *slog.Logger, s store.Store) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if _, _, err := shardmap.NewStoreSource(s).Load(ctx); errors.Is(err, shardmap.ErrNotFound) {
		log.Warn("the store has no shard map, and nothing is served until it has one: start one broker with --shards and this --store, and it makes the first; is --store the one of the cluster?")
	}
}

// config checks the flags and makes the settings of them. It opens nothing.
func (b *brokerCmd) config(io *IO, log *slog.Logger) (coordinator.Config, error) {
	var none coordinator.Config
	for _, a := range []struct{ flag, addr string }{{"--http", b.HTTP}, {"--grpc", b.GRPC}, {"--shard-port", b.ShardPort}} {
		if a.addr == "" {
			continue
		}
		if err := checkAddress(a.addr); err != nil {
			return none, usage(fmt.Errorf("%s: %w", a.flag, err))
		}
	}
	if b.Shards == "" && b.Store == "" {
		return none, usage(errors.New("--shards names no members, and there is no --store to read them from"))
	}
	cfg := coordinator.Config{HTTPAddr: b.HTTP, GRPCAddr: b.GRPC, ShardAddr: b.ShardPort, Dial: dialMember, Pool: b.Pool}
	switch {
	case b.VNodes < 1 || b.VNodes > placement.MaxVNodes:
		return none, usage(fmt.Errorf("--vnodes: %d is not between 1 and %d", b.VNodes, placement.MaxVNodes))
	case b.Pool < 1 || b.Pool > 10_000:
		return none, usage(fmt.Errorf("--pool: %d is not between 1 and 10000", b.Pool))
	case b.MapEvery < 10*time.Millisecond:
		return none, usage(fmt.Errorf("--map-every: %v is below 10ms", b.MapEvery))
	case b.RepairEvery < 0:
		return none, usage(fmt.Errorf("--repair-every: %v is negative", b.RepairEvery))
	case b.MoveDocs < 0 || b.MoveMB < 0 || b.MoveMB > 1<<20:
		return none, usage(errors.New("--move-docs-per-sec and --move-mb-per-sec are not negative"))
	}
	if b.Shards != "" {
		m, err := readShards(b.Shards, placement.Rule(b.ShardMode), b.VNodes)
		if err != nil {
			return none, usage(fmt.Errorf("--shards: %w", err))
		}
		cfg.Shards = m
	}
	if b.ReadOrder == "preferred" {
		cfg.ReadOrder = replica.Preferred
	}
	if b.DataDir != "" {
		cfg.DataDir = filepath.ToSlash(kong.ExpandPath(b.DataDir))
	}
	cfg.MapEvery, cfg.RepairEvery, cfg.MoveDocsPerSec, cfg.MoveBytesPerSec = b.MapEvery, b.RepairEvery, b.MoveDocs, b.MoveMB<<20
	if cfg.RepairEvery == 0 {
		cfg.RepairEvery = -1
	}
	return cfg, b.settle(io, log, &cfg)
}

// settle checks the flags of the role and puts them into the settings.
func (f *roleFlags) settle(io *IO, log *slog.Logger, cfg *coordinator.Config) error {
	switch {
	case f.RequestMB < leastRequest || f.RequestMB > mostRequest:
		return usage(fmt.Errorf("--request-mb: %d is not between %d and %d", f.RequestMB, leastRequest, mostRequest))
	case f.MaxSearches < 1 || f.MaxSearches > mostAtOnce:
		return usage(fmt.Errorf("--max-searches: %d is not between 1 and %d", f.MaxSearches, mostAtOnce))
	case f.MaxWrites < 1 || f.MaxWrites > mostAtOnce:
		return usage(fmt.Errorf("--max-writes: %d is not between 1 and %d", f.MaxWrites, mostAtOnce))
	case f.MaxBulks < 1 || f.MaxBulks > mostAtOnce:
		return usage(fmt.Errorf("--max-bulks: %d is not between 1 and %d", f.MaxBulks, mostAtOnce))
	case f.SlowSearch < 0 || f.LameDuck < 0 || f.DrainTimeout < 0:
		return usage(errors.New("--slow-search, --lame-duck and --drain-timeout are not negative"))
	}
	cfg.Version, cfg.Log, cfg.SlowSearch, cfg.LameDuck = versionOf(io.Version).Version, log, f.SlowSearch, f.LameDuck
	if cfg.SlowSearch == 0 {
		cfg.SlowSearch = -1
	}
	l := &cfg.Limits
	l.RequestBytes, l.Searches, l.Writes, l.Bulks = f.RequestMB<<20, f.MaxSearches, f.MaxWrites, f.MaxBulks
	return nil
}

// serve runs a coordinator until ctx ends or it fails, and calls ready, if not nil, once it listens.
func (f *roleFlags) serve(ctx context.Context, io *IO, cfg coordinator.Config, ready func(ctx context.Context, addr string) error) (err error) {
	c, err := coordinator.New(cfg)
	if err != nil {
		return err
	}
	defer func() {
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.LameDuck+f.DrainTimeout)
		defer cancel()
		if cerr := c.Close(drain); cerr != nil {
			err = errors.Join(err, fmt.Errorf("stop server: %w", cerr))
			return
		}
		cfg.Log.Info("stopped")
	}()
	if err := c.Start(ctx); err != nil {
		return err
	}
	for _, l := range c.Listeners() {
		say(io.Stdout, "listening %s %s\n", l.Protocol, l.Addr)
	}
	return wait(ctx, cfg.Log, c, c.Addr(), ready)
}

// readShards reads groups separated by commas, with members separated by |.
func readShards(list string, rule placement.Rule, vnodes int) (*shardmap.Map, error) {
	var groups []shardmap.Group
	for g := range strings.SplitSeq(list, ",") {
		var group shardmap.Group
		for addr := range strings.SplitSeq(g, "|") {
			addr = strings.TrimSpace(addr)
			if addr == "" {
				return nil, fmt.Errorf("group %d has an empty address", len(groups)+1)
			}
			if _, _, err := memberAddress(addr); err != nil {
				return nil, err
			}
			group.Members = append(group.Members, addr)
		}
		groups = append(groups, group)
	}
	if rule != placement.Ring {
		vnodes = 0
	}
	return shardmap.New(rule, vnodes, groups)
}

// memberAddress splits the address of a member into its protocol and host:port.
func memberAddress(addr string) (scheme, hostport string, err error) {
	scheme, hostport, ok := strings.Cut(addr, "://")
	if !ok {
		scheme, hostport = "frame", addr
	}
	if scheme != "frame" && scheme != "grpc" {
		return "", "", fmt.Errorf("%q: the protocol is grpc:// or frame://, which is also what an address without one means", addr)
	}
	return scheme, hostport, checkAddress(hostport)
}

// memberConns is how many requests are under way at once to one member over framed JSON.
const memberConns = 256

// dialMember makes the connection to a member. Nothing is sent before it is used.
func dialMember(addr string) (leaf.Member, error) {
	scheme, hostport, err := memberAddress(addr)
	if err != nil {
		return nil, err
	}
	if scheme == "grpc" {
		return rpc.Dial(hostport, rpc.Options{})
	}
	return framed.NewClient(&frame.Client{Addr: hostport, MaxConns: memberConns}), nil
}

// openStore opens the object store at a URL: a folder that coordinators share, or a bucket, which has to heed conditions of writes.
func openStore(ctx context.Context, where string) (s store.Store, closeStore func() error, err error) {
	if strings.HasPrefix(where, "s3://") {
		o, err := s3.ParseURL(where, os.LookupEnv)
		if err != nil {
			return nil, nil, usage(err)
		}
		b, err := s3.Open(o)
		if err != nil {
			return nil, nil, err
		}
		if err := b.Check(ctx); err != nil {
			return nil, nil, errors.Join(err, b.Close())
		}
		return b, b.Close, nil
	}
	if u, err := url.Parse(where); err == nil && len(u.Scheme) > 1 {
		switch u.Scheme {
		case "file":
			where = u.Path
		default:
			return nil, nil, fmt.Errorf("there is no store for %q; it is a folder, file:///folder or s3://bucket/prefix", u.Scheme+"://")
		}
	}
	f, err := store.OpenFolder(filepath.ToSlash(kong.ExpandPath(where)), store.FolderOptions{Shared: true})
	if err != nil {
		return nil, nil, err
	}
	return f, f.Close, nil
}
