package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// writeRounds alternate between the systems; the median counts.
const writeRounds = 3

// Groups and members of the clusters that are written to.
const (
	writeShards  = 3
	writeMembers = 2
)

// mirrored starts a node and a cluster with two members for each shard.
func (b *bench) mirrored() ([]*system, func() error, error) {
	return b.beside(writeShards, writeMembers, nil, nil)
}

// singles writes documents one after the other, each when the one before is acknowledged.
func (b *bench) singles(ctx context.Context) (err error) {
	c, err := b.corpus(ctx, "go")
	if err != nil {
		return err
	}
	systems, stop, err := b.mirrored()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	mirrored := len(systems)
	for _, arm := range b.arms { // the same without a second member: what is left is the price of replication
		s, startErr := b.cluster(arm, writeShards, 1)
		if startErr != nil {
			return startErr
		}
		defer func() { err = errors.Join(err, s.stop()) }()
		s.name += ", 1 member"
		systems = append(systems, s)
	}
	for _, s := range systems {
		if _, err := s.api.PutIndex(ctx, index, c.schema); err != nil {
			return fmt.Errorf("%s: make the index: %w", s.name, err)
		}
	}
	b.print("\n### Single documents\n\nOne after the other, each acknowledged before the next; a node, and a broker over %d groups of %d members, and of one. Documents a second, median of %d rounds of %d.\n",
		writeShards, writeMembers, writeRounds, b.writes)
	alone, pair, err := b.syncs()
	if err != nil {
		return err
	}
	for _, again := range []bool{false, true} { // ids that are new, and then the same
		if again && b.rest > 0 {
			select {
			case <-time.After(b.rest):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		times, rates, err := b.writeRounds(ctx, c, systems)
		if err != nil {
			return err
		}
		what := "single writes"
		if again {
			what = "single overwrites"
		}
		b.print("\n%s:\n\n| | documents/s | rounds | p50 µs | p99 µs | time over the node's | over that with one member |\n|---|--:|---|--:|--:|--:|--:|\n", strings.ToUpper(what[:1])+what[1:])
		for i, s := range systems {
			slices.Sort(times[i])
			f := figuresOf(times[i : i+1])
			ratio := median(rates[0]) / median(rates[i])
			one := ""
			if i > 0 && i < mirrored {
				b.marks = append(b.marks, mark{what + ", " + s.name + ": time over the node's", 1.5, ratio, ""})
				over := median(rates[mirrored+i-1]) / median(rates[i])
				one = fmt.Sprintf("%.2f", over)
				b.marks = append(b.marks, mark{what + ", " + s.name + ": time over that with one member", 1.5, over, ""})
			}
			b.print("| %s | %.0f | %s | %s | %s | %.2f | %s |\n", s.name, median(rates[i]), strings.TrimSpace(spread0(rates[i])), micros(f.p50), micros(f.p99), ratio, one)
		}
	}
	b.print("\nAll members write to one disk here. A file of 1 KiB more and its sync take %s µs by one writer; by two at once each takes %s µs (medians).\n", micros(alone), micros(pair))
	return nil
}

// writeRounds writes the first documents of a corpus to each system in turns, and measures all but the first round, which warms up.
func (b *bench) writeRounds(ctx context.Context, c *corpus, systems []*system) (times [][]time.Duration, rates [][]float64, err error) {
	times = make([][]time.Duration, len(systems))
	rates = make([][]float64, len(systems))
	next := 0
	for round := range writeRounds + 1 {
		n := b.writes
		if round == 0 {
			n = min(n, 100)
		} else if round == 1 {
			if err := b.flip(systems); err != nil {
				return nil, nil, err
			}
		}
		for i := range systems {
			s := systems[(i+round)%len(systems)]
			at := slices.Index(systems, s)
			began := time.Now()
			for k := range n {
				one := time.Now()
				w, err := s.api.Put(ctx, index, c.doc((next+k)%c.n))
				if err == nil && !w.OK {
					err = fmt.Errorf("a write is not in at all members: %v", w.FailedAddresses)
				}
				if err != nil {
					return nil, nil, fmt.Errorf("%s: %w", s.name, err)
				}
				if round > 0 {
					times[at] = append(times[at], time.Since(one))
				}
			}
			if round > 0 {
				rates[at] = append(rates[at], float64(n)/time.Since(began).Seconds())
			}
		}
		next += n
	}
	return times, rates, b.flip(systems)
}

func median(list []float64) float64 {
	s := slices.Sorted(slices.Values(list))
	return s[len(s)/2]
}

func spread0(list []float64) string {
	return fmt.Sprintf("%.0f to %.0f", slices.Min(list), slices.Max(list))
}

// syncs measures what the disk does: appending a little and waiting for it, by one writer and by two at once.
func (b *bench) syncs() (alone, pair time.Duration, err error) {
	const n = 200
	write := func(name string) ([]time.Duration, error) {
		f, err := os.Create(filepath.Join(b.out, name))
		if err != nil {
			return nil, err
		}
		buf := make([]byte, 1024)
		var out []time.Duration
		for range n {
			began := time.Now()
			if _, err := f.Write(buf); err != nil {
				return nil, errors.Join(err, f.Close())
			}
			if err := f.Sync(); err != nil {
				return nil, errors.Join(err, f.Close())
			}
			out = append(out, time.Since(began))
		}
		slices.Sort(out)
		return out, errors.Join(f.Close(), os.Remove(f.Name()))
	}
	one, err := write("sync-0")
	if err != nil {
		return 0, 0, fmt.Errorf("measure the disk: %w", err)
	}
	var times [2][]time.Duration
	var errs [2]error
	var wg sync.WaitGroup
	for i := range times {
		wg.Go(func() { times[i], errs[i] = write("sync-" + strconv.Itoa(i)) })
	}
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return 0, 0, fmt.Errorf("measure the disk: %w", err)
	}
	return quantile(one, 0.5), quantile(slices.Sorted(slices.Values(slices.Concat(times[:]...))), 0.5), nil
}

// bulks loads generated documents into new indexes of a node, of a cluster with one member for each shard, and of one with two.
func (b *bench) bulks(ctx context.Context) (err error) {
	from, err := b.corpus(ctx, "go")
	if err != nil {
		return err
	}
	c := generated(from, b.bulkDocs, 3, false)
	single, stop, err := b.beside(writeShards, 1, nil, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	systems := single[:2:2]
	names := []string{oneNode, systems[1].name + ", 1 member"}
	double, err := b.cluster(systems[1].name+"-2", writeShards, writeMembers)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, double.stop()) }()
	systems, names = append(systems, double), append(names, systems[1].name+", 2 members")
	rates := make([][]float64, len(systems))
	if err := b.flip(systems); err != nil {
		return err
	}
	for round := range writeRounds {
		for i := range systems {
			at := (i + round) % len(systems)
			took, err := systems[at].load(ctx, "bulk"+strconv.Itoa(round), c, b.bulkLines)
			if err != nil {
				return err
			}
			rates[at] = append(rates[at], float64(c.n)/took.Seconds())
			// What a load leaves to be done in the background must not fall on the next.
			if err := rest(ctx, systems...); err != nil {
				return err
			}
		}
	}
	if err := b.flip(systems); err != nil {
		return err
	}
	b.print("\n### Bulk loads\n\n%d generated documents in requests of %d, into a new index each; median of %d rounds.\n\n| | documents/s | rounds | time over the node's |\n|---|--:|---|--:|\n",
		c.n, b.bulkLines, writeRounds)
	for i := range systems {
		b.print("| %s, shards: %d | %.0f | %s | %.2f |\n", names[i], 1+min(i, 1)*(writeShards-1), median(rates[i]), spread0(rates[i]), median(rates[0])/median(rates[i]))
	}
	return nil
}
