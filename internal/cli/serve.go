package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/weft-search/weft/internal/client"
	"github.com/weft-search/weft/internal/node"
	"github.com/weft-search/weft/internal/shard"
)

// serverFlags are what both servers can be told.
type serverFlags struct {
	MemtableMB    float64       `group:"limits" name:"memtable-mb" default:"64" help:"Memory in MiB at which an index writes a segment; fractions are allowed."`
	IdleFlush     time.Duration `group:"limits" default:"30s" help:"Time without a write after which an index writes what it holds in memory to a segment; 0s for never."`
	MergeMBPerSec int64         `group:"limits" name:"merge-mb-per-sec" default:"64" help:"Bytes in MiB per second that background merging writes for each index; 0 for no limit."`
	RequestMB     int64         `group:"limits" name:"request-mb" default:"256" help:"Memory in MiB for the bodies of all requests under way."`
	FilterCacheMB int64         `group:"limits" name:"filter-cache-mb" default:"64" help:"Memory in MiB for the documents that recurring filters find; 0 for none."`
	MaxSearches   int           `group:"limits" default:"0" help:"Searches that run at once; 0 for four for each CPU."`
	MaxWrites     int           `group:"limits" default:"64" help:"Single writes that are applied at once."`
	MaxBulks      int           `group:"limits" default:"8" help:"Bulk loads that are taken at once."`
	SlowSearch    time.Duration `group:"limits" default:"1s" help:"Searches that take longer are logged, without their text; 0s for none."`
	LameDuck      time.Duration `group:"limits" default:"0s" help:"How long /readyz says no and everything else goes on when the server is told to end, for a load balancer to notice."`
	DrainTimeout  time.Duration `group:"limits" default:"30s" help:"How long calls under way may go on when the server is told to end."`
}

// Bounds of flags, sizes in MiB.
const (
	leastMemtable = 1.0 / 16 // below it a segment holds next to nothing
	leastIdle     = 100 * time.Millisecond
	mostMemtable  = shard.MaxMemtableBytes >> 20
	leastRequest  = 48 // what one bulk load may need: the node refuses less
	mostRequest   = 1 << 20
	mostFilters   = 1 << 20
)

// mostAtOnce bounds how many of one kind of calls may run at once.
const mostAtOnce = 1 << 20

// checkAddress refuses what cannot be listened on whatever the machine is. A host name is looked up only when it is used.
func checkAddress(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("%q is not host:port", addr)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q: port %q is not a number up to 65535", addr, port)
	}
	if strings.ContainsAny(host, " /\t@") {
		return fmt.Errorf("%q: %q is no host", addr, host)
	}
	return nil
}

// addresses are what a node listens on; empty: not at all.
type addresses struct{ http, grpc, shard, summa string }

// config checks the flags and makes the node's settings of them. It opens nothing.
func (f *serverFlags) config(io *IO, log *slog.Logger, at addresses, dir string) (node.Config, error) {
	const mib = 1 << 20
	for _, a := range []struct{ flag, addr string }{{"--http", at.http}, {"--grpc", at.grpc}, {"--shard-port", at.shard}, {"--summa", at.summa}} {
		if a.addr == "" {
			continue
		}
		if err := checkAddress(a.addr); err != nil {
			return node.Config{}, usage(fmt.Errorf("%s: %w", a.flag, err))
		}
	}
	switch {
	case !(f.MemtableMB >= leastMemtable) || f.MemtableMB > mostMemtable:
		return node.Config{}, usage(fmt.Errorf("--memtable-mb: %v is not between %v and %d", f.MemtableMB, leastMemtable, mostMemtable))
	case f.MergeMBPerSec < 0 || f.MergeMBPerSec > 1<<20:
		return node.Config{}, usage(fmt.Errorf("--merge-mb-per-sec: %d is not between 0 and %d", f.MergeMBPerSec, 1<<20))
	case f.FilterCacheMB < 0 || f.FilterCacheMB > mostFilters:
		return node.Config{}, usage(fmt.Errorf("--filter-cache-mb: %d is not between 0 and %d", f.FilterCacheMB, mostFilters))
	case f.IdleFlush != 0 && f.IdleFlush < leastIdle:
		return node.Config{}, usage(fmt.Errorf("--idle-flush: %v is less than %v, and not 0s", f.IdleFlush, leastIdle))
	case f.SlowSearch < 0:
		return node.Config{}, usage(fmt.Errorf("--slow-search: %v is negative", f.SlowSearch))
	case f.MaxSearches < 0 || f.MaxSearches > mostAtOnce:
		return node.Config{}, usage(fmt.Errorf("--max-searches: %d is not between 0 and %d", f.MaxSearches, mostAtOnce))
	case f.MaxWrites < 1 || f.MaxWrites > mostAtOnce:
		return node.Config{}, usage(fmt.Errorf("--max-writes: %d is not between 1 and %d", f.MaxWrites, mostAtOnce))
	case f.MaxBulks < 1 || f.MaxBulks > mostAtOnce:
		return node.Config{}, usage(fmt.Errorf("--max-bulks: %d is not between 1 and %d", f.MaxBulks, mostAtOnce))
	case f.RequestMB < leastRequest || f.RequestMB > mostRequest:
		return node.Config{}, usage(fmt.Errorf("--request-mb: %d is not between %d and %d", f.RequestMB, leastRequest, mostRequest))
	case f.LameDuck < 0:
		return node.Config{}, usage(fmt.Errorf("--lame-duck: %v is negative", f.LameDuck))
	case f.DrainTimeout < 0:
		return node.Config{}, usage(fmt.Errorf("--drain-timeout: %v is negative", f.DrainTimeout))
	}
	// The engine takes a negative number for none and zero for its own default.
	merge, slow, filters, idle := f.MergeMBPerSec*mib, f.SlowSearch, f.FilterCacheMB*mib, f.IdleFlush
	if idle == 0 {
		idle = -1
	}
	if merge == 0 {
		merge = -1
	}
	if slow == 0 {
		slow = -1
	}
	if filters == 0 {
		filters = -1
	}
	return node.Config{
		DataDir: dir, HTTPAddr: at.http, GRPCAddr: at.grpc, ShardAddr: at.shard, SummaAddr: at.summa, Version: versionOf(io.Version).Version, Log: log, SlowSearch: slow, LameDuck: f.LameDuck,
		Limits: node.Limits{Searches: f.MaxSearches, Writes: f.MaxWrites, Bulks: f.MaxBulks, RequestBytes: f.RequestMB * mib},
		Engine: node.Engine{MemtableBytes: int64(f.MemtableMB * mib), IdleFlush: idle, MergeBytesPerSec: merge, FilterCacheBytes: filters},
	}, nil
}

// serve runs a node until ctx ends or it fails, and calls ready, if not nil, in between. It prints a line for each listener once all
// are bound. What ready returns ends the node.
func (f *serverFlags) serve(ctx context.Context, io *IO, cfg node.Config, ready func(ctx context.Context, addr string) error) (err error) {
	n, err := node.New(cfg)
	if err != nil {
		return err
	}
	defer func() {
		// The deadline is not ctx's: that one has ended, and calls under way are to end well.
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.LameDuck+f.DrainTimeout)
		defer cancel()
		if cerr := n.Close(drain); cerr != nil {
			err = errors.Join(err, fmt.Errorf("stop server: %w", cerr))
			return
		}
		cfg.Log.Info("stopped")
	}()
	if err := n.Start(ctx); err != nil {
		return err
	}
	for _, l := range n.Listeners() {
		say(io.Stdout, "listening %s %s\n", l.Protocol, l.Addr)
	}
	return wait(ctx, cfg.Log, n, n.Addr(), ready)
}

// serving is what wait needs of a role that serves.
type serving interface {
	Done() <-chan struct{}
	Err() error
}

// wait returns when ctx ends, the server has ended, or ready has failed; ready, if not nil, runs meanwhile.
func wait(ctx context.Context, log *slog.Logger, n serving, addr string, ready func(ctx context.Context, addr string) error) error {
	done := make(chan error, 1)
	running, stop := context.WithCancel(ctx)
	defer stop()
	if ready != nil {
		go func() { done <- ready(running, addr) }()
	}
	select {
	case <-ctx.Done():
		log.Info("draining", "cause", context.Cause(ctx))
		if ready != nil {
			return dropCanceled(<-done)
		}
		return nil
	case <-n.Done():
		stop()
		if ready != nil {
			return errors.Join(n.Err(), dropCanceled(<-done))
		}
		return n.Err()
	case err := <-done:
		if err != nil || ctx.Err() != nil {
			return dropCanceled(err)
		}
	}
	// ready has done its work and the server goes on.
	select {
	case <-ctx.Done():
		log.Info("draining", "cause", context.Cause(ctx))
		return nil
	case <-n.Done():
		return n.Err()
	}
}

// dropCanceled turns an end that was asked for into none.
func dropCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// Defaults of serverFlags that a Summa server has, too.
const (
	defaultIdleFlush  = 30 * time.Second
	defaultSlowSearch = time.Second
	defaultDrain      = 30 * time.Second
)

type nodeCmd struct {
	HTTP       string `name:"http" placeholder:"ADDR" help:"Address to serve HTTP on, host:port; port 0 picks a free one."`
	GRPC       string `name:"grpc" placeholder:"ADDR" help:"Address to serve shard gRPC on."`
	ShardPort  string `name:"shard-port" placeholder:"ADDR" help:"Address to serve framed JSON on, the protocol of coordinators. It has no access control: keep it on a private network."`
	Summa      string `name:"summa" placeholder:"ADDR" help:"Address to serve the services of Summa on (gRPC). It has no access control."`
	Tokenizers string `name:"summa-tokenizers" placeholder:"DIR" help:"Folder of the tokenizers of models, DIR/NAME/tokenizer.json, for texts that are searched for in sparse vectors over Summa."`
	MaxFrameMB int64  `group:"limits" name:"max-frame-mb" default:"64" help:"Longest frame of framed JSON, in MiB."`
	DataDir    string `required:"" placeholder:"DIR" help:"Folder that holds the indexes. It is made if absent; one process at a time may use it."`
	serverFlags
	SummaLimits summaLimits `embed:"" prefix:"summa-"`
}

// Help is shown below the usage line.
func (*nodeCmd) Help() string {
	return `Serves every index in the data folder until it is told to end (SIGINT or SIGTERM); a second signal ends it at once. Writes are
on disk when they are acknowledged, so neither loses anything. At least one of --http, --grpc, --shard-port and --summa is
needed; what is not given is not served. Prints "listening http ADDR" (or grpc, shard, summa) for each once all of them take connections; /readyz answers
200, and the health service of gRPC SERVING, once all indexes are open.

Examples:
  weft node --http 127.0.0.1:7700 --data-dir /var/lib/weft
  weft node --http 127.0.0.1:7700 --shard-port 127.0.0.1:7702 --data-dir data
  weft node --grpc 10.0.0.5:7701 --data-dir data --memtable-mb 256 --log-level warn
  weft node --summa 0.0.0.0:50051 --http 127.0.0.1:7700 --data-dir data`
}

// mostFrame bounds --max-frame-mb: the length of a frame is a 32-bit number, and a frame stands in memory whole.
const mostFrame = 1024

// Run serves.
func (n *nodeCmd) Run(ctx context.Context, glob *globals, io *IO) error {
	if n.HTTP == "" && n.GRPC == "" && n.ShardPort == "" && n.Summa == "" {
		return usage(errors.New("nothing to serve: give an address with --http, --grpc, --shard-port or --summa"))
	}
	log, err := glob.logger(io)
	if err != nil {
		return err
	}
	if n.DataDir == "" {
		return usage(errors.New("--data-dir is empty"))
	}
	if n.MaxFrameMB < 1 || n.MaxFrameMB > mostFrame {
		return usage(fmt.Errorf("--max-frame-mb: %d is not between 1 and %d", n.MaxFrameMB, mostFrame))
	}
	if err := n.SummaLimits.check(); err != nil {
		return usage(fmt.Errorf("--summa-%w", err))
	}
	cfg, err := n.config(io, log, addresses{n.HTTP, n.GRPC, n.ShardPort, n.Summa}, kong.ExpandPath(n.DataDir))
	if err != nil {
		return err
	}
	cfg.Summa, cfg.SummaTokenizers = n.SummaLimits.limits(), kong.ExpandPath(n.Tokenizers)
	cfg.Limits.FrameBytes = n.MaxFrameMB << 20
	return n.serve(ctx, io, cfg, nil)
}

type devCmd struct {
	HTTP      string `name:"http" placeholder:"ADDR" default:"127.0.0.1:7700" help:"Address to serve HTTP on, host:port; port 0 picks a free one."`
	GRPC      string `name:"grpc" placeholder:"ADDR" help:"Address to serve shard gRPC on."`
	Shards    int    `default:"1" help:"Shards that the documents are spread over."`
	Replicas  int    `default:"1" help:"Copies of each shard."`
	DataDir   string `placeholder:"DIR" help:"Folder that holds the indexes. Without it a temporary one is used that goes at exit."`
	Demo      bool   `help:"Index the documentation of Go's standard library and print three searches to try."`
	DemoPath  string `placeholder:"DIR" help:"Folder of Go source, text or Markdown to index instead; implies --demo."`
	DemoCheck bool   `help:"Index the demo, run its three searches, print what they find, and end; implies --demo."`
	serverFlags
}

// Help is shown below the usage line.
func (*devCmd) Help() string {
	return `Runs a whole weft in one process: one shard and one copy, or a cluster of --shards times --replicas nodes behind a coordinator.
Made to try it and to develop against it; nothing needs to be set up.

Examples:
  weft dev --demo
  weft dev --demo --shards 3 --replicas 2
  weft dev --demo --demo-path ~/src/project
  weft dev --http 127.0.0.1:0 --data-dir data`
}

// Run serves, with the demo if asked for.
func (d *devCmd) Run(ctx context.Context, glob *globals, io *IO) (err error) {
	if d.HTTP == "" {
		return usage(errors.New("--http is empty"))
	}
	log, err := glob.logger(io)
	if err != nil {
		return err
	}
	dir := d.DataDir
	if dir != "" {
		dir = kong.ExpandPath(dir)
	}
	if d.Shards < 1 || d.Shards > maxDevShards {
		return usage(fmt.Errorf("--shards: %d is not between 1 and %d", d.Shards, maxDevShards))
	}
	if d.Replicas < 1 || d.Replicas > maxDevReplicas {
		return usage(fmt.Errorf("--replicas: %d is not between 1 and %d", d.Replicas, maxDevReplicas))
	}
	cfg, err := d.config(io, log, addresses{http: d.HTTP, grpc: d.GRPC}, dir)
	if err != nil {
		return err
	}
	var ready func(context.Context, string) error
	if d.Demo || d.DemoPath != "" || d.DemoCheck {
		// Before anything is started, so that a missing source is the only thing said.
		path := d.DemoPath
		if path != "" {
			path = kong.ExpandPath(path)
		}
		src, err := findDemo(ctx, path)
		if err != nil {
			return err
		}
		ready = func(ctx context.Context, addr string) error {
			c, err := client.New("http://"+dialable(addr), client.Options{})
			if err != nil {
				return err
			}
			defer c.CloseIdle()
			demo := &demoRun{io: io, client: c, index: glob.Index, src: src, check: d.DemoCheck}
			if err := demo.run(ctx); err != nil {
				return fmt.Errorf("demo: %w", err)
			}
			if d.DemoCheck {
				return errDemoChecked
			}
			return nil
		}
	}
	if cfg.DataDir == "" {
		if cfg.DataDir, err = os.MkdirTemp("", "weft-dev-"); err != nil {
			return fmt.Errorf("make temporary data folder: %w", err)
		}
		defer func() {
			if rerr := os.RemoveAll(cfg.DataDir); rerr != nil {
				err = errors.Join(err, fmt.Errorf("remove temporary data folder: %w", rerr))
			}
		}()
	}
	if err = d.serveCluster(ctx, io, cfg, ready); errors.Is(err, errDemoChecked) {
		err = nil
	}
	return err
}

// errDemoChecked ends a server whose demo was only to be checked.
var errDemoChecked = errors.New("the demo was checked")

// dialable is an address under which a listener can be called from the same machine.
func dialable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}
