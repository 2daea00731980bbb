package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weft-search/weft/internal/client"
	"github.com/weft-search/weft/internal/node"
	"github.com/weft-search/weft/internal/shard"
)

// makeFolder makes a data folder with an index that has segments, delete sets and a log with records behind them.
func makeFolder(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for part := range 3 {
		n, err := node.New(node.Config{DataDir: dir, HTTPAddr: "127.0.0.1:0"})
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Start(ctx); err != nil {
			t.Fatal(err)
		}
		c, err := client.New(n.Addr(), client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var body bytes.Buffer
		for i := range 50 {
			fmt.Fprintf(&body, `{"id":"d%d","text":"part %d of the text number %d","n":%d,"v":[%d,1],"s":{"indices":[%d],"values":[1]}}`+"\n", (part*40+i)%100, part, i, i, i, i)
		}
		<-n.Opened()
		if part == 0 {
			const sdl = `index default { dynamic: true field v: vector<2> [indexed<metric: l2>] field s: sparse_vector [indexed] }`
			if _, err := c.PutIndex(ctx, "default", sdl); err != nil {
				t.Fatal(err)
			}
		}
		if res, err := c.Bulk(ctx, "", body.Bytes()); err != nil || !res.OK {
			t.Fatalf("bulk: %+v, %v", res, err)
		}
		c.CloseIdle()
		if part == 2 {
			cancel() // a node that may not wait leaves its memtable in the log
		}
		if err := n.Close(ctx); err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	return dir
}

func examine(t testing.TB, dir string) *Report {
	t.Helper()
	d, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	r, err := d.Examine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return r
}

// contents reads every file of a folder.
func contents(t testing.TB, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(p)
		rel, rerr := filepath.Rel(dir, p)
		out[rel] = string(b)
		return errors.Join(err, rerr)
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// isHint tells whether a file of an index holds nothing that is needed: that a log was begun, and how far it was known to reach.
func isHint(name string) bool { return name == shard.LogBegun || name == "acknowledged" }

// TestEveryKindOfDamageIsFound flips bits of and cuts every file of a folder. What a flip does not touch is told apart from damage
// by nothing but the check itself, so each has to be found; only the end of the log may pass for what a crash leaves.
func TestEveryKindOfDamageIsFound(t *testing.T) {
	dir := makeFolder(t)
	whole := contents(t, dir)
	clean := examine(t, dir)
	if len(clean.Findings) != 0 || len(clean.Indexes) != 1 || clean.Indexes[0].Segments == 0 {
		t.Fatalf("a whole folder: %+v", clean)
	}
	if d := cmp.Diff(whole, contents(t, dir)); d != "" {
		t.Fatalf("the examination changed the folder: %s", d)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	kinds := map[string]int{}
	for name, text := range whole {
		if len(text) == 0 || isHint(filepath.Base(name)) {
			continue
		}
		path := filepath.Join(dir, name)
		for try := range 12 {
			b := []byte(text)
			how := ""
			if try%4 == 3 {
				n := rng.IntN(len(b))
				b = b[:n]
				how = fmt.Sprintf("%s cut to %d of %d bytes", name, n, len(text))
			} else {
				at := rng.IntN(len(b))
				b[at] ^= 1 << rng.IntN(8)
				how = fmt.Sprintf("%s with a flipped bit at %d of %d", name, at, len(text))
			}
			if err := os.WriteFile(path, b, 0o644); err != nil {
				t.Fatal(err)
			}
			r := examine(t, dir)
			isLog := strings.HasSuffix(name, ".log")
			if len(r.Findings) == 0 || (r.Damaged() == 0 && !isLog) {
				t.Errorf("%s: %+v", how, r.Findings)
			}
			for _, f := range r.Findings {
				kinds[filepath.Ext(name)+" "+string(f.Kind)]++
				if f.What == "" || f.Place == "" || (f.Remedy == "") != (f.repair == nil) || (f.Kind == Damage && f.Remedy == "" && f.Advice == "") {
					t.Errorf("%s: finding says too little: %+v", how, f)
				}
			}
			if string(b) != contents(t, dir)[name] {
				t.Errorf("%s: the examination changed it", how)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("findings: %v", kinds)
	if d := cmp.Diff(clean, examine(t, dir), cmp.AllowUnexported()); d != "" {
		t.Errorf("after all was put back: %s", d)
	}
}

// TestWhatIsGoneIsFound removes each file and folder of an index in turn.
func TestWhatIsGoneIsFound(t *testing.T) {
	dir := makeFolder(t)
	var all []string
	err := filepath.WalkDir(filepath.Join(dir, "indexes"), func(p string, d fs.DirEntry, err error) error {
		if depth := strings.Count(strings.TrimPrefix(p, dir), string(filepath.Separator)); depth > 2 { // inside an index
			all = append(all, p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	current := "" // the newest manifest
	for _, p := range all {
		if filepath.Base(filepath.Dir(p)) == "manifests" {
			current = max(current, p)
		}
	}
	seen := 0
	aside := filepath.Join(t.TempDir(), "aside")
	for _, p := range all {
		switch name := filepath.Base(p); {
		case name == "LOCK" || name == ".store.lock" || isHint(name):
			continue // a start makes it again
		case filepath.Base(filepath.Dir(p)) == "manifests" && p != current:
			continue // an old version may have been collected
		}
		if err := os.Rename(p, aside); err != nil {
			t.Fatal(err)
		}
		if r := examine(t, dir); r.Damaged() == 0 {
			t.Errorf("%s is gone: %+v", p, r.Findings)
		}
		if err := os.Rename(aside, p); err != nil {
			t.Fatal(err)
		}
		seen++
	}
	if r := examine(t, dir); len(r.Findings) > 0 || seen < 10 {
		t.Errorf("%d things removed and put back: %+v", seen, r.Findings)
	}
}

// TestUnfinishedIndexIsNoDamage has an index whose making a crash cut short.
func TestUnfinishedIndexIsNoDamage(t *testing.T) {
	dir := makeFolder(t)
	index := filepath.Join(dir, "indexes", onlyIndex(t, dir))
	if err := os.RemoveAll(index); err != nil {
		t.Fatal(err)
	}
	r := examine(t, dir)
	if len(r.Findings) != 0 || len(r.Indexes) != 1 || r.Indexes[0].Made {
		t.Errorf("nothing but the name: %+v", r)
	}
	if err := os.MkdirAll(filepath.Join(index, "store"), 0o755); err != nil {
		t.Fatal(err)
	}
	if r := examine(t, dir); len(r.Findings) != 0 {
		t.Errorf("an empty store: %+v", r)
	}
	if err := os.WriteFile(filepath.Join(index, shard.LogBegun), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if r := examine(t, dir); r.Damaged() == 0 {
		t.Errorf("it had a log, and has none: %+v", r)
	}
}

// onlyIndex names the folder of the only index.
func onlyIndex(t *testing.T, dir string) string {
	t.Helper()
	list, err := os.ReadDir(filepath.Join(dir, "indexes"))
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	return list[0].Name()
}

// TestRepairsLoseNothing damages what can be repaired, repairs it, and reads every document.
func TestRepairsLoseNothing(t *testing.T) {
	dir := makeFolder(t)
	whole := contents(t, dir)
	find := func(ending string) string {
		names := slices.Sorted(keysOf(whole))
		for _, name := range slices.Backward(names) { // of a log the last file, the only one that may be torn
			if strings.HasSuffix(name, ending) {
				return name
			}
		}
		t.Fatalf("no file ends in %s", ending)
		return ""
	}
	for what, damage := range map[string]func() error{
		"head gone": func() error { return os.Remove(filepath.Join(dir, find("manifest_committed_head.json"))) },
		"head cut":  func() error { return os.Truncate(filepath.Join(dir, find("manifest_committed_head.json")), 20) },
		"stray object": func() error {
			name := find(".seg")
			return os.WriteFile(filepath.Join(dir, filepath.Dir(name), "11111111-2222-4333-8444-555555555555.seg"), []byte(whole[name]), 0o644)
		},
		"half-made object": func() error { return os.WriteFile(filepath.Join(dir, find(".seg")+".123.tmp"), []byte("x"), 0o644) },
		"garbage behind the log": func() error {
			name := find(".log")
			return os.WriteFile(filepath.Join(dir, name), []byte(whole[name]+"garbage"), 0o644)
		},
	} {
		t.Run(what, func(t *testing.T) {
			for name := range contents(t, dir) {
				if err := os.Remove(filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
			}
			for name, text := range whole {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if err := damage(); err != nil {
				t.Fatal(err)
			}
			d, err := Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			r, err := d.Examine(t.Context())
			if err != nil || len(r.Findings) == 0 {
				t.Fatalf("%+v, %v", r, err)
			}
			for _, f := range r.Findings {
				if err := d.Repair(t.Context(), f); err != nil {
					t.Errorf("%+v: %v", f, err)
				}
			}
			if r, err = d.Examine(t.Context()); err != nil || len(r.Findings) != 0 {
				t.Errorf("after the repair: %+v, %v", r, err)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			n, err := node.New(node.Config{DataDir: dir, HTTPAddr: "127.0.0.1:0"})
			if err != nil {
				t.Fatal(err)
			}
			if err := n.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			c, err := client.New(n.Addr(), client.Options{})
			if err != nil {
				t.Fatal(err)
			}
			res, err := c.Search(t.Context(), client.Search{Limit: 200})
			if err != nil || res.Total != 100 || len(res.Hits) != 100 {
				t.Errorf("%+v, %v", res, err)
			}
			c.CloseIdle()
			if err := n.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func keysOf(m map[string]string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}
