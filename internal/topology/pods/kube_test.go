package pods

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// kube is etcd and a real API server, without controllers: what is created stays as it is, and no pod runs.
type kube struct {
	t    *testing.T
	dir  string
	bin  string
	addr string // of the API server
	etcd string // URL
	http *http.Client
	api  *exec.Cmd
	away atomic.Bool
}

const adminToken = "admin-of-the-test"

// realKube builds and starts both.
func realKube(t *testing.T) *kube {
	t.Helper()
	if os.Getenv("WEFT_KUBE") == "" {
		t.Skip("WEFT_KUBE is not set: it builds etcd and kube-apiserver, which takes minutes (make kube)")
	}
	k := &kube{t: t, dir: t.TempDir(), addr: free(t)}
	k.bin = filepath.Join(k.dir, "bin")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", k.bin+string(filepath.Separator), "go.etcd.io/etcd/server/v3", "k8s.io/kubernetes/cmd/kube-apiserver")
	build.Dir = filepath.Join("..", "..", "..", "tools", "kube")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	k.write("sa.key", string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})))
	k.write("tokens.csv", adminToken+",admin,1,system:masters\n")
	client, peer := "http://"+free(t), "http://"+free(t)
	k.etcd = client
	k.run("etcd", "server", "--data-dir="+filepath.Join(k.dir, "etcd"), "--unsafe-no-fsync", "--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer)
	if k.http, err = rest.HTTPClientFor(k.config(adminToken)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.http.CloseIdleConnections)
	k.startAPI()
	return k
}

func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (k *kube) write(name, text string) {
	k.t.Helper()
	if err := os.WriteFile(filepath.Join(k.dir, name), []byte(text), 0o600); err != nil {
		k.t.Fatal(err)
	}
}

// run starts a program that the end of the test kills. Its output is told if the test fails.
func (k *kube) run(name, program string, args ...string) *exec.Cmd {
	k.t.Helper()
	var out bytes.Buffer
	c := exec.Command(filepath.Join(k.bin, program), args...)
	c.Stdout, c.Stderr, c.Dir = &out, &out, k.dir
	if err := c.Start(); err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() {
		stop(c)
		if b := out.Bytes(); k.t.Failed() {
			k.t.Logf("%s:\n%s", name, b[max(0, len(b)-4096):])
		}
	})
	return c
}

// stop kills a program, if it runs.
func stop(c *exec.Cmd) {
	if c.ProcessState == nil {
		_ = c.Process.Kill() // it may have ended
		_ = c.Wait()         // tells that it was killed
	}
}

func (k *kube) startAPI() {
	k.t.Helper()
	_, port, err := net.SplitHostPort(k.addr)
	if err != nil {
		k.t.Fatal(err)
	}
	key := filepath.Join(k.dir, "sa.key")
	k.api = k.run("kube-apiserver", "kube-apiserver", "--etcd-servers="+k.etcd, "--bind-address=127.0.0.1", "--secure-port="+port, "--cert-dir="+filepath.Join(k.dir, "certs"),
		"--service-account-key-file="+key, "--service-account-signing-key-file="+key, "--service-account-issuer=https://kubernetes.default.svc",
		"--authorization-mode=RBAC", "--token-auth-file="+filepath.Join(k.dir, "tokens.csv"), "--service-cluster-ip-range=10.0.0.0/24",
		"--endpoint-reconciler-type=none", "--disable-admission-plugins=ServiceAccount", "--profiling=false")
	k.wait("/readyz", func(code int) bool { return code == http.StatusOK })
}

// forget moves etcd on and drops every version before.
func (k *kube) forget() {
	k.t.Helper()
	call := func(path, body string) string {
		resp, err := k.http.Post(k.etcd+path, "application/json", strings.NewReader(body))
		if err != nil {
			k.t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			k.t.Fatalf("%s: %d %s, %v", path, resp.StatusCode, b, err)
		}
		return string(b)
	}
	var put struct {
		Header struct {
			Revision string `json:"revision"`
		} `json:"header"`
	}
	for range 10 {
		if err := json.Unmarshal([]byte(call("/v3/kv/put", `{"key":"eA==","value":"eA=="}`)), &put); err != nil || put.Header.Revision == "" {
			k.t.Fatalf("no revision: %v", err)
		}
	}
	call("/v3/kv/compaction", `{"revision":"`+put.Header.Revision+`","physical":true}`)
}

// wait asks until the answer is as wanted.
func (k *kube) wait(path string, done func(code int) bool) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), 3*time.Minute)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var code int
	var body string
	for {
		code, body = k.ask(http.MethodGet, path, "", "")
		if done(code) {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			k.t.Fatalf("%s answers %d %s", path, code, body)
		}
	}
}

func (k *kube) config(token string) *rest.Config {
	return &rest.Config{Host: "https://" + k.addr, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}

// ask makes a request as the admin; code 0 is that there was no answer.
func (k *kube) ask(method, path, kind, body string) (int, string) {
	k.t.Helper()
	req, err := http.NewRequestWithContext(k.t.Context(), method, "https://"+k.addr+path, strings.NewReader(body))
	if err != nil {
		k.t.Fatal(err)
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	resp, err := k.http.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(b)
}

// must makes a request that has to succeed.
func (k *kube) must(method, path, kind, body string) string {
	k.t.Helper()
	code, out := k.ask(method, path, kind, body)
	if code/100 != 2 {
		k.t.Fatalf("%s %s: %d %s", method, path, code, out)
	}
	return out
}

// create makes the objects of a manifest, and has the server refuse what it does not know.
func (k *kube) create(name string) {
	k.t.Helper()
	for _, o := range manifest(k.t, name) {
		kind := o.GetObjectKind().GroupVersionKind()
		path := "/api/v1"
		if kind.Group != "" {
			path = "/apis/" + kind.Group + "/" + kind.Version
		}
		if kind.Kind != "Namespace" {
			path += "/namespaces/summa"
		}
		b, err := json.Marshal(o)
		if err != nil {
			k.t.Fatal(err)
		}
		k.must(http.MethodPost, path+"/"+strings.ToLower(kind.Kind)+"s?fieldValidation=Strict", runtime.ContentTypeJSON, string(b))
	}
}

// token is one of a service account.
func (k *kube) token(account string) string {
	k.t.Helper()
	out := k.must(http.MethodPost, "/api/v1/namespaces/summa/serviceaccounts/"+account+"/token", runtime.ContentTypeJSON,
		`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}`)
	var got struct {
		Status struct {
			Token string `json:"token"`
		} `json:"status"`
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || got.Status.Token == "" {
		k.t.Fatalf("token: %v in %s", err, out)
	}
	return got.Status.Token
}

const podsPath = "/api/v1/namespaces/summa/pods"

// pod makes a pod with a status, as a kubelet would.
func (k *kube) pod(p *corev1.Pod) {
	k.t.Helper()
	p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	p.UID, p.Finalizers = "", []string{"example.org/hold"}
	p.Spec.Containers = []corev1.Container{{Name: "node", Image: "weft"}}
	b, err := json.Marshal(p)
	if err != nil {
		k.t.Fatal(err)
	}
	k.must(http.MethodPost, podsPath, runtime.ContentTypeJSON, string(b))
	k.status(p)
}

func (k *kube) status(p *corev1.Pod) {
	k.t.Helper()
	b, err := json.Marshal(map[string]any{"status": map[string]any{
		"podIP": p.Status.PodIP, "podIPs": []corev1.PodIP{{IP: p.Status.PodIP}}, "conditions": p.Status.Conditions,
	}})
	if err != nil {
		k.t.Fatal(err)
	}
	k.must(http.MethodPatch, podsPath+"/"+p.Name+"/status", "application/merge-patch+json", string(b))
}

func (k *kube) patch(name, body string) {
	k.t.Helper()
	k.must(http.MethodPatch, podsPath+"/"+name, "application/merge-patch+json", body)
}

// watcher connects with a token. While away is set, it finds no server.
func (k *kube) watcher(token string) *Watcher {
	w := watcher(k.t, Config{})
	w.connect = func(c Config) (podAPI, func(), error) {
		rc := k.config(token)
		rc.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if k.away.Load() {
				return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		}
		return dial(rc, c)
	}
	return w
}

// TestAgainstARealAPIServer has the manifests created by an API server, and discovery run with the token and the rights of the broker's
// account: a pod's life, an API server that is killed and comes again, and versions that are gone when it does.
func TestAgainstARealAPIServer(t *testing.T) {
	k := realKube(t)
	k.create("summa-nodes.yaml")
	k.create("summa-broker.yaml")
	k.must(http.MethodPost, "/api/v1/namespaces/summa/serviceaccounts", runtime.ContentTypeJSON, `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"nobody"}}`)

	if err := start(t, k.watcher(k.token("nobody"))).result(); !errors.Is(err, ErrNoAccess) || !strings.Contains(err.Error(), "forbidden") {
		t.Errorf("without rights: %v", err)
	}
	if err := start(t, k.watcher("no-token")).result(); !errors.Is(err, ErrNoAccess) || !strings.Contains(err.Error(), "Unauthorized") {
		t.Errorf("without a token: %v", err)
	}

	token := k.token("summa-broker")
	var said bytes.Buffer
	w := k.watcher(token)
	w.log = slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelDebug}))
	f := start(t, w)
	f.until("")
	k.pod(pod("a", "0", "10.0.0.1", role("master"), port("7000")))
	if l := f.until("a"); l[0] != (Pod{ID: "a", Addr: "10.0.0.1:7000", Shard: "0", Role: "master", Ready: true}) {
		t.Errorf("%+v", l[0])
	}
	k.pod(pod("b", "1", "fd00::2", condition(corev1.ConditionFalse)))
	if l := f.until("a b!"); l[1].Addr != "[fd00::2]:50051" {
		t.Errorf("%+v", l[1])
	}
	k.status(pod("b", "1", "fd00::2"))
	f.until("a b")
	// A label that goes and comes is a pod that goes and comes.
	k.patch("b", `{"metadata":{"labels":{"`+DefaultShardLabel+`":null}}}`)
	f.until("a")
	k.patch("b", `{"metadata":{"labels":{"`+DefaultShardLabel+`":"2"}}}`)
	f.until("a b")
	// A finalizer holds a pod that is being deleted.
	k.must(http.MethodDelete, podsPath+"/a?gracePeriodSeconds=0", "", "")
	f.until("a! b")
	k.patch("a", `{"metadata":{"finalizers":null}}`)
	f.until("b")

	// The server dies and comes again, and at first may refuse everybody, since it does not know its roles yet.
	stop(k.api)
	k.startAPI()
	k.pod(pod("bb", "0", "10.0.0.3"))
	f.until("b bb")
	// One more, which the watch tells: a watch that was short and told nothing is not taken up where it was, but listed anew.
	k.pod(pod("bc", "0", "10.0.0.3"))
	f.until("b bb bc")
	// Once more, without its past: the watch is asked for when it is ready.
	k.away.Store(true)
	stop(k.api)
	k.forget()
	k.startAPI()
	k.away.Store(false)
	k.pod(pod("c", "0", "10.0.0.3"))
	f.until("b bb bc c")
	for i := range 20 {
		k.pod(pod(fmt.Sprintf("d%02d", i), "0", "10.0.0.4"))
	}
	f.until("b bb bc c d00 d01 d02 d03 d04 d05 d06 d07 d08 d09 d10 d11 d12 d13 d14 d15 d16 d17 d18 d19")
	f.stop()
	if strings.Contains(said.String(), "level=ERROR") || !strings.Contains(said.String(), "too old resource version") {
		t.Errorf("discovery said:\n%s", said.String())
	}

	// The rights are no more than these.
	c, err := rest.HTTPClientFor(k.config(token))
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdleConnections()
	for path, want := range map[string]int{
		podsPath: http.StatusOK, podsPath + "/c": http.StatusOK, "/api/v1/namespaces/summa/secrets": http.StatusForbidden,
		"/api/v1/namespaces/default/pods": http.StatusForbidden, "/api/v1/pods": http.StatusForbidden,
	} {
		resp, err := c.Get("https://" + k.addr + path)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil || resp.StatusCode != want {
			t.Errorf("%s: %d, want %d; %v", path, resp.StatusCode, want, err)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, "https://"+k.addr+podsPath+"/c", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusForbidden {
		t.Errorf("the broker deletes: %d, %v", resp.StatusCode, err)
	}
}
