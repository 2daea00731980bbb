package pods

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

// manifest reads a file of deploy strictly: no unknown field, none twice.
func manifest(t *testing.T, name string) []runtime.Object {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", name))
	if err != nil {
		t.Fatal(err)
	}
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	r := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(b)))
	var out []runtime.Object
	for {
		doc, err := r.Read()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		o, _, err := decoder.Decode(doc, nil, nil)
		if err != nil {
			t.Fatalf("%s: %v in\n%s", name, err, doc)
		}
		out = append(out, o)
	}
}

// only returns the one object of a type.
func only[T runtime.Object](t *testing.T, all []runtime.Object) T {
	t.Helper()
	var found []T
	for _, o := range all {
		if x, ok := o.(T); ok {
			found = append(found, x)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d objects of type %T", len(found), *new(T))
	}
	return found[0]
}

func TestManifestsAreStrictAndBelongTogether(t *testing.T) {
	for name, kinds := range map[string]string{
		"summa-broker.yaml": "ServiceAccount Role RoleBinding Service Deployment PodDisruptionBudget",
		"summa-nodes.yaml":  "Namespace Service StatefulSet",
	} {
		t.Run(name, func(t *testing.T) {
			all := manifest(t, name)
			var got []string
			var template corev1.PodTemplateSpec
			var selector *metav1.LabelSelector
			for _, o := range all {
				kind := o.GetObjectKind().GroupVersionKind().Kind
				got = append(got, kind)
				m, err := meta.Accessor(o)
				if err != nil {
					t.Fatal(err)
				}
				if ns := m.GetNamespace(); ns != DefaultNamespace && (kind != "Namespace" || m.GetName() != DefaultNamespace) {
					t.Errorf("%s %s is in namespace %q", kind, m.GetName(), ns)
				}
				switch o := o.(type) {
				case *appsv1.Deployment:
					template, selector = o.Spec.Template, o.Spec.Selector
				case *appsv1.StatefulSet:
					template, selector = o.Spec.Template, o.Spec.Selector
				}
			}
			if strings.Join(got, " ") != kinds {
				t.Errorf("objects %v, want %s", got, kinds)
			}
			pods := labels.Set(template.Labels)
			selects := func(what string, sel *metav1.LabelSelector) {
				t.Helper()
				s, err := metav1.LabelSelectorAsSelector(sel)
				if err != nil || s.Empty() || !s.Matches(pods) {
					t.Errorf("the selector of the %s, %v, does not select pods with %v: %v", what, s, pods, err)
				}
			}
			selects("workload", selector)
			service := only[*corev1.Service](t, all)
			selects("service", &metav1.LabelSelector{MatchLabels: service.Spec.Selector})
			for _, o := range all {
				if o, ok := o.(*policyv1.PodDisruptionBudget); ok {
					selects("budget", o.Spec.Selector)
				}
			}

			if len(template.Spec.Containers) != 1 {
				t.Fatalf("%d containers", len(template.Spec.Containers))
			}
			c := template.Spec.Containers[0]
			if c.Image != "weft" {
				t.Errorf("image %q names a registry, or something else", c.Image)
			}
			ports := map[string]int32{}
			for _, p := range c.Ports {
				ports[p.Name] = p.ContainerPort
			}
			if !reflect.DeepEqual(ports, map[string]int32{"grpc": DefaultBackendPort, "metrics": 9184}) {
				t.Errorf("ports %v", ports)
			}
			for _, p := range service.Spec.Ports {
				if p.TargetPort != intstr.FromString(p.Name) || ports[p.Name] != p.Port {
					t.Errorf("port %s of the service goes to %v", p.Name, p.TargetPort)
				}
			}
			if c.ReadinessProbe == nil || c.ReadinessProbe.GRPC == nil || c.ReadinessProbe.GRPC.Port != DefaultBackendPort {
				t.Errorf("readiness %+v is not by gRPC", c.ReadinessProbe)
			}
			// Health says what can be served, which is no reason to end a process.
			if c.LivenessProbe == nil || c.LivenessProbe.GRPC != nil {
				t.Errorf("liveness %+v", c.LivenessProbe)
			}
		})
	}
}

// TestTheNodesOfTheManifestAreFound: pods as the StatefulSet makes them are nodes to a broker without further flags.
func TestTheNodesOfTheManifestAreFound(t *testing.T) {
	all := manifest(t, "summa-nodes.yaml")
	set, service := only[*appsv1.StatefulSet](t, all), only[*corev1.Service](t, all)
	if set.Spec.ServiceName != service.Name || service.Spec.ClusterIP != corev1.ClusterIPNone {
		t.Errorf("the set is governed by %q; the service %q has the address %q", set.Spec.ServiceName, service.Name, service.Spec.ClusterIP)
	}
	w := watcher(t, Config{})
	sel, err := labels.Parse(w.selector)
	if err != nil || !sel.Matches(labels.Set(set.Spec.Template.Labels)) {
		t.Errorf("%s does not select %v: %v", w.selector, set.Spec.Template.Labels, err)
	}
	p := pod("summa-0-0", "", "10.0.0.1", func(p *corev1.Pod) {
		p.Labels, p.Annotations = set.Spec.Template.Labels, set.Spec.Template.Annotations
	})
	o, _ := w.c.transform(p)
	if got, want := o.(*record).pod, (Pod{ID: "summa-0-0", Addr: "10.0.0.1:50051", Shard: "0", Role: "master", Ready: true}); got != want {
		t.Errorf("found %+v, want %+v", got, want)
	}
	if a := set.Spec.Template.Spec.AutomountServiceAccountToken; a == nil || *a {
		t.Error("nodes ask nothing of the API server and need no token")
	}
}

// TestTheRoleAllowsWhatDiscoveryAsksFor: requests of a whole life (lists, watches, a watch that is gone) against an API server that counts
// them. get is allowed beside, as brokers of this kind have it, and not asked for.
func TestTheRoleAllowsWhatDiscoveryAsksFor(t *testing.T) {
	s := newAPIServer(t)
	s.put(pod("a", "0", "10.0.0.1"))
	f := start(t, s.client(watcher(t, Config{})))
	f.until("a")
	s.put(pod("b", "0", "10.0.0.2"))
	f.until("a b")
	s.cutWatches()
	s.remove(pod("a", "0", "10.0.0.1"))
	f.until("b")
	s.compact()
	s.cutWatches()
	s.put(pod("c", "0", "10.0.0.3"))
	f.until("b c")
	f.stop()

	all := manifest(t, "summa-broker.yaml")
	role, binding, account := only[*rbacv1.Role](t, all), only[*rbacv1.RoleBinding](t, all), only[*corev1.ServiceAccount](t, all)
	var allowed []string
	for _, r := range role.Rules {
		if !slices.Equal(r.APIGroups, []string{""}) || len(r.NonResourceURLs) > 0 || len(r.ResourceNames) > 0 {
			t.Errorf("rule %+v", r)
		}
		for _, resource := range r.Resources {
			for _, verb := range r.Verbs {
				allowed = append(allowed, verb+" "+resource+" "+role.Namespace)
			}
		}
	}
	slices.Sort(allowed)
	if want := append([]string{"get pods summa"}, s.asked()...); !slices.Equal(allowed, want) {
		t.Errorf("allowed %q, want %q", allowed, want)
	}
	if binding.RoleRef != (rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name}) {
		t.Errorf("the binding is of %+v", binding.RoleRef)
	}
	if want := (rbacv1.Subject{Kind: "ServiceAccount", Name: account.Name, Namespace: account.Namespace}); len(binding.Subjects) != 1 || binding.Subjects[0] != want {
		t.Errorf("the binding is for %+v", binding.Subjects)
	}
	if used := only[*appsv1.Deployment](t, all).Spec.Template.Spec.ServiceAccountName; used != account.Name {
		t.Errorf("the broker runs as %q", used)
	}
}
