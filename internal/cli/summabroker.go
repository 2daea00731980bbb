package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/weft-search/weft/internal/broker/fleet"
	"github.com/weft-search/weft/internal/broker/relay"
	"github.com/weft-search/weft/internal/broker/route"
	"github.com/weft-search/weft/internal/broker/service"
	"github.com/weft-search/weft/internal/obs"
	"github.com/weft-search/weft/internal/topology/pods"
)

// summaFleet are the flags of a Summa broker, by their names of there.
type summaFleet struct {
	Discovery      string   `group:"summa" default:"kubernetes" enum:"kubernetes,static" placeholder:"HOW" help:"How nodes are found: kubernetes, or static."`
	Namespace      string   `group:"summa" default:"summa" help:"Namespace whose pods are watched."`
	PodSelector    string   `group:"summa" placeholder:"SELECTOR" help:"Further label selector of pods."`
	ShardLabel     string   `group:"summa" default:"summa.spacefrontiers.org/shard-id" help:"Label of a pod with its shard."`
	RoleLabel      string   `group:"summa" default:"summa.spacefrontiers.org/role" help:"Label of a pod with its role: master or follower."`
	PortAnnotation string   `group:"summa" default:"summa.spacefrontiers.org/grpc-port" help:"Annotation of a pod with its port."`
	BackendPort    uint16   `group:"summa" default:"50051" help:"Port of pods that are not annotated with one."`
	Backend        []string `group:"summa" sep:"none" placeholder:"NODE" help:"A node of static discovery: id=..,addr=host:port,shard=..[,role=master|follower]. Repeat it for each."`

	Placement        []string `group:"summa" sep:"none" placeholder:"RULE" help:"Where indexes go: pattern=shard, or pattern=shard[:weight],shard[:weight]… for one over several shards. The first rule that matches counts."`
	PlacementDefault string   `group:"summa" default:"single" enum:"single,reject" placeholder:"HOW" help:"Where an index without a rule is created: single, on the shard with the fewest indexes, or reject."`

	BackendMaxSearches    int  `group:"summa" default:"16" help:"Searches in flight at each address of a node."`
	MaxConcurrentSearches *int `group:"summa" placeholder:"N" help:"Searches in flight in all; not bounded if not given."`
	AdaptiveReads         bool `group:"summa" help:"Read from the copy of an index that is expected to answer first, and from a second one when that is slow; without it from all in turn."`
	PartialPartitionReads bool `group:"summa" help:"Answer reads of an index over several shards without those that do not answer, and say how many those are."`
	PartitionStragglerMS  int  `group:"summa" name:"partition-straggler-ms" default:"0" help:"With --partial-partition-reads: how long others have once one has answered; 0 for as long as the call."`

	IndexPollIntervalSecs       int `group:"summa" default:"15" help:"Between two looks at a healthy node."`
	ProbeIntervalSecs           int `group:"summa" default:"5" help:"Between two looks at another."`
	BackendUnreachableGraceSecs int `group:"summa" default:"60" help:"How long a node that does not answer is still read from."`
	ListTimeoutSecs             int `group:"summa" default:"3" help:"Time of one look."`

	WorkerThreads *int `group:"summa" placeholder:"N" help:"Threads of the program; as many as processors, at most 16, if not given."`

	SearchMaxDecodeMB        int `group:"summa" name:"search-max-decode-mb" default:"4" help:"Longest request of SearchService, in MiB."`
	SearchMaxEncodeMB        int `group:"summa" name:"search-max-encode-mb" default:"256" help:"Longest reply of SearchService, in MiB."`
	IndexMaxDecodeMB         int `group:"summa" name:"index-max-decode-mb" default:"256" help:"Longest request of IndexService, in MiB."`
	IndexMaxEncodeMB         int `group:"summa" name:"index-max-encode-mb" default:"64" help:"Longest reply of IndexService, in MiB."`
	BackendMaxDecodeMB       int `group:"summa" name:"backend-max-decode-mb" default:"256" help:"Longest reply of a node, in MiB."`
	BackendMaxEncodeMB       int `group:"summa" name:"backend-max-encode-mb" default:"256" help:"Longest request to a node, in MiB."`
	CoordinatorMaxTransferMB int `group:"summa" name:"coordinator-max-transfer-mb" default:"64" help:"Replies of all nodes to one search that the broker ranks, in MiB."`
}

// bounded are flags that have to be above zero, with the largest value.
func (f *summaFleet) bounded() map[string][2]int {
	const most = 1<<31 - 1
	searches := 1
	if f.MaxConcurrentSearches != nil {
		searches = *f.MaxConcurrentSearches
	}
	threads := 1
	if f.WorkerThreads != nil {
		threads = *f.WorkerThreads
	}
	return map[string][2]int{
		"--backend-max-searches": {f.BackendMaxSearches, mostAtOnce}, "--max-concurrent-searches": {searches, mostAtOnce},
		"--index-poll-interval-secs": {f.IndexPollIntervalSecs, most}, "--probe-interval-secs": {f.ProbeIntervalSecs, most},
		"--backend-unreachable-grace-secs": {f.BackendUnreachableGraceSecs, most}, "--list-timeout-secs": {f.ListTimeoutSecs, most},
		"--search-max-decode-mb": {f.SearchMaxDecodeMB, mostMessage}, "--search-max-encode-mb": {f.SearchMaxEncodeMB, mostMessage},
		"--index-max-decode-mb": {f.IndexMaxDecodeMB, mostMessage}, "--index-max-encode-mb": {f.IndexMaxEncodeMB, mostMessage},
		"--backend-max-decode-mb": {f.BackendMaxDecodeMB, mostMessage}, "--backend-max-encode-mb": {f.BackendMaxEncodeMB, mostMessage},
		"--backend-port":                {int(f.BackendPort), 1<<16 - 1},
		"--coordinator-max-transfer-mb": {f.CoordinatorMaxTransferMB, mostMessage}, "--worker-threads": {threads, 1 << 16},
	}
}

// fleetConfig checks the flags and makes the settings of them. It opens nothing.
func (f *summaFleet) fleetConfig(log *slog.Logger) (service.Config, error) {
	const mib = 1 << 20
	var none service.Config
	bounds := f.bounded()
	for _, flag := range slices.Sorted(maps.Keys(bounds)) {
		switch v := bounds[flag]; {
		case v[0] <= 0:
			return none, fmt.Errorf("%s must be greater than zero", flag)
		case v[0] > v[1]:
			return none, fmt.Errorf("%s must not exceed %d", flag, v[1])
		}
	}
	switch {
	case f.PartitionStragglerMS < 0:
		return none, errors.New("--partition-straggler-ms must not be negative")
	case f.PartitionStragglerMS > 0 && !f.PartialPartitionReads:
		return none, errors.New("--partition-straggler-ms requires --partial-partition-reads")
	case f.CoordinatorMaxTransferMB > f.BackendMaxDecodeMB:
		return none, errors.New("--coordinator-max-transfer-mb must not exceed --backend-max-decode-mb")
	case f.CoordinatorMaxTransferMB > f.SearchMaxEncodeMB:
		return none, errors.New("--coordinator-max-transfer-mb must not exceed --search-max-encode-mb")
	}
	placement, err := route.NewPlacement(f.Placement, f.PlacementDefault)
	if err != nil {
		return none, err
	}
	source, err := f.source(log)
	if err != nil {
		return none, err
	}
	cfg := service.Config{
		Source: source, Placement: placement, BackendSearches: f.BackendMaxSearches,
		Adaptive: f.AdaptiveReads, Partial: f.PartialPartitionReads, Straggler: time.Duration(f.PartitionStragglerMS) * time.Millisecond,
		Transfer:     f.CoordinatorMaxTransferMB * mib,
		PollInterval: seconds(f.IndexPollIntervalSecs), ProbeInterval: seconds(f.ProbeIntervalSecs),
		Grace: seconds(f.BackendUnreachableGraceSecs), ListTimeout: seconds(f.ListTimeoutSecs),
		Limits: relay.Limits{
			SearchDecode: f.SearchMaxDecodeMB * mib, SearchEncode: f.SearchMaxEncodeMB * mib, IndexDecode: f.IndexMaxDecodeMB * mib, IndexEncode: f.IndexMaxEncodeMB * mib,
			BackendDecode: f.BackendMaxDecodeMB * mib, BackendEncode: f.BackendMaxEncodeMB * mib,
		},
		Log: log,
	}
	if f.MaxConcurrentSearches != nil {
		cfg.Searches = *f.MaxConcurrentSearches
	}
	return cfg, nil
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

// source is where the nodes come from.
func (f *summaFleet) source(log *slog.Logger) (fleet.Source, error) {
	switch f.Discovery {
	case "static":
		if f.PodSelector != "" {
			return nil, errors.New("--pod-selector goes with --discovery kubernetes")
		}
		if len(f.Backend) == 0 {
			return nil, errors.New("--discovery static requires at least one --backend")
		}
		return fleet.ParseStatic(f.Backend)
	case "kubernetes":
		if len(f.Backend) > 0 {
			return nil, errors.New("--backend goes with --discovery static")
		}
		w, err := pods.New(pods.Config{
			Namespace: f.Namespace, ShardLabel: f.ShardLabel, RoleLabel: f.RoleLabel, PortAnnotation: f.PortAnnotation,
			Selector: f.PodSelector, BackendPort: int(f.BackendPort), Log: log,
		})
		if err != nil {
			if e, ok := errors.AsType[*pods.FieldError](err); ok {
				return nil, fmt.Errorf("--%s: %s", kebab(e.Field), e.Reason)
			}
			return nil, err
		}
		return podSource{w}, nil
	}
	return nil, fmt.Errorf("--discovery is kubernetes or static, not %q", f.Discovery)
}

// podSource gives the fleet pods for nodes.
type podSource struct{ w *pods.Watcher }

// Run implements fleet.Source.
func (s podSource) Run(ctx context.Context, publish func([]fleet.Node)) error {
	return s.w.Run(ctx, func(list []pods.Pod) {
		out := make([]fleet.Node, len(list))
		for i, p := range list {
			out[i] = fleet.Node{ID: p.ID, Address: p.Addr, Shard: p.Shard, Ready: p.Ready}
			switch p.Role {
			case "master":
				out[i].Role = route.Master
			case "follower":
				out[i].Role = route.Follower
			}
		}
		publish(out)
	})
}

// serveSumma runs a Summa broker until ctx ends or it fails.
func (f *summaFleet) serveSumma(ctx context.Context, io *IO, cfg service.Config, drain time.Duration) (err error) {
	log := cfg.Log
	if f.WorkerThreads != nil {
		runtime.GOMAXPROCS(*f.WorkerThreads)
	} else if runtime.GOMAXPROCS(0) > 16 {
		runtime.GOMAXPROCS(16)
	}
	cfg.Metrics = obs.NewMetrics(versionOf(io.Version).Version)
	f.tell(log, &cfg, versionOf(io.Version).Version)
	b, err := service.New(cfg)
	if err != nil {
		return err
	}
	defer func() {
		ending, cancel := context.WithCancel(context.WithoutCancel(ctx))
		if drain > 0 {
			cancel()
			ending, cancel = context.WithTimeout(context.WithoutCancel(ctx), drain)
		}
		defer cancel()
		if cerr := b.Close(ending); cerr != nil {
			err = errors.Join(err, fmt.Errorf("stop broker: %w", cerr))
			return
		}
		log.Info("stopped")
	}()
	if err := b.Start(ctx); err != nil {
		return err
	}
	for _, l := range b.Listeners() {
		say(io.Stdout, "listening %s %s\n", l.Protocol, l.Addr)
		if l.Protocol == relay.Protocol {
			log.Info(fmt.Sprintf("Summa broker listening on %s", l.Addr))
		}
	}
	select {
	case <-ctx.Done():
		log.Info("draining", "cause", context.Cause(ctx))
		return nil
	case <-b.Done():
		log.Error("the broker ends", "error", b.Err())
		return b.Err()
	}
}

// tell logs what is in force, and what does not fit together.
func (f *summaFleet) tell(log *slog.Logger, cfg *service.Config, version string) {
	log.Info("Summa broker", "version", version, "addr", cfg.Addr, "metrics_addr", cmp.Or(cfg.MetricsAddr, "off"), "discovery", f.Discovery, "backends", len(f.Backend),
		"namespace", f.Namespace, "pod_selector", f.PodSelector, "shard_label", f.ShardLabel, "role_label", f.RoleLabel, "port_annotation", f.PortAnnotation,
		"backend_port", f.BackendPort, "placement_default", f.PlacementDefault,
		"index_poll_interval_secs", f.IndexPollIntervalSecs, "probe_interval_secs", f.ProbeIntervalSecs,
		"backend_unreachable_grace_secs", f.BackendUnreachableGraceSecs, "list_timeout_secs", f.ListTimeoutSecs,
		"worker_threads", runtime.GOMAXPROCS(0), "backend_max_searches", f.BackendMaxSearches, "max_concurrent_searches", cfg.Searches,
		"coordinator_max_transfer_mb", f.CoordinatorMaxTransferMB, "partial_partition_reads", f.PartialPartitionReads, "partition_straggler_ms", f.PartitionStragglerMS,
		"search_max_decode_mb", f.SearchMaxDecodeMB, "search_max_encode_mb", f.SearchMaxEncodeMB, "index_max_decode_mb", f.IndexMaxDecodeMB,
		"index_max_encode_mb", f.IndexMaxEncodeMB, "backend_max_decode_mb", f.BackendMaxDecodeMB, "backend_max_encode_mb", f.BackendMaxEncodeMB)
	for _, r := range cfg.Placement.Rules() {
		log.Info("placement", "rule", r.String())
	}
	if f.SearchMaxEncodeMB < f.BackendMaxDecodeMB {
		log.Warn("--search-max-encode-mb is below --backend-max-decode-mb: some replies of nodes are too long for clients")
	}
	if f.BackendMaxEncodeMB < f.IndexMaxDecodeMB {
		log.Warn("--backend-max-encode-mb is below --index-max-decode-mb: some requests of clients are too long for nodes")
	}
}

// summaBrokerName is the name under which the program takes the command line of a Summa broker.
const summaBrokerName = "summa-broker"

// isSummaBroker tells whether the program was called by that name.
func isSummaBroker(program string) bool {
	return strings.TrimSuffix(filepath.Base(program), ".exe") == summaBrokerName
}

// summaBroker is the command line of a Summa broker.
type summaBroker struct {
	Addr        string `short:"a" default:"0.0.0.0:50051" help:"Address to serve on; port 0 picks a free one."`
	MetricsAddr string `default:"0.0.0.0:9184" help:"Address to serve metrics on; off for none."`
	summaFleet
}

// runSummaBroker is Run for the command line of a Summa broker; see runSummaServer.
func runSummaBroker(ctx context.Context, args []string, io IO) int {
	var c summaBroker
	return runAs(ctx, summaBrokerName, "A Summa broker, by weft.", &c, args, io, "--backend", "--placement")
}

func (c *summaBroker) serve(ctx context.Context, io *IO) error {
	log, err := obs.NewLogger(io.Stderr, obs.LogText, rustLog(io.LookupEnv))
	if err != nil {
		return err
	}
	cfg, err := c.fleetConfig(log)
	if err != nil {
		return err
	}
	if cfg.Addr, cfg.MetricsAddr, err = serviceAddresses("--addr", c.Addr, c.MetricsAddr); err != nil {
		return err
	}
	return c.serveSumma(ctx, io, cfg, 0)
}

// serviceAddresses checks the addresses of a Summa program.
func serviceAddresses(flag, addr, metrics string) (string, string, error) {
	if metrics == "off" {
		metrics = ""
	}
	if err := checkAddress(addr); err != nil {
		return "", "", fmt.Errorf("%s: %w", flag, err)
	}
	if metrics != "" {
		if err := checkAddress(metrics); err != nil {
			return "", "", fmt.Errorf("--metrics-addr: %w", err)
		}
	}
	return addr, metrics, nil
}

// runAs runs the program under another one's name: see runSummaServer. repeat are the flags that may be given several times.
func runAs(ctx context.Context, name, what string, c interface {
	serve(ctx context.Context, io *IO) error
}, args []string, io IO, repeat ...string,
) (code int) {
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(exit)
			if !ok {
				panic(r)
			}
			code = int(e)
		}
	}()
	parser, err := kong.New(c, kong.Name(name), kong.Description(what), kong.Writers(io.Stdout, io.Stderr),
		kong.Exit(func(code int) { panic(exit(code)) }), kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 110}),
		kong.ExplicitGroups([]kong.Group{{Key: "summa", Title: "Limits:"}}))
	if err == nil {
		for i, a := range args {
			if a == "-V" || a == "--version" {
				say(io.Stdout, "%s %s\n", name, versionOf(io.Version).Version)
				return exitDone
			}
			if a == "--" || i > 64 {
				break
			}
		}
		if flag := repeated(args, repeat...); flag != "" {
			err = fmt.Errorf("the argument '%s' cannot be used multiple times", flag)
		} else {
			_, err = parser.Parse(args)
		}
	}
	if err != nil {
		say(io.Stderr, "error: %s\n\nUsage: %s [OPTIONS]\n\nFor more information, try '--help'.\n", harmless(err.Error()), name)
		return exitUsage
	}
	if err := c.serve(ctx, &io); err != nil && !errors.Is(err, context.Canceled) {
		say(io.Stderr, "Error: %s\n", harmless(err.Error()))
		return exitFailed
	}
	return exitDone
}
