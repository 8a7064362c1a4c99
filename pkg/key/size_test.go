package key

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
)

// TestMemoryOfThePod covers F-04: the original's formula.
func TestMemoryOfThePod(t *testing.T) {
	for name, test := range map[string]struct{ role, memory, want string }{
		"F-04: worker with 4G":                {RoleWorker, "4G", "6144M"},
		"F-04: worker with 12G":               {RoleWorker, "12G", "15104M"},
		"F-04: worker with 32G":               {RoleWorker, "32G", "36352M"},
		"F-04: master with 4G":                {RoleMaster, "4G", "5536M"},
		"the original's worker with 3G":       {RoleWorker, "3G", "5120M"},
		"the original's worker with 7.5G":     {RoleWorker, "7.5G", "10240M"},
		"a worker's begun 10⁹ bytes count":    {RoleWorker, "4000000001", "7168M"},
		"4Gi is 4.29 · 10⁹ bytes for workers": {RoleWorker, "4Gi", "7168M"},
		"4Gi is 4294967296 bytes for masters": {RoleMaster, "4Gi", "5830967296"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := PodMemory(test.role, resource.MustParse(test.memory))
			if diff := cmp.Diff(test.want, pod.String()); diff != "" {
				t.Errorf("another request (-want +got):\n%s", diff)
			}
		})
	}
}

// TestGuestFitsIntoThePod covers F-04b and T-22 for every form that the CRD lets pass and every size up to 1 TB.
func TestGuestFitsIntoThePod(t *testing.T) {
	// What QEMU itself needs at least, whatever the size of the guest.
	overhead := map[string]int64{RoleMaster: 1536 * mega, RoleWorker: 2048 * mega}
	forms := []string{
		"4G", "4Gi", "4096M", "4096Mi", "24G", "7.5G", "1.5Gi", "0.000123456Ti", "512M", "512Mi", "2048M", "1T", "1.5Ti", "16Ti",
	}
	for gigabytes := int64(1); gigabytes <= 1000; gigabytes++ {
		forms = append(forms, resource.NewQuantity(gigabytes*1e9, resource.DecimalSI).String(), resource.NewQuantity(gigabytes<<30, resource.BinarySI).String())
	}
	for role, minimum := range overhead {
		for _, form := range forms {
			memory := resource.MustParse(form)
			guest, pod := GuestMemory(memory)<<20, PodMemory(role, memory)
			if pod.Value() < guest+minimum {
				t.Errorf("%s with memory %s: the pod may use %d bytes, guest and overhead need %d", role, form, pod.Value(), guest+minimum)
			}
			if asked := memory.Value(); guest > asked || asked-guest >= 1<<20 {
				t.Errorf("%s with memory %s: the guest gets %d bytes of the %d asked for", role, form, guest, asked)
			}
		}
	}
}

// TestDisks covers F-05.
func TestDisks(t *testing.T) {
	for name, test := range map[string]struct {
		role    string
		machine v1alpha1.Machine
		want    Disks
	}{
		"a worker without sizes":              {RoleWorker, v1alpha1.Machine{}, Disks{"5G", "50G", "5G"}},
		"F-05: disk is rounded to whole GB":   {RoleWorker, v1alpha1.Machine{Disk: 40.4}, Disks{"5G", "40G", "40G"}},
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
