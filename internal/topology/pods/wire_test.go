package pods

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// follow runs w until the test ends, and gives the lists that it publishes and the error that it ends with.
type follow struct {
	t     *testing.T
	lists chan []Pod
	ended chan error
	stop  func()
}

func start(t *testing.T, w *Watcher) *follow {
	t.Helper()
	w.retry = 20 * time.Millisecond
	f := &follow{t: t, lists: make(chan []Pod, 1), ended: make(chan error, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		f.ended <- w.Run(ctx, func(p []Pod) {
			select {
			case f.lists <- p:
			case <-ctx.Done():
			}
		})
	})
	f.stop = func() { cancel(); running.Wait() }
	t.Cleanup(f.stop)
	return f
}

// until reads lists until one is want, as short writes it.
func (f *follow) until(want string) []Pod {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Minute)
	defer cancel()
	var seen []string
	for {
		select {
		case l := <-f.lists:
			seen = append(seen, short(l))
			if short(l) == want {
				return l
			}
		case err := <-f.ended:
			f.t.Fatalf("Run ended: %v; want %q, published %q", err, want, seen)
		case <-ctx.Done():
			f.t.Fatalf("want %q, published %q", want, seen)
		}
	}
}

func (f *follow) result() error {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Minute)
	defer cancel()
	select {
	case err := <-f.ended:
		return err
	case l := <-f.lists:
		f.t.Fatalf("published %v", l)
	case <-ctx.Done():
		f.t.Fatal("Run did not end")
	}
	return nil
}

func TestPodsOverTheWire(t *testing.T) {
	for _, protobuf := range []bool{false, true} {
		t.Run(fmt.Sprintf("protobuf=%v", protobuf), func(t *testing.T) {
			s := newAPIServer(t)
			s.protobuf = protobuf
			podsOverTheWire(t, s)
		})
	}
}

func podsOverTheWire(t *testing.T, s *apiServer) {
	s.token = "secret"
	s.put(pod("a", "0", "10.0.0.1", role("master"), port("7000")))
	s.put(pod("b", "1", "fd00::2", condition(corev1.ConditionFalse)))
	s.put(pod("other", "", "10.0.0.3", func(p *corev1.Pod) { p.Labels = map[string]string{"app": "other"} }))
	f := start(t, s.client(watcher(t, Config{})))
	l := f.until("a b!")
	if l[0] != (Pod{ID: "a", Addr: "10.0.0.1:7000", Shard: "0", Role: "master", Ready: true}) || l[1] != (Pod{ID: "b", Addr: "[fd00::2]:50051", Shard: "1"}) {
		t.Errorf("%+v", l)
	}
	s.put(pod("b", "1", "fd00::2"))
	f.until("a b")
	s.put(pod("a", "0", "10.0.0.1", deleting))
	f.until("a! b")
	s.remove(pod("a", "0", "10.0.0.1"))
	f.until("b")
	// A pod that loses its label leaves; one that gets it comes.
	s.put(pod("b", "", "fd00::2", func(p *corev1.Pod) { p.Labels = nil }))
	f.until("")
	s.put(pod("other", "9", "10.0.0.3"))
	f.until("other")
	s.put(pod("other", "9", "10.0.0.4"))
	if l := f.until("other"); l[0].Addr != "10.0.0.4:50051" {
		t.Errorf("%+v", l)
	}
	// A version that is gone.
	s.compact()
	s.cutWatches()
	s.put(pod("last", "9", "10.0.0.5"))
	f.until("last other")
	f.stop()
	if got, want := strings.Join(s.asked(), ", "), "list pods summa, watch pods summa"; got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
	for _, q := range s.queries() {
		if !strings.Contains(q, "labelSelector=summa.spacefrontiers.org%2Fshard-id") {
			t.Errorf("query %s", q)
		}
	}
}

// TestACutConnectionLosesNothing: each watch is cut in the middle of its second event, whose pod comes with the next.
func TestACutConnectionLosesNothing(t *testing.T) {
	for name, s := range map[string]*apiServer{"HTTP/1.1": newAPIServer(t), "HTTP/2": newAPIServer(t).secure()} {
		t.Run(name, func(t *testing.T) {
			var lines atomic.Int64
			s.setLine(func(w http.ResponseWriter, flush func() error, line []byte) bool {
				if lines.Add(1)%2 == 1 {
					return false
				}
				if _, err := w.Write(line[:len(line)/2]); err == nil && flush() == nil {
					panic(http.ErrAbortHandler) // cuts the connection, or the stream
				}
				return true
			})
			f := start(t, s.client(watcher(t, Config{})))
			f.until("")
			var want []string
			for i := range 8 {
				id := fmt.Sprintf("p%d", i)
				s.put(pod(id, "0", "10.0.0.1"))
				want = append(want, id)
				f.until(strings.Join(want, " "))
			}
		})
	}
}

// TestAVersionThatIsGoneOverTheWire: while the watch was down, the server forgot; the list tells what was missed, with the pod that went.
func TestAVersionThatIsGoneOverTheWire(t *testing.T) {
	s := newAPIServer(t)
	s.put(pod("a", "0", "10.0.0.1"))
	s.put(pod("b", "0", "10.0.0.2"))
	f := start(t, s.client(watcher(t, Config{})))
	f.until("a b")
	s.bookmark()
	var down atomic.Bool
	down.Store(true)
	s.setBefore(func(v string, w http.ResponseWriter, _ *http.Request) bool {
		if v == "watch pods summa" && down.Load() {
			refuse(w, apierrors.NewServiceUnavailable("going down"))
			return true
		}
		return false
	})
	s.cutWatches()
	s.remove(pod("a", "0", "10.0.0.1"))
	s.put(pod("c", "0", "10.0.0.3"))
	s.compact()
	down.Store(false)
	f.until("b c")
	s.put(pod("d", "0", "10.0.0.4"))
	f.until("b c d")
}

// TestAServerInTroubleOverTheWire: lists and watches fail in every way before one succeeds, at the start and later.
func TestAServerInTroubleOverTheWire(t *testing.T) {
	for _, when := range []string{"start", "later"} {
		t.Run(when, func(t *testing.T) {
			s := newAPIServer(t)
			s.put(pod("a", "0", "10.0.0.1"))
			trouble := []func(w http.ResponseWriter){
				func(w http.ResponseWriter) { refuse(w, apierrors.NewTooManyRequestsError("slow down")) },
				func(w http.ResponseWriter) { refuse(w, apierrors.NewInternalError(io.ErrUnexpectedEOF)) },
				func(w http.ResponseWriter) { http.Error(w, "<html>bad gateway</html>", http.StatusBadGateway) },
				func(w http.ResponseWriter) { refuse(w, apierrors.NewServiceUnavailable("starting")) },
			}
			counts := map[string]int{}
			var mu sync.Mutex
			hit := func(v string, w http.ResponseWriter, _ *http.Request) bool {
				mu.Lock()
				n := counts[v]
				counts[v]++
				mu.Unlock()
				if n >= len(trouble) {
					return false
				}
				trouble[n](w)
				return true
			}
			if when == "start" {
				s.setBefore(hit)
			}
			f := start(t, s.client(watcher(t, Config{})))
			f.until("a")
			if when == "later" {
				s.setBefore(hit)
				s.cutWatches()
			}
			s.put(pod("b", "0", "10.0.0.2"))
			f.until("a b")
		})
	}
}

func TestARefusalOverTheWireEndsRun(t *testing.T) {
	for name, c := range map[string]struct {
		e    *apierrors.StatusError
		want string
	}{
		"forbidden":    {apierrors.NewForbidden(resource, "", errNotAllowed), "pods is forbidden: not allowed"},
		"unauthorized": {apierrors.NewUnauthorized("Unauthorized"), "Unauthorized"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAPIServer(t)
			s.setBefore(func(_ string, w http.ResponseWriter, _ *http.Request) bool { refuse(w, c.e); return true })
			err := start(t, s.client(watcher(t, Config{}))).result()
			if !errors.Is(err, ErrNoAccess) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v", err)
			}
		})
	}
	t.Run("nobody there", func(t *testing.T) {
		s := newAPIServer(t)
		w := s.client(watcher(t, Config{}))
		s.Close()
		if err := start(t, w).result(); !errors.Is(err, ErrNoAccess) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("no API server", func(t *testing.T) {
		s := newAPIServer(t)
		s.setBefore(func(_ string, w http.ResponseWriter, _ *http.Request) bool {
			_, _ = io.WriteString(w, "hello")
			return true
		})
		if err := start(t, s.client(watcher(t, Config{}))).result(); !errors.Is(err, ErrNoAccess) {
			t.Errorf("error %v", err)
		}
	})
}

// TestASlowServerOverTheWire: an answer that comes in pieces is waited for; the end of the context is not held up by one that does not come.
func TestASlowServerOverTheWire(t *testing.T) {
	s := newAPIServer(t)
	s.put(pod("a", "0", "10.0.0.1"))
	asked, goOn := make(chan struct{}, 1), make(chan struct{})
	s.setBefore(func(v string, _ http.ResponseWriter, r *http.Request) bool {
		if v == "list pods summa" {
			asked <- struct{}{}
			select {
			case <-goOn:
			case <-r.Context().Done():
			}
		}
		return false
	})
	f := start(t, s.client(watcher(t, Config{})))
	<-asked
	s.put(pod("b", "0", "10.0.0.1"))
	goOn <- struct{}{}
	f.until("a b")
	// Half an event stays unfinished.
	half := make(chan struct{})
	s.setLine(func(w http.ResponseWriter, flush func() error, line []byte) bool {
		if _, err := w.Write(line[:10]); err != nil || flush() != nil {
			return true
		}
		half <- struct{}{}
		return false
	})
	s.put(pod("c", "0", "10.0.0.1"))
	<-half
	f.stop()

	f = start(t, s.client(watcher(t, Config{})))
	<-asked
	f.stop() // while the list is not answered
}

// TestGarbageInAWatch: what is no event is told in the log, and listed anew.
func TestGarbageInAWatch(t *testing.T) {
	s := newAPIServer(t)
	f := start(t, s.client(watcher(t, Config{})))
	f.until("")
	var once atomic.Bool
	s.setLine(func(w http.ResponseWriter, flush func() error, line []byte) bool {
		if once.Swap(true) {
			return false
		}
		_, _ = io.WriteString(w, `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":7}}`+"\n")
		return flush() != nil
	})
	s.put(pod("a", "0", "10.0.0.1"))
	f.until("a")
	s.put(pod("b", "0", "10.0.0.1"))
	f.until("a b")
}

// TestAStormOfChanges: a thousand pods that come, change and go while connections are cut end as the list that the server has.
func TestAStormOfChanges(t *testing.T) {
	s := newAPIServer(t)
	f := start(t, s.client(watcher(t, Config{})))
	n := 1000
	if testing.Short() {
		n = 100
	}
	for round := range 3 {
		for i := range n {
			p := pod(fmt.Sprintf("p%04d", i), fmt.Sprint(i%7), fmt.Sprintf("10.%d.%d.%d", round, i/256, i%256))
			switch {
			case round == 1 && i%3 == 0:
				s.remove(p)
			case round == 2 && i%5 == 0:
				condition(corev1.ConditionFalse)(p)
				s.put(p)
			default:
				s.put(p)
			}
			if i%333 == 99 {
				s.cutWatches()
			}
		}
	}
	var want []string
	for i := range n {
		id := fmt.Sprintf("p%04d", i)
		if i%5 == 0 {
			id += "!"
		}
		want = append(want, id)
	}
	l := f.until(strings.Join(want, " "))
	if l[n-1].Addr != fmt.Sprintf("10.2.%d.%d:50051", (n-1)/256, (n-1)%256) {
		t.Errorf("%+v", l[n-1])
	}
}

// TestAKubeconfig is read where there is no service account; it names the server, its authority and the token.
func TestAKubeconfig(t *testing.T) {
	s := newAPIServer(t).secure()
	s.token = "of-the-file"
	s.put(pod("a", "0", "10.0.0.1"))
	file := filepath.Join(t.TempDir(), "config")
	config := `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}],
clusters: [{name: k, cluster: {server: "` + s.URL + `", certificate-authority-data: ` + base64.StdEncoding.EncodeToString(s.authority()) + `}}],
users: [{name: u, user: {token: of-the-file}}]}`
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("KUBERNETES_SERVICE_PORT", "")
	t.Setenv("KUBECONFIG", file)
	start(t, watcher(t, Config{})).until("a")
}

// TestNothingIsWrittenPastTheLog: klog writes to stderr by itself unless it is told otherwise.
func TestNothingIsWrittenPastTheLog(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	old := os.Stderr
	os.Stderr = write
	s := newAPIServer(t)
	var log bytes.Buffer
	w := s.client(watcher(t, Config{Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}))
	f := start(t, w)
	f.until("")
	s.setLine(func(w http.ResponseWriter, flush func() error, _ []byte) bool {
		_, _ = io.WriteString(w, "no event\n")
		return true
	})
	s.put(pod("a", "0", "10.0.0.1"))
	f.until("a")
	f.stop()
	os.Stderr = old
	if err := write.Close(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(read); err != nil || len(b) > 0 {
		t.Errorf("on stderr: %q, %v", b, err)
	}
	if strings.Contains(log.String(), "10.0.0.1") {
		t.Errorf("the log has replies:\n%s", log.String())
	}
	if !strings.Contains(log.String(), "from=client-go") || strings.Contains(log.String(), "level=ERROR") || strings.Contains(log.String(), "level=INFO") {
		t.Errorf("the log has:\n%s", log.String())
	}
}
