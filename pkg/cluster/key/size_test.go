package key

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
)

func TestMemoryOfThePod(t *testing.T) {
	for name, test := range map[string]struct {
		memory   string
		cpus     int32
		emulated bool
		want     string
	}{
		"4G":                      {"4G", 2, false, "4373Mi"},
		"12G":                     {"12G", 4, false, "12078Mi"},
		"32G":                     {"32G", 8, false, "31332Mi"},
		"4G that may be emulated": {"4G", 2, true, "5397Mi"},
		"4Gi is more than 4G":     {"4Gi", 2, false, "4656Mi"},
		"the smallest":            {"512M", 1, false, "1013Mi"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := PodMemory(resource.MustParse(test.memory), test.cpus, test.emulated)
			if diff := cmp.Diff(test.want, pod.String()); diff != "" {
				t.Errorf("another request (-want +got):\n%s", diff)
			}
		})
	}
}

// TestGuestFitsIntoThePod: the memory of a pod suffices for its guest and QEMU, for every form that the CRD accepts and
// every size up to 1 TB.
func TestGuestFitsIntoThePod(t *testing.T) {
	// This is what QEMU itself needs at least, for any size of the guest: 150 MiB were measured, and 1 GiB for
	// translated code.
	overhead := map[bool]int64{false: 300 << 20, true: 1300 << 20}
	forms := []string{
		"4G", "4Gi", "4096M", "4096Mi", "24G", "7.5G", "1.5Gi", "0.000123456Ti", "512M", "512Mi", "2048M", "1T", "1.5Ti", "16Ti",
	}
	for gigabytes := int64(1); gigabytes <= 1000; gigabytes++ {
		forms = append(forms, resource.NewQuantity(gigabytes*1e9, resource.DecimalSI).String(), resource.NewQuantity(gigabytes<<30, resource.BinarySI).String())
	}
	for emulated, minimum := range overhead {
		for _, form := range forms {
			memory := resource.MustParse(form)
			guest, pod := GuestMemory(memory)<<20, PodMemory(memory, 1, emulated)
			if pod.Value() < guest+minimum {
				t.Errorf("memory %s, emulated %t: the pod may use %d bytes, guest and overhead need %d", form, emulated, pod.Value(), guest+minimum)
			}
			if asked := memory.Value(); guest > asked || asked-guest >= 1<<20 {
				t.Errorf("memory %s: the guest gets %d bytes of the %d asked for", form, guest, asked)
			}
		}
	}
}

// TestDisks covers the sizes of disks, with and without sizes in the spec.
func TestDisks(t *testing.T) {
	for name, test := range map[string]struct {
		role    string
		machine v1alpha1.Machine
		want    Disks
	}{
		"a worker without sizes":              {RoleWorker, v1alpha1.Machine{}, Disks{"5G", "50G", "5G"}},
		"disk is rounded to whole GB":         {RoleWorker, v1alpha1.Machine{Disk: 40.4}, Disks{"5G", "40G", "40G"}},
		"disk is rounded up from a half":      {RoleWorker, v1alpha1.Machine{Disk: 40.5}, Disks{"5G", "41G", "41G"}},
		"dockerVolumeSizeGB goes before disk": {RoleWorker, v1alpha1.Machine{Disk: 40.4, DockerVolumeSizeGB: 100}, Disks{"5G", "100G", "100G"}},
		"a disk that rounds to nothing":       {RoleWorker, v1alpha1.Machine{Disk: 0.4}, Disks{"5G", "50G", "5G"}},
		"a master's disks are fixed":          {RoleMaster, v1alpha1.Machine{Disk: 80, DockerVolumeSizeGB: 100}, Disks{"5G", "50G", "5G"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, NodeDisks(test.role, test.machine)); diff != "" {
				t.Errorf("other disks (-want +got):\n%s", diff)
			}
		})
	}
}
