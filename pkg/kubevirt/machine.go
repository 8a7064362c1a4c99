package kubevirt

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
)

// VirtualMachine returns the VirtualMachine of a Machine, with nothing but what the operator decides. spec.runStrategy
// counts at creation only. The UUID of the firmware is the UID of the Machine: KubeVirt would compute one from the name
// alone, equal in all namespaces and clusters.
func VirtualMachine(m *v1alpha1.Machine, w vitistack.Wanted, settings vitistack.Settings) *kubevirtv1.VirtualMachine {
	more := map[string]string{}
	if w.Template != "" {
		more[v1alpha1.LabelTemplate] = w.Template
	}
	meta := vitistack.ObjectMeta(m, settings.ManagedBy, m.Name, more)
	return &kubevirtv1.VirtualMachine{
		TypeMeta:   metav1.TypeMeta{APIVersion: kubevirtv1.GroupVersion.String(), Kind: "VirtualMachine"},
		ObjectMeta: meta,
		Spec: kubevirtv1.VirtualMachineSpec{
			RunStrategy: ptr.To(kubevirtv1.RunStrategyAlways),
			Template: &kubevirtv1.VirtualMachineInstanceTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: meta.Labels},
				Spec: kubevirtv1.VirtualMachineInstanceSpec{
					Domain:   domain(m, &w),
					Networks: networks(w.Interfaces),
					Volumes:  volumes(&w),
				},
			},
		},
	}
}

func domain(m *v1alpha1.Machine, w *vitistack.Wanted) kubevirtv1.DomainSpec {
	memory := w.Memory.DeepCopy()
	spec := kubevirtv1.DomainSpec{
		CPU:      &kubevirtv1.CPU{Cores: count(w.CPU.Cores), Threads: count(w.CPU.Threads), Sockets: count(w.CPU.Sockets), Model: w.CPUModel},
		Memory:   &kubevirtv1.Memory{Guest: &memory},
		Firmware: &kubevirtv1.Firmware{UUID: m.UID, Bootloader: bootloader(w.Domain.Firmware.Bootloader)},
		Features: features(&w.Domain),
		Devices: kubevirtv1.Devices{
			// The interfaces below are all that there are.
			AutoattachPodInterface: ptr.To(false),
			Disks:                  disks(w),
			Interfaces:             interfaces(w.Interfaces),
		},
	}
	if slices.ContainsFunc(w.Interfaces, func(i vitistack.Interface) bool { return i.Model == kubevirtv1.VirtIO }) {
		spec.Devices.NetworkInterfaceMultiQueue = ptr.To(true)
	}
	if kind := w.Domain.Machine.Type; kind != "" {
		spec.Machine = &kubevirtv1.Machine{Type: machineType(kind)}
	}
	if w.Domain.Features.HyperV {
		spec.Clock = &kubevirtv1.Clock{Timer: &kubevirtv1.Timer{Hyperv: &kubevirtv1.HypervTimer{Enabled: ptr.To(true)}}}
	}
	return spec
}

// count converts a number that the API server has checked to be positive.
func count(n int32) uint32 { return uint32(max(n, 0)) }

func disks(w *vitistack.Wanted) []kubevirtv1.Disk {
	var list []kubevirtv1.Disk
	for i := range w.Disks {
		d := &w.Disks[i]
		// A guest cannot write to a volume that several machines read.
		target := &kubevirtv1.DiskTarget{Bus: kubevirtv1.DiskBus(d.Bus), ReadOnly: d.AccessMode == corev1.ReadOnlyMany}
		list = append(list, kubevirtv1.Disk{Name: d.Name, DiskDevice: kubevirtv1.DiskDevice{Disk: target}, BootOrder: bootOrder(d.BootOrder)})
	}
	if w.CloudInit != nil {
		target := &kubevirtv1.DiskTarget{Bus: kubevirtv1.DiskBusVirtio}
		list = append(list, kubevirtv1.Disk{Name: vitistack.CloudInitVolume, DiskDevice: kubevirtv1.DiskDevice{Disk: target}})
	}
	return list
}

func bootOrder(n uint) *uint {
	if n == 0 {
		return nil
	}
	return &n
}

func volumes(w *vitistack.Wanted) []kubevirtv1.Volume {
	var list []kubevirtv1.Volume
	for i := range w.Disks {
		list = append(list, kubevirtv1.Volume{Name: w.Disks[i].Name, VolumeSource: volumeSource(&w.Disks[i])})
	}
	if w.CloudInit != nil {
		list = append(list, kubevirtv1.Volume{Name: vitistack.CloudInitVolume, VolumeSource: cloudInit(w.CloudInit)})
	}
	return list
}

func volumeSource(d *vitistack.Disk) kubevirtv1.VolumeSource {
	if d.Source != nil && d.Source.ContainerDisk != nil {
		image := d.Source.ContainerDisk
		return kubevirtv1.VolumeSource{ContainerDisk: &kubevirtv1.ContainerDiskSource{Image: image.Image, ImagePullSecret: image.ImagePullSecret}}
	}
	claim := corev1.PersistentVolumeClaimVolumeSource{ClaimName: d.Claim}
	return kubevirtv1.VolumeSource{PersistentVolumeClaim: &kubevirtv1.PersistentVolumeClaimVolumeSource{PersistentVolumeClaimVolumeSource: claim}}
}

func cloudInit(c *vitistack.CloudInit) kubevirtv1.VolumeSource {
	if c.Kept != nil {
		return *c.Kept.DeepCopy()
	}
	source := kubevirtv1.CloudInitNoCloudSource{}
	secret := &corev1.LocalObjectReference{Name: c.Secret}
	if c.Secret == "" {
		source.UserData, source.NetworkData = string(c.UserData), string(c.NetworkData)
	}
	if c.Secret != "" && c.UserData != nil {
		source.UserDataSecretRef = secret
	}
	if c.Secret != "" && c.NetworkData != nil {
		source.NetworkDataSecretRef = secret
	}
	if c.ConfigDrive {
		drive := kubevirtv1.CloudInitConfigDriveSource(source)
		return kubevirtv1.VolumeSource{CloudInitConfigDrive: &drive}
	}
	return kubevirtv1.VolumeSource{CloudInitNoCloud: &source}
}

func interfaces(wanted []vitistack.Interface) []kubevirtv1.Interface {
	var list []kubevirtv1.Interface
	for _, i := range wanted {
		binding := kubevirtv1.InterfaceBindingMethod{Bridge: &kubevirtv1.InterfaceBridge{}}
		if i.Attachment == "" {
			// A bridge on the network of pods keeps a guest from being migrated and needs a permission of the cluster.
			binding = kubevirtv1.InterfaceBindingMethod{Masquerade: &kubevirtv1.InterfaceMasquerade{}}
		}
		list = append(list, kubevirtv1.Interface{
			Name: i.Name, Model: i.Model, MacAddress: i.MAC, InterfaceBindingMethod: binding, BootOrder: bootOrder(i.BootOrder),
		})
	}
	return list
}

func networks(wanted []vitistack.Interface) []kubevirtv1.Network {
	var list []kubevirtv1.Network
	for _, i := range wanted {
		source := kubevirtv1.NetworkSource{Pod: &kubevirtv1.PodNetwork{}}
		if i.Attachment != "" {
			source = kubevirtv1.NetworkSource{Multus: &kubevirtv1.MultusNetwork{NetworkName: i.Attachment}}
		}
		list = append(list, kubevirtv1.Network{Name: i.Name, NetworkSource: source})
	}
	return list
}
