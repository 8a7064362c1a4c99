package kubevirt_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/kubevirt"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
)

// started returns a VirtualMachine of a Machine, and the guest that was started from it, with what
// KubeVirt fills in.
func started() (*kubevirtv1.VirtualMachine, *kubevirtv1.VirtualMachineInstance) {
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "agent", UID: "1"}}
	wanted := vitistack.Wanted{
		CPU: v1alpha1.CPU{Cores: 1, Threads: 1, Sockets: 1}, Memory: resource.MustParse("2Gi"),
		Disks:      []vitistack.Disk{{Name: "root", Claim: "agent-root", Bus: "virtio", BootOrder: 1}},
		Interfaces: []vitistack.Interface{{Name: "eth0", Model: "virtio", MAC: "02:12:00:00:00:01", Attachment: "front"}},
	}
	vm := kubevirt.VirtualMachine(m, wanted, settings)
	vmi := &kubevirtv1.VirtualMachineInstance{Spec: *vm.Spec.Template.Spec.DeepCopy()}
	d := &vmi.Spec.Domain
	d.CPU.Model, d.CPU.MaxSockets, d.Machine = "host-model", 4, &kubevirtv1.Machine{Type: "q35"}
	d.Memory.MaxGuest, d.Features = ptr.To(resource.MustParse("8Gi")), &kubevirtv1.Features{ACPI: kubevirtv1.FeatureState{Enabled: ptr.To(true)}}
	return vm, vmi
}

// TestWhatARestartWouldChangeIsNamed: what KubeVirt fills in is no change.
func TestWhatARestartWouldChangeIsNamed(t *testing.T) {
	type edit = func(*kubevirtv1.VirtualMachineInstanceSpec)
	for name, test := range map[string]struct {
		by   edit
		want []string
	}{
		"nothing": {func(*kubevirtv1.VirtualMachineInstanceSpec) {}, nil},
		"the processors": {func(s *kubevirtv1.VirtualMachineInstanceSpec) {
			s.Domain.CPU = &kubevirtv1.CPU{Cores: 2, Threads: 2, Sockets: 3, Model: "Haswell"}
		}, []string{"cores 1 → 2", "threads 1 → 2", "sockets 1 → 3", "CPU model host-model → Haswell"}},
		"the memory": {func(s *kubevirtv1.VirtualMachineInstanceSpec) {
			s.Domain.Memory.Guest = ptr.To(resource.MustParse("4Gi"))
		}, []string{"memory 2Gi → 4Gi"}},
		"the machine type": {func(s *kubevirtv1.VirtualMachineInstanceSpec) {
			s.Domain.Machine = &kubevirtv1.Machine{Type: "pc-q35-rhel9.4.0"}
		}, []string{"machine type q35 → pc-q35-rhel9.4.0"}},
		"the boot loader": {func(s *kubevirtv1.VirtualMachineInstanceSpec) {
			s.Domain.Firmware.Bootloader = &kubevirtv1.Bootloader{EFI: &kubevirtv1.EFI{SecureBoot: ptr.To(false)}}
		}, []string{"boot loader BIOS → EFI"}},
		"secure boot": {func(s *kubevirtv1.VirtualMachineInstanceSpec) {
			s.Domain.Firmware.Bootloader = &kubevirtv1.Bootloader{EFI: &kubevirtv1.EFI{}}
		}, []string{"boot loader BIOS → EFI with secure boot"}},
		"BIOS, which it has": {func(s *kubevirtv1.VirtualMachineInstanceSpec) {
			s.Domain.Firmware.Bootloader = &kubevirtv1.Bootloader{BIOS: &kubevirtv1.BIOS{}}
		}, nil},
		"features": {func(s *kubevirtv1.VirtualMachineInstanceSpec) {
			s.Domain.Features = &kubevirtv1.Features{ACPI: kubevirtv1.FeatureState{Enabled: ptr.To(false)}, APIC: &kubevirtv1.FeatureAPIC{FeatureState: kubevirtv1.FeatureState{Enabled: ptr.To(true)}}, Hyperv: &kubevirtv1.FeatureHyperv{}}
		}, []string{"ACPI on → off", "APIC none → on", "Hyper-V none → on"}},
		"a disk more":   {func(s *kubevirtv1.VirtualMachineInstanceSpec) { addDisk(s, "data", "agent-data") }, []string{"disk data none → claim agent-data on scsi"}},
		"a disk less":   {func(s *kubevirtv1.VirtualMachineInstanceSpec) { s.Domain.Devices.Disks, s.Volumes = nil, nil }, []string{"disk root claim agent-root on virtio boot order 1 → none"}},
		"another claim": {func(s *kubevirtv1.VirtualMachineInstanceSpec) { s.Volumes[0].PersistentVolumeClaim.ClaimName = "other" }, []string{"disk root claim agent-root on virtio boot order 1 → claim other on virtio boot order 1"}},
		"another boot order": {func(s *kubevirtv1.VirtualMachineInstanceSpec) {
			s.Domain.Devices.Disks[0].BootOrder, s.Domain.Devices.Interfaces[0].BootOrder = nil, ptr.To[uint](1)
		}, []string{"disk root claim agent-root on virtio boot order 1 → claim agent-root on virtio", "interface eth0 on front virtio 02:12:00:00:00:01 → on front virtio 02:12:00:00:00:01 boot order 1"}},
		"another network": {func(s *kubevirtv1.VirtualMachineInstanceSpec) { s.Networks[0].Multus.NetworkName = "back" }, []string{"interface eth0 on front virtio 02:12:00:00:00:01 → on back virtio 02:12:00:00:00:01"}},
		"the network of pods": {func(s *kubevirtv1.VirtualMachineInstanceSpec) {
			s.Networks[0].NetworkSource = kubevirtv1.NetworkSource{Pod: &kubevirtv1.PodNetwork{}}
		}, []string{"interface eth0 on front virtio 02:12:00:00:00:01 → on the network of pods virtio 02:12:00:00:00:01"}},
		"data for cloud-init": {func(s *kubevirtv1.VirtualMachineInstanceSpec) {
			s.Volumes = append(s.Volumes, kubevirtv1.Volume{Name: "c", VolumeSource: kubevirtv1.VolumeSource{CloudInitNoCloud: &kubevirtv1.CloudInitNoCloudSource{}}})
			s.Domain.Devices.Disks = append(s.Domain.Devices.Disks, kubevirtv1.Disk{Name: "c"})
		}, []string{"disk c none → cloud-init"}},
		"nothing about anything": {func(s *kubevirtv1.VirtualMachineInstanceSpec) {
			s.Domain.CPU, s.Domain.Memory, s.Domain.Firmware = nil, nil, nil
		}, nil},
	} {
		vm, vmi := started()
		test.by(&vm.Spec.Template.Spec)
		if diff := cmp.Diff(test.want, kubevirt.Pending(vm, vmi), cmp.Transformer("empty", func(s []string) []string { return append([]string{}, s...) })); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func addDisk(s *kubevirtv1.VirtualMachineInstanceSpec, name, claim string) {
	source := &kubevirtv1.PersistentVolumeClaimVolumeSource{PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}
	s.Volumes = append(s.Volumes, kubevirtv1.Volume{Name: name, VolumeSource: kubevirtv1.VolumeSource{PersistentVolumeClaim: source}})
	s.Domain.Devices.Disks = append(s.Domain.Devices.Disks, kubevirtv1.Disk{Name: name, DiskDevice: kubevirtv1.DiskDevice{Disk: &kubevirtv1.DiskTarget{Bus: "scsi"}}})
}

// TestDifferencesAreBounded: users choose names of disks and images, and others may plug in as many as they like.
func TestDifferencesAreBounded(t *testing.T) {
	vm, vmi := started()
	for i := range 100 {
		addDisk(&vm.Spec.Template.Spec, fmt.Sprintf("d%d", i), strings.Repeat("ä", 500))
	}
	all := kubevirt.Pending(vm, vmi)
	if len(all) != 21 || all[20] != "80 more" {
		t.Errorf("there are %d, and the last is %q", len(all), all[len(all)-1])
	}
	for _, text := range all {
		if len(text) > 160 {
			t.Errorf("one has %d bytes", len(text))
		}
	}
}
