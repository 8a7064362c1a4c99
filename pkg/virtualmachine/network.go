package virtualmachine

import (
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

// networksOf returns the network interfaces. A machine that declares no list gets the user network, as with VM-Operator;
// an empty list is none. A card for a bridge that is not allowed leads nowhere.
func networksOf(spec v1.VM, bridges []string) []vmconfig.Network {
	if spec.Networks == nil {
		return []vmconfig.Network{{Type: vmconfig.NetworkUser}}
	}
	var networks []vmconfig.Network
	for _, n := range spec.Networks {
		switch {
		case n.Tap != nil && slices.Contains(bridges, n.Tap.Bridge):
			networks = append(networks, vmconfig.Network{Type: vmconfig.NetworkTap, Device: model(n.Tap.Device), Bridge: n.Tap.Bridge, MAC: ptr.Deref(n.Tap.MAC, "")})
		case n.Tap != nil:
			networks = append(networks, vmconfig.Network{Type: vmconfig.NetworkUser, Device: model(n.Tap.Device), MAC: ptr.Deref(n.Tap.MAC, ""), Isolated: true})
		case n.User != nil:
			networks = append(networks, vmconfig.Network{Type: vmconfig.NetworkUser, Device: model(n.User.Device), Net: ptr.Deref(n.User.Net, "")})
		case n.Pod != nil:
			networks = append(networks, vmconfig.Network{Type: vmconfig.NetworkPod, Device: model(n.Pod.Device)})
		}
	}
	return networks
}

// model returns the runner's name for a network card.
func model(d v1.Device) string { return strings.TrimSuffix(string(d), "-pci") }

// ForbiddenBridges returns the declared bridges that the operator's settings do not allow. A machine that declares one is
// not started.
func (s *State) ForbiddenBridges() []string {
	var names []string
	for _, n := range s.VM.Spec.VM.Networks {
		if n.Tap != nil && !slices.Contains(s.Settings.Bridges, n.Tap.Bridge) && !slices.Contains(names, n.Tap.Bridge) {
			names = append(names, n.Tap.Bridge)
		}
	}
	return names
}

func (s *State) forbidden() error {
	names := s.ForbiddenBridges()
	if len(names) == 0 {
		return nil
	}
	return problem.Newf("BridgeNotAllowed",
		"networks of type tap name the bridge %s, and the operator's setting service.virtualmachine.bridges does not allow it. The machine is not started, and one that runs is not started again: use a network of type user or pod, or ask the operator's administrator to allow the bridge",
		strings.Join(names, ", "))
}

// connects returns whether the runner connects a card to the network of the pod or of the host.
func (s *State) connects() bool {
	return s.Machine.Has(vmconfig.NetworkTap) || s.Machine.Has(vmconfig.NetworkPod)
}
