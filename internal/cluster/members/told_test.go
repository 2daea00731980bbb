package members

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weft-search/weft/internal/api"
	"github.com/weft-search/weft/internal/leaf"
	"github.com/weft-search/weft/internal/store"
	"github.com/weft-search/weft/internal/topology/placement"
	"github.com/weft-search/weft/internal/topology/shardmap"
)

// logBook keeps the lines of a log, of which several goroutines write.
type logBook struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (b *logBook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out.Write(p)
}

// with lists the lines that have all of some texts.
func (b *logBook) with(texts ...string) (found []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
lines:
	for line := range strings.Lines(b.out.String()) {
		for _, text := range texts {
			if !strings.Contains(line, text) {
				continue lines
			}
		}
		found = append(found, line)
	}
	return found
}

func (b *logBook) log() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

func TestShardsThatAreNotThoseOfTheStoreAreWarnedOfOnce(t *testing.T) {
	f := &fleet{}
	s := store.NewMemory(nil)
	first := &logBook{}
	ready(t, open(t, Options{Dial: f.dial, Source: shardmap.NewStoreSource(s), Initial: groups(t, 2), Log: first.log()}))
	if lines := first.with("which counts"); len(lines) > 0 {
		t.Errorf("the one that made the map warns: %s", lines)
	}
	modulo, err := shardmap.New(placement.Modulo, 0, groups(t, 2).Groups)
	if err != nil {
		t.Fatal(err)
	}
	const stored = `map="g0a:1|g0b:1,g1a:1|g1b:1 by ring with 128 virtual nodes"`
	for _, tt := range []struct {
		name  string
		told  *shardmap.Map
		alone bool // without the store, beside one that has it
		want  string
	}{
		{"the same", groups(t, 2), false, ""},
		{"nothing", nil, false, ""},
		{"other members", groups(t, 3), false, `shards="g0a:1|g0b:1,g1a:1|g1b:1,g2a:1|g2b:1 by ring with 128 virtual nodes"`},
		{"another rule", modulo, false, `shards="g0a:1|g0b:1,g1a:1|g1b:1 by modulo"`},
		{"other members, without the store", groups(t, 3), true, `shards="g0a:1|g0b:1,g1a:1|g1b:1,g2a:1|g2b:1 by ring with 128 virtual nodes"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := &logBook{}
			o := Options{Dial: f.dial, Initial: tt.told, Log: b.log()}
			if !tt.alone {
				o.Source = shardmap.NewStoreSource(s)
			}
			c := open(t, o)
			ready(t, c)
			for range 3 {
				if _, err := c.Refresh(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			lines := b.with("level=WARN", "which counts")
			if tt.want == "" {
				if len(lines) > 0 {
					t.Errorf("%s", lines)
				}
				return
			}
			if len(lines) != 1 || !strings.Contains(lines[0], tt.want) || !strings.Contains(lines[0], stored) {
				t.Errorf("%s\nwant once %s and %s", lines, tt.want, stored)
			}
		})
	}
}

func TestMembersThatAreStillStartingAreNoWarning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{}
		for g := range 2 {
			for _, m := range []string{"a", "b"} {
				f.at(fmt.Sprintf("g%d%s:1", g, m)).setDown(true)
			}
		}
		b := &logBook{}
		c, err := Open(Options{Dial: f.dial, Initial: groups(t, 2), Every: time.Second, Log: b.log()})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}()
		count := func(infos, warnings int) {
			t.Helper()
			i, w := b.with("level=INFO", "members are waited for"), b.with("level=WARN")
			if len(i) != infos || len(w) != warnings {
				t.Errorf("%s\n%s", i, w)
			}
		}
		<-time.After(4500 * time.Millisecond)
		count(1, 0)
		f.at("g0a:1").setDown(false) // fewer are missing, which is nothing new
		<-time.After(5 * time.Second)
		count(1, 0)
		<-time.After(time.Minute)
		count(1, 1)
		f.at("g1b:1").setDown(false)
		<-time.After(2 * time.Second)
		if c.State() == nil {
			t.Fatal("the map is not known")
		}
		count(1, 1)
	})
}

// pinged is a keeper that is asked whether it is there.
type pinged struct {
	*keeper
	err error
}

func (p pinged) Ping(ctx context.Context) (*leaf.PingReply, error) {
	if p.err == errHangs {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return &leaf.PingReply{}, p.err
}

var errHangs = errors.New("hangs")

func TestAProbeOfAnAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{}
		at := map[string]error{"there:1": nil, "busy:1": api.NewProblem(api.TooManySearches, ""), "gone:1": &leaf.TransportError{Cause: errors.New("refused")}, "slow:1": errHangs}
		c, err := Open(Options{Initial: groups(t, 2), Every: time.Second, Dial: func(addr string) (leaf.Member, error) {
			if addr == "bad" {
				return nil, errors.New("no such address")
			}
			return pinged{f.at(addr), at[addr]}, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}()
		if err := c.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		for addr, silent := range map[string]bool{"there:1": false, "busy:1": false, "gone:1": true, "slow:1": true, "g0a:1": false} {
			began := time.Now()
			err := c.Probe(t.Context(), addr)
			if _, is := leaf.Silent(err); is != silent || !silent && err != nil {
				t.Errorf("%s: %v", addr, err)
			}
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("%s took %v", addr, took)
			}
		}
		if err := c.Probe(t.Context(), "bad"); err == nil {
			t.Error("an address that cannot be dialled is there")
		}
		// Connections that nobody needs are closed later, and only those.
		<-time.After(retireAfter + time.Minute)
		for addr, closed := range map[string]int{"there:1": 1, "gone:1": 1, "g0a:1": 0} {
			if n := f.at(addr).closed(); n != closed {
				t.Errorf("the connection to %s was closed %d times", addr, n)
			}
		}
	})
}
