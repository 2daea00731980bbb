package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/weft-search/weft/internal/cli/loader"
	"github.com/weft-search/weft/internal/client"
	"github.com/weft-search/weft/internal/schema"
)

type loadCmd struct {
	Files       []string          `arg:"" name:"file" help:"Files or folders to load; '-' is standard input."`
	Format      string            `enum:",ndjson,csv,tsv,text,markdown" default:"" placeholder:"FORMAT" help:"Format of every file: ndjson, csv, tsv, text, markdown. Without it the name decides."`
	IDField     string            `placeholder:"NAME" help:"Member or column that becomes the id; numbers are taken as written."`
	CSVType     map[string]string `name:"csv-type" mapsep:"," placeholder:"COLUMN=TYPE" help:"How cells of a column are sent: text, integer, number, boolean, date, skip."`
	Schema      string            `type:"existingfile" placeholder:"FILE" help:"Schema (SDL) to declare before the first document."`
	Rejects     string            `placeholder:"FILE" help:"File that gets one JSON object for each document that did not go in: file, line, id, code, reason."`
	Resume      string            `placeholder:"FILE" help:"State file: what the server has acknowledged is kept there, and the load goes on behind it."`
	MaxRejects  int64             `default:"0" help:"Give up after so many rejects; 0 for never."`
	Concurrency int               `default:"1" help:"Batches under way at once. With more than one, only documents of one id keep their order, and chance decides which document an inferred type comes from."`
	BatchDocs   int               `default:"1000" help:"Documents of a batch at most."`
	BatchKB     int               `name:"batch-kb" default:"1024" help:"KiB of a batch at most."`
	RetryFor    *time.Duration    `placeholder:"2m" help:"How long a batch is offered again while the server refuses it, its disk is full or it cannot be reached; 0s for not at all. If given, a server that does not answer at the start is waited for too."`
}

// Help is shown below the usage line.
func (*loadCmd) Help() string {
	return `Formats, by name: .ndjson .jsonl .json (one object for each line), .csv .tsv (with a header line), .txt .md (one document for each
file), each also with .gz or .zst; of a folder every text and Markdown file. A text's id is its path in the folder, its title the
first heading.

CSV cells are sent as text: numbers are never guessed, since one cell would then fix the type of a field for all that follow. A
column has another type if --csv-type says so, or if the index has a field of that name with one. Empty cells are left out.

A document replaces the one of its id, so loading twice does no harm. Documents that the server refuses are listed (--rejects), the
rest goes in; the exit code is 1 if there were any. With --resume the same command, run again, goes on where it was interrupted: a
file that has changed is loaded from the front, of a folder the files that are new or have changed.

Examples:
  weft load --index movies movies.jsonl.gz
  weft load --index books --id-field isbn --csv-type year=integer,price=number --rejects bad.ndjson books.csv
  weft load --resume docs.state docs/
  zcat dump.gz | weft load --format ndjson --id-field _id -`
}

// Run loads.
func (l *loadCmd) Run(ctx context.Context, glob *globals, stdio *IO) (err error) {
	const most = 10_000 // the server lists so many rejects of one batch
	switch {
	case l.Concurrency < 1 || l.Concurrency > 64:
		return usage(fmt.Errorf("--concurrency: %d is not between 1 and 64", l.Concurrency))
	case l.BatchDocs < 1 || l.BatchDocs > most:
		return usage(fmt.Errorf("--batch-docs: %d is not between 1 and %d", l.BatchDocs, most))
	case l.BatchKB < 1 || l.BatchKB > 16<<10:
		return usage(fmt.Errorf("--batch-kb: %d is not between 1 and %d", l.BatchKB, 16<<10))
	case l.MaxRejects < 0:
		return usage(fmt.Errorf("--max-rejects: %d is negative", l.MaxRejects))
	case l.RetryFor != nil && *l.RetryFor < 0:
		return usage(fmt.Errorf("--retry-for: %v is negative", *l.RetryFor))
	}
	retryFor := loader.DefaultRetryFor
	if l.RetryFor != nil {
		retryFor = *l.RetryFor
	}
	types := map[string]loader.Type{}
	for name, t := range l.CSVType {
		if types[name], err = loader.ParseType(t); err != nil {
			return usage(fmt.Errorf("--csv-type: %w", err))
		}
	}
	inputs, err := loader.Find(l.Files, loader.Format(l.Format))
	if err != nil {
		return err
	}
	if err := l.checkFiles(inputs); err != nil {
		return err
	}
	c, err := glob.client(client.Options{})
	if err != nil {
		return err
	}
	defer c.CloseIdle()
	first := l.firstCalls(ctx, retryFor, stdio.Stderr)
	fresh, err := l.prepare(ctx, c, first, glob.Index, inputs, types)
	if err != nil {
		return explain(c, err)
	}

	var staged atomic.Bool
	cfg := loader.Config{
		Inputs: inputs, IDField: l.IDField, Types: types, Stdin: stdio.Stdin,
		Send: func(ctx context.Context, body []byte) (client.BulkResult, error) {
			done, err := c.Bulk(ctx, glob.Index, body)
			if err == nil && done.Staged {
				staged.Store(true)
			}
			return done, err
		},
		BatchDocs: l.BatchDocs, BatchBytes: l.BatchKB << 10, Concurrency: l.Concurrency, RetryFor: cmp.Or(retryFor, -1),
		MaxRejects: l.MaxRejects, StatePath: l.Resume, Fresh: fresh, URL: c.URL(), Index: glob.Index, Stats: &loader.Stats{},
	}
	if l.Rejects != "" {
		mode := os.O_CREATE | os.O_WRONLY | os.O_TRUNC
		if l.Resume != "" {
			mode = os.O_CREATE | os.O_WRONLY | os.O_APPEND // those of the part that is done stay
		}
		f, ferr := os.OpenFile(l.Rejects, mode, 0o644)
		if ferr != nil {
			return fmt.Errorf("--rejects: %w", ferr)
		}
		w := bufio.NewWriter(f)
		defer func() { err = errors.Join(err, w.Flush(), f.Close()) }()
		cfg.Rejects = w
	}
	var total int64
	for _, in := range inputs {
		total += in.Size
	}
	meter := newMeter(stdio.Stderr, cfg.Stats, total)
	const shown = 10
	n := 0
	cfg.Note = func(s string) { meter.line(clean(s)) }
	keyless := false
	cfg.OnReject = func(r loader.Reject) {
		keyless = keyless || r.Code == "missing_id"
		if n++; n <= shown && l.Rejects == "" {
			id := ""
			if r.ID != "" {
				id = " " + clip(r.ID)
			}
			meter.line(clean(fmt.Sprintf("rejected %s:%d%s: %s (%s)", r.File, r.Line, id, r.Reason, r.Code)))
		}
		if n == shown+1 && l.Rejects == "" {
			meter.line("more rejects are not shown; --rejects FILE keeps all")
		}
	}
	began := time.Now()
	err = loader.Run(ctx, cfg)
	meter.stop()
	took := max(time.Since(began), time.Millisecond)

	s := cfg.Stats
	rejected := s.Rejected.Load()
	if err == nil || s.Read.Load() > 0 { // a load that failed before its first document has nothing to tell but why
		say(stdio.Stdout, "indexed %s of %s into %s in %.1f s: %s documents a second, %.1f MB a second\n",
			thousands(s.Indexed.Load()), counted(s.Read.Load(), "document", "documents"), glob.Index, took.Seconds(),
			thousands(int64(float64(s.Indexed.Load())/took.Seconds())), float64(s.SentBytes.Load())/1e6/took.Seconds())
	}
	if staged.Load() {
		say(stdio.Stdout, "They show when the index is committed: weft commit --index %s\n", glob.Index)
	}
	if err != nil {
		if l.Resume != "" && s.Read.Load() > 0 {
			say(stdio.Stderr, "The same command, run again, goes on behind what was acknowledged.\n")
		}
		return explain(c, err)
	}
	if rejected > 0 {
		where := ""
		if l.Rejects != "" {
			where = "; " + l.Rejects + " lists them"
		}
		if keyless {
			where += "; if another member holds the id, name it with --id-field"
		}
		return fmt.Errorf("%s rejected%s", counted(rejected, "document was", "documents were"), where)
	}
	return nil
}

// firstCalls returns what makes the calls before the first document. A server that refuses is waited for. One that cannot be
// reached is waited for only if it was asked for: most often nobody has started it, or the address is wrong, and whoever waits in
// front of it wants to know.
func (l *loadCmd) firstCalls(ctx context.Context, limit time.Duration, stderr io.Writer) func(func() error) error {
	told := false
	again := func(err error) bool {
		var lost *client.TransportError
		if l.RetryFor == nil && errors.As(err, &lost) {
			return false
		}
		if !told {
			told = true
			say(stderr, "waiting for the server: %s\n", clean(err.Error()))
		}
		return true
	}
	return func(call func() error) error { return loader.Retry(ctx, limit, again, call) }
}

// longestSchema bounds the bytes of a schema file; the server takes no more.
const longestSchema = 1 << 20

// checkFiles refuses to write rejects or state over what is to be read.
func (l *loadCmd) checkFiles(inputs []loader.Input) error {
	type named struct{ what, path string }
	read := []named{}
	for _, in := range inputs {
		read = append(read, named{"an input", in.Path})
	}
	if l.Schema != "" {
		read = append(read, named{"--schema", l.Schema})
	}
	for _, w := range []named{{"--rejects", l.Rejects}, {"--resume", l.Resume}} {
		if w.path == "" {
			continue
		}
		for _, r := range read {
			if r.path != loader.Stdin && sameFile(w.path, r.path) {
				return usage(fmt.Errorf("%s: %s is %s too, and would be overwritten", w.what, w.path, r.what))
			}
		}
		read = append(read, w)
	}
	return nil
}

// sameFile tells whether two paths name one file, there or not.
func sameFile(a, b string) bool {
	x, errA := os.Stat(a)
	y, errB := os.Stat(b)
	if errA == nil && errB == nil {
		return os.SameFile(x, y) && x.Mode().IsRegular()
	}
	p, errA := filepath.Abs(a)
	q, errB := filepath.Abs(b)
	return errA == nil && errB == nil && p == q
}

// prepare declares the schema if one is given, takes the types of CSV columns from the index where it has them, and tells whether
// the index is empty.
func (l *loadCmd) prepare(ctx context.Context, c *client.Client, call func(func() error) error, index string, inputs []loader.Input, types map[string]loader.Type) (fresh bool, err error) {
	if l.Schema != "" {
		sdl, err := readSmall(l.Schema, longestSchema)
		if err != nil {
			return false, fmt.Errorf("--schema: %w", err)
		}
		err = call(func() error {
			_, err := c.PutIndex(ctx, index, string(sdl))
			return err
		})
		if err != nil {
			return false, fmt.Errorf("declare index %s: %w", index, err)
		}
	}
	var info client.Index
	err = call(func() (err error) {
		info, err = c.Index(ctx, index)
		return err
	})
	if client.IsNotFound(err) {
		return true, nil // the first document makes it
	}
	if err != nil {
		return false, err
	}
	fresh = info.Docs == 0
	table := false
	for _, in := range inputs {
		table = table || in.Format == loader.CSV || in.Format == loader.TSV
	}
	if !table {
		return fresh, nil
	}
	s, err := readSchema(info.Schema)
	if err != nil {
		return false, err
	}
	known, err := loader.Columns(inputs)
	if err != nil {
		return false, err
	}
	for _, f := range s.Fields {
		if t, ok := columnTypes[f.Type]; ok && types[f.Name] == "" && known[f.Name] {
			types[f.Name] = t
		}
	}
	return fresh, nil
}

// columnTypes says how a cell is sent for a field that is not text.
var columnTypes = map[schema.Type]loader.Type{
	schema.U64: loader.AsInteger, schema.I64: loader.AsInteger, schema.F64: loader.AsNumber, schema.Date: loader.AsDate,
}

// clip shortens an id for a line of text.
func clip(id string) string {
	const most = 100
	if len(id) <= most {
		return id
	}
	return strings.ToValidUTF8(id[:most], "") + "…"
}

// meter shows how a load goes: a bar on a terminal, else a line now and then.
type meter struct {
	w     io.Writer
	stats *loader.Stats
	total int64
	began time.Time

	bars *mpb.Progress
	bar  *mpb.Bar
	quit chan struct{}
	wg   sync.WaitGroup
}

// plainEvery is the time between two lines where there is no terminal.
const plainEvery = 5 * time.Second

func newMeter(w io.Writer, stats *loader.Stats, total int64) *meter {
	m := &meter{w: w, stats: stats, total: total, began: time.Now(), quit: make(chan struct{})}
	every := plainEvery
	if isTerminal(w) {
		every = 100 * time.Millisecond
		m.bars = mpb.New(mpb.WithOutput(w), mpb.WithWidth(40))
		m.bar = m.bars.AddBar(total, mpb.PrependDecorators(decor.Any(func(decor.Statistics) string { return m.text() })),
			mpb.AppendDecorators(decor.Percentage()), mpb.BarRemoveOnComplete())
	}
	m.wg.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		said := ""
		for {
			select {
			case <-m.quit:
				return
			case <-tick.C:
			}
			if m.bar != nil {
				m.bar.SetCurrent(min(m.stats.DiskBytes.Load(), max(m.total-1, 0)))
			} else if text := m.text(); text != said {
				say(m.w, "%s\n", text)
				said = text
			}
		}
	})
	return m
}

func (m *meter) text() string {
	took := max(time.Since(m.began).Seconds(), 0.001)
	n := m.stats.Indexed.Load()
	s := fmt.Sprintf("%s, %s a second", counted(n, "document", "documents"), thousands(int64(float64(n)/took)))
	if r := m.stats.Rejected.Load(); r > 0 {
		s += fmt.Sprintf(", %s rejected", thousands(r))
	}
	if r := m.stats.Retries.Load(); r > 0 {
		s += fmt.Sprintf(", %s retries", thousands(r))
	}
	return s
}

// line prints a line between the pictures of the bar.
func (m *meter) line(s string) {
	if m.bars == nil {
		say(m.w, "%s\n", s)
		return
	}
	// A bar that is finished takes no more lines; then there is no picture to disturb either.
	if _, err := fmt.Fprintf(m.bars, "%s\n", s); err != nil {
		say(m.w, "%s\n", s)
	}
}

func (m *meter) stop() {
	close(m.quit)
	m.wg.Wait()
	if m.bar != nil {
		m.bar.Abort(true)
		m.bars.Wait()
	}
}
