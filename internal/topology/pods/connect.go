package pods

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// client-go logs through klog, which writes to stderr by itself. What belongs to a Run goes to its logger; the rest is told by the
// errors of Run, or not worth telling. Nobody else uses klog, and nothing logs before init is through.
func init() { klog.SetLogger(logr.Discard()) }

// quiet is a handler for what client-go says: all of it is for those who look for a fault, since source tells what fails. What is beyond
// klog's verbosity 4, which are whole requests and replies, is for nobody.
type quiet struct{ slog.Handler }

func (q quiet) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelDebug && q.Handler.Enabled(ctx, slog.LevelDebug)
}

func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	r.Level = slog.LevelDebug
	return q.Handler.Handle(ctx, r)
}

func (q quiet) WithAttrs(a []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(a)} }
func (q quiet) WithGroup(name string) slog.Handler   { return quiet{q.Handler.WithGroup(name)} }

// connect makes a client by the configuration of the pod that this program runs in, or else by a kubeconfig. The function it returns
// closes the connections.
func connect(c Config) (podAPI, func(), error) {
	rc, err := configuration()
	if err != nil {
		return nil, nil, err
	}
	return dial(rc, c)
}

// configuration is that of the pod around this program where there is one, else that of KUBECONFIG or ~/.kube/config.
func configuration() (*rest.Config, error) {
	rc, err := rest.InClusterConfig()
	if err == nil {
		return rc, nil
	}
	if !errors.Is(err, rest.ErrNotInCluster) && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("configuration of the pod: %w", err)
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.WarnIfAllMissing = false
	rc, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		where := cmp.Or(os.Getenv(clientcmd.RecommendedConfigPathEnvVar), clientcmd.RecommendedHomeFile)
		return nil, fmt.Errorf("neither in a pod with a service account, nor a kubeconfig at %s", where)
	}
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return rc, nil
}

func dial(rc *rest.Config, c Config) (podAPI, func(), error) {
	rc = rest.CopyConfig(rc)
	rc.UserAgent = "weft"
	rc.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	rc.ContentType = runtime.ContentTypeProtobuf
	rc.WarningHandler = rest.NoWarnings{}
	hc, err := rest.HTTPClientFor(rc)
	if err != nil {
		return nil, nil, fmt.Errorf("client of %s: %w", rc.Host, err)
	}
	rc.APIPath, rc.GroupVersion, rc.NegotiatedSerializer = "/api", &corev1.SchemeGroupVersion, codecs().WithoutConversion()
	client, err := rest.RESTClientForConfigAndClient(rc, hc)
	if err != nil {
		return nil, nil, fmt.Errorf("client of %s: %w", rc.Host, err)
	}
	return &restAPI{client, c.Namespace}, func() { utilnet.CloseIdleConnectionsFor(hc.Transport) }, nil
}

// codecs knows pods and what comes with them. The typed clients of client-go know every kind there is, which makes the program 16 MB
// larger and each start slower.
var codecs = sync.OnceValue(func() serializer.CodecFactory {
	s := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(s)) // fails for kinds that stand twice
	return serializer.NewCodecFactory(s)
})

// restAPI asks for the pods of a namespace.
type restAPI struct {
	client    rest.Interface
	namespace string
}

func (a *restAPI) request(o *metav1.ListOptions) *rest.Request {
	return a.client.Get().Namespace(a.namespace).Resource("pods").VersionedParams(o, metav1.ParameterCodec)
}

func (a *restAPI) List(ctx context.Context, o metav1.ListOptions) (*corev1.PodList, error) {
	list := &corev1.PodList{}
	if err := a.request(&o).Do(ctx).Into(list); err != nil {
		return nil, err
	}
	return list, nil
}

func (a *restAPI) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch = true
	return a.request(&o).Watch(ctx)
}
