package vitistack

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/text"
)

// Attachments returns the interfaces of Machines on a network, by Machine and interface. A Machine that is being deleted
// counts until its VirtualMachine is gone, because its guest uses the addresses until then.
func Attachments(network *v1alpha1.NetworkConfiguration, machines []v1alpha1.Machine) []v1alpha1.Attachment {
	var all []v1alpha1.Attachment
	for i := range machines {
		m := &machines[i]
		others := m.Namespace != network.Namespace || m.Spec.Provider != "" && m.Spec.Provider != v1alpha1.Provider
		if others || m.DeletionTimestamp != nil && m.Status.VMName == "" {
			continue
		}
		for _, named := range m.Spec.Networks {
			if named.NetworkName == network.Name {
				all = append(all, attachment(m, named))
			}
		}
	}
	slices.SortFunc(all, func(a, b v1alpha1.Attachment) int {
		return cmp.Or(cmp.Compare(a.Machine, b.Machine), cmp.Compare(a.Interface, b.Interface))
	})
	return all
}

// mostAttached is how many addresses of an interface are shown at most. The guest decides how many there are, and one object
// shows the interfaces of all Machines on a network.
const mostAttached = 8

// mostInterfaces is how many interfaces a network shows at most, because an API server refuses objects of more than
// 1.5 MiB, and an interface takes up to 2 KiB, with what is recorded of its owner.
const mostInterfaces = 500

// attachment returns what a Machine's status says about one of its interfaces.
func attachment(m *v1alpha1.Machine, named v1alpha1.Network) v1alpha1.Attachment {
	a := v1alpha1.Attachment{Machine: m.Name, Interface: named.Name, NodeName: m.Status.NodeName}
	a.MACAddress, _ = CanonicalMAC(named.MACAddress)
	for _, i := range m.Status.NetworkInterfaces {
		if i.Name == named.Name {
			a.MACAddress, a.IPAddresses = i.MACAddress, slices.Clone(i.IPAddresses[:min(len(i.IPAddresses), mostAttached)])
		}
	}
	return a
}

// NetworkStatus returns the status of a NetworkConfiguration after a pass: the attachments and the conditions Ready and
// NADReady are this operator's, and everything else stays as other operators wrote it.
func NetworkStatus(network *v1alpha1.NetworkConfiguration, machines []v1alpha1.Machine, results []chain.Result, now time.Time) v1alpha1.NetworkConfigurationStatus {
	status := *network.Status.DeepCopy()
	reason, message := attachmentFinding(network, results)
	status.Attachments = Attachments(network, machines)
	if all := len(status.Attachments); all > mostInterfaces {
		status.Attachments = status.Attachments[:mostInterfaces]
		message += fmt.Sprintf("; status.attachments shows %d of %d interfaces", mostInterfaces, all)
	}
	state := metav1.ConditionTrue
	if reason == v1alpha1.ReasonAttachmentFailed {
		state = metav1.ConditionFalse
	}
	for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionAttachmentReady} {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: kind, Status: state, Reason: reason, Message: text.Beginning(message, chain.MostMessage),
			ObservedGeneration: network.Generation, LastTransitionTime: metav1.NewTime(now).Rfc3339Copy(),
		})
	}
	return status
}

// attachmentFinding returns the reason and message of the condition NADReady.
func attachmentFinding(network *v1alpha1.NetworkConfiguration, results []chain.Result) (reason, message string) {
	for _, r := range results {
		switch {
		case r.Done():
		case r.Err != nil:
			return v1alpha1.ReasonAttachmentFailed, errorText(r.Err)
		default:
			return v1alpha1.ReasonAttachmentFailed, r.Condition("").Message
		}
	}
	if _, needed := AttachmentConfig(network, ""); !needed {
		return v1alpha1.ReasonAttachmentNotNeeded, "neither bridge nor vlan is set: Machines are attached to the network of pods"
	}
	return v1alpha1.ReasonAttachmentCreated, "NetworkAttachmentDefinition " + network.Name
}
