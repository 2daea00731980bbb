package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/weft-search/weft/internal/cli/loadgen"
	"github.com/weft-search/weft/internal/client"
)

type benchCmd struct {
	Rate        float64       `default:"100" help:"Searches begun per second."`
	Duration    time.Duration `default:"10s" help:"How long searches are begun."`
	Concurrency int           `default:"64" help:"Searches under way at most. One that has to wait for another is charged for the wait."`
	Queries     string        `type:"existingfile" placeholder:"FILE" help:"File with one query a line. Without it words are drawn from the index's documents."`
	Limit       int           `default:"10" help:"Hits asked for."`
	Source      bool          `help:"Ask for the documents too, not only for ids and scores."`
	TrackTotal  string        `default:"exact" help:"How the matches are counted: exact, none, or a number."`
	JSON        bool          `help:"Print one JSON object."`
}

// Help is shown below the usage line.
func (*benchCmd) Help() string {
	return `The load is open: searches begin at a fixed rate whether or not earlier ones are back, and each is measured from the moment it
was due. A server that stalls is charged for every search that it kept waiting. Percentiles are exact to 0.8 %.

Examples:
  weft bench --rate 500 --duration 30s
  weft bench --index movies --queries queries.txt --rate 50 --json`
}

// longestQueryFile bounds the bytes of a file of queries.
const longestQueryFile = 64 << 20

// Run sends the load and prints the report.
func (b *benchCmd) Run(ctx context.Context, glob *globals, io *IO) error {
	cfg := loadgen.Config{Rate: b.Rate, Duration: b.Duration, Concurrency: b.Concurrency, Drain: max(b.Duration, 10*time.Second)}
	if err := cfg.Validate(); err != nil {
		return usage(err)
	}
	if b.Limit < 0 {
		return usage(fmt.Errorf("--limit: %d is negative", b.Limit))
	}
	if err := checkTrackTotal(b.TrackTotal); err != nil {
		return err
	}
	c, err := glob.client(client.Options{HTTP: &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: b.Concurrency, MaxConnsPerHost: b.Concurrency, DisableCompression: true,
	}}})
	if err != nil {
		return err
	}
	defer c.CloseIdle()
	queries, err := b.queries(ctx, c, glob.Index)
	if err != nil {
		return explain(c, err)
	}
	req := client.Search{Index: glob.Index, Limit: b.Limit}
	if !b.Source {
		req.Fields = []string{}
	}
	if b.TrackTotal != "exact" {
		req.TrackTotal = b.TrackTotal
	}
	if !b.JSON {
		say(io.Stdout, "%s on %s of %s, %g searches a second for %v\n", counted(int64(len(queries)), "query", "queries"), glob.Index, c.URL(), b.Rate, b.Duration)
	}
	if isTerminal(io.Stderr) {
		cfg.Progress = func(done, failed uint64) { say(io.Stderr, "\r%d done, %d failed ", done, failed) }
		defer say(io.Stderr, "\r")
	}
	report, err := loadgen.Run(ctx, cfg, func(ctx context.Context, i uint64) error {
		r := req
		r.Q = queries[i%uint64(len(queries))]
		_, err := c.Search(ctx, r)
		return named(err)
	})
	if report == nil {
		return err
	}
	if perr := b.print(io, report, err == nil); perr != nil {
		return perr
	}
	if err != nil {
		return err
	}
	if report.Done == 0 {
		return errors.New("no search came back well")
	}
	return nil
}

// named gives an error a short name under which others of its kind are counted.
func named(err error) error {
	var p *client.Problem
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &p) && p.Code != "":
		return errors.New(p.Code)
	case errors.As(err, &p):
		return fmt.Errorf("status %d", p.Status)
	}
	return errors.New("connection: " + lastPart(err.Error()))
}

// lastPart is what stands behind the last colon: the reason without the addresses that differ from call to call.
func lastPart(s string) string {
	return strings.TrimSpace(s[strings.LastIndexByte(s, ':')+1:])
}

// queries reads the file, or draws words from documents of the index.
func (b *benchCmd) queries(ctx context.Context, c *client.Client, index string) ([]string, error) {
	if b.Queries != "" {
		return readQueries(b.Queries)
	}
	res, err := c.Search(ctx, client.Search{Index: index, Limit: 100})
	if err != nil {
		return nil, err
	}
	var vocabulary []string
	for _, h := range res.Hits {
		for name, value := range textMembers(h.Source) {
			if name == "id" {
				continue
			}
			list := words(value[:min(len(value), 4096)])
			for i := 0; i < len(list); i += 7 {
				if len(list[i]) > 2 {
					vocabulary = append(vocabulary, strings.ToLower(list[i]))
				}
			}
		}
	}
	if len(vocabulary) == 0 {
		return nil, fmt.Errorf("index %s has no text to draw queries from: give some with --queries", index)
	}
	rng := rand.New(rand.NewPCG(1, 1)) // the same queries each time
	out := make([]string, 1000)
	for i := range out {
		n := 1 + i%3
		w := make([]string, n)
		for j := range w {
			w[j] = vocabulary[rng.IntN(len(vocabulary))]
		}
		out[i] = strings.Join(w, " ")
	}
	return out, nil
}

func readQueries(path string) (out []string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("--queries: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	size := 0
	for sc.Scan() {
		if size += len(sc.Bytes()); size > longestQueryFile {
			return nil, fmt.Errorf("--queries: %s is longer than %d bytes", path, longestQueryFile)
		}
		if q := strings.TrimSpace(sc.Text()); q != "" {
			out = append(out, q)
		}
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("--queries: read %s: %w", path, err)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("--queries: %s holds no query", path)
	}
	return out, nil
}

// benchReport is what bench prints as JSON; times in milliseconds.
type benchReport struct {
	Rate       float64           `json:"rate"`
	Due        uint64            `json:"due"`
	Done       uint64            `json:"done"`
	Failed     uint64            `json:"failed"`
	Unsent     uint64            `json:"unsent"`
	Seconds    float64           `json:"seconds"`
	Throughput float64           `json:"throughput"`
	Latency    quantiles         `json:"latency_ms"`
	Service    quantiles         `json:"service_ms"`
	Errors     map[string]uint64 `json:"errors"`
}

type quantiles struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99.9"`
	Max  float64 `json:"max"`
}

func quantilesOf(h *loadgen.Histogram) quantiles {
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return quantiles{ms(h.Mean()), ms(h.Quantile(0.5)), ms(h.Quantile(0.9)), ms(h.Quantile(0.99)), ms(h.Quantile(0.999)), ms(h.Max())}
}

// print prints the report; whole tells that the load was not interrupted.
func (b *benchCmd) print(io *IO, r *loadgen.Report, whole bool) error {
	out := benchReport{
		Rate: b.Rate, Due: r.Due, Done: r.Done, Failed: r.Failed, Unsent: r.Unsent, Seconds: r.Elapsed.Seconds(),
		Throughput: float64(r.Done) / r.Elapsed.Seconds(), Latency: quantilesOf(&r.Latency), Service: quantilesOf(&r.Service), Errors: r.Errors,
	}
	if b.JSON {
		raw, err := json.Marshal(out, jsontext.WithIndent("  "), json.Deterministic(true))
		if err != nil {
			return fmt.Errorf("encode report: %w", err)
		}
		_, err = fmt.Fprintf(io.Stdout, "%s\n", raw)
		return err
	}
	say(io.Stdout, "%s done, %s failed, %s not sent; %.1f a second came back well, %g were asked for\n", thousands(int64(out.Done)), thousands(int64(out.Failed)), thousands(int64(out.Unsent)), out.Throughput, b.Rate)
	if out.Unsent > 0 && whole {
		say(io.Stdout, "The server did not keep up: the times below leave out what was not sent, and would be longer with it.\n")
	}
	say(io.Stdout, "\n")
	tw := tabwriter.NewWriter(io.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	say(tw, "ms\tp50\tp90\tp99\tp99.9\tmax\tmean\t\n")
	for _, row := range []struct {
		name string
		q    quantiles
	}{{"from due", out.Latency}, {"from sent", out.Service}} {
		say(tw, "%s\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\t%.3f\t\n", row.name, row.q.P50, row.q.P90, row.q.P99, row.q.P999, row.q.Max, row.q.Mean)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(out.Errors)) {
		say(io.Stdout, "error %s: %s\n", name, counted(int64(out.Errors[name]), "time", "times"))
	}
	return nil
}
