// Package pods finds the nodes of a fleet as Kubernetes pods: the pods of one namespace that carry a shard label, with their address,
// role and readiness, as a list that is published whole at first and after every change.
//
// It asks the API server for lists and watches of pods and for nothing else. It keeps what it knows while the API server is away.
// No other package imports Kubernetes code.
package pods

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// What Config stands for where it says nothing.
const (
	DefaultNamespace      = "summa"
	DefaultShardLabel     = "summa.spacefrontiers.org/shard-id"
	DefaultRoleLabel      = "summa.spacefrontiers.org/role"
	DefaultPortAnnotation = "summa.spacefrontiers.org/grpc-port"
	DefaultBackendPort    = 50051
)

const (
	retryAfter   = 5 * time.Second  // between a request that failed and the next
	startTimeout = 30 * time.Second // for the first list
	listTimeout  = 30 * time.Second // for one answer to a list
	watchGrace   = 30 * time.Second // after which a watch is ended here that the server should have ended
)

// ErrNoAccess is that Run found no API server that lets it list and watch the pods.
var ErrNoAccess = errors.New("no access to the Kubernetes API")

// Config says which pods are nodes, and how to read them. Empty fields have the defaults above.
type Config struct {
	Namespace      string // whose pods are watched
	ShardLabel     string // key of the label with the shard's name; pods without it are not looked at
	RoleLabel      string // key of the label with the role
	PortAnnotation string // key of the annotation with the port
	Selector       string // further label selector in Kubernetes' own syntax
	BackendPort    int    // of pods whose annotation is absent or not a port

	Log *slog.Logger // nil logs nothing
}

// FieldError is a field of Config that cannot be used.
type FieldError struct {
	Field  string // as in Config
	Value  string
	Reason string
}

func (e *FieldError) Error() string { return fmt.Sprintf("%s %q: %s", e.Field, e.Value, e.Reason) }

// Pod is a node of the fleet.
type Pod struct {
	ID    string // the pod's name; unique in a list
	Addr  string // host:port, an IPv6 host in brackets
	Shard string // value of the shard label; never empty
	Role  string // value of the role label as it stands; empty without one
	Ready bool   // the condition Ready holds, and the pod is not being deleted
}

// Watcher watches the pods that a Config describes. Its methods are safe for concurrent use, and each Run stands alone.
type Watcher struct {
	c        Config
	selector string
	log      *slog.Logger

	connect func(Config) (podAPI, func(), error) // a seam for tests
	retry   time.Duration
	start   time.Duration
}

// New checks c. It opens nothing.
//
// Errors: *FieldError.
func New(c Config) (*Watcher, error) {
	c.Namespace = cmp.Or(c.Namespace, DefaultNamespace)
	c.ShardLabel = cmp.Or(c.ShardLabel, DefaultShardLabel)
	c.RoleLabel = cmp.Or(c.RoleLabel, DefaultRoleLabel)
	c.PortAnnotation = cmp.Or(c.PortAnnotation, DefaultPortAnnotation)
	c.BackendPort = cmp.Or(c.BackendPort, DefaultBackendPort)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if why := validation.IsDNS1123Label(c.Namespace); len(why) > 0 {
		return nil, &FieldError{Field: "Namespace", Value: c.Namespace, Reason: strings.Join(why, "; ")}
	}
	for _, k := range []struct{ field, key string }{
		{"ShardLabel", c.ShardLabel}, {"RoleLabel", c.RoleLabel}, {"PortAnnotation", c.PortAnnotation},
	} {
		if why := validation.IsQualifiedName(k.key); len(why) > 0 {
			return nil, &FieldError{Field: k.field, Value: k.key, Reason: strings.Join(why, "; ")}
		}
	}
	if why := validation.IsValidPortNum(c.BackendPort); len(why) > 0 {
		return nil, &FieldError{Field: "BackendPort", Value: fmt.Sprint(c.BackendPort), Reason: strings.Join(why, "; ")}
	}
	selector := c.ShardLabel
	if c.Selector != "" {
		if _, err := labels.Parse(c.Selector); err != nil {
			return nil, &FieldError{Field: "Selector", Value: c.Selector, Reason: err.Error()}
		}
		selector += "," + c.Selector
	}
	if _, err := labels.Parse(selector); err != nil {
		return nil, &FieldError{Field: "Selector", Value: selector, Reason: err.Error()}
	}
	return &Watcher{c: c, selector: selector, log: c.Log, connect: connect, retry: retryAfter, start: startTimeout}, nil
}

// Run publishes the list of pods in the order of their ids, the first as soon as the API server has told all pods, then one after
// every change, until ctx ends. Calls of publish come one after another, and each slice is the callee's to keep. Changes that come
// while publish runs are published together. All that Run started has ended when it returns.
//
// A watch that ends is taken up again where it stopped; what fails is tried again after five seconds, and the last list holds.
//
// Errors: ErrNoAccess, before the first list: no configuration, no connection, a refusal, or no whole list in 30 seconds (while the
// server is overloaded or fails, it is asked again); and where the first watch is refused. The end of ctx is none.
func (w *Watcher) Run(ctx context.Context, publish func([]Pod)) error {
	api, hangUp, err := w.connect(w.c)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoAccess, err)
	}
	defer hangUp()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	kubeLog := logr.FromSlogHandler(quiet{w.log.With("from", "client-go").Handler()})
	src := &source{api: api, namespace: w.c.Namespace, selector: w.selector, log: w.log, retry: w.retry, failed: make(chan error, 1)}
	informer := cache.NewSharedIndexInformerWithOptions(src, &corev1.Pod{}, cache.SharedIndexInformerOptions{ObjectDescription: "pods"})
	if err := errors.Join(
		informer.SetTransform(w.c.transform),
		informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) { src.ended(err) }),
	); err != nil {
		return fmt.Errorf("set up the watch of pods: %w", err)
	}
	changed := make(chan struct{}, 1)
	mark := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	handler, err := informer.AddEventHandlerWithOptions(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { mark() },
		UpdateFunc: func(any, any) { mark() },
		DeleteFunc: func(any) { mark() },
	}, cache.HandlerOptions{Logger: &kubeLog})
	if err != nil {
		return fmt.Errorf("set up the watch of pods: %w", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		informer.RunWithContext(klog.NewContext(ctx, kubeLog))
	}()
	defer func() {
		cancel()
		<-done
		src.close()
	}()

	deadline := time.NewTimer(w.start)
	defer deadline.Stop()
	select {
	case <-ctx.Done():
		return nil
	case err := <-src.failed:
		return err
	case <-deadline.C:
		return src.late(w.start)
	case <-handler.HasSyncedChecker().Done():
	}
	last := snapshot(informer.GetStore())
	publish(slices.Clone(last))
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-src.failed:
			return err
		case <-changed:
			next := snapshot(informer.GetStore())
			if ctx.Err() != nil {
				return nil
			}
			if !slices.Equal(last, next) {
				last = next
				publish(slices.Clone(last))
			}
		}
	}
}

// snapshot lists the nodes that a store of records has, by id.
func snapshot(s cache.Store) []Pod {
	all := s.List()
	out := make([]Pod, 0, len(all))
	for _, o := range all {
		if r, ok := o.(*record); ok && r.pod.ID != "" {
			out = append(out, r.pod)
		}
	}
	slices.SortFunc(out, func(a, b Pod) int { return strings.Compare(a.ID, b.ID) })
	return out
}
