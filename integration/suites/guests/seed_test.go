package guests_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine"
)

// TestSeed: what the documentation of VM-Operator says of its example holds: a StatefulSet named like the machine, a claim
// that a volume is selected for by its labels, the disk in the pod, a stop in order when no state is declared, and claims
// that outlive the machine, which goes without an operator.
func TestSeed(t *testing.T) {
	s := newStage(t, "seed")
	operator := s.operate(t)
	selected := map[string]string{"app.kubernetes.io/name": "vmrunner", "app.kubernetes.io/instance": "test-vm", "vmrunner.jdrupes.org/disk": "system"}
	for name, labels := range map[string]map[string]string{"seed-other": {"app.kubernetes.io/instance": "another"}, "seed": selected} {
		volume := newTinyDevice(t, directory(t), 1<<20).Volume(name, "1Mi")
		volume.Labels, volume.Spec.StorageClassName = labels, ""
		s.Create(t, volume)
	}
	vm := s.declareTiny("test-vm", "1Mi")
	claim := &vm.Spec.VM.Disks[0].VolumeClaimTemplate.Spec
	claim.StorageClassName, claim.Selector = ptr.To(""), &metav1.LabelSelector{MatchLabels: selected}
	s.start(t, vm)
	s.isBack(t, vm, 1)

	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "test-vm"}}
	if s.Get(t, set); *set.Spec.Replicas != 1 {
		t.Errorf("the StatefulSet has %d replicas", *set.Spec.Replicas)
	}
	s.checkClaim(t, "seed")
	device := fmt.Sprintf("/proc/%d/root/dev/system-disk", runnerOf(t, vm).id)
	if info, err := os.Stat(device); err != nil || info.Mode()&os.ModeDevice == 0 {
		t.Errorf("%s is no device: %v", device, err)
	}

	s.set(t, vm, func(vm *v1.VM) { vm.State = "" }) // left out
	s.becomes(t, vm, "stopped", isStopped)
	if s.Get(t, set); *set.Spec.Replicas != 0 {
		t.Errorf("the StatefulSet of a stopped machine has %d replicas", *set.Spec.Replicas)
	}
	s.set(t, vm, func(vm *v1.VM) { vm.State = v1.StateRunning })
	s.isBack(t, vm, 2)

	operator.Stop()
	s.Delete(t, vm)
	lab.Eventually(t, s.patience, func() error {
		return errors.Join(s.isGone(t, set), s.isGone(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "test-vm-0"}}),
			s.isGone(t, &corev1.ConfigMap{ObjectMeta: set.ObjectMeta}))
	})
	s.checkClaim(t, "seed")
}

// checkClaim checks the claim of the disk of test-vm.
func (s stage) checkClaim(t *testing.T, volume string) {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "system-disk-test-vm-0"}}
	s.Get(t, claim)
	want := virtualmachine.Labels("test-vm", nil)
	if diff := cmp.Diff(want, claim.Labels); diff != "" || claim.Status.Phase != corev1.ClaimBound || claim.Spec.VolumeName != volume {
		t.Errorf("the claim is %s to %s; its labels (-want +got):\n%s", claim.Status.Phase, claim.Spec.VolumeName, diff)
	}
}

// isGone returns an error while an object exists.
func (s stage) isGone(t *testing.T, object client.Object) error {
	t.Helper()
	err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object.DeepCopyObject().(client.Object))
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		err = errors.New("it still exists")
	}
	return fmt.Errorf("%T %s: %w", object, object.GetName(), err)
}
