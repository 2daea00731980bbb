package pods

import (
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// apiServer speaks lists and watches of pods over HTTP as an API server does: versions count up over all pods, a watch tells what is
// newer than a version, in order, as lines of JSON in chunks, and a version that is too old is 410.
type apiServer struct {
	*httptest.Server
	t *testing.T

	mu      sync.Mutex
	version int
	oldest  int // of the versions that a watch may begin at
	pods    map[string]*corev1.Pod
	history []change
	news    chan struct{} // closed when there is something new
	verbs   []string      // each request as RBAC sees it: "list pods summa"
	query   []string      // of each request
	token   string        // that callers have to have

	protobuf bool // answers in Protocol Buffers, as API servers do to those who take them

	before func(verb string, w http.ResponseWriter, r *http.Request) (done bool)    // nil passes
	line   func(w http.ResponseWriter, flush func() error, line []byte) (done bool) // likewise, for each line of a watch
	close  chan struct{}                                                            // closed: watches end
}

type change struct {
	version int
	kind    string // ADDED, MODIFIED, DELETED, BOOKMARK
	pod     *corev1.Pod
	before  map[string]string // labels that the pod had
}

func newAPIServer(t *testing.T) *apiServer {
	s := &apiServer{t: t, version: 100, pods: map[string]*corev1.Pod{}, news: make(chan struct{}), close: make(chan struct{})}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// secure serves by TLS and HTTP/2, as API servers do.
func (s *apiServer) secure() *apiServer {
	s.Close()
	s.Server = httptest.NewUnstartedServer(s)
	s.EnableHTTP2 = true
	s.StartTLS()
	s.t.Cleanup(s.Server.Close)
	return s
}

func (s *apiServer) authority() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

func (s *apiServer) apply(kind string, p *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	p = p.DeepCopy()
	p.ResourceVersion = strconv.Itoa(s.version)
	c := change{version: s.version, kind: kind, pod: p}
	if old := s.pods[p.Name]; old != nil {
		c.before = old.Labels
	}
	switch kind {
	case "DELETED":
		delete(s.pods, p.Name)
	case "ADDED", "MODIFIED":
		s.pods[p.Name] = p
	}
	s.history = append(s.history, c)
	close(s.news)
	s.news = make(chan struct{})
}

func (s *apiServer) put(p *corev1.Pod) {
	s.mu.Lock()
	kind := "ADDED"
	if s.pods[p.Name] != nil {
		kind = "MODIFIED"
	}
	s.mu.Unlock()
	s.apply(kind, p)
}

func (s *apiServer) remove(p *corev1.Pod) { s.apply("DELETED", p) }
func (s *apiServer) bookmark()            { s.apply("BOOKMARK", &corev1.Pod{}) }

// compact moves on by a version, and forgets all that was: watches can begin at the present only.
func (s *apiServer) compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.oldest, s.history = s.version, nil
}

// cutWatches ends the watches that run.
func (s *apiServer) cutWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.close)
	s.close = make(chan struct{})
}

func (s *apiServer) setBefore(f func(string, http.ResponseWriter, *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = f
}

func (s *apiServer) setLine(f func(http.ResponseWriter, func() error, []byte) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.line = f
}

// asked returns the distinct requests as RBAC sees them.
func (s *apiServer) asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := slices.Clone(s.verbs)
	slices.Sort(out)
	return slices.Compact(out)
}

func (s *apiServer) queries() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.query)
}

// verb is what RBAC calls a request: verb, resource, namespace.
func verb(r *http.Request) string {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if len(parts) < 5 || parts[0] != "api" || parts[1] != "v1" || parts[2] != "namespaces" {
		return strings.ToLower(r.Method) + " " + r.URL.Path
	}
	v := map[string]string{http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete"}[r.Method]
	switch {
	case r.Method != http.MethodGet:
	case len(parts) > 5:
		v = "get"
	case r.URL.Query().Get("watch") == "true" || r.URL.Query().Get("watch") == "1":
		v = "watch"
	default:
		v = "list"
	}
	return v + " " + parts[4] + " " + parts[3]
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v := verb(r)
	s.mu.Lock()
	s.verbs = append(s.verbs, v)
	s.query = append(s.query, r.URL.RawQuery)
	before, token := s.before, s.token
	s.mu.Unlock()
	if before != nil && before(v, w, r) {
		return
	}
	if token != "" && r.Header.Get("Authorization") != "Bearer "+token {
		refuse(w, apierrors.NewUnauthorized("Unauthorized"))
		return
	}
	sel, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		refuse(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	switch v {
	case "list pods summa":
		s.list(w, sel)
	case "watch pods summa":
		s.watch(w, r, sel)
	default:
		refuse(w, apierrors.NewNotFound(resource, r.URL.Path))
	}
}

func refuse(w http.ResponseWriter, e *apierrors.StatusError) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(e.ErrStatus.Code))
	st := e.ErrStatus
	st.Kind, st.APIVersion = "Status", "v1"
	b, _ := json.Marshal(st)
	_, _ = w.Write(b) // the caller may have left
}

func (s *apiServer) list(w http.ResponseWriter, sel labels.Selector) {
	s.mu.Lock()
	l := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(s.version)}}
	for _, p := range s.pods {
		if sel.Matches(labels.Set(p.Labels)) {
			l.Items = append(l.Items, *p)
		}
	}
	s.mu.Unlock()
	if s.protobuf {
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
		_, _ = w.Write(s.encode(&l)) // the caller may have left
		return
	}
	w.Header().Set("Content-Type", "application/json")
	b, err := json.Marshal(l)
	if err != nil {
		s.t.Error(err)
	}
	_, _ = w.Write(b) // the caller may have left
}

// encode writes an object as API servers do in Protocol Buffers, with its kind before it.
func (s *apiServer) encode(o runtime.Object) []byte {
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	if !ok {
		s.t.Error("no serializer")
	}
	b, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion), o)
	if err != nil {
		s.t.Error(err)
	}
	return b
}

// event is one event of a watch: a line of JSON, or a frame of Protocol Buffers.
func (s *apiServer) event(kind string, o runtime.Object) []byte {
	if !s.protobuf {
		b, err := json.Marshal(map[string]any{"type": kind, "object": o})
		if err != nil {
			s.t.Error(err)
		}
		return append(b, '\n')
	}
	e := metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: s.encode(o)}}
	b, err := e.Marshal()
	if err != nil {
		s.t.Error(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

func (s *apiServer) watch(w http.ResponseWriter, r *http.Request, sel labels.Selector) {
	at, err := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	if err != nil {
		refuse(w, apierrors.NewBadRequest("resourceVersion: "+err.Error()))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if s.protobuf {
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf+";stream=watch")
	}
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w).Flush
	if flush() != nil {
		return
	}
	for {
		s.mu.Lock()
		news, ends, tooOld, line := s.news, s.close, at < s.oldest, s.line
		var todo []change
		for _, c := range s.history {
			if c.version > at {
				todo = append(todo, c)
			}
		}
		s.mu.Unlock()
		if tooOld {
			st := apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d", at)).ErrStatus
			st.Kind, st.APIVersion = "Status", "v1"
			_, _ = w.Write(s.event("ERROR", &st)) // the caller may have left
			return
		}
		for _, c := range todo {
			at = c.version
			kind := c.kind
			if kind != "BOOKMARK" {
				now, was := kind != "DELETED" && sel.Matches(labels.Set(c.pod.Labels)), c.before != nil && sel.Matches(labels.Set(c.before))
				switch {
				case now && !was:
					kind = "ADDED"
				case now:
					kind = "MODIFIED"
				case was:
					kind = "DELETED"
				default:
					continue
				}
			}
			p := c.pod.DeepCopy()
			p.Kind, p.APIVersion = "Pod", "v1"
			b := s.event(kind, p)
			if line != nil && line(w, flush, b) {
				return
			}
			if _, err := w.Write(b); err != nil {
				return
			}
			if flush() != nil {
				return
			}
		}
		select {
		case <-news:
		case <-ends:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// client connects a watcher to s as a program in a cluster would.
func (s *apiServer) client(w *Watcher) *Watcher {
	w.connect = func(c Config) (podAPI, func(), error) {
		rc := &rest.Config{Host: s.URL, BearerToken: s.token}
		if s.TLS != nil {
			rc.CAData = s.authority()
		}
		return dial(rc, c)
	}
	return w
}

var errNotAllowed = errors.New("not allowed")
