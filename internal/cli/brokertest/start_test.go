package brokertest

import (
	"bytes"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// ended runs a command that ends by itself, and returns its exit status and what it said on stderr.
func ended(t *testing.T, cmd *exec.Cmd) (code int, said string) {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err := cmd.Run()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if err != nil && !ok {
		t.Fatal(err)
	}
	if err == nil {
		return 0, stderr.String()
	}
	return exit.ExitCode(), stderr.String()
}

// TestRefusalsAtStart has every refusal of the flags with its exit status. The port that is asked for is taken: who is refused for its flags has
// not looked at it.
func TestRefusalsAtStart(t *testing.T) {
	link := plain(t)
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	static := []string{"--discovery", "static", "--backend", "id=a,addr=127.0.0.1:1,shard=0"}
	with := func(flags ...string) []string { return append(append([]string{}, static...), flags...) }
	type refusal struct {
		flags []string
		code  int
		says  string // the whole last line, or its beginning where it ends in …
	}
	refusals := []refusal{
		{with("--partition-straggler-ms", "5"), 1, "Error: --partition-straggler-ms requires --partial-partition-reads"},
		{with("--coordinator-max-transfer-mb", "65", "--backend-max-decode-mb", "64"), 1, "Error: --coordinator-max-transfer-mb must not exceed --backend-max-decode-mb"},
		{with("--coordinator-max-transfer-mb", "65", "--search-max-encode-mb", "64"), 1, "Error: --coordinator-max-transfer-mb must not exceed --search-max-encode-mb"},
		{[]string{"--discovery", "static"}, 1, "Error: --discovery static requires at least one --backend"},
		{with("--pod-selector", "a=b"), 1, "Error: --pod-selector …"},
		{[]string{"--backend", "id=a,addr=127.0.0.1:1,shard=0"}, 1, "Error: --backend …"},
		{with("--placement", "a"), 1, "Error: invalid --placement 'a': …"},
		{with("--placement", "a=b:0"), 1, "Error: invalid --placement 'a=b:0': …"},
		{with("--placement", "a=0,0"), 1, "Error: invalid --placement 'a=0,0': …"},
		{with("--placement", "a=0:2"), 1, "Error: invalid --placement 'a=0:2': …"},
		{with("--placement", "=0"), 1, "Error: invalid --placement '=0': …"},
		{with("--placement-default", "any"), 2, "For more information, try '--help'."},
		{[]string{"--discovery", "static", "--backend", "id=a,addr=127.0.0.1:1"}, 1, "Error: invalid --backend 'id=a,addr=127.0.0.1:1': …"},
		{[]string{"--discovery", "static", "--backend", "id=,addr=127.0.0.1:1,shard=0"}, 1, "Error: invalid --backend 'id=,addr=127.0.0.1:1,shard=0': …"},
		{with("--backend", "id=b,addr=127.0.0.1:1,shard=0,zone=x"), 1, "Error: invalid --backend 'id=b,addr=127.0.0.1:1,shard=0,zone=x': …"},
		{with("--backend", "id=b,addr=127.0.0.1:1,shard=0,role=king"), 1, "Error: invalid --backend 'id=b,addr=127.0.0.1:1,shard=0,role=king': …"},
		{with("--backend", "id=a,addr=127.0.0.1:2,shard=0"), 1, "Error: invalid --backend 'id=a,addr=127.0.0.1:2,shard=0': …"}, // B3
		{[]string{"--discovery", "dns"}, 2, "For more information, try '--help'."},
		{with("--backend-port", "65536"), 2, "For more information, try '--help'."},
		{with("--backend-port", "0"), 1, "Error: --backend-port must be greater than zero"},
		{with("--metrics-addr", "nowhere"), 1, "Error: …"},
		{with("--addr", "127.0.0.1:0", "--metrics-addr", lis.Addr().String()), 1, "Error: …"},
		{with(), 1, "Error: …"}, // the port is taken
		{with("--no-such-flag"), 2, "For more information, try '--help'."},
		{with("--discovery", "static"), 2, "For more information, try '--help'."},
		{with("--index-poll-interval-secs", "x"), 2, "For more information, try '--help'."},
	}
	for _, flag := range []string{
		"--backend-max-searches", "--max-concurrent-searches", "--index-poll-interval-secs", "--probe-interval-secs",
		"--backend-unreachable-grace-secs", "--list-timeout-secs", "--search-max-decode-mb", "--search-max-encode-mb", "--index-max-decode-mb",
		"--index-max-encode-mb", "--backend-max-decode-mb", "--backend-max-encode-mb", "--coordinator-max-transfer-mb",
	} {
		refusals = append(refusals, refusal{with(flag, "0"), 1, "Error: " + flag + " must be greater than zero"})
	}
	for _, r := range refusals {
		flags := r.flags
		if !strings.Contains(strings.Join(flags, " "), "--addr ") {
			flags = append([]string{"--addr", lis.Addr().String()}, flags...)
		}
		if !strings.Contains(strings.Join(flags, " "), "--metrics-addr ") {
			flags = append([]string{"--metrics-addr", "off"}, flags...)
		}
		code, said := ended(t, exec.Command(link, flags...))
		lines := strings.Split(strings.TrimSpace(said), "\n")
		last := lines[len(lines)-1]
		begins, more := strings.CutSuffix(r.says, "…")
		if code != r.code || more && !(strings.HasPrefix(last, begins) && len(last) > len(begins)) || !more && last != r.says {
			t.Errorf("%q: exit status %d, want %d:\n%s\nwant %s", r.flags, code, r.code, said, r.says)
		}
		if r.code == 2 && !strings.Contains(said, "Usage: summa-broker") {
			t.Errorf("%q: no usage: %s", r.flags, said)
		}
	}
}

// TestTheStartIsLogged has what is said at the start: the version, the flags in force, rules with their shares, and what does not fit.
func TestTheStartIsLogged(t *testing.T) {
	s := startServer(t, t.TempDir(), "127.0.0.1:0")
	b := before(t, []*server{s}, "--placement", "docs*=0:3,1:1", "--search-max-encode-mb", "64", "--index-max-decode-mb", "300", "--max-concurrent-searches", "9")
	said := b.Stderr.String()
	for _, part := range []string{
		"Summa broker listening on " + b.Listening["summa"], "version=", "backend_max_searches=16", "max_concurrent_searches=9",
		"coordinator_max_transfer_mb=64", "index_poll_interval_secs=1", "docs*: 0 (3/4), 1 (1/4)",
		"--search-max-encode-mb is below --backend-max-decode-mb", "--backend-max-encode-mb is below --index-max-decode-mb",
		"node found", "node is healthy",
	} {
		if !strings.Contains(said, part) {
			t.Errorf("the log has no %q:\n%s", part, said)
		}
	}
	if err := b.Stop(); err != nil {
		t.Error(err)
	}
}

// TestFailedDiscoveryEndsTheProcess gives it no cluster to ask, one that is not there, and one that refuses.
func TestFailedDiscoveryEndsTheProcess(t *testing.T) {
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
	}))
	defer refuses.Close()
	config := func(server string) string {
		path := filepath.Join(t.TempDir(), "kubeconfig")
		text := "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: k, cluster: {server: '" + server +
			"'}}]\nusers: [{name: u, user: {}}]\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, kubeconfig := range map[string]string{
		"none": filepath.Join(t.TempDir(), "absent"), "refusing": config(refuses.URL), "away": config("http://127.0.0.1:1"),
	} {
		cmd := command(t, "summa-broker", "--addr", "127.0.0.1:0", "--metrics-addr", "off")
		cmd.Env = append(cmd.Env, "KUBECONFIG="+kubeconfig, "HOME="+t.TempDir(), "KUBERNETES_SERVICE_HOST=", "KUBERNETES_SERVICE_PORT=")
		code, said := ended(t, cmd)
		lines := strings.Split(strings.TrimSpace(said), "\n")
		if last := lines[len(lines)-1]; code != 1 || !strings.HasPrefix(last, "Error: discovery: ") {
			t.Errorf("%s: exit status %d:\n%s", name, code, said)
		}
		if !strings.Contains(said, "level=ERROR") {
			t.Errorf("%s: the log has no error:\n%s", name, said)
		}
	}
}
