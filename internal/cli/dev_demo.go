package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/weft-search/weft/internal/cli/demo"
	"github.com/weft-search/weft/internal/cli/loader"
	"github.com/weft-search/weft/internal/client"
)

// demoSource is what the demo indexes: a tree of Go packages or a folder of text.
type demoSource struct {
	what    string // for a person
	tree    demo.Source
	text    string // the folder, if it is text
	queries []string
}

// The searches to try on the standard library: plain words, a phrase with a filter, a prefix in a field.
var goQueries = []string{
	`cancel a context after a timeout`,
	`"regular expression" AND kind:func`,
	`words:parse* AND time AND kind:func`,
}

// textSchema is the schema of a demo of text files, behind "index NAME".
const textSchema = ` {
    field id: text<raw> [indexed, stored, fast, primary]
    field title: text<en_stem> [indexed<positions>, stored]
    field body: text<en_stem> [indexed<positions>, stored]
}
`

// findDemo finds what is to be indexed.
func findDemo(ctx context.Context, path string) (*demoSource, error) {
	if path == "" {
		root, err := demo.FindGoRoot(ctx)
		if err != nil {
			return nil, fmt.Errorf("demo: %w; name a folder of Go source, text or Markdown with --demo-path, or set GOROOT", err)
		}
		return &demoSource{what: "Go's standard library in " + root, tree: demo.StandardLibrary(root), queries: goQueries}, nil
	}
	st, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("demo: --demo-path: %w", err)
	}
	if !st.IsDir() {
		return nil, usage(fmt.Errorf("--demo-path: %s is not a folder", path))
	}
	isGo, err := demo.HasGo(path)
	if err != nil {
		return nil, fmt.Errorf("demo: --demo-path: %w", err)
	}
	if !isGo {
		return &demoSource{what: "the text files in " + path, text: path}, nil
	}
	src := &demoSource{what: "the Go source in " + path, tree: demo.Tree(path)}
	if src.tree.Prefix == "" && len(src.tree.Skip) > 0 {
		src.queries = goQueries
	}
	return src, nil
}

// demoRun indexes a demo through the server's own HTTP calls and shows what can be asked.
type demoRun struct {
	io     *IO
	client *client.Client
	index  string
	src    *demoSource
	check  bool

	docs, bytes int
	seen        suggester
}

func (d *demoRun) run(ctx context.Context) error {
	if err := waitReady(ctx, d.client); err != nil {
		return err
	}
	began := time.Now()
	schema := demo.Schema(d.index)
	if d.src.text != "" {
		schema = "index " + d.index + textSchema
	}
	if _, err := d.client.PutIndex(ctx, d.index, schema); err != nil {
		return fmt.Errorf("declare index %s: %w", d.index, err)
	}
	say(d.io.Stdout, "indexing %s\n", d.src.what)
	var err error
	if d.src.text != "" {
		err = d.loadText(ctx)
	} else {
		err = d.loadGo(ctx)
	}
	if err != nil {
		return err
	}
	if d.docs == 0 {
		return fmt.Errorf("%s: found nothing to index", d.src.what)
	}
	took := time.Since(began)
	say(d.io.Stdout, "indexed %s documents (%.1f MB) in %.1f s, %s a second\n", thousands(int64(d.docs)), float64(d.bytes)/1e6, took.Seconds(),
		thousands(int64(float64(d.docs)/took.Seconds())))
	queries := d.src.queries
	if len(queries) == 0 {
		queries = d.seen.queries()
	}
	if d.check {
		return d.runQueries(ctx, queries)
	}
	d.show(queries)
	return nil
}

// waitReady waits until every index of a server that is starting is open.
func waitReady(ctx context.Context, c *client.Client) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := c.Ready(ctx)
		var p *client.Problem
		if err == nil || !errors.As(err, &p) {
			return err
		}
		if _, wait := p.Refused(); !wait {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// loadGo indexes a tree of Go packages.
func (d *demoRun) loadGo(ctx context.Context) error {
	const batch = 1 << 20
	var body []byte
	inBatch, packages := 0, 0
	said := time.Now()
	flush := func() error {
		if inBatch == 0 {
			return nil
		}
		res, err := d.client.Bulk(ctx, d.index, body)
		if err != nil {
			return err
		}
		if res.Failed > 0 {
			return fmt.Errorf("the server refused %d documents, first %s: %s", res.Failed, res.Errors[0].ID, res.Errors[0].Reason)
		}
		d.docs += inBatch
		d.bytes += len(body)
		body, inBatch = body[:0], 0
		if time.Since(said) > time.Second {
			said = time.Now()
			say(d.io.Stdout, "  %s documents of %d packages\n", thousands(int64(d.docs)), packages)
		}
		return nil
	}
	err := d.src.tree.Collect(ctx, func(_ string, docs []demo.Doc) error {
		packages++
		for i := range docs {
			line, err := json.Marshal(&docs[i])
			if err != nil {
				return fmt.Errorf("encode %s: %w", docs[i].ID, err)
			}
			body = append(append(body, line...), '\n')
			inBatch++
			d.seen.add(docs[i].Name, docs[i].Synopsis)
			if len(body) >= batch {
				if err := flush(); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return flush()
}

// loadText indexes a folder of text files.
func (d *demoRun) loadText(ctx context.Context) error {
	inputs, err := loader.Find([]string{d.src.text}, "")
	if err != nil {
		return err
	}
	var stats loader.Stats
	err = loader.Run(ctx, loader.Config{
		Inputs: inputs, Stats: &stats,
		Send: func(ctx context.Context, body []byte) (client.BulkResult, error) {
			return d.client.Bulk(ctx, d.index, body)
		},
		OnReject: func(r loader.Reject) {
			say(d.io.Stderr, "left out %s: %s\n", filepath.ToSlash(r.File), r.Reason)
		},
	})
	d.docs, d.bytes = int(stats.Indexed.Load()), int(stats.SentBytes.Load())
	if err != nil || d.docs == 0 {
		return err
	}
	res, err := d.client.Search(ctx, client.Search{Index: d.index, Limit: 20})
	if err != nil {
		return fmt.Errorf("look for searches to suggest: %w", err)
	}
	for _, h := range res.Hits {
		var doc struct {
			Title string `json:"title"`
			Body  string `json:"body"`
		}
		if err := json.Unmarshal(h.Source, &doc); err != nil {
			return fmt.Errorf("read document %s: %w", h.ID, err)
		}
		d.seen.add(doc.Title, doc.Body[:min(len(doc.Body), 2000)])
	}
	return nil
}

// show prints what to try next.
func (d *demoRun) show(queries []string) {
	flags := ""
	if d.client.URL() != client.DefaultURL {
		flags += " --url " + d.client.URL()
	}
	if d.index != "default" {
		flags += " --index " + d.index
	}
	say(d.io.Stdout, "\nServing at %s. Three searches to try:\n", d.client.URL())
	for _, q := range queries {
		say(d.io.Stdout, "  weft search%s %s\n", flags, shellQuote(q))
	}
	index := ""
	if d.index != "default" {
		index = " --data-urlencode index=" + shellQuote(d.index)
	}
	say(d.io.Stdout, "The same over HTTP:\n")
	for _, q := range queries {
		say(d.io.Stdout, "  curl -sG %s/search%s --data-urlencode %s\n", d.client.URL(), index, shellQuote("q="+q))
	}
	say(d.io.Stdout, "Ctrl-C ends it.\n")
}

// runQueries runs the searches and prints what they find; one that finds nothing is an error.
func (d *demoRun) runQueries(ctx context.Context, queries []string) error {
	for _, q := range queries {
		res, err := d.client.Search(ctx, client.Search{Index: d.index, Q: q, Limit: 3})
		if err != nil {
			return fmt.Errorf("search %s: %w", q, err)
		}
		say(d.io.Stdout, "\n%s\n", q)
		p := printer{w: d.io.Stdout, marks: newMarks(ctx, d.client, d.index, q)}
		p.print(res)
		if len(res.Hits) == 0 {
			return fmt.Errorf("search %s: found nothing", q)
		}
	}
	return nil
}

// shellQuote makes s one word of a shell's command line.
func shellQuote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// suggester makes three searches out of documents it has seen.
type suggester struct {
	names []string
	texts []string
}

// suggesterKeeps bounds what a suggester remembers.
const suggesterKeeps = 200

func (s *suggester) add(name, text string) {
	if w := words(name); len(w) > 0 && len(s.names) < suggesterKeeps {
		s.names = append(s.names, longestWord(w))
	}
	if w := words(text); len(w) >= 4 && len(s.texts) < suggesterKeeps {
		s.texts = append(s.texts, strings.Join(w[:min(len(w), 12)], " "))
	}
}

// queries gives a word, two words and a prefix that occur.
func (s *suggester) queries() []string {
	pick := func(list []string, part int) string {
		if len(list) == 0 {
			return "*"
		}
		return list[len(list)*part/4]
	}
	word := longestWord(words(pick(s.names, 1)))
	if word == "" {
		word = "*"
	}
	two := words(pick(s.texts, 2))
	pair := "*"
	if len(two) >= 2 {
		pair = longestWord(two[:len(two)/2]) + " " + longestWord(two[len(two)/2:])
	}
	prefix := longestWord(words(pick(s.texts, 3)))
	if r := []rune(prefix); len(r) > 4 {
		prefix = string(r[:4]) + "*"
	}
	if prefix == "" {
		prefix = "*"
	}
	return []string{word, pair, prefix}
}

func longestWord(list []string) string {
	best := ""
	for _, w := range list {
		if len(w) > len(best) {
			best = w
		}
	}
	return strings.ToLower(best)
}
