package storage_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
	"github.com/kvm-operator/kvm-operator/resources/machine/storage"
)

var labels = map[string]string{v1alpha1.LabelManagedBy: "kubevirt-operator", v1alpha1.LabelSourceMachine: "a"}

func observed(template string) vitistack.Observed {
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "a"}, Spec: v1alpha1.MachineSpec{Template: template}}
	class := storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	return vitistack.Observed{Machine: m, KubeVirt: vitistack.Installed, Settings: vitistack.Settings{ManagedBy: "kubevirt-operator"}, StorageClasses: []storagev1.StorageClass{class}}
}

// mounting returns the Machine's VirtualMachine with a claim as its root disk.
func mounting(claim string) *kubevirtv1.VirtualMachine {
	source := kubevirtv1.PersistentVolumeClaimVolumeSource{PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}
	vm := &kubevirtv1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "a", Labels: labels}}
	vm.Spec.Template = &kubevirtv1.VirtualMachineInstanceTemplateSpec{}
	vm.Spec.Template.Spec.Volumes = []kubevirtv1.Volume{{Name: "root", VolumeSource: kubevirtv1.VolumeSource{PersistentVolumeClaim: &source}}}
	return vm
}

func TestClaims(t *testing.T) {
	former := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "a", Labels: labels}}
	by := func(change func(*vitistack.Observed)) vitistack.Observed {
		o := observed("small")
		change(&o)
		return o
	}
	for name, test := range map[string]struct {
		observed vitistack.Observed
		want     []string
		problem  string
	}{
		"the usual one":                    {observed("small"), []string{"a-root"}, ""},
		"nothing while there is a problem": {observed("huge"), nil, v1alpha1.TemplateNotFound},
		"that of vitistack's operator, which is adopted": {by(func(o *vitistack.Observed) {
			o.VM, o.Claims = mounting("a"), map[string]*corev1.PersistentVolumeClaim{"a": former}
		}), []string{"a"}, ""},
		"none while it is not known which one there is": {by(func(o *vitistack.Observed) { o.KubeVirt = vitistack.Unknown }), nil, ""},
		"one that exists, while it is not known": {by(func(o *vitistack.Observed) {
			own := former.DeepCopy()
			own.Name = "a-root"
			o.KubeVirt, o.Claims = vitistack.Unknown, map[string]*corev1.PersistentVolumeClaim{"a-root": own}
		}), []string{"a-root"}, ""},
		"the first one without KubeVirt":        {by(func(o *vitistack.Observed) { o.KubeVirt = vitistack.Absent }), []string{"a-root"}, ""},
		"one that a user mounted is left alone": {by(func(o *vitistack.Observed) { o.VM = mounting("golden") }), nil, ""},
		"one that KubeVirt restored is left alone": {by(func(o *vitistack.Observed) {
			restored := former.DeepCopy()
			restored.Name, restored.Annotations = "a-root", map[string]string{ownership.Annotation: "Machine.vitistack.io/ci/a/storage"}
			restored.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(mounting("a"), kubevirtv1.VirtualMachineGroupVersionKind)}
			o.VM, o.Claims = mounting("a-root"), map[string]*corev1.PersistentVolumeClaim{"a-root": restored}
		}), nil, ""},
		"an image needs none": {by(func(o *vitistack.Observed) {
			o.Machine.Spec.Disks = []v1alpha1.Disk{{Name: "root", Source: &v1alpha1.DiskSource{ContainerDisk: &v1alpha1.ContainerDisk{Image: "a"}}}}
		}), nil, ""},
	} {
		desired, err := storage.New().Build(vitistack.Plan(test.observed))
		var got []string
		for _, object := range desired.Objects {
			got = append(got, object.GetName())
		}
		reason := ""
		if p, ok := problem.As(err); ok {
			reason = p.Reason
		}
		if waits := test.want == nil && test.observed.KubeVirt == vitistack.Unknown; waits != (desired.Wait != nil) {
			t.Errorf("%s: it waits: %t", name, !waits)
		}
		if diff := cmp.Diff([]any{test.want, test.problem}, []any{got, reason}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if !storage.New().KeepUnwanted {
		t.Error("the claim of a disk that was removed from the spec is deleted")
	}
}
