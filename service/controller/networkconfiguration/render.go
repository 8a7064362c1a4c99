package networkconfiguration

import (
	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
	"github.com/kvm-operator/kvm-operator/resources/networkconfiguration/attachment"
)

// Render returns the NetworkAttachmentDefinition that a NetworkConfiguration leads to, without a cluster.
func Render(settings vitistack.Settings, n *v1alpha1.NetworkConfiguration) ([]apply.Rendered, error) {
	if n.UID == "" {
		n = n.DeepCopy()
		n.UID = ownership.UnstoredUID
	}
	s := &vitistack.NetworkState{Network: n, Settings: settings, Multus: vitistack.Installed}
	return apply.Render([]apply.Resource[*vitistack.NetworkState]{attachment.Resource()}, s)
}
