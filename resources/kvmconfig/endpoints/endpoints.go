// Package endpoints is the handler of the endpoints of a cluster's Services: EndpointSlices with the addresses of node
// pods and, for readers of the old API, Endpoints.
package endpoints

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/joining"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
)

// sliceManager tells Kubernetes' own controllers who manages these slices.
const sliceManager = "kvm-operator.giantswarm.io"

// New returns the handler.
func New() apply.Resource[*state.Cluster] {
	return apply.Resource[*state.Cluster]{
		Handler: "endpoints", Kinds: []client.Object{&discoveryv1.EndpointSlice{}, &corev1.Endpoints{}}, Build: build,
	}
}

// build: "master", "api" and "worker" have the node pods that are Ready and not terminating. If no master of the spec
// is, "master" and "api" have those that are no longer in the spec and whose members are still part of etcd. If no
// master is Ready and stays, they have the masters that terminate and still serve, marked as terminating. A member's
// Service has its node pod as soon as that has an address, because etcd members have to reach each other before they
// can become ready.
func build(s *state.Cluster) (apply.Desired, error) {
	masters, workers := serving(s, s.Masters()), ready(s.Workers())
	if len(masters) == 0 {
		masters = serving(s, s.Retiring)
	}
	// The old API cannot mark them as terminating.
	mirrored := masters
	if len(masters) == 0 {
		masters = terminating(slices.Concat(s.Masters(), s.Retiring))
	}
	masterPorts, workerPorts := key.MasterPorts(s.Cluster()), key.WorkerPorts(s.Config.Spec.KVM)
	var desired apply.Desired
	desired.Objects = append(desired.Objects, slicesOf(s, key.RoleMaster, key.RoleMaster, masters, masterPorts, goes)...)
	if s.Published() {
		ports := key.PublishedPorts(s.Cluster(), s.Access())
		desired.Objects = append(desired.Objects, slicesOf(s, key.PublishedService, key.RoleMaster, masters, ports, goes)...)
	}
	desired.Objects = append(desired.Objects, slicesOf(s, key.RoleWorker, key.RoleWorker, workers, workerPorts, goes)...)
	desired.Objects = append(desired.Objects, mirror(s, key.RoleMaster, mirrored, masterPorts), mirror(s, key.RoleWorker, workers, workerPorts))
	for _, n := range s.EtcdMachines() {
		name := key.DeploymentName(n.Role, n.ID)
		var pods []corev1.Pod
		if pod := n.ActivePod(); pod != nil {
			pods = []corev1.Pod{*pod}
		}
		desired.Objects = append(desired.Objects, slicesOf(s, name, n.Role, pods, key.MemberPorts(), stays)...)
	}
	return desired, nil
}

// serving returns the pods that serve the API: if possible without masters whose own member of etcd does not respond or
// has not caught up, because their API servers connect to no other member.
func serving(s *state.Cluster, masters []state.Node) []corev1.Pod {
	withEtcd := slices.DeleteFunc(slices.Clone(masters), func(n state.Node) bool {
		m := s.EtcdMember(n.ID)
		return s.Etcd.Known() && (m == nil || !m.Healthy || m.Learner)
	})
	if pods := ready(withEtcd); len(pods) > 0 {
		return pods
	}
	return ready(masters)
}

// ready returns the pods that may get traffic.
func ready(nodes []state.Node) []corev1.Pod {
	return pick(nodes, func(pod *corev1.Pod) bool { return up(pod) && !goes(pod) })
}

// terminating returns the pods that are about to end and still serve. kube-proxy and other implementations of KEP-1669
// (https://github.com/kubernetes/enhancements/tree/master/keps/sig-network/1669-proxy-terminating-endpoints) use them
// as long as there are no others: the only master of a cluster serves until its machine is shut down.
func terminating(nodes []state.Node) []corev1.Pod {
	return pick(nodes, func(pod *corev1.Pod) bool { return up(pod) && goes(pod) && !released(pod) })
}

func pick(nodes []state.Node, wanted func(*corev1.Pod) bool) []corev1.Pod {
	var pods []corev1.Pod
	for _, n := range nodes {
		for _, pod := range n.Pods {
			if pod.Status.PodIP != "" && wanted(&pod) {
				pods = append(pods, pod)
			}
		}
	}
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return compare(a.Name, b.Name) })
	return pods
}

// up returns whether the pod is Ready and nothing else that is known of it contradicts that. A dead kubelet does not
// withdraw readiness, neither if a gate becomes false nor if the pod is ended by others.
func up(pod *corev1.Pod) bool {
	return state.PodReady(pod) && !joining.Ended(pod) && !slices.ContainsFunc(pod.Spec.ReadinessGates, func(g corev1.PodReadinessGate) bool {
		c := condition(pod, g.ConditionType)
		return c != nil && c.Status == corev1.ConditionFalse
	})
}

// goes returns whether the pod is about to end: it is deleted, or its kubelet ends it.
func goes(pod *corev1.Pod) bool {
	c := condition(pod, corev1.DisruptionTarget)
	return pod.DeletionTimestamp != nil || c != nil && c.Status == corev1.ConditionTrue && c.Reason == corev1.PodReasonTerminationByKubelet
}

// stays returns false for every pod: other members of etcd reach a member as long as its machine runs.
func stays(*corev1.Pod) bool { return false }

// released returns whether the machine of the pod is being shut down.
func released(pod *corev1.Pod) bool {
	c := condition(pod, key.ConditionDrained)
	return c != nil && c.Status == corev1.ConditionTrue
}

func condition(pod *corev1.Pod, of corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == of {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// slicesOf returns a slice for each address family that occurs, and at least one for IPv4, which is empty if there are
// no pods. goes returns which of the pods are marked as terminating.
func slicesOf(s *state.Cluster, service, role string, pods []corev1.Pod, ports []key.Port, goes func(*corev1.Pod) bool) []client.Object {
	families := map[discoveryv1.AddressType][]discoveryv1.Endpoint{discoveryv1.AddressTypeIPv4: {}}
	for _, pod := range pods {
		family := addressType(pod.Status.PodIP)
		families[family] = append(families[family], endpoint(pod, goes(&pod)))
	}
	var objects []client.Object
	for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		endpoints, ok := families[family]
		if !ok {
			continue
		}
		name := service
		if family == discoveryv1.AddressTypeIPv6 {
			name += "-ipv6"
		}
		objects = append(objects, &discoveryv1.EndpointSlice{
			ObjectMeta: s.Meta(name, state.App(role), map[string]string{
				key.LabelServiceName: service, key.LabelSliceManagedBy: sliceManager,
			}),
			AddressType: family, Endpoints: endpoints, Ports: slicePorts(ports),
		})
	}
	return objects
}

// endpoint returns an endpoint that serves. If it is terminating, proxies use it only if there are no others.
func endpoint(pod corev1.Pod, goes bool) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{
		Addresses:  []string{pod.Status.PodIP},
		Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(!goes), Serving: ptr.To(true), Terminating: ptr.To(goes)},
		TargetRef:  reference(pod),
	}
	if pod.Spec.NodeName != "" {
		e.NodeName = ptr.To(pod.Spec.NodeName)
	}
	return e
}

func slicePorts(ports []key.Port) []discoveryv1.EndpointPort {
	var list []discoveryv1.EndpointPort
	for _, p := range ports {
		list = append(list, discoveryv1.EndpointPort{Name: ptr.To(p.Name), Port: ptr.To(p.Port), Protocol: ptr.To(corev1.ProtocolTCP)})
	}
	return list
}

// mirror returns the Endpoints of the same addresses, in the form in which Kubernetes writes them. Kubernetes does not
// mirror them back into an EndpointSlice.
func mirror(s *state.Cluster, role string, pods []corev1.Pod, ports []key.Port) *corev1.Endpoints {
	endpoints := &corev1.Endpoints{ObjectMeta: s.Meta(role, state.App(role), map[string]string{key.LabelSkipMirror: "true"})}
	if len(pods) == 0 {
		return endpoints
	}
	var subset corev1.EndpointSubset
	for _, pod := range pods {
		address := corev1.EndpointAddress{IP: pod.Status.PodIP, TargetRef: reference(pod)}
		if pod.Spec.NodeName != "" {
			address.NodeName = ptr.To(pod.Spec.NodeName)
		}
		subset.Addresses = append(subset.Addresses, address)
	}
	for _, p := range ports {
		subset.Ports = append(subset.Ports, corev1.EndpointPort{Name: p.Name, Port: p.Port, Protocol: corev1.ProtocolTCP})
	}
	endpoints.Subsets = []corev1.EndpointSubset{subset}
	return endpoints
}

func reference(pod corev1.Pod) *corev1.ObjectReference {
	return &corev1.ObjectReference{Kind: "Pod", Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID}
}

func addressType(ip string) discoveryv1.AddressType {
	if addr, err := netip.ParseAddr(ip); err == nil && addr.Is6() {
		return discoveryv1.AddressTypeIPv6
	}
	return discoveryv1.AddressTypeIPv4
}

func compare(a, b string) int {
	if a < b {
		return -1
	}
	return 1
}
