package kubevirt

import (
	"k8s.io/utils/ptr"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

// machineType returns the machine type for KubeVirt. pc-q35 is a common name for q35 that QEMU does not know.
func machineType(kind string) string {
	if kind == "pc-q35" {
		return "q35"
	}
	return kind
}

// bootloader is nil where KubeVirt decides. secureBoot is always set, because KubeVirt's default is true.
func bootloader(b *v1alpha1.Bootloader) *kubevirtv1.Bootloader {
	switch {
	case b == nil || b.EFI == nil:
		return nil
	case !*b.EFI:
		return &kubevirtv1.Bootloader{BIOS: &kubevirtv1.BIOS{}}
	}
	return &kubevirtv1.Bootloader{EFI: &kubevirtv1.EFI{SecureBoot: ptr.To(b.SecureBoot)}}
}

// features is nil where KubeVirt decides on all of them.
func features(d *v1alpha1.Domain) *kubevirtv1.Features {
	asked := d.Features
	secure := d.Firmware.Bootloader != nil && d.Firmware.Bootloader.SecureBoot && ptr.Deref(d.Firmware.Bootloader.EFI, false)
	if asked.ACPI == nil && asked.APIC == nil && !asked.HyperV && !secure {
		return nil
	}
	f := &kubevirtv1.Features{ACPI: kubevirtv1.FeatureState{Enabled: asked.ACPI}}
	if asked.APIC != nil {
		f.APIC = &kubevirtv1.FeatureAPIC{FeatureState: kubevirtv1.FeatureState{Enabled: asked.APIC}}
	}
	if asked.HyperV {
		f.Hyperv = hyperV()
	}
	if secure {
		// Secure boot needs system management mode.
		f.SMM = on()
	}
	return f
}

// spinlockRetries is the value that Microsoft recommends:
// https://www.qemu.org/docs/master/system/i386/hyperv.html
const spinlockRetries = 8191

// hyperV are the enlightenments that every node with KVM has and that do not hinder migration.
func hyperV() *kubevirtv1.FeatureHyperv {
	return &kubevirtv1.FeatureHyperv{
		Relaxed: on(), VAPIC: on(), VPIndex: on(), SyNIC: on(), Runtime: on(), Reset: on(), Frequencies: on(), IPI: on(),
		SyNICTimer: &kubevirtv1.SyNICTimer{FeatureState: *on(), Direct: on()},
		TLBFlush:   &kubevirtv1.TLBFlush{FeatureState: *on()},
		Spinlocks:  &kubevirtv1.FeatureSpinlocks{FeatureState: *on(), Retries: ptr.To[uint32](spinlockRetries)},
	}
}

func on() *kubevirtv1.FeatureState { return &kubevirtv1.FeatureState{Enabled: ptr.To(true)} }
