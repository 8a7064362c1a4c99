package virtualmachine

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
)

// TestWhichClaimsGrow: only a bound claim of this machine, and only to a larger size.
func TestWhichClaimsGrow(t *testing.T) {
	sizes := func(text string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(text)}
	}
	for name, test := range map[string]struct {
		declared string
		change   func(*corev1.PersistentVolumeClaim)
		grows    string
		waits    string
	}{
		"as declared":              {declared: "1Gi"},
		"in other words":           {declared: "1024Mi"},
		"larger":                   {declared: "2Gi", grows: "2Gi"},
		"smaller":                  {declared: "1Mi"},
		"told, and not done":       {declared: "2Gi", change: func(c *corev1.PersistentVolumeClaim) { c.Spec.Resources.Requests = sizes("2Gi") }, waits: "from 1Gi to 2Gi"},
		"larger than it asked for": {declared: "1Gi", change: func(c *corev1.PersistentVolumeClaim) { c.Status.Capacity = sizes("5Gi") }},
		"not bound":                {declared: "2Gi", change: func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimPending }},
		"of another machine":       {declared: "2Gi", change: func(c *corev1.PersistentVolumeClaim) { c.Labels[LabelInstance] = "other" }},
		"being deleted":            {declared: "2Gi", change: func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = ptr.To(metav1.Now()) }},
		"told, with a reason": {declared: "2Gi", waits: "no room", change: func(c *corev1.PersistentVolumeClaim) {
			c.Spec.Resources.Requests = sizes("2Gi")
			c.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Status: corev1.ConditionTrue, Message: "no room"}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "try"}}
			vm.Spec.VM.Disks = []v1.Disk{{VolumeClaimTemplate: &v1.VolumeClaimTemplate{Metadata: &v1.ClaimMetadata{Name: ptr.To("system")}, Spec: v1.ClaimSpec{
				Resources: &v1.Resources{Requests: map[corev1.ResourceName]v1.Amount{corev1.ResourceStorage: {Quantity: resource.MustParse(test.declared)}}},
			}}}}
			claim := &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Name: "system-disk-try-0", Labels: Labels("try")},
				Spec:       corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{Requests: sizes("1Gi")}},
				Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: sizes("1Gi")},
			}
			if test.change != nil {
				test.change(claim)
			}
			s := Plan(Observed{VM: vm, Claims: map[string]*corev1.PersistentVolumeClaim{claim.Name: claim}})
			var grows []string
			for _, g := range s.Growths() {
				grows = append(grows, g.To.String())
			}
			if want := slices.DeleteFunc([]string{test.grows}, func(s string) bool { return s == "" }); !slices.Equal(grows, want) {
				t.Errorf("it grows to %v, want %v", grows, want)
			}
			waits := strings.Join(s.Growing(), "; ")
			if (waits == "") != (test.waits == "") || !strings.Contains(waits, test.waits) {
				t.Errorf("it waits for %q, want %q", waits, test.waits)
			}
		})
	}
}
