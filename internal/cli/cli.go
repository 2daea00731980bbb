// Package cli is the command line of weft: one binary whose subcommands serve, load, search, check and measure.
//
// A setting is taken from the flag, else from the environment (WEFT_ and the flag's name in capitals, '_' for '-'), else from
// the file that --config names, else it has its default. Exit codes: 0 done, 1 failed, 2 bad usage.
//
// Run keeps no state outside its arguments, so several may run in one process.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/weft-search/weft/internal/client"
	"github.com/weft-search/weft/internal/obs"
)

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

// IO is what a command reads and writes.
type IO struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// LookupEnv reads the environment, as os.LookupEnv does.
	LookupEnv func(name string) (string, bool)
	// Version is the version of the program, empty when it was built without one.
	Version string
	// Program is what the program was called by, with or without its folder. Under the name summa-server it takes the command line of that.
	Program string
}

// commands is the whole command line.
type commands struct {
	globals

	Node     nodeCmd     `cmd:"" group:"serve" help:"Serve the indexes of a data folder."`
	Broker   brokerCmd   `cmd:"" group:"serve" help:"Serve a cluster of nodes as if it were one node."`
	Dev      devCmd      `cmd:"" group:"serve" help:"Serve everything in one process, to try weft or to develop against it."`
	Load     loadCmd     `cmd:"" group:"use" help:"Load documents from files or standard input."`
	Commit   commitCmd   `cmd:"" group:"use" help:"Show what was written to an index that shows writes on commit."`
	Search   searchCmd   `cmd:"" group:"use" help:"Search an index and print what was found."`
	Get      getCmd      `cmd:"" group:"use" help:"Print one document."`
	Topology topologyCmd `cmd:"" group:"care" help:"Show and change the shard map of a cluster, and move and repair its documents."`
	Doctor   doctorCmd   `cmd:"" group:"care" help:"Check a data folder and, if asked, repair it."`
	Bench    benchCmd    `cmd:"" group:"care" help:"Send searches at a fixed rate and measure how long the answers take."`
	Version  versionCmd  `cmd:"" group:"care" help:"Print the version of the program and of the formats it reads and writes."`
}

// globals are the flags that every command takes.
type globals struct {
	URL      string `group:"common" default:"http://127.0.0.1:7700" help:"Address of the server that client commands call."`
	Index    string `group:"common" default:"default" help:"Index that client commands use."`
	LogLevel string `group:"common" enum:"debug,info,warn,error" default:"info" help:"Least level of the log lines on standard error: debug, info, warn or error."`
	Config   string `group:"common" placeholder:"FILE" help:"YAML file with settings: flags by name, those of a command under its name."`
}

// logger writes to standard error at the level asked for.
func (g *globals) logger(io *IO) (*slog.Logger, error) {
	level, err := obs.ParseLevel(g.LogLevel)
	if err != nil {
		return nil, usage(err)
	}
	return obs.NewLogger(io.Stderr, obs.LogText, level)
}

// client returns a client of the server that --url names.
func (g *globals) client(o client.Options) (*client.Client, error) {
	c, err := client.New(g.URL, o)
	if err != nil {
		return nil, usage(fmt.Errorf("--url: %w", err))
	}
	return c, nil
}

const description = `weft is a search engine in one binary: servers, clients and tools.`

const examples = `Examples:
  weft dev --demo                                 try it: indexes the documentation of Go's standard library
  weft search 'graceful shutdown'                 search what the server at 127.0.0.1:7700 holds
  weft node --http 127.0.0.1:7700 --data-dir data serve a folder
  weft load --index movies movies.jsonl.gz        load a file, one JSON object for each line
  weft load --index books --id-field isbn -- *.csv
  weft search --index movies --json 'title:alien -year:1979'
  weft doctor --data-dir data                     check a folder that no server is using

Every flag can be set in the environment (WEFT_DATA_DIR for --data-dir) or in the file that --config names.
Run "weft help COMMAND" for the flags of a command.`

// usageError is an error of whoever typed the command; it ends with exitUsage.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usage(err error) error { return &usageError{err} }

// errSaid ends a command with exitFailed when everything has been said.
var errSaid = errors.New("failed; the output says why")

// exit is thrown by kong's --help and caught in Run.
type exit int

// Run runs one command line, without the program's name, and returns the exit code. When ctx ends, servers drain and tools stop; its
// cause, if it has one of its own, is to read well before "before it was done".
func Run(ctx context.Context, args []string, io IO) (code int) {
	if isSummaServer(io.Program) {
		return runSummaServer(ctx, args, io)
	}
	if isSummaBroker(io.Program) {
		return runSummaBroker(ctx, args, io)
	}
	var c commands
	asked := exitDone // the code after help was printed
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(exit)
			if !ok {
				panic(r)
			}
			code = max(int(e), asked)
		}
	}()
	parser, err := newParser(&c, &io)
	if err != nil {
		say(io.Stderr, "weft: error: build command line: %v\n", err)
		return exitFailed
	}
	switch {
	case len(args) == 0:
		args = []string{"--help"}
		parser.Stdout = io.Stderr
		asked = exitUsage
	case args[0] == "help":
		args = append(slices.Clone(args[1:]), "--help")
	}
	kctx, err := parser.Parse(args)
	if err != nil {
		var out *outputError
		if errors.As(err, &out) {
			say(io.Stderr, "weft: error: %s\n", harmless(out.Error()))
			return exitFailed
		}
		say(io.Stderr, "weft: error: %s\n%s\n", harmless(err.Error()), hint(err))
		return exitUsage
	}
	c.Index = cmp.Or(c.Index, "default")
	kctx.BindTo(ctx, (*context.Context)(nil))
	err = kctx.Run(&c.globals, &io)
	var bad *usageError
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errSaid):
		return exitFailed
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		why := "stopped"
		if cause := context.Cause(ctx); cause != context.Canceled { // a cause of its own, even one that wraps Canceled
			why = cause.Error()
		}
		say(io.Stderr, "weft: %s before it was done\n", why)
		return exitFailed
	case errors.As(err, &bad):
		say(io.Stderr, "weft: error: %s\nRun \"weft help %s\" for its flags.\n", harmless(err.Error()), commandPath(kctx.Selected()))
		return exitUsage
	}
	say(io.Stderr, "weft: error: %s\n", harmless(err.Error()))
	return exitFailed
}

// commandPath is the words that a command is called with. One that is the default of another is called as that.
func commandPath(n *kong.Node) string {
	if n == nil {
		return ""
	}
	if n.Parent != nil && n.Parent.DefaultCmd == n {
		n = n.Parent
	}
	name := n.Name
	for n = n.Parent; n != nil && n.Type == kong.CommandNode; n = n.Parent {
		name = n.Name + " " + name
	}
	return name
}

// hint says how to find out more after a command line that could not be read.
func hint(err error) string {
	var p *kong.ParseError
	unknown := strings.HasPrefix(err.Error(), "unknown flag ")
	if errors.As(err, &p) && p.Context != nil {
		if sel := p.Context.Selected(); sel != nil {
			if unknown && sel.Name == "search" {
				return "A query that begins with - goes behind --, as in: weft search -- '-word'\nRun \"weft help search\" for the flags."
			}
			return fmt.Sprintf("Run %q for its flags.", "weft help "+commandPath(sel))
		}
	}
	if unknown && strings.HasPrefix(err.Error(), "unknown flag --version") {
		return `Run "weft version" for the version.`
	}
	return `Run "weft help" for the commands.`
}

func newParser(c *commands, io *IO) (*kong.Kong, error) {
	file := &fileResolver{}
	return kong.New(c,
		kong.Name("weft"),
		kong.Description(description),
		kong.Writers(io.Stdout, io.Stderr),
		kong.Exit(func(code int) { panic(exit(code)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 110}),
		kong.Help(help),
		kong.ExplicitGroups([]kong.Group{
			{Key: "serve", Title: "Servers:"},
			{Key: "use", Title: "Clients:"},
			{Key: "care", Title: "Tools:"},
			{Key: "common", Title: "Flags of every command:"},
			{Key: "limits", Title: "Limits:"},
			{Key: "summa", Title: "Limits of --summa:"},
		}),
		// The later of two resolvers wins, so the environment stands behind the file.
		kong.Resolvers(file, envResolver{io.LookupEnv}),
		kong.WithBeforeResolve(func(ctx *kong.Context) error { return file.load(ctx, io.LookupEnv) }),
	)
}

// help prints what kong knows, and examples where they are of use.
func help(o kong.HelpOptions, ctx *kong.Context) error {
	err := kong.DefaultHelpPrinter(o, ctx)
	if err == nil && ctx.Selected() == nil {
		_, err = fmt.Fprintf(ctx.Stdout, "\n%s\n", examples)
	}
	if err != nil {
		return &outputError{err}
	}
	return nil
}

// outputError says that help could not be printed, which is nobody's bad usage.
type outputError struct{ err error }

func (e *outputError) Error() string { return e.err.Error() }
func (e *outputError) Unwrap() error { return e.err }

// say prints for a person. There is nobody to tell when that fails, so the error is dropped here and only here.
func say(w io.Writer, format string, args ...any) {
	if _, err := fmt.Fprintf(w, format, args...); err != nil {
		return
	}
}
