package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// GCOptions say how long things stay. Zero members have defaults; a negative one means none.
type GCOptions struct {
	KeepVersions int           // versions before the head's that stay; default 2
	KeepAge      time.Duration // a version stays this long after the next one was published, the longest life of a token that may name it; default 1 h
	Delay        time.Duration // an unreferenced object stays this long after it was written: it may be about to be referenced; default 15 min
	DryRun       bool          // tell, do nothing
}

func (o *GCOptions) ensureDefaults() {
	if o.KeepVersions == 0 {
		o.KeepVersions = 2
	}
	if o.KeepAge == 0 {
		o.KeepAge = time.Hour
	}
	if o.Delay == 0 {
		o.Delay = 15 * time.Minute
	}
}

// GCReport is what a collection did, or with DryRun would do.
type GCReport struct {
	Versions int      // versions that stay, the head's included
	Kept     int      // objects that stay because a version names them
	Waiting  []Info   // unreferenced, but young or held
	Deleted  []Info   // deleted
	Temps    []string // half-made files that a crash left; with DryRun only, else they are removed too
}

// sweeper is a Store that may hold half-made files.
type sweeper interface {
	Sweep(ctx context.Context, prefix string, before time.Time, fn func(key string)) error
}

// Collect deletes the objects of a collection that nobody can reach any more. What the head, the versions kept by the options, and pins reach
// stays, and so does what is younger than the delay or held by a writer. If the head or a version that must stay cannot be read, nothing is deleted.
//
// It reads the list of objects before the head: what was published in between is then in the head.
func (c *Catalog) Collect(ctx context.Context, n Name, o GCOptions) (GCReport, error) {
	o.ensureDefaults()
	var rep GCReport
	if err := n.Validate(); err != nil {
		return rep, err
	}
	now := c.now()
	var all []Info
	err := c.s.List(ctx, n.Prefix(), func(in Info) error {
		all = append(all, in)
		return nil
	})
	if err != nil {
		return rep, fmt.Errorf("collect %s: %w", n, err)
	}
	keep, versions, err := c.reachable(ctx, n, o, now)
	if err != nil {
		return rep, fmt.Errorf("collect %s: %w", n, err)
	}
	rep.Versions = versions
	for _, in := range all {
		switch {
		case keep[in.Key]:
			rep.Kept++
			continue
		case now.Sub(in.Modified) < o.Delay || c.isHeld(in.Key):
			rep.Waiting = append(rep.Waiting, in)
			continue
		case o.DryRun:
		default:
			gone, err := c.remove(ctx, in.Key)
			if err != nil {
				return rep, fmt.Errorf("collect %s: %w", n, err)
			}
			if !gone {
				rep.Waiting = append(rep.Waiting, in)
				continue
			}
		}
		rep.Deleted = append(rep.Deleted, in)
	}
	if s, ok := c.s.(sweeper); ok {
		var fn func(string)
		if o.DryRun {
			fn = func(key string) { rep.Temps = append(rep.Temps, key) }
		}
		if err := s.Sweep(ctx, n.Prefix(), now.Add(-max(o.Delay, 0)), fn); err != nil {
			return rep, fmt.Errorf("collect %s: %w", n, err)
		}
	}
	return rep, nil
}

func (c *Catalog) isHeld(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.held[key] > 0
}

// reachable returns the keys that the head and the kept versions before it name.
func (c *Catalog) reachable(ctx context.Context, n Name, o GCOptions, now time.Time) (map[string]bool, int, error) {
	v, err := c.Open(ctx, n)
	if err != nil {
		return nil, 0, err
	}
	keep := map[string]bool{n.HeadKey(): true}
	versions := 0
	for back := 0; ; back++ {
		versions++
		for _, k := range v.objects() {
			keep[k] = true
		}
		prev := v.Manifest.Previous
		if prev == nil || back >= o.KeepVersions && now.Sub(v.Manifest.Created) >= o.KeepAge {
			return keep, versions, nil
		}
		v, err = c.OpenAt(ctx, n, *prev)
		var missing *MissingError
		if errors.As(err, &missing) {
			return keep, versions, nil // collected before, when less had to stay, and all before it too
		}
		if err != nil {
			return nil, 0, err
		}
	}
}
