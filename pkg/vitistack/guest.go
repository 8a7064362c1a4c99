package vitistack

import (
	"slices"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

// tellGuest fills in what is known about the guest. What belongs to a guest that runs is empty while none runs; a guest
// on a node that does not answer may still run. The MAC addresses of the Machine's interfaces are known before the first
// start, so that addresses can be reserved for them.
func tellGuest(s *State, o Observation, status *v1alpha1.MachineStatus) {
	status.VMIName = ""
	if o.Instance {
		status.VMIName = s.Machine.Name
	}
	if !o.located() {
		o.Node, o.Interfaces, o.Disks = "", nil, nil
		o.OperatingSystem, o.OperatingSystemVersion, o.KernelVersion = "", "", ""
	}
	status.NodeName, status.Disks = o.Node, o.Disks
	status.Hostname = ""
	status.OperatingSystem, status.OperatingSystemVersion, status.KernelVersion = o.OperatingSystem, o.OperatingSystemVersion, o.KernelVersion

	status.NetworkInterfaces = nil
	if status.VMName != "" {
		status.NetworkInterfaces = interfacesOf(s, o)
	}
	status.IPAddresses, status.IPv6Addresses, status.PublicIPAddresses, status.PrivateIPAddresses = nil, nil, nil, nil
	for _, i := range status.NetworkInterfaces {
		status.IPAddresses = union(status.IPAddresses, i.IPAddresses)
		status.IPv6Addresses = union(status.IPv6Addresses, i.IPv6Addresses)
		if i.Name != "" {
			status.PublicIPAddresses = union(status.PublicIPAddresses, i.IPAddresses)
		} else {
			status.PrivateIPAddresses = union(status.PrivateIPAddresses, i.IPAddresses)
		}
	}
}

// union returns a list with those of more that it lacks.
func union(list, more []string) []string {
	for _, text := range more {
		if !slices.Contains(list, text) {
			list = append(list, text)
		}
	}
	return list
}

// interfacesOf returns the interfaces of the Machine in its order, then the others that KubeVirt reports.
func interfacesOf(s *State, o Observation) []v1alpha1.NetworkInterfaceStatus {
	others := slices.Clone(o.Interfaces)
	var all []v1alpha1.NetworkInterfaceStatus
	for _, wanted := range s.Wanted.Interfaces {
		shown := v1alpha1.NetworkInterfaceStatus{Name: wanted.Name, MACAddress: wanted.MAC}
		i := slices.IndexFunc(others, func(i v1alpha1.NetworkInterfaceStatus) bool { return i.Name == wanted.Name })
		if i >= 0 {
			shown = others[i]
			others = slices.Delete(others, i, i+1)
		}
		all = append(all, shown)
	}
	all = append(all, others...)
	for i := range all {
		if len(all[i].IPAddresses) == 0 && o.located() {
			all[i].IPAddresses, all[i].IPv6Addresses = s.assigned(all[i])
		}
	}
	return all
}

// assigned returns the addresses of an interface by the NetworkConfiguration that it is attached to. An interface on a
// bridge has none in the VirtualMachineInstance unless an agent runs in the guest; the operator that assigns addresses
// knows them. It is another one, so they are checked like those of the guest.
func (s *State) assigned(of v1alpha1.NetworkInterfaceStatus) (all, ipv6 []string) {
	for _, named := range s.Machine.Spec.Networks {
		network := s.Networks[named.NetworkName]
		if of.Name == "" || named.Name != of.Name || network == nil {
			continue
		}
		for _, i := range network.Status.NetworkInterfaces {
			if mac, ok := CanonicalMAC(i.MACAddress); ok && mac == of.MACAddress {
				return Addresses(slices.Concat(i.IPv4Addresses, i.IPv6Addresses))
			}
		}
	}
	return nil, nil
}
