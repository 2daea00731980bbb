//go:build linux

package faulttest

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/weft-search/weft/internal/cli/proctest"
)

// clockVariable is in the environment of a process and names the file of its clock.
const clockVariable = "FAULTTEST_CLOCK"

//go:embed testdata/skew.go.txt
var skewSource []byte

// buildSkewed makes weft as it is, but for package time: what time.Now says of the calendar is off by what another process says, while
// the monotonic clock, and timers with it, goes on. That is what a process sees when the clock of its machine is set. Most of the
// standard library is compiled again, which takes a minute once.
var buildSkewed = sync.OnceValues(func() (bin string, err error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("where Go is: %w", err)
	}
	dir, err := os.MkdirTemp("", "weft-faulttest-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	folder := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	source, err := os.ReadFile(filepath.Join(folder, "time.go"))
	if err != nil {
		return "", err
	}
	patched, err := patchNow(string(source))
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for name, content := range map[string][]byte{"time.go": []byte(patched), "skew_of_faulttest.go": skewSource} {
		at := filepath.Join(dir, name)
		if err := os.WriteFile(at, content, 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(folder, name)] = at
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	at := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(at, overlay, 0o600); err != nil {
		return "", err
	}
	return proctest.BuildWith("-overlay", at)
})

// patchNow is the source of package time with a wall clock that can be off.
func patchNow(source string) (string, error) {
	const head, read = "\nfunc Now() Time {\n", "\tsec, nsec, mono := runtimeNow()\n"
	if strings.Count(source, head+read) != 1 {
		return "", errors.New("time.Now of this version of Go does not read its clocks as it used to: look at it, and renew patchNow")
	}
	return strings.Replace(source, head+read, head+read+"\tsec, nsec = skewed(sec, nsec)\n", 1), nil
}

func TestThePatchOfTheClockFits(t *testing.T) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := patchNow(string(source)); err != nil {
		t.Error(err)
	}
	if _, err := patchNow(strings.Replace(string(source), "func Now() Time {", "func Now() Time {\n", 1)); err == nil {
		t.Error("a source with another time.Now is patched")
	}
}

// clock is the wall clock of a process, and stays as it is when the process is started again.
type clock struct {
	file string
	mem  []byte
}

// newClock makes a file that does not exist yet the clock of a process.
func newClock(file string) (c *clock, err error) {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.Truncate(8); err != nil {
		return nil, err
	}
	mem, err := syscall.Mmap(int(f.Fd()), 0, 8, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", file, err)
	}
	return &clock{file, mem}, nil
}

// set turns the clock at once, so that it is off by d.
func (c *clock) set(d time.Duration) {
	atomic.StoreInt64((*int64)(unsafe.Pointer(&c.mem[0])), int64(d))
}

func (c *clock) env() string { return clockVariable + "=" + c.file }

func (c *clock) close() error { return errors.Join(syscall.Munmap(c.mem), os.Remove(c.file)) }

// giveClock gives a server a clock of its own, where the clocks of the cluster can be turned.
func (c *cluster) giveClock(s *server, file string) {
	c.t.Helper()
	if !c.shape.clocks {
		return
	}
	var err error
	if s.clock, err = newClock(filepath.Join(c.dir, file)); err != nil {
		c.t.Fatal(err)
	}
}

// Reaches of jumps. Linux takes no time before 1970. They end before 2157: from then on Go's times have no monotonic part, and what waits
// until a time of then, in Go's own packages as in others, waits that long when the clock is set back.
var reaches = map[string]func(r *rand.Rand) time.Duration{
	"milliseconds": func(r *rand.Rand) time.Duration { return either(r, time.Duration(1+r.IntN(2000))*time.Millisecond) },
	"minutes":      func(r *rand.Rand) time.Duration { return either(r, time.Duration(1+r.IntN(90*60))*time.Second) },
	"days":         func(r *rand.Rand) time.Duration { return either(r, time.Duration(1+r.IntN(60*24))*time.Hour) },
	"years":        func(r *rand.Rand) time.Duration { return either(r, time.Duration(1+r.IntN(50*8766))*time.Hour) },
	"before 1970":  func(r *rand.Rand) time.Duration { return until(1900 + r.IntN(70)) },
	"around 1970":  func(r *rand.Rand) time.Duration { return until(1970) - time.Duration(r.IntN(3000))*time.Millisecond },
	"far ahead":    func(r *rand.Rand) time.Duration { return until(2080 + r.IntN(75)) },
}

func either(r *rand.Rand, d time.Duration) time.Duration {
	if r.IntN(2) == 0 {
		return -d
	}
	return d
}

// until is how far away the beginning of a year is.
func until(year int) time.Duration {
	return time.Until(time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC).Round(0))
}

// signed is how wrong a clock may be for a bucket to take what it signs.
const signed = 15 * time.Minute

// jump is a fault of clocks: of one process, all members, all brokers, or all. They jump once, or every few milliseconds. Some stay where
// they are when it is over.
func (c *cluster) jump() *fault {
	if !c.shape.clocks {
		return nil
	}
	all := c.servers() // the brokers first
	brokers := len(c.coordinators())
	var hit []*server
	where := ""
	switch c.rng.IntN(8) {
	case 0:
		hit, where = all[:brokers], "all brokers"
	case 1:
		hit, where = all[brokers:], "all members"
	case 2:
		hit, where = all, "all"
	default:
		s := all[c.rng.IntN(len(all))]
		hit, where = []*server{s}, s.name
	}
	reach := slices.Sorted(maps.Keys(reaches))[c.rng.IntN(len(reaches))]
	r := rand.New(rand.NewPCG(c.rng.Uint64(), 3))
	far := make([]time.Duration, len(hit))
	same := r.IntN(2) == 0
	for i := range far {
		if far[i] = reaches[reach](r); same {
			far[i] = far[0]
		}
	}
	wild, stay := r.IntN(4) == 0, r.IntN(2) == 0
	f := &fault{name: fmt.Sprintf("clock of %s by %v (%s)", where, far[0].Round(time.Millisecond), reach)}
	if wild {
		f.name += " to and fro"
	}
	if stay {
		f.name += " for good"
	}
	if c.bucket != nil {
		// One that is wrong cannot speak to the bucket, so it is not to be started, and does not stay.
		f.on = hit
	}
	stop, ended := make(chan struct{}), make(chan struct{})
	f.begin = func() error {
		for i, s := range hit {
			s.clock.set(far[i])
		}
		if !wild {
			close(ended)
			return nil
		}
		c.watch.Go(func() {
			defer close(ended)
			tick := time.NewTicker(3 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
				case <-stop:
					return
				case <-c.done:
					return
				}
				i := r.IntN(len(hit))
				hit[i].clock.set(either(r, time.Duration(r.Int64N(int64(far[i].Abs())+1))))
			}
		})
		return nil
	}
	f.heal = func() error {
		close(stop)
		<-ended
		for i, s := range hit {
			switch {
			case !stay:
				s.clock.set(0)
			case c.bucket != nil:
				s.clock.set(far[i] % (signed / 2))
			default:
				s.clock.set(far[i])
			}
		}
		return nil
	}
	return f
}

// The binary that the tests of clocks use does what they say: its wall clock jumps, under way and before it starts, and nothing else does.
func TestTheClockOfAProcessJumps(t *testing.T) {
	if !*clockFlag {
		t.Skip("builds the standard library: make clock")
	}
	bin, err := buildSkewed()
	if err != nil {
		t.Fatal(err)
	}
	k, err := newClock(filepath.Join(t.TempDir(), "clock"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := k.close(); err != nil {
			t.Error(err)
		}
	}()
	k.set(-48 * time.Hour)
	cmd := exec.Command(bin, "node", "--http", "127.0.0.1:0", "--data-dir", t.TempDir(), "--log-level", "warn")
	cmd.Env = append(os.Environ(), k.env())
	p, err := proctest.StartCommand(1, cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	}()
	for _, off := range []time.Duration{-48 * time.Hour, 0, time.Hour, until(1950), until(2200), -1500 * time.Millisecond} {
		k.set(off)
		began := time.Now()
		eventually(t, "the calendar of the process", func(context.Context) string {
			resp, err := http.Get("http://" + p.Listening["http"] + "/indexes")
			if err != nil {
				return err.Error()
			}
			if err := resp.Body.Close(); err != nil {
				return err.Error()
			}
			// The header is of whole seconds.
			at, err := http.ParseTime(resp.Header.Get("Date"))
			if wrong := at.Sub(time.Now().Add(off).Round(0)); err != nil || wrong.Abs() > 3*time.Second {
				return fmt.Sprintf("%q with a clock that is off by %v", resp.Header.Get("Date"), off)
			}
			return ""
		})
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("off by %v it takes %v to answer", off, took)
		}
	}
}

// Every process in turn has its clock turned, to and fro and as far as it goes, under load, and is killed and started with a clock that is
// wrong; then documents move under clocks of which no two agree. Nothing that was acknowledged is lost, nothing is there twice, no
// answer calls itself complete that is not.
func TestEveryClockJumps(t *testing.T) {
	if !*clockFlag {
		t.Skip("builds the standard library: make clock")
	}
	for _, keeping := range []keeping{mixed, byMembers} {
		t.Run(string(keeping), func(t *testing.T) {
			seed := drawSeed(t)
			c := open(t, rand.New(rand.NewPCG(seed, 4)), shape{groups: 2, replicas: 2, keeping: keeping, moveDocs: 400, clocks: true, repairEvery: 3 * time.Second})
			l := c.ready(seed)
			l.begin()
			for _, s := range c.servers() {
				for _, off := range []time.Duration{time.Hour, -time.Hour, 49 * time.Hour, until(1960), until(2150), until(1970) - 200*time.Millisecond} {
					s.clock.set(off)
					c.hold(60 * time.Millisecond)
				}
				s.clock.set(reaches["years"](c.rng))
				if err := errors.Join(s.kill(), s.start()); err != nil {
					t.Fatal(err)
				}
				s.clock.set(reaches["days"](c.rng))
				c.healthy()
			}
			l.check()
			l.begin()
			c.addGroup()
			c.move(3, 3, 300*time.Millisecond)
			l.check()
			c.doctor()
			l.report()
		})
	}
}
