package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/weft-search/weft/internal/cli/doctor"
	"github.com/weft-search/weft/internal/node/summanode"
	"github.com/weft-search/weft/internal/obs"
	"github.com/weft-search/weft/internal/summa"
)

// summaLimits are the flags that bound what is asked over the services of Summa, by their names of there.
type summaLimits struct {
	MaxConcurrentSearches    *int `group:"summa" placeholder:"N" help:"Searches that run at once; one for each eight processors, from 1 to 8, if not given."`
	DefaultSearchLimit       int  `group:"summa" default:"10" help:"Hits of a search that does not say how many."`
	MaxSearchLimit           int  `group:"summa" default:"10000" help:"Hits of one search."`
	MaxSearchWindow          int  `group:"summa" default:"50000" help:"Offset and limit together."`
	MaxCandidateLimit        int  `group:"summa" default:"50000" help:"Candidates of one search."`
	MaxSearchResponseMB      int  `group:"summa" name:"max-search-response-mb" default:"192" help:"Stored values of one reply, in MiB."`
	MaxQueryDepth            int  `group:"summa" default:"32" help:"Levels of a query."`
	MaxQueryNodes            int  `group:"summa" default:"256" help:"Nodes of a query."`
	MaxQueryClauses          int  `group:"summa" default:"512" help:"Clauses of a query."`
	MaxBooleanClauses        int  `group:"summa" default:"128" help:"Clauses of one Boolean."`
	MaxQueryTextBytes        int  `group:"summa" default:"65536" help:"Texts and names of a query, in bytes."`
	MaxTextQueryTokens       int  `group:"summa" default:"256" help:"Tokens of one text of a query."`
	MaxFieldNameBytes        int  `group:"summa" default:"255" help:"The name of a field, in bytes."`
	MaxIndexNameBytes        int  `group:"summa" default:"255" help:"The name of an index in a search, in bytes."`
	MaxDenseQueryDims        int  `group:"summa" default:"65536" help:"Dimensions of a dense vector of a query."`
	MaxSparseQueryDims       int  `group:"summa" default:"4096" help:"Dimensions of a sparse vector of a query."`
	MaxBinaryQueryBytes      int  `group:"summa" default:"262144" help:"Bytes of a binary vector of a query."`
	MaxTotalQueryVectorBytes int  `group:"summa" default:"1048576" help:"Vectors of a query together, in bytes."`
	MaxFieldsToLoad          int  `group:"summa" default:"64" help:"Fields to load."`
	MaxFieldsToLoadNameBytes int  `group:"summa" default:"16384" help:"Names of the fields to load, in bytes."`
	SearchMaxDecodeMB        int  `group:"summa" name:"search-max-decode-mb" default:"4" help:"Longest request of SearchService, in MiB."`
	SearchMaxEncodeMB        int  `group:"summa" name:"search-max-encode-mb" default:"256" help:"Longest reply of SearchService, in MiB."`
	IndexMaxDecodeMB         int  `group:"summa" name:"index-max-decode-mb" default:"256" help:"Longest request of IndexService, in MiB."`
	IndexMaxEncodeMB         int  `group:"summa" name:"index-max-encode-mb" default:"64" help:"Longest reply of IndexService, in MiB."`
}

// mostMessage bounds the flags of messages, in MiB: a length on the wire is a 32-bit number.
const mostMessage = 2047

// check refuses what is not above zero, and what no message or query can have. The error begins with the flag, without its dashes.
func (l *summaLimits) check() error {
	v := reflect.ValueOf(l).Elem()
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name := cmp.Or(f.Tag.Get("name"), kebab(f.Name))
		n := int64(1)
		switch x := v.Field(i); x.Kind() {
		case reflect.Int:
			n = x.Int()
		case reflect.Pointer:
			if !x.IsNil() {
				n = x.Elem().Int()
			}
		}
		switch {
		case n <= 0:
			return fmt.Errorf("%s must be greater than zero", name)
		case strings.HasSuffix(name, "-mb") && n > mostMessage:
			return fmt.Errorf("%s must not exceed %d", name, mostMessage)
		case f.Name == "MaxQueryDepth" && n > summa.MostQueryDepth:
			return fmt.Errorf("%s must not exceed %d", name, summa.MostQueryDepth)
		case n > 1<<31-1:
			return fmt.Errorf("%s must not exceed %d", name, 1<<31-1)
		}
	}
	return nil
}

// kebab is the name of the flag of a field.
func kebab(field string) string {
	var b strings.Builder
	for i, r := range field {
		if i > 0 && r >= 'A' && r <= 'Z' {
			b.WriteByte('-')
		}
		b.WriteRune(r)
	}
	return strings.ToLower(b.String())
}

func (l *summaLimits) limits() summanode.Limits {
	const mib = 1 << 20
	out := summanode.Limits{
		SearchDecode: l.SearchMaxDecodeMB * mib, SearchEncode: l.SearchMaxEncodeMB * mib, IndexDecode: l.IndexMaxDecodeMB * mib, IndexEncode: l.IndexMaxEncodeMB * mib,
		Query: summa.Limits{
			MaxQueryDepth: l.MaxQueryDepth, MaxQueryNodes: l.MaxQueryNodes, MaxQueryClauses: l.MaxQueryClauses, MaxBooleanClauses: l.MaxBooleanClauses,
			MaxQueryTextBytes: l.MaxQueryTextBytes, MaxFieldNameBytes: l.MaxFieldNameBytes, MaxIndexNameBytes: l.MaxIndexNameBytes,
			MaxDenseQueryDims: l.MaxDenseQueryDims, MaxSparseQueryDims: l.MaxSparseQueryDims, MaxBinaryQueryBytes: l.MaxBinaryQueryBytes,
			MaxTotalQueryVectorBytes: l.MaxTotalQueryVectorBytes, MaxFieldsToLoad: l.MaxFieldsToLoad, MaxFieldsToLoadNameBytes: l.MaxFieldsToLoadNameBytes,
			MaxTextQueryTokens: l.MaxTextQueryTokens, DefaultSearchLimit: l.DefaultSearchLimit, MaxSearchLimit: l.MaxSearchLimit, MaxSearchWindow: l.MaxSearchWindow,
			MaxCandidateLimit: l.MaxCandidateLimit, MaxSearchResponseBytes: l.MaxSearchResponseMB * mib,
		},
	}
	if l.MaxConcurrentSearches != nil {
		out.Searches = *l.MaxConcurrentSearches
	}
	return out
}

// summaServerName is the name under which the program takes the command line of a Summa server.
const summaServerName = "summa-server"

// isSummaServer tells whether the program was called by that name.
func isSummaServer(program string) bool {
	return strings.TrimSuffix(filepath.Base(program), ".exe") == summaServerName
}

// summaServer is the command line of a Summa server.
type summaServer struct {
	Addr                string `short:"a" default:"0.0.0.0:50051" help:"Address to serve on."`
	DataDir             string `short:"d" default:"./data" help:"Folder that holds the indexes."`
	MetricsAddr         string `default:"0.0.0.0:9184" help:"Address to serve metrics on; off for none."`
	MaxIndexingMemoryMB int64  `name:"max-indexing-memory-mb" default:"16384" help:"Memory in MiB for new documents of all indexes."`
	MaxSegmentDocs      *int64 `placeholder:"N" help:"Documents of a segment that merging makes, at most; no bound if not given."`
	WorkerThreads       *int   `placeholder:"N" help:"Threads of the program; as many as processors if not given."`
	Doctor              bool   `help:"Check the indexes before they are opened, and say what is wrong."`

	ReloadIntervalMS int  `name:"reload-interval-ms" default:"1000" help:"Without effect: a commit shows at once."`
	IndexingThreads  *int `help:"Without effect: writers work in their calls."`
	SearchThreads    *int `help:"Without effect: searches work in their calls."`
	OptimizerThreads int  `default:"0" help:"Without effect: there is nothing to be trained or put in order."`

	Tokenizers string `placeholder:"DIR" help:"Folder of the tokenizers of models, DIR/NAME/tokenizer.json, for texts that are searched for in sparse vectors."`

	HTTP string `name:"http" placeholder:"ADDR" help:"Address to serve weft's own HTTP on, which sees the same indexes; off if not given."`
	summaLimits
}

// runSummaServer is Run for the command line of a Summa server. Refusals at start go to standard error as "Error: …", with exit code 1;
// what cannot be read as a command line has exit code 2.
func runSummaServer(ctx context.Context, args []string, io IO) int {
	var c summaServer
	return runAs(ctx, summaServerName, "A Summa server, by weft.", &c, args, io)
}

func (c *summaServer) serve(ctx context.Context, io *IO) error {
	const mib = 1 << 20
	if err := c.check(); err != nil {
		return fmt.Errorf("--%w", err)
	}
	_, metrics, err := serviceAddresses("--addr", c.Addr, c.MetricsAddr)
	if err != nil {
		return err
	}
	if c.HTTP != "" {
		if err := checkAddress(c.HTTP); err != nil {
			return fmt.Errorf("--http: %w", err)
		}
	}
	switch {
	case c.MaxIndexingMemoryMB <= 0 || c.MaxIndexingMemoryMB > 1<<30:
		return errors.New("--max-indexing-memory-mb must be greater than zero")
	case c.MaxSegmentDocs != nil && *c.MaxSegmentDocs <= 0:
		return errors.New("--max-segment-docs must be greater than zero")
	case c.WorkerThreads != nil && *c.WorkerThreads <= 0:
		return errors.New("--worker-threads must be greater than zero")
	case c.IndexingThreads != nil && *c.IndexingThreads <= 0:
		return errors.New("--indexing-threads must be greater than zero")
	case c.SearchThreads != nil && *c.SearchThreads <= 0:
		return errors.New("--search-threads must be greater than zero")
	case c.ReloadIntervalMS <= 0:
		return errors.New("--reload-interval-ms must be greater than zero")
	case c.OptimizerThreads < 0:
		return errors.New("--optimizer-threads must not be negative")
	case c.DataDir == "":
		return errors.New("--data-dir is empty")
	}
	log, err := obs.NewLogger(io.Stderr, obs.LogText, rustLog(io.LookupEnv))
	if err != nil {
		return err
	}
	if c.WorkerThreads != nil {
		runtime.GOMAXPROCS(*c.WorkerThreads)
	}
	dir := kong.ExpandPath(c.DataDir)
	if err := foreignIndexes(dir); err != nil {
		return err
	}
	if c.Doctor {
		if err := examine(ctx, log, dir); err != nil {
			return err
		}
	}
	f := serverFlags{
		MemtableMB: 64, IdleFlush: defaultIdleFlush, MergeMBPerSec: 64, RequestMB: max(256, 2*int64(c.IndexMaxDecodeMB)), FilterCacheMB: 64, MaxWrites: 64, MaxBulks: 8,
		SlowSearch: defaultSlowSearch, DrainTimeout: defaultDrain,
	}
	cfg, err := f.config(io, log, addresses{http: c.HTTP}, dir)
	if err != nil {
		return err
	}
	cfg.SummaAddr, cfg.MetricsAddr, cfg.Summa = c.Addr, metrics, c.limits()
	cfg.SummaTokenizers = kong.ExpandPath(c.Tokenizers)
	cfg.Engine.AllMemtableBytes = c.MaxIndexingMemoryMB * mib
	if c.MaxSegmentDocs != nil {
		cfg.Engine.MaxSegmentDocs = *c.MaxSegmentDocs
	}
	return f.serve(ctx, io, cfg, nil)
}

// foreignIndexes refuses a folder that holds indexes as a Summa server keeps them: a folder each, with a file metadata.json. A program that
// started beside them would be a healthy server without an index.
func foreignIndexes(dir string) error {
	folders, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil // it is about to be made
	}
	if err != nil {
		return fmt.Errorf("read the data folder: %w", err)
	}
	var found []string
	for _, f := range folders {
		if !f.IsDir() {
			continue
		}
		if info, err := os.Stat(filepath.Join(dir, f.Name(), "metadata.json")); err == nil && info.Mode().IsRegular() {
			found = append(found, f.Name())
		}
	}
	if len(found) == 0 {
		return nil
	}
	more := ""
	if len(found) > 3 {
		more = fmt.Sprintf(" and %d more", len(found)-3)
		found = found[:3]
	}
	return fmt.Errorf("the data folder holds indexes of another program (%s%s), which weft cannot read: give it a folder of its own with --data-dir, and index the documents again", strings.Join(found, ", "), more)
}

// repeated is the first flag that is given twice and may not be, as Summa programs have it; empty if there is none.
func repeated(args []string, but ...string) string {
	seen := map[string]bool{}
	for i := 0; i < len(args) && args[i] != "--"; i++ {
		name, _, _ := strings.Cut(args[i], "=")
		switch name {
		case "-a":
			name = "--addr"
		case "-d":
			name = "--data-dir"
		}
		if len(name) < 3 || !strings.HasPrefix(name, "--") || slices.Contains(but, name) {
			continue
		}
		if seen[name] {
			return name
		}
		seen[name] = true
	}
	return ""
}

// examine looks at the folder as weft doctor does, and logs what it finds. Damage does not keep the rest from being served.
func examine(ctx context.Context, log *slog.Logger, dir string) (err error) {
	doc, err := doctor.Open(dir)
	if errors.Is(err, doctor.ErrNoFolder) || errors.Is(err, os.ErrNotExist) {
		return nil // it is about to be made
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, doc.Close()) }()
	report, err := doc.Examine(ctx)
	if err != nil {
		return err
	}
	for _, f := range report.Findings {
		log.Warn("doctor", "kind", f.Kind, "place", f.Place, "what", f.What, "remedy", cmp.Or(f.Remedy, f.Advice))
	}
	log.Info("doctor has looked at the folder", "findings", len(report.Findings), "damaged", report.Damaged())
	return nil
}

// rustLog is the level of RUST_LOG: of its parts, which are LEVEL or TARGET=LEVEL, the last that names one counts.
func rustLog(lookup func(string) (string, bool)) slog.Level {
	level := slog.LevelInfo
	if lookup == nil {
		return level
	}
	v, ok := lookup("RUST_LOG")
	if !ok {
		return level
	}
	for part := range strings.SplitSeq(v, ",") {
		_, name, found := strings.Cut(part, "=")
		if !found {
			name = part
		}
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "trace", "debug":
			level = slog.LevelDebug
		case "info":
			level = slog.LevelInfo
		case "warn":
			level = slog.LevelWarn
		case "error", "off":
			level = slog.LevelError
		}
	}
	return level
}
