package vitistack

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

const (
	// podInterface is the only interface of a Machine that lists none.
	podInterface = "default"
	// virtio is the model of interfaces that name none.
	virtio = "virtio"
)

// networksOf returns the interfaces that a spec asks for, at least one.
func networksOf(spec *v1alpha1.MachineSpec) []v1alpha1.Network {
	if len(spec.Networks) == 0 {
		return []v1alpha1.Network{{Name: podInterface}}
	}
	return spec.Networks
}

// interfaces decides on the network interfaces.
func (p *plan) interfaces() {
	networks := networksOf(&p.Machine.Spec)
	macs := p.macs(networks)
	seen := map[string]bool{}
	var onPods []string
	for i, n := range networks {
		if seen[n.Name] {
			p.report(v1alpha1.InvalidSpec, "spec.networks has two interfaces called %s; rename one", n.Name)
			continue
		}
		seen[n.Name] = true
		wanted := Interface{Name: n.Name, Model: n.Model, MAC: macs[i], Attachment: p.attachment(n.NetworkName)}
		if wanted.Model == "" {
			wanted.Model = virtio
		}
		if wanted.Attachment == "" {
			onPods = append(onPods, n.Name)
		}
		p.wanted.Interfaces = append(p.wanted.Interfaces, wanted)
	}
	if len(onPods) > 1 {
		p.report(v1alpha1.InvalidSpec, "interfaces %s are on the network of pods, because their NetworkConfigurations have neither bridge nor vlan; a Machine has at most one there", strings.Join(onPods, " and "))
	}
}

// attachment returns the NetworkAttachmentDefinition of a network; empty for the network of pods.
func (p *plan) attachment(network string) string {
	if network == "" {
		return ""
	}
	nc := p.Networks[network]
	if nc == nil {
		p.reportNetwork(network, v1alpha1.NetworkConfigurationNotFound, "NetworkConfiguration %s/%s not found; create it, or change spec.networks", p.Machine.Namespace, network)
		return network
	}
	if !Attaches(nc) {
		return ""
	}
	if ready := attachmentReady(nc); ready != nil && ready.Status == metav1.ConditionFalse {
		p.reportNetwork(network, v1alpha1.NetworkAttachmentFailed, "NetworkConfiguration %s/%s has no NetworkAttachmentDefinition: %s", p.Machine.Namespace, network, ready.Message)
	}
	return network
}

// Attaches returns whether a NetworkConfiguration leads to a NetworkAttachmentDefinition. Without a bridge and a VLAN it is
// the network of pods, which needs none.
func Attaches(nc *v1alpha1.NetworkConfiguration) bool {
	return nc.Spec.Bridge != "" || nc.Spec.VLAN != 0
}

// attachmentReady returns what is known of the NetworkAttachmentDefinition for the present spec; nil if nothing is.
func attachmentReady(nc *v1alpha1.NetworkConfiguration) *metav1.Condition {
	ready := meta.FindStatusCondition(nc.Status.Conditions, v1alpha1.ConditionAttachmentReady)
	if ready == nil || ready.ObservedGeneration != nc.Generation {
		return nil
	}
	return ready
}

// PendingNetworks returns the NetworkConfigurations of the Machine whose NetworkAttachmentDefinition is not known to be
// there yet, in the order of the spec.
func (s *State) PendingNetworks() []string {
	var pending []string
	seen := map[string]bool{}
	for _, n := range s.Machine.Spec.Networks {
		nc := s.Networks[n.NetworkName]
		if nc == nil || seen[n.NetworkName] || !Attaches(nc) {
			continue
		}
		seen[n.NetworkName] = true
		if ready := attachmentReady(nc); ready == nil || ready.Status == metav1.ConditionUnknown {
			pending = append(pending, n.NetworkName)
		}
	}
	return pending
}

// Referring returns the observed NetworkConfigurations whose status still has an interface of the Machine.
func (s *State) Referring() []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(s.Networks)) {
		nc := s.Networks[name]
		if nc != nil && slices.ContainsFunc(nc.Status.Attachments, func(a v1alpha1.Attachment) bool { return a.Machine == s.Machine.Name }) {
			names = append(names, name)
		}
	}
	return names
}
