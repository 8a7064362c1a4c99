// Package endpoints is the handler of what is behind the Services of a cluster: EndpointSlices with the addresses of node
// pods and, for readers of the old API, Endpoints.
package endpoints

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apply"
	"github.com/kvm-operator/kvm-operator/pkg/cluster"
	"github.com/kvm-operator/kvm-operator/pkg/joining"
	"github.com/kvm-operator/kvm-operator/pkg/key"
)

// sliceManager tells Kubernetes' own controllers whose slices these are.
const sliceManager = "kvm-operator.giantswarm.io"

// New makes the handler.
func New() apply.Resource[*cluster.Snapshot] {
	return apply.Resource[*cluster.Snapshot]{
		Handler: "endpoints", Kinds: []client.Object{&discoveryv1.EndpointSlice{}, &corev1.Endpoints{}}, Build: build,
	}
}

// build: "master", "api" and "worker" lead to node pods that are Ready and not terminating, and where no master of the spec is, to those that
// have left it and whose members are part of etcd yet. Where no master is Ready and stays, "master" and "api" have those that terminate and
// still serve, marked as such. A member's Service leads to its
// node pod as soon as that has an address, for etcd members have to meet before they can be ready.
func build(s *cluster.Snapshot) (apply.Desired, error) {
	masters, workers := serving(s, s.Masters()), ready(s.Workers())
	if len(masters) == 0 {
		masters = serving(s, s.Retiring)
	}
	// The old API has no word for them.
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
		if pod := n.Holder(); pod != nil {
			pods = []corev1.Pod{*pod}
		}
		desired.Objects = append(desired.Objects, slicesOf(s, name, n.Role, pods, key.MemberPorts(), stays)...)
	}
	return desired, nil
}

// serving are the pods that answer for the API: where there is a choice, not those of masters whose own member of etcd does not answer or has
// not caught up, for their API servers ask nobody else.
func serving(s *cluster.Snapshot, masters []cluster.Node) []corev1.Pod {
	withEtcd := slices.DeleteFunc(slices.Clone(masters), func(n cluster.Node) bool {
		m := s.EtcdMember(n.ID)
		return s.Etcd.Known() && (m == nil || !m.Healthy || m.Learner)
	})
	if pods := ready(withEtcd); len(pods) > 0 {
		return pods
	}
	return ready(masters)
}

// ready are the pods that may get traffic.
func ready(nodes []cluster.Node) []corev1.Pod {
	return pick(nodes, func(pod *corev1.Pod) bool { return up(pod) && !goes(pod) })
}

// terminating are the pods that are about to end and still serve. kube-proxy and others that follow KEP-1669
// (https://github.com/kubernetes/enhancements/tree/master/keps/sig-network/1669-proxy-terminating-endpoints) lead to them as long as there is
// no other: the only master of a cluster answers until its machine is powered down.
func terminating(nodes []cluster.Node) []corev1.Pod {
	return pick(nodes, func(pod *corev1.Pod) bool { return up(pod) && goes(pod) && !letGo(pod) })
}

func pick(nodes []cluster.Node, wanted func(*corev1.Pod) bool) []corev1.Pod {
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

// up says that the pod is Ready and that nothing else that is known of it speaks against that. A kubelet that is dead takes no readiness back,
// neither when a gate closes nor when others end the pod.
func up(pod *corev1.Pod) bool {
	return cluster.PodReady(pod) && !joining.Ended(pod) && !slices.ContainsFunc(pod.Spec.ReadinessGates, func(g corev1.PodReadinessGate) bool {
		c := condition(pod, g.ConditionType)
		return c != nil && c.Status == corev1.ConditionFalse
	})
}

// goes says that the pod is about to end: it is deleted, or its kubelet ends it.
func goes(pod *corev1.Pod) bool {
	c := condition(pod, corev1.DisruptionTarget)
	return pod.DeletionTimestamp != nil || c != nil && c.Status == corev1.ConditionTrue && c.Reason == corev1.PodReasonTerminationByKubelet
}

// stays: other members of etcd reach a member as long as its machine runs.
func stays(*corev1.Pod) bool { return false }

// letGo says that the machine of the pod is being powered down.
func letGo(pod *corev1.Pod) bool {
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

// slicesOf makes a slice for each address family that occurs, and at least one for IPv4, which says that there is nobody.
// goes says which of them are marked as terminating.
func slicesOf(s *cluster.Snapshot, service, role string, pods []corev1.Pod, ports []key.Port, goes func(*corev1.Pod) bool) []client.Object {
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
			ObjectMeta: s.Meta(name, cluster.App(role), map[string]string{
				key.LabelServiceName: service, key.LabelSliceManagedBy: sliceManager,
			}),
			AddressType: family, Endpoints: endpoints, Ports: slicePorts(ports),
		})
	}
	return objects
}

// endpoint is one that serves. Where it goes, nobody chooses it while there are others.
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

// mirror is what Kubernetes itself would derive from the slice, were it asked to; it is asked not to.
func mirror(s *cluster.Snapshot, role string, pods []corev1.Pod, ports []key.Port) *corev1.Endpoints {
	endpoints := &corev1.Endpoints{ObjectMeta: s.Meta(role, cluster.App(role), map[string]string{key.LabelSkipMirror: "true"})}
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
