// Package doctor checks the data folder of a node and repairs what can be repaired without losing anything that was acknowledged.
//
// It looks at the lock, node.json, catalog.json, and for each index at its head, manifest, segments, delete sets, schema and log,
// down to the checksum of every byte. An examination changes nothing. What is wrong comes as findings, each with the place, what
// can be done about it here, and a repair to run if anything can.
//
// A Doctor is used by one goroutine. It holds the folder's lock from Open to Close.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/weft-search/weft/internal/node"
	"github.com/weft-search/weft/internal/schema"
	"github.com/weft-search/weft/internal/segment"
	"github.com/weft-search/weft/internal/shard"
	"github.com/weft-search/weft/internal/shard/wal"
	"github.com/weft-search/weft/internal/store"
	"github.com/weft-search/weft/internal/text"
	"github.com/weft-search/weft/internal/vfs"
)

// farFuture makes every half-made file old enough: whoever was making it is gone.
var farFuture = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// Names inside a data folder, as node and shard make them.
const (
	identityFile = "node.json"
	catalogFile  = "catalog.json"
	// longestCollection is the longest name of an index that is that of its collection, too; of a longer one its folder's is.
	longestCollection = 64
	lockFile          = "LOCK"
	indexesDir        = "indexes"
	logDir            = "log"
	storeDir          = "store"
	namespace         = "default"

	segmentSuffix = ".seg"
)

// Kind says how bad a finding is.
type Kind string

// The kinds.
const (
	// Damage is something that a node refuses to open, or that it would answer wrongly or not at all with.
	Damage Kind = "DAMAGE"
	// Leftover is what a crash left behind. It is harmless, and a node that starts deals with it by itself.
	Leftover Kind = "left over"
)

// Finding is one thing that is not as it should be.
type Finding struct {
	Kind   Kind
	Place  string // relative to the data folder
	What   string
	Remedy string // what Repair does; empty when nothing can be done here
	Advice string // what a person can do where there is no remedy
	repair func(ctx context.Context) error
}

// Index is what is to be said of an index.
type Index struct {
	Name     string
	Made     bool   // false: the catalog names it and there is nothing else of it; a start makes it, empty
	Version  uint64 // of the manifest; 0 when none could be read, and then the numbers up to Bytes say nothing
	Segments int
	Docs     uint64 // in segments, dead ones left out
	Objects  int    // looked at
	Bytes    int64  // of them
	Log      wal.Report
	LogRead  bool // to its end; false: the numbers of Log's records say nothing
}

// Report is the result of an examination.
type Report struct {
	Indexes  []Index
	Findings []Finding
}

// Damaged counts the findings that are damage.
func (r *Report) Damaged() int {
	n := 0
	for _, f := range r.Findings {
		if f.Kind == Damage {
			n++
		}
	}
	return n
}

// ErrNoFolder says that a folder is not a node's.
var ErrNoFolder = errors.New("not a data folder of weft: it has neither node.json nor catalog.json")

// Doctor examines one folder.
type Doctor struct {
	// Deep looks inside segments: beyond checksums, whether what stands in them agrees.
	Deep bool

	dir  string // with slashes
	real vfs.FS
	see  vfs.FS // refuses changes
	lock io.Closer
}

// Open takes the folder. A folder that a node uses is vfs.ErrLocked.
func Open(dir string) (*Doctor, error) {
	d := &Doctor{dir: filepath.ToSlash(dir), real: vfs.OS, see: readOnlyFS{vfs.OS}}
	found := false
	for _, name := range []string{identityFile, catalogFile} {
		_, err := d.see.Stat(d.path(name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("look at data folder: %w", err)
		}
		found = found || err == nil
	}
	if !found {
		return nil, fmt.Errorf("%s: %w", dir, ErrNoFolder)
	}
	return d, d.take()
}

func (d *Doctor) take() error {
	lock, err := d.see.Lock(d.path(lockFile))
	if err != nil {
		return fmt.Errorf("%s: %w", d.dir, err)
	}
	d.lock = lock
	return nil
}

// Close lets the folder go.
func (d *Doctor) Close() error {
	if err := d.lock.Close(); err != nil {
		return fmt.Errorf("let data folder go: %w", err)
	}
	return nil
}

func (d *Doctor) path(parts ...string) string {
	return path.Join(append([]string{d.dir}, parts...)...)
}

// Examine looks at everything. The error is for what keeps it from looking; what is wrong is in the report.
func (d *Doctor) Examine(ctx context.Context) (*Report, error) {
	r := &Report{}
	if err := d.own(r); err != nil {
		return nil, err
	}
	entries, err := d.entries(r)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if err := d.index(ctx, r, e); err != nil {
			return nil, fmt.Errorf("examine index %s: %w", e.Name, err)
		}
	}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int { return strings.Compare(string(a.Kind), string(b.Kind)) })
	return r, ctx.Err()
}

// Repair runs the repair of a finding.
func (d *Doctor) Repair(ctx context.Context, f Finding) error {
	if f.repair == nil {
		return errors.New("there is no repair")
	}
	return f.repair(ctx)
}

// own checks the node's own files by letting a node read them, which takes the lock for itself meanwhile.
func (d *Doctor) own(r *Report) (err error) {
	if err := d.Close(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.take()) }()
	n, nerr := node.New(node.Config{DataDir: d.dir, FS: d.see})
	if nerr == nil {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // nothing was started
		return n.Close(ctx)
	}
	var bad *node.DataDirError
	if !errors.As(nerr, &bad) || errors.Is(nerr, node.ErrDirLocked) {
		return nerr
	}
	f := Finding{Kind: Damage, Place: d.rel(bad.Path), What: bad.Reason.Error(), Advice: "restore the file from a copy; the indexes themselves are not touched by this"}
	if bad.Detail != "" {
		f.What += ": " + bad.Detail
	}
	if bad.Cause != nil {
		f.What += ": " + bad.Cause.Error()
	}
	if errors.Is(nerr, node.ErrDirNewer) {
		f.Advice = bad.Advice
	}
	r.Findings = append(r.Findings, f)
	return nil
}

// rel is a path relative to the data folder.
func (d *Doctor) rel(p string) string {
	if s, ok := strings.CutPrefix(p, d.dir+"/"); ok {
		return s
	}
	return p
}

// entry is an index as catalog.json names it.
type entry struct {
	Name     string `json:"name"`
	Dir      string `json:"dir"`
	Deleting bool   `json:"deleting"`
}

// entries lists the indexes. Where the catalog cannot be read, the folders are looked at for what their stores say.
func (d *Doctor) entries(r *Report) ([]entry, error) {
	folders := map[string]bool{}
	list, err := d.see.ReadDir(d.path(indexesDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list indexes: %w", err)
	}
	for _, in := range list {
		if in.Dir {
			folders[in.Name] = true
		}
	}
	var sealed struct {
		Content struct {
			Indexes []entry `json:"indexes"`
		} `json:"content"`
	}
	raw, err := vfs.ReadFile(d.see, d.path(catalogFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// A node that never had an index has no catalog.
	case err != nil:
		return nil, fmt.Errorf("read catalog: %w", err)
	case json.Unmarshal(raw, &sealed) != nil:
		return d.entriesFromStores(folders)
	}
	var out []entry
	for _, e := range sealed.Content.Indexes {
		delete(folders, e.Dir)
		place := path.Join(indexesDir, e.Dir)
		switch {
		case e.Dir == "" || strings.ContainsAny(e.Dir, "/\\."):
			continue // own has told
		case e.Deleting:
			if _, err := d.see.Stat(d.path(place)); err == nil {
				r.Findings = append(r.Findings, Finding{
					Kind: Leftover, Place: place, What: fmt.Sprintf("folder of index %s, which was deleted", e.Name),
					Remedy: "remove the folder", repair: func(context.Context) error { return removeTree(d.real, d.path(place)) },
				})
			}
		default:
			out = append(out, e)
		}
	}
	for _, name := range slices.Sorted(keys(folders)) {
		place := path.Join(indexesDir, name)
		r.Findings = append(r.Findings, Finding{
			Kind: Damage, Place: place, What: "folder of an index that the catalog does not name",
			Advice: "if it is wanted, restore the catalog that names it; else remove it",
		})
	}
	return out, nil
}

func keys(m map[string]bool) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// entriesFromStores asks each folder's store for the names of what it holds.
func (d *Doctor) entriesFromStores(folders map[string]bool) ([]entry, error) {
	var out []entry
	for _, dir := range slices.Sorted(keys(folders)) {
		s, err := store.OpenFolder(d.path(indexesDir, dir, storeDir), store.FolderOptions{FS: d.see, ReadOnly: true})
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		names, err := store.NewCatalog(s, store.CatalogOptions{}).List(context.Background())
		if err = errors.Join(err, s.Close()); err != nil {
			return nil, err
		}
		for _, n := range names {
			out = append(out, entry{Name: n.Collection, Dir: dir})
		}
	}
	return out, nil
}

// index examines one index.
func (d *Doctor) index(ctx context.Context, r *Report, e entry) (err error) {
	place := path.Join(indexesDir, e.Dir)
	found := Index{Name: e.Name, Made: true}
	logReport, logErr := wal.Verify(d.see, d.path(place, logDir))
	found.Log, found.LogRead = logReport, logErr == nil
	begun := true // it ever had a log
	if _, err := d.see.Stat(d.path(place, shard.LogBegun)); errors.Is(err, fs.ErrNotExist) {
		begun = logReport.Files > 0 || logErr != nil
	} else if err != nil {
		return fmt.Errorf("look for the log: %w", err)
	}

	if _, err := d.see.Stat(d.path(place, storeDir)); errors.Is(err, fs.ErrNotExist) {
		if begun {
			r.Findings = append(r.Findings, Finding{
				Kind: Damage, Place: path.Join(place, storeDir),
				What: fmt.Sprintf("index %s has or had a log, and its store is gone", e.Name), Advice: "restore the folder from a copy",
			})
		}
		found.Made = begun
		r.Indexes = append(r.Indexes, found)
		return nil
	}
	s, err := store.OpenFolder(d.path(place, storeDir), store.FolderOptions{FS: d.see, ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	name := store.Name{Namespace: namespace, Collection: e.Name}
	if len(e.Name) > longestCollection {
		name.Collection = e.Dir
	}
	catalog := store.NewCatalog(s, store.CatalogOptions{})
	rep, err := catalog.Verify(ctx, name, store.VerifyOptions{
		Deep:    true,
		Segment: func(ctx context.Context, m store.Segment) error { return verifySegment(ctx, s, m, d.Deep) },
	})
	if err != nil {
		return err
	}
	found.Objects, found.Bytes = rep.Objects, rep.Bytes
	d.storeFindings(r, e, place, name, rep, s, logReport, logErr, begun)
	if rep.Version != nil {
		m := rep.Version.Manifest
		found.Version, found.Segments = m.Version, len(m.Segments)
		for _, seg := range m.Segments {
			found.Docs += uint64(seg.Docs)
		}
		for _, del := range m.Deletes {
			found.Docs -= uint64(del.Count)
		}
		d.manifest(r, place, m)
	}
	d.log(r, place, rep.Version, logReport, logErr, begun)
	d.halfMade(ctx, r, place, name, s)
	r.Indexes = append(r.Indexes, found)
	return err
}

// verifySegment reads every section of a segment and compares it with what the manifest says.
func verifySegment(ctx context.Context, s store.Local, m store.Segment, deep bool) error {
	return openSegment(s, m.Object, func(r *segment.Reader) error {
		if err := r.Verify(); err != nil {
			return err
		}
		if deep {
			if err := r.DeepVerify(ctx); err != nil {
				return err
			}
		}
		if r.NumDocs() != m.Docs {
			return fmt.Errorf("the segment holds %d documents, the manifest says %d", r.NumDocs(), m.Docs)
		}
		return nil
	})
}

// openSegment opens a segment with all its checksums, and calls look with it if that is not nil.
func openSegment(s store.Local, key string, look func(*segment.Reader) error) (err error) {
	p, err := s.LocalPath(key)
	if err != nil {
		return err
	}
	r, err := segment.Open(p, segment.OpenOptions{Verify: segment.VerifyAll})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if look == nil {
		return nil
	}
	return look(r)
}

// blamed is the object that is damaged or missing: on the way from the head to what it names that need not be where the walk began.
func blamed(p store.Problem) string {
	var bad *store.CorruptError
	var missing *store.MissingError
	switch {
	case errors.As(p.Err, &bad) && bad.Object != "":
		return bad.Object
	case errors.As(p.Err, &missing):
		return missing.Object
	}
	return p.Object
}

// storeFindings turns the problems of a store into findings. Going back to an older version is a remedy only where the log still
// has every write since: else acknowledged documents would be lost without a word.
func (d *Doctor) storeFindings(r *Report, e entry, place string, name store.Name, rep store.VerifyReport, s store.Local, log wal.Report, logErr error, begun bool) {
	for _, p := range rep.Problems {
		if errors.Is(p.Err, store.ErrNotFound) && !begun && (rep.Whole == nil || len(rep.Whole.Manifest.Segments) == 0) {
			continue // the process ended while it made the index, before it took a write: a start makes it again
		}
		f := Finding{Kind: Damage, Place: path.Join(place, storeDir, blamed(p)), What: p.Err.Error(), Advice: "restore the object from a copy of the folder"}
		if errors.Is(p.Err, store.ErrNewerFormat) || errors.Is(p.Err, segment.ErrNewerFormat) {
			f.Advice = "use the version of weft that wrote it, or a later one"
		}
		if strings.HasSuffix(p.Object, segmentSuffix) {
			// The checksum of the whole says only that something is wrong; the segment's own say where.
			var bad *segment.CorruptError
			if err := openSegment(s, p.Object, nil); errors.As(err, &bad) && !errors.As(p.Err, &bad) {
				f.What += fmt.Sprintf("; in section %s at byte %d: %s", bad.Section, bad.Offset, bad.Reason)
			}
		}
		if p.Repair == store.RepairRepoint && rep.Whole != nil {
			whole := rep.Whole.Manifest
			covered := logErr == nil && (log.FirstSeq <= whole.LogSeq+1 && log.Files > 0)
			if rep.Version == nil || covered {
				f.Remedy = fmt.Sprintf("point the head at version %d, the newest whole one", whole.Version)
				if covered {
					f.Remedy += "; the log has every write since"
				}
			}
			if !covered {
				// Without a head nobody can tell whether a later version existed.
				f.Remedy = ""
				f.Advice = fmt.Sprintf("version %d is whole, but the log begins at record %d and not at %d: going back would lose what lies between; restore the object from a copy",
					whole.Version, log.FirstSeq, whole.LogSeq+1)
			}
			if f.Remedy != "" {
				f.repair = func(ctx context.Context) error { return d.repoint(ctx, place, name) }
			}
		}
		r.Findings = append(r.Findings, f)
	}
	if len(rep.Unreferenced) > 0 && rep.Version != nil && len(rep.Problems) == 0 {
		bytes := int64(0)
		for _, o := range rep.Unreferenced {
			bytes += o.Size
		}
		r.Findings = append(r.Findings, Finding{
			Kind: Leftover, Place: path.Join(place, storeDir), What: fmt.Sprintf("%s of %s that no version of index %s names", count(len(rep.Unreferenced), "object"), count(int(bytes), "byte"), e.Name),
			Remedy: "remove them", repair: func(ctx context.Context) error { return d.collect(ctx, place, name) },
		})
	}
}

// manifest checks what a manifest says that its checksum cannot vouch for.
func (d *Doctor) manifest(r *Report, place string, m *store.Manifest) {
	var err error
	var sch *schema.Schema
	switch m.Schema.Format {
	case "json":
		sch, err = schema.ParseJSON(m.Schema.Text, text.Check)
	case "sdl":
		sch, err = schema.ParseSDL(m.Schema.Text, text.Check)
	default:
		err = fmt.Errorf("unknown format %q", m.Schema.Format)
	}
	if err == nil && sch.PrimaryField() < 0 {
		err = errors.New("no field is the primary key")
	}
	if err != nil {
		r.Findings = append(r.Findings, Finding{
			Kind: Damage, Place: path.Join(place, storeDir),
			What: fmt.Sprintf("schema of manifest version %d: %v", m.Version, err), Advice: "use the version of weft that wrote it, or a later one",
		})
	}
}

// log turns what the log's examination found into findings, and checks that it joins the manifest.
func (d *Doctor) log(r *Report, place string, v *store.Version, rep wal.Report, err error, begun bool) {
	at := path.Join(place, logDir)
	var bad *wal.CorruptError
	switch {
	case rep.Files == 0 && begun, rep.Files == 0 && v != nil && v.Manifest.LogSeq > 0:
		r.Findings = append(r.Findings, Finding{
			Kind: Damage, Place: at, What: "the log is gone; whatever was acknowledged after the last flush was in it",
			Advice: "restore the log from a copy of the folder",
		})
	case errors.As(err, &bad):
		r.Findings = append(r.Findings, Finding{
			Kind: Damage, Place: d.rel(bad.File), What: fmt.Sprintf("at byte %d: %s", bad.Offset, bad.Reason),
			Advice: "records behind that place were acknowledged; restore the file from a copy of the folder",
		})
	case errors.Is(err, wal.ErrNewerFormat):
		r.Findings = append(r.Findings, Finding{Kind: Damage, Place: at, What: err.Error(), Advice: "use the version of weft that wrote it, or a later one"})
	case err != nil:
		r.Findings = append(r.Findings, Finding{Kind: Damage, Place: at, What: err.Error(), Advice: "restore the file from a copy of the folder"})
	case v != nil && rep.Files > 0 && rep.FirstSeq > v.Manifest.LogSeq+1:
		r.Findings = append(r.Findings, Finding{
			Kind: Damage, Place: at,
			What:   fmt.Sprintf("the log begins at record %d, the manifest ends at %d: what lies between is missing", rep.FirstSeq, v.Manifest.LogSeq),
			Advice: "restore the log from a copy of the folder",
		})
	}
	if err == nil && rep.Torn != nil {
		t := *rep.Torn
		r.Findings = append(r.Findings, Finding{
			Kind: Leftover, Place: d.rel(t.File), What: fmt.Sprintf("%s at byte %d of a record that was being written at a crash and never acknowledged: %s", count(int(t.Bytes), "byte"), t.Offset, t.Reason),
			Remedy: fmt.Sprintf("cut the file to %d bytes", t.Offset),
			repair: func(context.Context) error { return d.cut(at) },
		})
	}
}

// cut opens the log, which cuts a torn tail, and closes it.
func (d *Doctor) cut(logPlace string) error {
	l, err := wal.Open(d.real, d.path(logPlace), wal.Options{})
	if err != nil {
		return err
	}
	return l.Close()
}

// halfMade tells of files that were being written.
func (d *Doctor) halfMade(ctx context.Context, r *Report, place string, name store.Name, s *store.Folder) {
	n := 0
	err := s.Sweep(ctx, name.Prefix(), farFuture, func(string) { n++ })
	if err != nil {
		r.Findings = append(r.Findings, Finding{Kind: Damage, Place: path.Join(place, storeDir), What: err.Error()})
	}
	if n > 0 {
		r.Findings = append(r.Findings, Finding{
			Kind: Leftover, Place: path.Join(place, storeDir), What: count(n, "file") + " left half-written by a crash",
			Remedy: "remove them", repair: func(ctx context.Context) error { return d.collect(ctx, place, name) },
		})
	}
}

// writable opens an index's store to change it.
func (d *Doctor) writable(place string, change func(*store.Folder, *store.Catalog) error) (err error) {
	s, err := store.OpenFolder(d.path(place, storeDir), store.FolderOptions{FS: d.real})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return change(s, store.NewCatalog(s, store.CatalogOptions{}))
}

// repoint makes the newest whole version the head's. It looks again first: an earlier repair may have done it.
func (d *Doctor) repoint(ctx context.Context, place string, name store.Name) error {
	return d.writable(place, func(_ *store.Folder, c *store.Catalog) error {
		rep, err := c.Verify(ctx, name, store.VerifyOptions{Deep: true})
		if err != nil {
			return err
		}
		if rep.Version != nil && len(rep.Problems) == 0 {
			return nil
		}
		if rep.Whole == nil {
			return errors.New("there is no whole version any more")
		}
		_, err = c.Repoint(ctx, rep.Whole)
		return err
	})
}

// collect removes what no version names. Nobody else has the folder, so nothing is about to be named.
func (d *Doctor) collect(ctx context.Context, place string, name store.Name) error {
	return d.writable(place, func(s *store.Folder, c *store.Catalog) error {
		if _, err := c.Collect(ctx, name, store.GCOptions{Delay: -1}); err != nil {
			return err
		}
		return s.Sweep(ctx, name.Prefix(), farFuture, nil)
	})
}

// removeTree removes a folder with all it holds.
func removeTree(fsys vfs.FS, p string) error {
	list, err := fsys.ReadDir(p)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, in := range list {
		child := path.Join(p, in.Name)
		if in.Dir {
			err = removeTree(fsys, child)
		} else {
			err = fsys.Remove(child)
		}
		if err != nil {
			return err
		}
	}
	return fsys.Remove(p)
}

// count is a number of things in words; the word takes an s for any but one.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
