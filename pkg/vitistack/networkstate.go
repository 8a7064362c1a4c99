package vitistack

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
)

// ownerKindNetwork is the kind of the owners that NetworkAttachmentDefinitions name.
const ownerKindNetwork = "NetworkConfiguration.vitistack.io"

// NetworkState is what was read for a pass over one NetworkConfiguration. Nothing in it is changed.
type NetworkState struct {
	Network  *v1alpha1.NetworkConfiguration
	Settings Settings
	// Machines are those of the namespace that name the network, or more.
	Machines []v1alpha1.Machine
	// Multus says whether the API server serves NetworkAttachmentDefinitions, as KubeVirt does for VirtualMachines.
	Multus KubeVirt
	Now    time.Time
}

// Owner is the owner of the objects of a handler.
func (s *NetworkState) Owner(handler string) ownership.Owner {
	n := s.Network
	return ownership.Owner{Kind: ownerKindNetwork, Namespace: n.Namespace, Name: n.Name, UID: n.UID, Handler: handler}
}

// Places are where the object of a NetworkConfiguration is: in its namespace, under its name. A copy under another name that a
// user has made with all annotations is the user's.
func (s *NetworkState) Places() apply.Places {
	named := func(object metav1.Object) bool { return object.GetName() == s.Network.Name }
	return apply.Places{Namespaces: []string{s.Network.Namespace}, Counts: apply.CountsBy(named)}
}
