package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// frugal are the flags of nodes that share a machine.
var frugal = []string{"--memtable-mb", "32", "--idle-flush", "500ms", "--filter-cache-mb", "8", "--request-mb", "64"}

// many loads many small documents into a cluster of many shards, and searches them.
func (b *bench) many(ctx context.Context) (err error) {
	from, err := b.corpus(ctx, "go")
	if err != nil {
		return err
	}
	c := generated(from, b.largeDocs, 1, false)
	s, err := b.cluster(framed, b.largeShards, 1, frugal...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	began := time.Now()
	if _, err := s.api.PutIndex(ctx, index, c.schema); err != nil {
		return fmt.Errorf("make the index: %w", err)
	}
	// The next request is made while the last one is under way.
	bodies := make(chan []byte, 1)
	loading, cancel := context.WithCancel(ctx)
	made := make(chan struct{})
	go func() {
		defer close(made)
		defer close(bodies)
		for at := 0; at < c.n; at += 20_000 {
			select {
			case bodies <- c.body(at, min(at+20_000, c.n)):
			case <-loading.Done():
				return
			}
		}
	}()
	defer func() {
		cancel()
		<-made
	}()
	sent, told := 0, time.Now()
	for body := range bodies {
		r, err := s.api.Bulk(ctx, index, body)
		if err == nil && r.Failed > 0 {
			err = fmt.Errorf("%d documents are refused", r.Failed)
		}
		if err != nil {
			return fmt.Errorf("bulk: %w", err)
		}
		if sent += r.Indexed; time.Since(told) > 20*time.Second {
			told = time.Now()
			now, _ := s.memory()
			b.say("%d documents, %d MiB", sent, now)
		}
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	took := time.Since(began)
	loaded, most := s.memory()
	if err := rest(ctx, s); err != nil {
		return err
	}
	rested, _ := s.memory()
	segments, err := s.segments(ctx)
	if err != nil {
		return err
	}
	size, err := sizeOf(filepath.Join(b.out, "data"))
	if err != nil {
		return err
	}
	b.print("\n### %d small documents over %d shards\n\nNodes with %v. Loaded in %.0f s, %.0f documents/s, at rest after %.0f s; %d segments, %.1f GB on disk with the log.\n",
		c.n, b.largeShards, frugal, took.Seconds(), float64(c.n)/took.Seconds(), time.Since(began).Seconds(), segments, float64(size)/1e9)
	b.print("Resident memory of all %d processes: %d MiB at the end of the load (the sum of the peaks: %d MiB), %d MiB at rest", len(s.parts), loaded, most, rested)
	classes := queries(c)
	var arms []*arm
	for _, dfs := range []bool{false, true} {
		a, err := makeArms([]*system{s}, classes)
		if err != nil {
			return err
		}
		if a[0].dfs = dfs; dfs {
			a[0].title += ", dfs"
			for k := range classes {
				if a[0].bodies[k], err = classes[k].bodies(true); err != nil {
					return err
				}
			}
		}
		arms = append(arms, a[0])
	}
	for range warmRounds {
		if err := b.round(ctx, arms, classes, 1, false); err != nil {
			return err
		}
	}
	for range b.rounds {
		if err := b.round(ctx, arms, classes, 1, true); err != nil {
			return err
		}
	}
	searched, _ := s.memory()
	b.print(", %d MiB after the searches.\n\nOne at a time, milliseconds, p50 / p90 / p99 of %d searches each.\n\n| class | %s | %s |\n|---|--:|--:|\n",
		searched, b.rounds*perClass, arms[0].title, arms[1].title)
	for k := range classes {
		b.print("| %s |", classes[k].name)
		for _, a := range arms {
			f := figuresOf(a.times[1][k])
			b.print(" %.2f / %.2f / %.2f |", millis(f.p50), millis(f.p90), millis(f.p99))
		}
		b.print("\n")
	}
	return nil
}

func millis(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// sizeOf is the size of all files below a folder.
func sizeOf(dir string) (sum int64, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return skipGone(err)
		}
		st, err := os.Stat(path)
		if err != nil {
			return skipGone(err)
		}
		sum += st.Size()
		return nil
	})
	return sum, err
}

// skipGone passes over files that were removed while the folder was read.
func skipGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
