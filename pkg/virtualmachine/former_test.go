package virtualmachine

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
)

// TestMachineOfVMOperatorIsNotStartedWithEmptyDisks: its claims have other names than those of a StatefulSet.
func TestMachineOfVMOperatorIsNotStartedWithEmptyDisks(t *testing.T) {
	claim := func(name, machine string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: Labels(machine)}}
	}
	for name, test := range map[string]struct {
		claims  []*corev1.PersistentVolumeClaim
		running bool
		want    []string
	}{
		"a new machine":                {nil, false, nil},
		"one of VM-Operator 1, 2":      {[]*corev1.PersistentVolumeClaim{claim("system-disk-try-0", "try"), claim("disk-1-try-0", "try")}, false, nil},
		"one of VM-Operator 3, 4":      {[]*corev1.PersistentVolumeClaim{claim("try-system-disk", "try"), claim("try-disk-1", "try")}, false, []string{"try-system-disk", "try-disk-1"}},
		"one disk of it is taken over": {[]*corev1.PersistentVolumeClaim{claim("try-system-disk", "try"), claim("system-disk-try-0", "try"), claim("try-disk-1", "try")}, false, []string{"try-disk-1"}},
		"another machine's":            {[]*corev1.PersistentVolumeClaim{claim("try-system-disk", "other")}, false, nil},
		"a claim that appears later":   {[]*corev1.PersistentVolumeClaim{claim("try-system-disk", "try")}, true, []string{"try-system-disk"}},
	} {
		t.Run(name, func(t *testing.T) {
			vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "try"}}
			vm.Spec.VM.Firmware, vm.Spec.VM.State = v1.FirmwareBIOS, v1.StateRunning
			vm.Spec.VM.Disks = []v1.Disk{
				{VolumeClaimTemplate: &v1.VolumeClaimTemplate{Metadata: &v1.ClaimMetadata{Name: ptr.To("system")}}}, {VolumeClaimTemplate: &v1.VolumeClaimTemplate{}},
			}
			o := Observed{VM: vm, Claims: map[string]*corev1.PersistentVolumeClaim{}}
			for _, c := range test.claims {
				o.Claims[c.Name] = c
			}
			if test.running {
				o.StatefulSet = &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Replicas: ptr.To[int32](1)}}
			}
			s := Plan(o)
			if got := s.FormerClaims(); !slices.Equal(got, test.want) {
				t.Errorf("the claims of before are %v, want %v", got, test.want)
			}
			set, err := s.StatefulSet()
			if err != nil {
				t.Fatal(err)
			}
			if starts := *set.Spec.Replicas == 1; starts != (len(test.want) == 0 || test.running) {
				t.Errorf("it has %d replicas", *set.Spec.Replicas)
			}
			if names := ClaimNames(vm); !slices.Contains(names, "try-system-disk") || !slices.Contains(names, "system-disk-try-0") {
				t.Errorf("the claims %v are observed", names)
			}
		})
	}
}
