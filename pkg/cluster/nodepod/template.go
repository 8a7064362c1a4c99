// Package nodepod builds the pod of a node's virtual machine.
package nodepod

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"time"

	"github.com/giantswarm/microerror"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/versions"
)

const (
	// HoldPeriod is how long a runner that is not released keeps its machine running after it was asked to stop. It is
	// the longest that a drain may take: it cannot be changed for a pod later, and a change would replace every node.
	HoldPeriod = 30 * 24 * time.Hour
	// PowerdownPeriod is how long a released machine may take to shut down.
	PowerdownPeriod = 10 * time.Minute
	// GracePeriod is how long the pod may take to end.
	GracePeriod = HoldPeriod + PowerdownPeriod
)

// Selector returns the labels by which a node's Deployment selects its pods.
func Selector(s *state.Cluster, n state.Node) map[string]string {
	return map[string]string{key.LabelApp: n.Role, key.LabelCluster: s.ID(), key.LabelNode: n.ID}
}

// Template returns the pod template of a node, with the hash of everything that makes a running node outdated when it
// changes.
func Template(s *state.Cluster, n state.Node) corev1.PodTemplateSpec {
	template := corev1.PodTemplateSpec{
		// Each pod has the finalizer from its creation, so that none can be lost without a drain.
		ObjectMeta: metav1.ObjectMeta{Labels: labels(s, n), Annotations: annotations(s, n), Finalizers: []string{key.FinalizerDrainer}},
		Spec: corev1.PodSpec{
			Affinity:                      affinity(s),
			AutomountServiceAccountToken:  ptr.To(false),
			Containers:                    []corev1.Container{container(s, n)},
			EnableServiceLinks:            ptr.To(false),
			InitContainers:                []corev1.Container{imageContainer(s, n)},
			ServiceAccountName:            s.Namespace(),
			TerminationGracePeriodSeconds: ptr.To(int64(GracePeriod.Seconds())),
			TopologySpreadConstraints:     spread(s, n.Role),
			Volumes:                       volumes(s, n),
		},
	}
	Place(&template.Spec, n.Role, s.Settings.Pods)
	if s.EtcdOnHost(n) {
		template.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: key.GateEtcdHost}}
	}
	if n.Role == key.RoleWorker {
		template.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: key.ConditionNodeReady}}
	}
	template.Annotations[key.AnnotationNodeHash] = n.Hash
	return template
}

// leftovers returns which add-ons leave something on a node that conflicts with their replacement. Nodes are replaced
// when it changes.
func leftovers(a v1alpha1.AddOns) string {
	var text string
	if a.CNI.Type != v1alpha1.CNIFlannel && a.CNI.Type != "" {
		text += "no flannel\n" // its configuration is in /etc/cni/net.d
	}
	if a.KubeProxy.Disabled {
		text += "no kube-proxy\n" // its rules are in the kernel
	}
	return text
}

// Hash returns the hash of everything that makes a running node outdated: pod, guest image, boot data, of which
// bootDataHash is the hash, and what add-ons leave behind.
func Hash(s *state.Cluster, n state.Node, bootDataHash string) (string, error) {
	n.Hash = bootDataHash
	data, err := json.Marshal(Template(s, n))
	if err != nil {
		return "", microerror.Mask(err)
	}
	sum := sha256.Sum256(append(data, leftovers(s.AddOns())...))
	return hex.EncodeToString(sum[:12]), nil
}

func labels(s *state.Cluster, n state.Node) map[string]string {
	l := s.Labels(Selector(s, n), map[string]string{key.LabelPodWatcher: key.Operator})
	delete(l, key.LabelManagedBy)
	if s.Version() != "" {
		l[key.LabelVersion] = s.Version()
	}
	return l
}

func annotations(s *state.Cluster, n state.Node) map[string]string {
	a := map[string]string{}
	maps.Copy(a, s.Settings.Pods.Annotations)
	maps.Copy(a, map[string]string{
		key.AnnotationAPIEndpoint: s.Cluster().Kubernetes.API.Domain,
		key.AnnotationService:     n.Role,
		key.AnnotationDrained:     "False",
	})
	if s.Version() != "" {
		a[key.AnnotationPodVersionBundle] = s.Version()
	}
	inForce := map[string]string{
		versions.ComponentKubernetes: s.Versions.Kubernetes, versions.ComponentEtcd: s.Versions.Etcd,
		versions.ComponentContainerLinux: s.Versions.ContainerLinux, versions.ComponentCalico: s.Components[versions.ComponentCalico],
	}
	for component, version := range inForce {
		if version != "" {
			a[key.AnnotationComponentVersion+component] = version
		}
	}
	return a
}

// affinity keeps the machines of one cluster on different hosts, so that the loss of a host affects at most one of
// them.
func affinity(s *state.Cluster) *corev1.Affinity {
	term := corev1.PodAffinityTerm{
		LabelSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
			Key: key.LabelApp, Operator: metav1.LabelSelectorOpIn, Values: []string{key.RoleMaster, key.RoleWorker},
		}}},
		Namespaces:  []string{s.Namespace()},
		TopologyKey: key.LabelHostname,
	}
	anti := &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term}}
	if s.Settings.SharedHosts {
		anti = &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 100, PodAffinityTerm: term}}}
	}
	return &corev1.Affinity{PodAntiAffinity: anti}
}

// Resources returns what a machine takes of its host. The requests for CPU and memory equal the limits, because a
// machine cannot give memory back and does not share its CPUs well. Its disks grow with use, so a setting determines
// how much of them is requested.
func Resources(s *state.Cluster, n state.Node) corev1.ResourceRequirements {
	machine := s.Settings.Machine
	memory := key.PodMemory(n.Memory(), n.Machine.CPUs, machine.AllowEmulation)
	if machine.Baseline() {
		memory.Add(*resource.NewQuantity(carrier, resource.BinarySI))
	}
	limits := corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(int64(n.Machine.CPUs), resource.DecimalSI),
		corev1.ResourceMemory:           memory,
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(key.DiskLimit(n.Role, n.Machine)+ownImage(machine)+logs, resource.BinarySI),
	}
	requests := maps.Clone(limits)
	requested := key.DiskBytes(n.Role, n.Machine) * int64(machine.DiskRequestPercent) / 100
	requests[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(requested, resource.BinarySI)
	return corev1.ResourceRequirements{Requests: requests, Limits: limits}
}

// logs is room for what a pod takes besides its disks, in bytes: its logs, which a kubelet rotates at 50 MiB by default
// but checks only every ten seconds, and the runner's own files.
const logs = 1 << 30
