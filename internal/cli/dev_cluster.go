package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"

	"github.com/weft-search/weft/internal/cluster/coordinator"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/node"
	"github.com/weft-search/weft/internal/obs"
	"github.com/weft-search/weft/internal/store"
	"github.com/weft-search/weft/internal/topology/placement"
	"github.com/weft-search/weft/internal/topology/shardmap"
)

// Bounds of a cluster in one process.
const (
	maxDevShards   = 64
	maxDevReplicas = 8
)

// Folders below the data folder of a cluster in one process. Those of the members are named by shard and member: 0-0, 0-1, 1-0.
const (
	devMembers = "members"
	devBroker  = "broker"
	devStore   = "store"
)

// serveCluster runs all members of a cluster and a coordinator before them in this process. cfg is that of a node: of its addresses the
// coordinator serves.
func (d *devCmd) serveCluster(ctx context.Context, io *IO, cfg node.Config, ready func(ctx context.Context, addr string) error) (err error) {
	alone := d.Shards*d.Replicas == 1
	if _, serr := os.Stat(filepath.Join(cfg.DataDir, devMembers)); serr == nil && alone {
		return fmt.Errorf("--data-dir %s holds a cluster: say with --shards and --replicas how large it is", cfg.DataDir)
	}
	if _, serr := os.Stat(filepath.Join(cfg.DataDir, "node.json")); serr == nil && !alone {
		return fmt.Errorf("--data-dir %s holds the indexes of one node: give --shards and --replicas another folder", cfg.DataDir)
	}
	var groups []shardmap.Group
	leaves := map[string]leaf.Member{}
	var nodes []*node.Node
	defer func() {
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.DrainTimeout)
		defer cancel()
		for _, n := range nodes {
			if cerr := n.Close(drain); cerr != nil {
				err = errors.Join(err, fmt.Errorf("stop member: %w", cerr))
			}
		}
	}()
	for s := range d.Shards {
		var group shardmap.Group
		for m := range d.Replicas {
			name := strconv.Itoa(s) + "-" + strconv.Itoa(m)
			one := cfg
			one.HTTPAddr, one.GRPCAddr, one.ShardAddr, one.LameDuck = "", "", "", 0
			one.Metrics = obs.NewMetrics(cfg.Version)
			if !alone {
				one.DataDir = filepath.Join(cfg.DataDir, devMembers, name)
			}
			one.Log = cfg.Log.With("member", name)
			n, err := node.New(one)
			if err != nil {
				return fmt.Errorf("member %s: %w", name, err)
			}
			nodes = append(nodes, n)
			if err := n.Start(ctx); err != nil {
				return fmt.Errorf("member %s: %w", name, err)
			}
			addr := "member-" + name
			leaves[addr] = n.Leaf()
			group.Members = append(group.Members, addr)
		}
		groups = append(groups, group)
	}
	sm, err := shardmap.New(placement.Ring, 0, groups)
	if err != nil {
		return err
	}
	cc := coordinator.Config{
		HTTPAddr: cfg.HTTPAddr, GRPCAddr: cfg.GRPCAddr, Shards: sm,
		Dial: func(addr string) (leaf.Member, error) {
			l, ok := leaves[addr]
			if !ok {
				return nil, fmt.Errorf("there is no member %s in this process", addr)
			}
			return l, nil
		},
		Version: cfg.Version, Log: cfg.Log, SlowSearch: cfg.SlowSearch, LameDuck: cfg.LameDuck,
		Limits: coordinator.Limits{RequestBytes: cfg.Limits.RequestBytes, Writes: cfg.Limits.Writes, Bulks: cfg.Limits.Bulks},
	}
	if !alone {
		folder := filepath.ToSlash(cfg.DataDir)
		s, err := store.OpenFolder(path.Join(folder, devStore), store.FolderOptions{})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		if err := d.fits(ctx, io, s, leaves); err != nil {
			return err
		}
		cc.Store, cc.DataDir = s, path.Join(folder, devBroker)
	}
	return (&roleFlags{LameDuck: cfg.LameDuck, DrainTimeout: d.DrainTimeout}).serve(ctx, io, cc, ready)
}

// fits holds the members of this process against the shard map that the folder has. Groups may have come to them, which hold nothing yet;
// that one has gone, whose documents would be missing, is an error.
func (d *devCmd) fits(ctx context.Context, io *IO, s store.Store, leaves map[string]leaf.Member) error {
	m, _, err := shardmap.NewStoreSource(s).Load(ctx)
	if errors.Is(err, shardmap.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the shard map: %w", err)
	}
	most := 0
	for _, g := range m.Groups {
		most = max(most, len(g.Members))
		for _, addr := range g.Members {
			if leaves[addr] == nil {
				return fmt.Errorf("--data-dir %s holds a cluster of %d shards: with --shards %d --replicas %d the member %s is missing", d.DataDir, len(m.Groups), d.Shards, d.Replicas, addr)
			}
		}
	}
	for g := len(m.Groups); g < d.Shards; g++ {
		addrs := ""
		for r := range d.Replicas {
			addrs += fmt.Sprintf(" member-%d-%d", g, r)
		}
		say(io.Stderr, "shard %d is not in the cluster yet: weft topology add-group%s; weft topology rebalance\n", g, addrs)
	}
	if d.Replicas > most {
		say(io.Stderr, "the cluster has %d members in a group: weft topology add-member SHARD member-SHARD-%d; weft topology repair\n", most, most)
	}
	return nil
}
