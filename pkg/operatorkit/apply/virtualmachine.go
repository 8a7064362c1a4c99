package apply

import (
	"slices"
	"strings"

	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// annotationVolumes and annotationNetworks are on a VirtualMachine of KubeVirt and name the volumes, and the networks,
	// that the operator put there, comma-separated. All others belong to other clients, such as a volume that was plugged
	// in while the guest runs. Users who may change the VirtualMachine may change them, and could remove a volume as well.
	annotationVolumes  = "kvm-operator.giantswarm.io/volumes"
	annotationNetworks = "kvm-operator.giantswarm.io/networks"
	// kubevirtPrefix is that of annotations which KubeVirt's webhook sets in the template when a VirtualMachine is created.
	kubevirtPrefix = "kubevirt.io/"
)

// recordDevices notes which entries of the lists are the operator's: API servers treat these lists as a whole, so that
// field managers do not tell.
func recordDevices(desired client.Object) {
	vm := desired.(*kubevirtv1.VirtualMachine)
	if vm.Spec.Template == nil {
		return
	}
	annotate(vm, annotationVolumes, joined(vm.Spec.Template.Spec.Volumes, volumeName))
	annotate(vm, annotationNetworks, joined(vm.Spec.Template.Spec.Networks, networkName))
}

// Merged returns what a VirtualMachine of KubeVirt becomes when another form of it is applied, as far as that is known
// without the API server: the wanted form, with what others own of the live one.
func Merged(live, wanted *kubevirtv1.VirtualMachine) *kubevirtv1.VirtualMachine {
	merged := wanted.DeepCopy()
	recordDevices(merged)
	mergeVirtualMachine(live, merged)
	return merged
}

// mergeVirtualMachine copies to desired what is set at creation only, and what others own: whether the machine is to run,
// the identity that KubeVirt's webhook gave it, and the volumes and networks of others.
//
// The webhook's values count as posted by the operator. An apply without them would remove them: the guest would get
// another UUID, and KubeVirt refuses a VirtualMachine that does not say whether it runs.
func mergeVirtualMachine(live, desired client.Object) {
	current, wanted := live.(*kubevirtv1.VirtualMachine), desired.(*kubevirtv1.VirtualMachine)
	if current.Spec.RunStrategy != nil || current.Spec.Running != nil {
		wanted.Spec.RunStrategy, wanted.Spec.Running = current.Spec.RunStrategy, current.Spec.Running
	}
	if current.Spec.Template == nil || wanted.Spec.Template == nil {
		return
	}
	for name, value := range current.Spec.Template.ObjectMeta.Annotations {
		if _, own := wanted.Spec.Template.ObjectMeta.Annotations[name]; !own && strings.HasPrefix(name, kubevirtPrefix) {
			annotate(&wanted.Spec.Template.ObjectMeta, name, value)
		}
	}
	mergeIdentity(&current.Spec.Template.Spec, &wanted.Spec.Template.Spec)
	mergeDevices(current, wanted)
}

// mergeIdentity keeps what must stay the same over the life of a guest: https://github.com/kubevirt/kubevirt/pull/18612.
func mergeIdentity(current, wanted *kubevirtv1.VirtualMachineInstanceSpec) {
	if wanted.Architecture == "" {
		wanted.Architecture = current.Architecture
	}
	if wanted.Domain.Machine == nil || wanted.Domain.Machine.Type == "" {
		wanted.Domain.Machine = current.Domain.Machine.DeepCopy()
	}
	firmware := current.Domain.Firmware
	if firmware == nil || firmware.UUID == "" && firmware.Serial == "" {
		return
	}
	if wanted.Domain.Firmware == nil {
		wanted.Domain.Firmware = &kubevirtv1.Firmware{}
	}
	if firmware.UUID != "" {
		wanted.Domain.Firmware.UUID = firmware.UUID
	}
	if firmware.Serial != "" {
		wanted.Domain.Firmware.Serial = firmware.Serial
	}
}

// mergeDevices appends volumes with their disks, and networks with their interfaces, that are not the operator's. A
// VirtualMachine without the annotations was made by an earlier operator: then all volumes may hold data, and all networks
// were that operator's.
func mergeDevices(current, wanted *kubevirtv1.VirtualMachine) {
	there, here := &current.Spec.Template.Spec, &wanted.Spec.Template.Spec
	ours := func(annotation string) []string {
		return append(strings.Split(current.Annotations[annotation], ","), strings.Split(wanted.Annotations[annotation], ",")...)
	}
	volumes := ours(annotationVolumes)
	here.Volumes = appendOthers(here.Volumes, there.Volumes, volumeName, volumes)
	diskName := func(d kubevirtv1.Disk) string { return d.Name }
	here.Domain.Devices.Disks = appendOthers(here.Domain.Devices.Disks, there.Domain.Devices.Disks, diskName, volumes)
	if _, known := current.Annotations[annotationNetworks]; !known {
		return
	}
	networks := ours(annotationNetworks)
	here.Networks = appendOthers(here.Networks, there.Networks, networkName, networks)
	interfaceName := func(i kubevirtv1.Interface) string { return i.Name }
	here.Domain.Devices.Interfaces = appendOthers(here.Domain.Devices.Interfaces, there.Domain.Devices.Interfaces, interfaceName, networks)
}

// appendOthers appends the items of live whose names are not ours.
func appendOthers[T any](wanted, live []T, name func(T) string, ours []string) []T {
	wanted = slices.Clip(wanted)
	for _, item := range live {
		if !slices.Contains(ours, name(item)) {
			wanted = append(wanted, item)
		}
	}
	return wanted
}

func volumeName(v kubevirtv1.Volume) string   { return v.Name }
func networkName(n kubevirtv1.Network) string { return n.Name }

func joined[T any](items []T, name func(T) string) string {
	var names []string
	for _, item := range items {
		names = append(names, name(item))
	}
	return strings.Join(names, ",")
}
