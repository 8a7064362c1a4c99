package kubevirt

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
)

const (
	// podScheduled is the condition of the VirtualMachineInstance that KubeVirt copies from the pod.
	podScheduled = kubevirtv1.VirtualMachineInstanceConditionType(corev1.PodScheduled)
	// mostText is how many bytes of a text are taken over that the guest reports, and mostMessage of one of KubeVirt.
	mostText, mostMessage = 253, 4096
	// mostDisks is how many disks are shown at most.
	mostDisks = 64
)

// Observe returns what a VirtualMachine and its VirtualMachineInstance say. Both may be nil. An instance that is not
// controlled by this VirtualMachine counts as none: it has the name, but it is a guest of another owner, or of a
// VirtualMachine of the same name that was deleted.
func Observe(vm *kubevirtv1.VirtualMachine, vmi *kubevirtv1.VirtualMachineInstance) vitistack.Observation {
	if vm == nil {
		return vitistack.Observation{}
	}
	strategy, err := vm.RunStrategy()
	if err != nil {
		strategy = kubevirtv1.RunStrategyUnknown
	}
	o := vitistack.Observation{
		Created:     true,
		Printable:   vm.Status.PrintableStatus,
		RunStrategy: strategy,
		Stopping: vm.DeletionTimestamp != nil || vm.Status.PrintableStatus == kubevirtv1.VirtualMachineStatusStopping ||
			vm.Status.PrintableStatus == kubevirtv1.VirtualMachineStatusTerminating,
	}
	observeConditions(&o, vm)
	if vmi != nil && metav1.IsControlledBy(vmi, vm) {
		observeInstance(&o, vmi)
	}
	return o
}

func observeConditions(o *vitistack.Observation, vm *kubevirtv1.VirtualMachine) {
	for _, c := range vm.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			continue
		}
		switch c.Type {
		case kubevirtv1.VirtualMachineFailure:
			o.Failure = said(c.Message, c.Reason, "KubeVirt reports a failure")
			if quota, ok := vitistack.QuotaExceeded(c.Message); ok {
				o.Failure, o.Unschedulable = "", said(quota)
			}
		case kubevirtv1.VirtualMachineRestartRequired:
			o.RestartRequired = said(c.Message, c.Reason, "a change takes effect at the next start")
		}
	}
}

func observeInstance(o *vitistack.Observation, vmi *kubevirtv1.VirtualMachineInstance) {
	o.Instance, o.UID, o.Phase, o.Node = true, vmi.UID, vmi.Status.Phase, vmi.Status.NodeName
	o.Stopping = o.Stopping || vmi.DeletionTimestamp != nil
	for _, c := range vmi.Status.Conditions {
		switch c.Type {
		case kubevirtv1.VirtualMachineInstanceReady:
			o.Ready = c.Status == corev1.ConditionTrue
			if !o.Ready {
				o.NotReady = said(c.Message, c.Reason)
			}
		case kubevirtv1.VirtualMachineInstancePaused:
			o.Paused = c.Status == corev1.ConditionTrue
		case kubevirtv1.VirtualMachineInstanceSynchronized:
			if quota, ok := vitistack.QuotaExceeded(c.Message); ok && c.Status == corev1.ConditionFalse {
				o.Unschedulable = said(quota)
			}
		case kubevirtv1.VirtualMachineInstanceVolumesChange:
			o.MovesVolumes = c.Status == corev1.ConditionTrue
		case podScheduled:
			if c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
				o.Unschedulable = said(c.Message, c.Reason)
			}
		}
	}
	os := vmi.Status.GuestOSInfo
	o.OperatingSystem = beginning(cmp.Or(os.Name, os.PrettyName), mostText)
	o.OperatingSystemVersion = beginning(cmp.Or(os.VersionID, os.Version), mostText)
	o.KernelVersion = beginning(cmp.Or(os.KernelRelease, os.KernelVersion), mostText)
	o.Interfaces, o.Disks = guestInterfaces(vmi), guestDisks(vmi)
}

// said returns the first text that says something.
func said(texts ...string) string {
	return beginning(cmp.Or(texts...), mostMessage)
}

// beginning returns at most that many bytes of a text. The guest may report texts of any length and in no encoding.
func beginning(text string, most int) string {
	if len(text) > most {
		text = text[:most]
	}
	if !utf8.ValidString(text) {
		text = strings.ToValidUTF8(text, "")
	}
	return text
}

// guestInterfaces returns the interfaces with a MAC address: those of the hardware in its order, then those that only the
// agent in the guest knows, by MAC address and by their place in the report.
func guestInterfaces(vmi *kubevirtv1.VirtualMachineInstance) []v1alpha1.NetworkInterfaceStatus {
	place := map[string]int{}
	for i, hardware := range vmi.Spec.Domain.Devices.Interfaces {
		place[hardware.Name] = i
	}
	var found []v1alpha1.NetworkInterfaceStatus
	for _, reported := range vmi.Status.Interfaces {
		mac, ok := vitistack.CanonicalMAC(reported.MAC)
		if !ok {
			continue
		}
		addresses := reported.IPs
		if len(addresses) == 0 {
			addresses = []string{reported.IP}
		}
		all, ipv6 := vitistack.Addresses(addresses)
		found = append(found, v1alpha1.NetworkInterfaceStatus{
			Name: beginning(reported.Name, mostText), MACAddress: mac, IPAddresses: all, IPv6Addresses: ipv6,
			State: beginning(reported.LinkState, mostText), Type: beginning(reported.InfoSource, mostText),
		})
	}
	slices.SortStableFunc(found, func(a, b v1alpha1.NetworkInterfaceStatus) int {
		return cmp.Or(cmp.Compare(placeOf(place, a.Name), placeOf(place, b.Name)), cmp.Compare(a.MACAddress, b.MACAddress))
	})
	return found[:min(len(found), vitistack.MostInterfaces)]
}

// guestDisks returns the disks with a claim, in the order of the hardware.
func guestDisks(vmi *kubevirtv1.VirtualMachineInstance) []v1alpha1.DiskStatus {
	place := map[string]int{}
	for i, hardware := range vmi.Spec.Domain.Devices.Disks {
		place[hardware.Name] = i
	}
	var found []v1alpha1.DiskStatus
	for _, volume := range vmi.Status.VolumeStatus {
		claim := volume.PersistentVolumeClaimInfo
		if claim == nil {
			continue
		}
		size := claim.Capacity[corev1.ResourceStorage]
		disk := v1alpha1.DiskStatus{Name: volume.Name, PVCName: claim.ClaimName, Size: size.Value()}
		if volume.Target != "" {
			disk.Device = "/dev/" + beginning(volume.Target, mostText)
		}
		if claim.VolumeMode != nil {
			disk.VolumeMode = string(*claim.VolumeMode)
		}
		for _, mode := range claim.AccessModes {
			disk.AccessModes = append(disk.AccessModes, string(mode))
		}
		found = append(found, disk)
	}
	slices.SortStableFunc(found, func(a, b v1alpha1.DiskStatus) int {
		return cmp.Or(cmp.Compare(placeOf(place, a.Name), placeOf(place, b.Name)), cmp.Compare(a.Name, b.Name))
	})
	return found[:min(len(found), mostDisks)]
}

// placeOf returns the place of a device of the hardware; what the hardware does not have comes last.
func placeOf(place map[string]int, name string) int {
	if i, ok := place[name]; ok {
		return i
	}
	return len(place)
}
