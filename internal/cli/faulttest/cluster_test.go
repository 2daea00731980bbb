//go:build linux

package faulttest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weft-search/weft/internal/cli/faulttest/link"
	"github.com/weft-search/weft/internal/cli/proctest"
	"github.com/weft-search/weft/internal/leaf/framed"
	"github.com/weft-search/weft/internal/wire/frame"
)

// server is a process of the cluster that can be killed and started again.
type server struct {
	name      string
	listeners int
	command   func() *exec.Cmd
	listening func(p *proctest.Process) // is told of every start
	clock     *clock                    // nil: that of the machine

	mu    sync.Mutex
	proc  *proctest.Process
	gone  bool // on purpose
	kills int
}

func (s *server) start() error {
	cmd := s.command()
	if s.clock != nil {
		if cmd.Env == nil {
			cmd.Env = os.Environ()
		}
		cmd.Env = append(cmd.Env, s.clock.env())
	}
	p, err := proctest.StartCommand(s.listeners, cmd)
	if err != nil {
		return fmt.Errorf("start %s: %w", s.name, err)
	}
	s.listening(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proc, s.gone = p, false
	return nil
}

// process is that of the moment.
func (s *server) process() *proctest.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

func (s *server) kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
	s.kills++
	if err := s.proc.Kill(); err != nil {
		return fmt.Errorf("kill %s: %w", s.name, err)
	}
	return s.proc.Killed()
}

func (s *server) signal(sig syscall.Signal) error {
	if err := s.process().Cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("send %v to %s: %w", sig, s.name, err)
	}
	return nil
}

// ended tells whether there is no process at the moment.
func (s *server) ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone
}

// alive is an error where the process has ended by itself, or told of a panic.
func (s *server) alive() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.proc.Exited:
		if !s.gone {
			return fmt.Errorf("%s ended by itself: %w\n%s", s.name, s.proc.Err, s.proc.Stderr)
		}
	default:
	}
	if said := s.proc.Stderr.String(); strings.Contains(said, "panic") {
		return fmt.Errorf("%s panicked:\n%s", s.name, said)
	}
	return nil
}

// member is a node behind its link.
type member struct {
	server
	group int
	grpc  bool // how brokers speak to it
	dir   string
	proxy *link.Proxy
	disk  *disk // nil: the folder is an ordinary one
}

// address is how the shard map names it.
func (m *member) address() string { return addressOf(m.proxy, m.grpc) }

// dial speaks to the node past the link.
func (m *member) dial() *framed.Client {
	return framed.NewClient(&frame.Client{Addr: m.process().Listening["shard"]})
}

// broker is a coordinator.
type broker struct {
	server
	store bool   // it agrees with others in a store; else the members keep the map
	dir   string // its folder; none: it has no disk
	url   atomic.Pointer[string]
	http  *http.Client
	proxy *link.Proxy // of one in the middle of a tree, else nil: the way to it from above
	grpc  bool        // how those above speak to it
}

// address is how those above name a broker in the middle.
func (b *broker) address() string { return addressOf(b.proxy, b.grpc) }

func addressOf(p *link.Proxy, grpc bool) string {
	if grpc {
		return "grpc://" + p.Addr()
	}
	return p.Addr()
}

// cluster is all of it.
type cluster struct {
	t       *testing.T
	rng     *rand.Rand // of the one goroutine that chooses
	shape   shape
	bin     string
	dir     string
	members []*member    // grows under mu
	brokers []*broker    // that clients speak to: of a tree those at the top
	middle  []*broker    // of a tree
	bucket  *bucket      // nil: the store is a folder
	moves   atomic.Int64 // begun and ended: odd while one is under way
	mu      sync.Mutex

	watch sync.WaitGroup
	done  chan struct{}
	fat   atomic.Pointer[string] // what the watch has killed

	lost    map[int]bool // groups of which a member has lost its disk since the cluster was whole
	orphans time.Time    // when a broker has lost its disk last
}

// keeping is where brokers agree on the shard map.
type keeping string

// Keepings. Mixed is two brokers with a store and one that is told of the map by the members alone.
const (
	byStore   keeping = "store"
	byMembers keeping = "members"
	mixed     keeping = "mixed"
)

// shape is what a cluster is made of.
type shape struct {
	groups, replicas int
	keeping          keeping
	fullDisk         bool          // the last member has a disk of its own
	repairEvery      time.Duration // of brokers
	moveDocs         int           // per second, of a rebalance
	bucket           bool          // the store of brokers is a bucket
	clocks           bool          // wall clocks can be turned
	tree             bool          // brokers over two brokers, each of which has so many groups
}

// branches is how many brokers stand in the middle of a tree.
const branches = 2

// every is how often brokers look at the shard map.
const every = 200 * time.Millisecond

// open starts a cluster.
func open(t *testing.T, rng *rand.Rand, s shape) *cluster {
	t.Helper()
	build := proctest.BuildPlain
	if s.clocks {
		build = buildSkewed
	}
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, rng: rng, shape: s, bin: bin, dir: t.TempDir(), done: make(chan struct{}), lost: map[int]bool{}}
	if s.bucket {
		c.openBucket()
	}
	t.Cleanup(c.close)
	groups, brokers := s.groups, 3
	if s.tree {
		groups, brokers = branches*s.groups, 2
	}
	for g := range groups {
		for range s.replicas {
			c.addMember(g, s.fullDisk && len(c.members) == groups*s.replicas-1)
		}
	}
	if s.tree {
		for i := range branches {
			c.addMiddle(i)
		}
	}
	for i := range brokers {
		c.addBroker(i, s.keeping == byStore || s.keeping == mixed && i < 2)
	}
	c.watch.Go(c.guard)
	return c
}

// addMember starts a node.
func (c *cluster) addMember(group int, ownDisk bool) *member {
	c.t.Helper()
	m := &member{group: group, grpc: c.rng.IntN(2) == 0}
	m.name = fmt.Sprintf("member %d of group %d", len(c.members), group)
	m.dir = filepath.Join(c.dir, "member-"+strconv.Itoa(len(c.members)))
	var err error
	if m.proxy, err = link.Listen(whose); err != nil {
		c.t.Fatal(err)
	}
	if ownDisk {
		if m.disk, err = mount(m.dir); err != nil {
			c.t.Logf("no disk that can be full: %v", err)
		} else {
			m.dir = filepath.Join(m.dir, "data")
		}
	}
	c.giveClock(&m.server, "clock-"+strconv.Itoa(len(c.members)))
	m.listeners = 2
	m.command = func() *exec.Cmd {
		args := []string{
			c.bin, "node", "--grpc", "127.0.0.1:0", "--shard-port", "127.0.0.1:0", "--data-dir", m.dir,
			"--memtable-mb", "1", "--log-level", "warn", "--drain-timeout", "10s",
		}
		if m.disk != nil {
			args = append(m.disk.enter(), args...)
		}
		return exec.Command(args[0], args[1:]...)
	}
	m.listening = func(p *proctest.Process) { m.proxy.Point(p.Listening[protocol(m.grpc)]) }
	c.mu.Lock()
	c.members = append(c.members, m)
	c.mu.Unlock()
	if err := m.start(); err != nil {
		c.t.Fatal(err)
	}
	return m
}

// protocol is the name of a listener.
func protocol(grpc bool) string {
	if grpc {
		return "grpc"
	}
	return "shard"
}

// shards are groups as --shards takes them: all, or those of one broker in the middle of a tree.
func (c *cluster) shards(middle int) string {
	of := map[int]string{}
	for _, m := range c.members {
		if !c.shape.tree || m.group/c.shape.groups == middle {
			of[m.group] += "|" + m.address()
		}
	}
	var groups []string
	for _, g := range slices.Sorted(maps.Keys(of)) {
		groups = append(groups, of[g][1:])
	}
	return strings.Join(groups, ",")
}

// addBroker starts a coordinator that clients speak to. All but the last have a folder.
func (c *cluster) addBroker(i int, store bool) {
	c.t.Helper()
	b := &broker{store: store}
	b.name = fmt.Sprintf("broker-%d", i)
	if i < 2 {
		b.dir = filepath.Join(c.dir, b.name)
	}
	b.listeners = 1
	c.brokers = append(c.brokers, b)
	c.startBroker(b, func() []string {
		args := []string{"--shards", c.shards(0)}
		if c.shape.tree {
			args = []string{"--shards", c.middle[0].address() + "," + c.middle[1].address()}
		}
		switch {
		case store && c.bucket != nil:
			args = append(args, "--store", c.bucket.url())
		case store:
			args = append(args, "--store", filepath.Join(c.dir, "store"))
		}
		if b.dir != "" {
			args = append(args, "--data-dir", b.dir)
		}
		return args
	})
}

// addMiddle starts a coordinator that stands as one shard of those at the top. It alone has its members, which keep its map.
func (c *cluster) addMiddle(i int) {
	c.t.Helper()
	b := &broker{grpc: c.rng.IntN(2) == 0}
	b.name = fmt.Sprintf("middle-%d", i)
	b.listeners = 2
	var err error
	if b.proxy, err = link.Listen(whose); err != nil {
		c.t.Fatal(err)
	}
	c.middle = append(c.middle, b)
	listen := "--shard-port"
	if b.grpc {
		listen = "--grpc"
	}
	c.startBroker(b, func() []string {
		return []string{listen, "127.0.0.1:0", "--shards", c.shards(i), "--data-dir", filepath.Join(c.dir, b.name)}
	})
}

// startBroker starts a coordinator with some flags.
func (c *cluster) startBroker(b *broker, flags func() []string) {
	c.t.Helper()
	b.http = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}}
	c.giveClock(&b.server, "clock-of-"+b.name)
	b.command = func() *exec.Cmd {
		args := append([]string{
			"broker", "--http", "127.0.0.1:0", "--map-every", every.String(), "--repair-every", c.shape.repairEvery.String(),
			"--move-docs-per-sec", strconv.Itoa(c.shape.moveDocs), "--log-level", "info", "--drain-timeout", "10s",
		}, flags()...)
		cmd := exec.Command(c.bin, args...)
		cmd.Env = append(os.Environ(), nameVariable+"="+b.name)
		if c.bucket != nil {
			cmd.Env = append(cmd.Env, c.bucket.env()...)
		}
		return cmd
	}
	b.listening = func(p *proctest.Process) {
		u := "http://" + p.Listening["http"]
		b.url.Store(&u)
		if b.proxy != nil {
			b.proxy.Point(p.Listening[protocol(b.grpc)])
		}
	}
	if err := b.start(); err != nil {
		c.t.Fatal(err)
	}
}

// coordinators are all brokers, those at the top last.
func (c *cluster) coordinators() []*broker {
	return append(c.middle[:len(c.middle):len(c.middle)], c.brokers...)
}

// servers are all processes.
func (c *cluster) servers() []*server {
	var out []*server
	for _, b := range c.coordinators() {
		out = append(out, &b.server)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.members {
		out = append(out, &m.server)
	}
	return out
}

// kills is how often processes were killed.
func (c *cluster) kills() int {
	n := 0
	for _, s := range c.servers() {
		s.mu.Lock()
		n += s.kills
		s.mu.Unlock()
	}
	return n
}

// close ends what is left.
func (c *cluster) close() {
	close(c.done)
	c.watch.Wait()
	if c.t.Failed() {
		c.explain()
	}
	for _, s := range c.servers() {
		if s.process() == nil {
			continue
		}
		if c.t.Failed() {
			said := s.process().Stderr.String()
			said, _, _ = strings.Cut(said, "SIGQUIT: quit") // explain had that
			if said != "" {
				c.t.Logf("%s said:\n%s", s.name, last(said, 5000))
			}
		}
		if s.ended() {
			continue
		}
		if err := s.kill(); err != nil && !c.t.Failed() {
			c.t.Error(err)
		}
	}
	for _, b := range c.coordinators() {
		b.http.CloseIdleConnections()
		if b.proxy != nil {
			if err := b.proxy.Close(); err != nil {
				c.t.Error(err)
			}
		}
	}
	if c.bucket != nil {
		if err := c.bucket.proxy.Close(); err != nil {
			c.t.Error(err)
		}
	}
	for _, s := range c.servers() {
		if s.clock == nil {
			continue
		}
		if err := s.clock.close(); err != nil {
			c.t.Error(err)
		}
	}
	for _, m := range c.members {
		if err := m.proxy.Close(); err != nil {
			c.t.Error(err)
		}
		if m.disk != nil {
			if err := m.disk.unmount(); err != nil {
				c.t.Error(err)
			}
		}
	}
}

func last(s string, n int) string { return s[max(0, len(s)-n):] }

// mostMemory is how much a process may use before it is killed.
const mostMemory = 1536 << 20

// guard kills processes that use too much memory: the machine has others.
func (c *cluster) guard() {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-c.done:
			return
		}
		for _, s := range c.servers() {
			p := s.process()
			if p == nil {
				continue
			}
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.Cmd.Process.Pid))
			if err != nil {
				continue // it is gone
			}
			f := strings.Fields(string(b))
			if len(f) < 2 {
				continue
			}
			if pages, err := strconv.ParseInt(f[1], 10, 64); err == nil && pages*int64(os.Getpagesize()) > mostMemory {
				why := fmt.Sprintf("%s used %d MiB and was killed", s.name, pages*int64(os.Getpagesize())>>20)
				c.fat.Store(&why)
				if err := p.Kill(); err != nil {
					c.t.Error(err)
				}
			}
		}
	}
}

// healthy fails the test where a process has ended by itself.
func (c *cluster) healthy() {
	c.t.Helper()
	if why := c.fat.Load(); why != nil {
		c.t.Fatal(*why)
	}
	for _, s := range c.servers() {
		if err := s.alive(); err != nil {
			c.t.Fatal(err)
		}
	}
}
