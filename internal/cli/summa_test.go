package cli

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	summapb "github.com/weft-search/weft/api/summa"
	"github.com/weft-search/weft/internal/node/summanode"
	"github.com/weft-search/weft/internal/summa"
)

// TestSummaServer starts a Summa server by its command line, asks it over gRPC and for its metrics, and ends it.
func TestSummaServer(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, in := io.Pipe()
	done := make(chan int, 1)
	go func() {
		defer in.Close()
		done <- Run(ctx, []string{
			"-a", "127.0.0.1:0", "--data-dir", t.TempDir(), "--metrics-addr", "127.0.0.1:0", "--reload-interval-ms", "500", "--indexing-threads", "2",
			"--search-threads=2", "--optimizer-threads", "1", "--doctor", "--max-concurrent-searches", "2", "--max-segment-docs", "1000",
		}, IO{Stdout: in, Stderr: t.Output(), Program: "summa-server"})
	}()
	at := map[string]string{}
	lines := bufio.NewScanner(out)
	for len(at) < 2 && lines.Scan() {
		if f := strings.Fields(lines.Text()); len(f) == 3 && f[0] == "listening" {
			at[f[1]] = f[2]
		}
	}
	go func() {
		if _, err := io.Copy(io.Discard, out); err != nil {
			t.Error(err)
		}
	}()
	if at["summa"] == "" || at["metrics"] == "" || at["http"] != "" {
		t.Fatalf("it listens at %v", at)
	}
	conn, err := grpc.NewClient(at["summa"], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := summapb.NewIndexServiceClient(conn).CreateIndex(ctx, &summapb.CreateIndexRequest{IndexName: "a", Schema: "index a { field t: text }"}); err != nil {
		t.Error(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at["metrics"]+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(r.Body)
	if err != nil || !strings.Contains(string(page), `weft_summa_calls_total{call="CreateIndex",code="ok"} 1`) {
		t.Errorf("metrics: %v", err)
	}
	if err := r.Body.Close(); err != nil {
		t.Error(err)
	}
	req.URL.Path = "/indexes"
	if r, err = http.DefaultClient.Do(req); err != nil || r.StatusCode != http.StatusNotFound {
		t.Errorf("the port of metrics answers other calls: %v, %v", r, err)
	} else if err := r.Body.Close(); err != nil {
		t.Error(err)
	}
	http.DefaultClient.CloseIdleConnections()
	stop()
	if code := <-done; code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestSummaServerRefusesAtStart: nothing is bound, and the code tells what kind of fault it is.
func TestSummaServerRefusesAtStart(t *testing.T) {
	foreign := t.TempDir()
	for _, name := range []string{"notes", "plain", "parts", "more", "empty"} {
		if err := os.Mkdir(filepath.Join(foreign, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if name == "empty" {
			continue
		}
		if err := os.WriteFile(filepath.Join(foreign, name, "metadata.json"), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--data-dir", foreign}, exitFailed, "Error: the data folder holds indexes of another program (more, notes, parts and 1 more), which weft cannot read"},
		{[]string{"--max-segment-docs", "0"}, exitFailed, "Error: --max-segment-docs must be greater than zero"},
		{[]string{"--worker-threads", "0"}, exitFailed, "Error: --worker-threads must be greater than zero"},
		{[]string{"--indexing-threads", "0"}, exitFailed, "Error: --indexing-threads must be greater than zero"},
		{[]string{"--search-threads", "0"}, exitFailed, "Error: --search-threads must be greater than zero"},
		{[]string{"--reload-interval-ms", "0"}, exitFailed, "Error: --reload-interval-ms must be greater than zero"},
		{[]string{"--optimizer-threads=-1"}, exitFailed, "Error: --optimizer-threads must not be negative"},
		{[]string{"--data-dir", "a", "-d", "b"}, exitUsage, "error: the argument '--data-dir' cannot be used multiple times"},
		{[]string{"--no-such-flag"}, exitUsage, "error: unknown flag --no-such-flag"},
	} {
		var said strings.Builder
		code := Run(t.Context(), append([]string{"-a", "127.0.0.1:0", "--metrics-addr", "off"}, c.args...), IO{Stdout: t.Output(), Stderr: &said, Program: "summa-server"})
		if code != c.code || !strings.HasPrefix(said.String(), c.want) {
			t.Errorf("%q: code %d, %q", c.args, code, said.String())
		}
	}
}

func TestRustLog(t *testing.T) {
	for v, want := range map[string]slog.Level{
		"": slog.LevelInfo, "debug": slog.LevelDebug, "summa_server=warn": slog.LevelWarn, "info,h2=error": slog.LevelError, "nonsense": slog.LevelInfo, "trace": slog.LevelDebug,
	} {
		if got := rustLog(func(string) (string, bool) { return v, true }); got != want {
			t.Errorf("%q: %v, want %v", v, got, want)
		}
	}
	if got := rustLog(nil); got != slog.LevelInfo {
		t.Error(got)
	}
}

// TestSummaLimitsOfFlags gives each flag a value of its own: the limit of its name has it, and without the flags all are those of the contract.
// 0 is refused by the name of the flag.
func TestSummaLimitsOfFlags(t *testing.T) {
	const mib = 1 << 20
	parse := func(args ...string) summanode.Limits {
		t.Helper()
		var c summaServer
		k, err := kong.New(&c, kong.Name("summa-server"), kong.ExplicitGroups([]kong.Group{{Key: "summa"}}))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.Parse(args); err != nil {
			t.Fatal(err)
		}
		return c.limits()
	}
	std := summanode.Limits{}.WithDefaults(64)
	std.Searches, std.Conns, std.Calls, std.Streams, std.Arriving, std.Stall, std.Wait = 0, 0, 0, 0, 0, 0, 0
	std.Query.MaxSearchHeldBytes = 0 // no flag moves it
	if got := parse(); got != std {
		t.Errorf("without flags\n%+v, want\n%+v", got, std)
	}
	flags := reflect.TypeFor[summaLimits]()
	var args []string
	want := summanode.Limits{}
	for i := range flags.NumField() {
		f := flags.Field(i)
		name := cmp.Or(f.Tag.Get("name"), kebab(f.Name))
		args = append(args, "--"+name, fmt.Sprint(1000+i))
		to, times := reflect.ValueOf(&want).Elem(), 1
		switch {
		case f.Name == "MaxConcurrentSearches":
			to = to.FieldByName("Searches")
		case f.Name == "MaxSearchResponseMB":
			to, times = reflect.ValueOf(&want.Query).Elem().FieldByName("MaxSearchResponseBytes"), mib
		case strings.HasSuffix(f.Name, "codeMB"):
			to, times = to.FieldByName(strings.Replace(strings.TrimSuffix(f.Name, "MB"), "Max", "", 1)), mib
		default:
			to = reflect.ValueOf(&want.Query).Elem().FieldByName(f.Name)
		}
		to.SetInt(int64(times * (1000 + i)))
		much := "99999999999"
		if f.Name == "MaxQueryDepth" {
			much = fmt.Sprint(summa.MostQueryDepth + 1)
		}
		for _, p := range []struct{ value, text string }{{"0", " must be greater than zero"}, {"-1", " must be greater than zero"}, {much, " must not exceed "}} {
			var said strings.Builder
			code := Run(t.Context(), []string{"-a", "127.0.0.1:0", "--metrics-addr", "off", "--data-dir", t.TempDir(), "--" + name + "=" + p.value}, IO{Stdout: t.Output(), Stderr: &said, Program: "summa-server"})
			if code != exitFailed || !strings.HasPrefix(said.String(), "Error: --"+name+p.text) {
				t.Errorf("--%s %s: code %d, %q", name, p.value, code, said.String())
			}
		}
	}
	if got := parse(args...); got != want {
		t.Errorf("with flags\n%+v, want\n%+v", got, want)
	}
	for cpus, searches := range map[int]int{1: 1, 8: 1, 15: 1, 16: 2, 63: 7, 64: 8, 256: 8} {
		if got := (summanode.Limits{}).WithDefaults(cpus).Searches; got != searches {
			t.Errorf("%d processors: %d searches at once, want %d", cpus, got, searches)
		}
	}
}
