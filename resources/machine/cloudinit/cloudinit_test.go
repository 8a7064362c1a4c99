package cloudinit_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
	"github.com/kvm-operator/kvm-operator/resources/machine/cloudinit"
)

func observed(userData string) vitistack.Observed {
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "a"}}
	m.Spec = v1alpha1.MachineSpec{Resources: v1alpha1.Resources{Memory: v1alpha1.Memory{Size: "1Gi"}}, CloudInit: &v1alpha1.CloudInit{UserData: userData}}
	m.Spec.Disks = []v1alpha1.Disk{{Name: "root", Source: &v1alpha1.DiskSource{ContainerDisk: &v1alpha1.ContainerDisk{Image: "a"}}}}
	return vitistack.Observed{Machine: m, KubeVirt: vitistack.Installed}
}

func volumes(config bool) []kubevirtv1.Volume {
	source := kubevirtv1.CloudInitNoCloudSource{UserDataSecretRef: &corev1.LocalObjectReference{Name: "a-cloudinit"}}
	if config {
		drive := kubevirtv1.CloudInitConfigDriveSource(source)
		return []kubevirtv1.Volume{{}, {Name: "cloudinitdisk", VolumeSource: kubevirtv1.VolumeSource{CloudInitConfigDrive: &drive}}}
	}
	return []kubevirtv1.Volume{{}, {Name: "cloudinitdisk", VolumeSource: kubevirtv1.VolumeSource{CloudInitNoCloud: &source}}}
}

// TestTheSecret exists while data needs it, and stays while a guest was started with it.
func TestTheSecret(t *testing.T) {
	long := strings.Repeat("a", 2049)
	vm := &kubevirtv1.VirtualMachine{Spec: kubevirtv1.VirtualMachineSpec{Template: &kubevirtv1.VirtualMachineInstanceTemplateSpec{}}}
	vm.Labels = map[string]string{v1alpha1.LabelManagedBy: "m", v1alpha1.LabelSourceMachine: "a"}
	using := vm.DeepCopy()
	using.Spec.Template.Spec.Volumes = volumes(false)
	guest := &kubevirtv1.VirtualMachineInstance{Spec: kubevirtv1.VirtualMachineInstanceSpec{Volumes: volumes(true)}}
	for name, test := range map[string]struct {
		data                string
		vm                  *kubevirtv1.VirtualMachine
		vmi                 *kubevirtv1.VirtualMachineInstance
		want                map[string][]byte
		keep, notConfigured bool
	}{
		"no data":                            {"", nil, nil, nil, false, true},
		"short data":                         {"u", vm, &kubevirtv1.VirtualMachineInstance{}, nil, false, true},
		"long data":                          {long, nil, nil, map[string][]byte{"userdata": []byte(long)}, false, false},
		"short data now, the guest has long": {"u", vm, guest, nil, true, true},
		"short data now, not applied yet":    {"u", using, nil, nil, true, true},
	} {
		o := observed(test.data)
		o.Settings.ManagedBy, o.VM, o.VMI = "m", test.vm, test.vmi
		desired, err := cloudinit.New().Build(vitistack.Plan(o))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var got map[string][]byte
		for _, object := range desired.Objects {
			got = object.(*corev1.Secret).Data
		}
		if diff := cmp.Diff([]any{test.want, test.keep, test.notConfigured}, []any{got, len(desired.Keep) == 1, desired.NotConfigured}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	restarted := observed("u")
	restarted.KubeVirt = vitistack.Unknown
	if desired, err := cloudinit.New().Build(vitistack.Plan(restarted)); err != nil || len(desired.Keep) != 1 {
		t.Errorf("while it is not known who uses the Secret, %d objects are kept (%v)", len(desired.Keep), err)
	}
	o := observed(long)
	o.Machine.Spec.Template = "huge"
	if desired, err := cloudinit.New().Build(vitistack.Plan(o)); err == nil || len(desired.Objects) > 0 {
		t.Errorf("%d objects and error %v while there is a problem", len(desired.Objects), err)
	}
}

// TestTheSecretOutlivesItsSource: what a VirtualMachine uses is kept as it is while the data is gone where it came from.
func TestTheSecretOutlivesItsSource(t *testing.T) {
	o := observed("")
	o.Settings.ManagedBy, o.Machine.Spec.CloudInit = "m", &v1alpha1.CloudInit{SecretRef: &v1alpha1.DataReference{Name: "boot"}}
	o.VM = &kubevirtv1.VirtualMachine{Spec: kubevirtv1.VirtualMachineSpec{Template: &kubevirtv1.VirtualMachineInstanceTemplateSpec{}}}
	o.VM.Labels = map[string]string{v1alpha1.LabelManagedBy: "m", v1alpha1.LabelSourceMachine: "a"}
	o.VM.Spec.Template.Spec.Volumes = volumes(false)
	desired, err := cloudinit.New().Build(vitistack.Plan(o))
	if err != nil || len(desired.Objects) > 0 || len(desired.Keep) != 1 || desired.Keep[0].GetName() != "a-cloudinit" || desired.NotConfigured {
		t.Errorf("%+v is wanted (%v)", desired, err)
	}
}
