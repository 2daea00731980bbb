//go:build linux

package faulttest

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// explain logs what brokers keep and do at the end of a run that has failed, and ends them with their stacks.
func (c *cluster) explain() {
	for _, b := range c.coordinators() {
		if !b.ended() {
			c.t.Logf("%s keeps for members: %s", b.name, b.keeps())
		}
	}
	if raw, err := os.ReadFile(filepath.Join(c.dir, "store", "topology", "missed.json")); err == nil {
		c.t.Logf("brokers tell each other: %s", raw)
	}
	for _, b := range c.coordinators() {
		if b.ended() {
			continue
		}
		if err := b.signal(syscall.SIGCONT); err != nil {
			c.t.Log(err)
		}
		if err := b.signal(syscall.SIGQUIT); err != nil {
			c.t.Log(err)
			continue
		}
		p := b.process()
		late := time.NewTimer(10 * time.Second)
		select {
		case <-p.Exited:
			b.mu.Lock()
			b.gone = true
			b.mu.Unlock()
		case <-late.C:
		}
		late.Stop()
		for stack := range strings.SplitSeq(p.Stderr.String(), "\n\n") {
			if strings.HasPrefix(stack, "goroutine ") && strings.Contains(stack, "internal/cluster/jobs") {
				c.t.Logf("%s:\n%s", b.name, stack)
			}
		}
	}
}
