package pods

import (
	"net"
	"net/netip"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// record is what is kept of a pod: what the informer needs to know it by, and the node that it is. A pod that is no node has a zero Pod.
type record struct {
	metav1.ObjectMeta // namespace, name, uid and resource version only
	pod               Pod
}

// transform makes the record of a pod before anything keeps it. Whatever else the informer hands over (a record, or the tombstone of
// one) stays as it is.
func (c Config) transform(o any) (any, error) {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil
	}
	// Strings of a decoded reply may share one large array; copies let go of it.
	r := &record{ObjectMeta: metav1.ObjectMeta{
		Namespace:       c.Namespace,
		Name:            strings.Clone(p.Name),
		ResourceVersion: strings.Clone(p.ResourceVersion),
	}}
	if p.Namespace != c.Namespace { // not asked for: kept apart from those that are, and no node
		r.Namespace = strings.Clone(p.Namespace)
		return r, nil
	}
	r.pod = c.node(p)
	r.pod.ID = r.Name[:len(r.pod.ID)]
	return r, nil
}

// node reads a pod. One without a valid name, a shard or an address is no node: its Pod is zero.
func (c Config) node(p *corev1.Pod) Pod {
	shard := p.Labels[c.ShardLabel]
	if shard == "" || len(validation.IsValidLabelValue(shard)) > 0 || p.Name == "" || len(validation.IsDNS1123Subdomain(p.Name)) > 0 {
		return Pod{}
	}
	ip, err := netip.ParseAddr(p.Status.PodIP)
	if err != nil || ip.Zone() != "" {
		return Pod{}
	}
	return Pod{
		ID:    p.Name,
		Addr:  net.JoinHostPort(ip.String(), strconv.Itoa(c.port(p.Annotations[c.PortAnnotation]))),
		Shard: strings.Clone(shard),
		Role:  strings.Clone(p.Labels[c.RoleLabel]),
		Ready: p.DeletionTimestamp == nil && ready(p.Status.Conditions),
	}
}

// port reads an annotation: a decimal number from 1 to 65535, or else the default.
func (c Config) port(s string) int {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 {
		return c.BackendPort
	}
	return int(n)
}

func ready(conditions []corev1.PodCondition) bool {
	for _, c := range conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
