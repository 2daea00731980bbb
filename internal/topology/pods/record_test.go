package pods

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/weft-search/weft/internal/corpus"
)

// pod is a ready node; mod spoils it.
func pod(name, shard, ip string, mod ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: DefaultNamespace, Name: name, UID: "uid-1", Labels: map[string]string{DefaultShardLabel: shard}},
		Status: corev1.PodStatus{
			PodIP:      ip,
			Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
	for _, m := range mod {
		m(p)
	}
	return p
}

func role(r string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Labels[DefaultRoleLabel] = r } }

func port(s string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations = map[string]string{DefaultPortAnnotation: s} }
}

func condition(s corev1.ConditionStatus) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Conditions[1].Status = s }
}

func deleting(p *corev1.Pod) {
	at := metav1.NewTime(time.Unix(1_700_000_000, 0))
	p.DeletionTimestamp = &at
}

func watcher(t testing.TB, c Config) *Watcher {
	t.Helper()
	w, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestPodsAreReadAsNodes(t *testing.T) {
	ready := Pod{ID: "a", Addr: "10.0.0.1:50051", Shard: "0", Ready: true}
	with := func(mod func(*Pod)) Pod { p := ready; mod(&p); return p }
	unready := with(func(p *Pod) { p.Ready = false })
	at := func(addr string) Pod { return with(func(p *Pod) { p.Addr = addr }) }
	for _, c := range []struct {
		name string
		pod  *corev1.Pod
		want Pod
	}{
		{"ready", pod("a", "0", "10.0.0.1"), ready},
		{"dots in the name", pod("a.b-1", "0", "10.0.0.1"), with(func(p *Pod) { p.ID = "a.b-1" })},
		{"master", pod("a", "0", "10.0.0.1", role("master")), with(func(p *Pod) { p.Role = "master" })},
		{"a role of its own", pod("a", "0", "10.0.0.1", role("Leader")), with(func(p *Pod) { p.Role = "Leader" })},
		{"port", pod("a", "0", "10.0.0.1", port("7")), at("10.0.0.1:7")},
		{"largest port", pod("a", "0", "10.0.0.1", port("65535")), at("10.0.0.1:65535")},
		{"port too large", pod("a", "0", "10.0.0.1", port("65536")), ready},
		{"port 0", pod("a", "0", "10.0.0.1", port("0")), ready},
		{"port with sign", pod("a", "0", "10.0.0.1", port("+7")), ready},
		{"negative port", pod("a", "0", "10.0.0.1", port("-7")), ready},
		{"port with a blank", pod("a", "0", "10.0.0.1", port("7 ")), ready},
		{"named port", pod("a", "0", "10.0.0.1", port("grpc")), ready},
		{"empty port", pod("a", "0", "10.0.0.1", port("")), ready},
		{"endless port", pod("a", "0", "10.0.0.1", port(strings.Repeat("9", 1<<16))), ready},
		{"IPv6", pod("a", "0", "fd00::1:2"), at("[fd00::1:2]:50051")},
		{"IPv6 with port", pod("a", "0", "2001:DB8::1", port("9")), at("[2001:db8::1]:9")},
		{"not ready", pod("a", "0", "10.0.0.1", condition(corev1.ConditionFalse)), unready},
		{"unknown", pod("a", "0", "10.0.0.1", condition(corev1.ConditionUnknown)), unready},
		{"no condition", pod("a", "0", "10.0.0.1", func(p *corev1.Pod) { p.Status.Conditions = nil }), unready},
		{"terminating", pod("a", "0", "10.0.0.1", deleting), unready},
		{"no shard label", pod("a", "0", "10.0.0.1", func(p *corev1.Pod) { p.Labels = nil }), Pod{}},
		{"empty shard", pod("a", "", "10.0.0.1"), Pod{}},
		{"shard that is no label value", pod("a", "a,b", "10.0.0.1"), Pod{}},
		{"shard too long", pod("a", strings.Repeat("a", 64), "10.0.0.1"), Pod{}},
		{"no address", pod("a", "0", ""), Pod{}},
		{"address that is none", pod("a", "0", "node-1"), Pod{}},
		{"address with a port", pod("a", "0", "10.0.0.1:80"), Pod{}},
		{"address with a zone", pod("a", "0", "fe80::1%eth0"), Pod{}},
		{"no name", pod("", "0", "10.0.0.1"), Pod{}},
		{"name that is none", pod("a/../b", "0", "10.0.0.1"), Pod{}},
		{"name in capitals", pod("A", "0", "10.0.0.1"), Pod{}},
		{"other namespace", pod("a", "0", "10.0.0.1", func(p *corev1.Pod) { p.Namespace = "other" }), Pod{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := watcher(t, Config{})
			o, err := w.c.transform(c.pod)
			if err != nil {
				t.Fatal(err)
			}
			if got := o.(*record).pod; got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestLabelsAndAnnotationByConfig(t *testing.T) {
	w := watcher(t, Config{Namespace: "fleet", ShardLabel: "shard", RoleLabel: "r", PortAnnotation: "example.org/p", BackendPort: 9})
	p := pod("a", "ignored", "10.0.0.1", func(p *corev1.Pod) {
		p.Namespace = "fleet"
		p.Labels["shard"], p.Labels["r"] = "7", "follower"
	})
	want := Pod{ID: "a", Addr: "10.0.0.1:9", Shard: "7", Role: "follower", Ready: true}
	for _, with := range []string{"", "8"} {
		if with != "" {
			p.Annotations, want.Addr = map[string]string{"example.org/p": with}, "10.0.0.1:8"
		}
		if o, _ := w.c.transform(p); o.(*record).pod != want {
			t.Errorf("annotation %q: %+v, want %+v", with, o.(*record).pod, want)
		}
	}
}

// TestTransformLeavesRecordsAlone: the informer may hand over what was transformed before.
func TestTransformLeavesRecordsAlone(t *testing.T) {
	w := watcher(t, Config{})
	once, _ := w.c.transform(pod("a", "0", "10.0.0.1"))
	for _, o := range []any{once, cache.DeletedFinalStateUnknown{Key: "summa/a", Obj: once}} {
		if again, err := w.c.transform(o); err != nil || again != o {
			t.Errorf("%T became %v, %v", o, again, err)
		}
	}
	if key, err := cache.MetaNamespaceKeyFunc(once); err != nil || key != "summa/a" {
		t.Errorf("key %q, %v", key, err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	for _, c := range []struct {
		field string
		c     Config
	}{
		{"Namespace", Config{Namespace: "Summa"}},
		{"Namespace", Config{Namespace: "a/../b"}},
		{"Namespace", Config{Namespace: strings.Repeat("a", 64)}},
		{"ShardLabel", Config{ShardLabel: "a=b"}},
		{"ShardLabel", Config{ShardLabel: "a,b"}},
		{"ShardLabel", Config{ShardLabel: "!a"}},
		{"RoleLabel", Config{RoleLabel: "a b"}},
		{"PortAnnotation", Config{PortAnnotation: "a/b/c"}},
		{"BackendPort", Config{BackendPort: -1}},
		{"BackendPort", Config{BackendPort: 65536}},
		{"Selector", Config{Selector: "a in b"}},
		{"Selector", Config{Selector: "a=b,,c"}},
		{"Selector", Config{Selector: "a=(b)"}},
	} {
		_, err := New(c.c)
		var fe *FieldError
		if !errors.As(err, &fe) || fe.Field != c.field || fe.Reason == "" {
			t.Errorf("%+v: error %v, want one of %s", c.c, err, c.field)
		}
	}
	for selector, want := range map[string]string{
		"":                         DefaultShardLabel,
		"app=x":                    DefaultShardLabel + ",app=x",
		"app in (x,y), !canary, z": DefaultShardLabel + ",app in (x,y), !canary, z",
	} {
		w := watcher(t, Config{Selector: selector, Namespace: strings.Repeat("a", 63), BackendPort: 65535})
		if w.selector != want {
			t.Errorf("selector %q, want %q", w.selector, want)
		}
	}
}

// TestRecordedPods reads lists as API servers answered them. Where a pod belongs and which label stands for the shard is taken from
// each, so that they count as nodes.
func TestRecordedPods(t *testing.T) {
	dir := corpus.Dir(t, "k8s-lists")
	files, err := filepath.Glob(filepath.Join(dir, "podlist-*.json"))
	if err != nil || len(files) < 3 {
		t.Fatalf("%d lists, %v", len(files), err)
	}
	want := map[string][]Pod{
		"podlist-0.json": {{ID: "etcd-m01", Addr: "172.17.0.2:50051", Shard: "control-plane", Ready: true}},
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var list corev1.PodList
		if err := json.Unmarshal(b, &list); err != nil {
			t.Fatal(err)
		}
		var got []Pod
		for i := range list.Items {
			p := &list.Items[i]
			w := watcher(t, Config{Namespace: p.Namespace, ShardLabel: "tier"})
			o, _ := w.c.transform(p)
			got = append(got, o.(*record).pod)
			if n := o.(*record).pod; n.ID != p.Name || n.Addr != net.JoinHostPort(p.Status.PodIP, "50051") || n.Shard != p.Labels["tier"] || !n.Ready {
				t.Errorf("%s: %s read as %+v", filepath.Base(f), p.Name, n)
			}
		}
		if want, ok := want[filepath.Base(f)]; ok {
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", filepath.Base(f), d)
			}
		}
	}
}

// everyField is a pod with each field filled, as recorded, or nil where there is no such data set.
func everyField(t testing.TB) *corev1.Pod {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(corpus.Dir(t, "k8s-lists"), "every-field-core.v1.Pod.json"))
	if err != nil {
		t.Fatal(err)
	}
	var p corev1.Pod
	if err := json.Unmarshal(b, &p); err != nil {
		t.Fatal(err)
	}
	return &p
}

// TestRecordsAreSmall: a pod with all fields, which is tens of kilobytes, takes less than one.
func TestRecordsAreSmall(t *testing.T) {
	const n = 1_000
	example := everyField(t)
	example.Namespace, example.Labels, example.Status.PodIP = DefaultNamespace, map[string]string{DefaultShardLabel: "0"}, "10.0.0.1"
	w := watcher(t, Config{})
	records := make([]any, 0, n)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for i := range n {
		p := example.DeepCopy()
		p.Name = fmt.Sprintf("node-%d", i)
		o, _ := w.c.transform(p)
		records = append(records, o)
	}
	after := heap()
	if after > before+n*1024 {
		t.Errorf("%d bytes for a pod", (after-before)/n)
	}
	t.Logf("%d bytes for a pod", (after-before)/n)
	if slices.ContainsFunc(records, func(o any) bool { return o.(*record).pod.Addr != "10.0.0.1:50051" }) {
		t.Error("a pod with every field was not read")
	}
	runtime.KeepAlive(records)
}
