package kubevirt_test

import (
	"regexp"
	"slices"
	"testing"

	"k8s.io/utils/ptr"
	kubevirtv1 "kubevirt.io/api/core/v1"
)

var interfaceName = regexp.MustCompile(`^[A-Za-z0-9-_]+$`)

// checkRules checks the rules of KubeVirt's webhook that a VirtualMachine may break though its fields are known:
// pkg/virt-api/webhooks/validating-webhook/admitters of KubeVirt 1.8.
func checkRules(t *testing.T, name string, vm *kubevirtv1.VirtualMachine) {
	t.Helper()
	spec := &vm.Spec.Template.Spec
	if vm.Spec.Running != nil || vm.Spec.RunStrategy == nil {
		t.Errorf("%s: spec.running is set or spec.runStrategy is not", name)
	}
	if g := spec.Domain.Memory.Guest; g.Sign() <= 0 || spec.Domain.CPU.Cores == 0 || spec.Domain.CPU.Threads == 0 || spec.Domain.CPU.Sockets == 0 {
		t.Errorf("%s: memory %s, processors %+v", name, g, spec.Domain.CPU)
	}
	checkDisks(t, name, spec)
	checkInterfaces(t, name, spec)
	checkFirmware(t, name, &spec.Domain)
}

func checkDisks(t *testing.T, name string, spec *kubevirtv1.VirtualMachineInstanceSpec) {
	t.Helper()
	var disks, volumes []string
	for _, d := range spec.Domain.Devices.Disks {
		disks = append(disks, d.Name)
		if d.Disk == nil || !slices.Contains([]kubevirtv1.DiskBus{"virtio", "sata", "scsi", "usb"}, d.Disk.Bus) || d.Disk.Bus == "sata" && d.Disk.ReadOnly {
			t.Errorf("%s: disk %s is %+v", name, d.Name, d.Disk)
		}
	}
	for _, v := range spec.Volumes {
		volumes = append(volumes, v.Name)
		sources := 0
		for _, set := range []bool{v.PersistentVolumeClaim != nil, v.ContainerDisk != nil, v.CloudInitNoCloud != nil, v.CloudInitConfigDrive != nil} {
			if set {
				sources++
			}
		}
		if sources != 1 {
			t.Errorf("%s: volume %s has %d sources", name, v.Name, sources)
		}
		checkCloudInit(t, name, v)
	}
	if !slices.Equal(disks, volumes) || len(slices.Compact(slices.Sorted(slices.Values(disks)))) != len(disks) {
		t.Errorf("%s: disks %v, volumes %v", name, disks, volumes)
	}
}

func checkCloudInit(t *testing.T, name string, v kubevirtv1.Volume) {
	t.Helper()
	var source kubevirtv1.CloudInitNoCloudSource
	switch {
	case v.CloudInitNoCloud != nil:
		source = *v.CloudInitNoCloud
	case v.CloudInitConfigDrive != nil:
		source = kubevirtv1.CloudInitNoCloudSource(*v.CloudInitConfigDrive)
	default:
		return
	}
	if source.UserData == "" && source.UserDataSecretRef == nil && source.NetworkData == "" && source.NetworkDataSecretRef == nil {
		t.Errorf("%s: cloud-init has no data", name)
	}
	if source.UserData != "" && source.UserDataSecretRef != nil || source.NetworkData != "" && source.NetworkDataSecretRef != nil {
		t.Errorf("%s: cloud-init has two sources of one thing", name)
	}
	if len(source.UserData) > 2048 || len(source.NetworkData) > 2048 {
		t.Errorf("%s: cloud-init is too long for a VirtualMachine", name)
	}
}

func checkInterfaces(t *testing.T, name string, spec *kubevirtv1.VirtualMachineInstanceSpec) {
	t.Helper()
	var interfaces, networks []string
	orders, pods := map[uint]string{}, 0
	number := func(of string, order *uint) {
		if order == nil {
			return
		}
		if *order < 1 || orders[*order] != "" {
			t.Errorf("%s: %s and %q have the boot order %d", name, of, orders[*order], *order)
		}
		orders[*order] = of
	}
	for _, d := range spec.Domain.Devices.Disks {
		number(d.Name, d.BootOrder)
	}
	for i, n := range spec.Domain.Devices.Interfaces {
		interfaces = append(interfaces, n.Name)
		number(n.Name, n.BootOrder)
		onPods := spec.Networks[i].Pod != nil
		if (n.Masquerade != nil) != onPods || (n.Bridge != nil) == onPods || n.MacAddress == "" || !interfaceName.MatchString(n.Name) {
			t.Errorf("%s: interface %+v", name, n)
		}
	}
	for _, n := range spec.Networks {
		networks = append(networks, n.Name)
		if n.Pod != nil {
			pods++
		} else if n.Multus == nil || n.Multus.NetworkName == "" {
			t.Errorf("%s: network %s has no name", name, n.Name)
		}
	}
	if !slices.Equal(interfaces, networks) || len(slices.Compact(slices.Sorted(slices.Values(interfaces)))) != len(interfaces) || pods > 1 {
		t.Errorf("%s: interfaces %v, networks %v, %d of them of pods", name, interfaces, networks, pods)
	}
}

func checkFirmware(t *testing.T, name string, domain *kubevirtv1.DomainSpec) {
	t.Helper()
	b := domain.Firmware.Bootloader
	if b == nil || b.EFI == nil {
		return
	}
	if b.BIOS != nil || b.EFI.SecureBoot == nil {
		t.Errorf("%s: firmware %+v", name, b)
	}
	if ptr.Deref(b.EFI.SecureBoot, true) && (domain.Features == nil || domain.Features.SMM == nil || !ptr.Deref(domain.Features.SMM.Enabled, false)) {
		t.Errorf("%s: secure boot lacks SMM", name)
	}
}
