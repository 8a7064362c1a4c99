package virtualmachine_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

// TestPasswordOfADisplay: the operator makes a Secret once, tells the kubelet of a new password, and says that another
// Secret takes a restart.
func TestPasswordOfADisplay(t *testing.T) {
	operator := serve(t)
	vm := machine("viewed")
	vm.Spec.VM.State, vm.Spec.VM.Disks, vm.Spec.VM.Display = v1.StateRunning, nil, &v1.Display{SPICE: &v1.SPICE{Port: 5900}}
	theLab.Create(t, vm)
	await(t, vm, "running", func() error { return all(phaseIs(t, vm, v1.PhaseRunning), isTrue(t, vm, "Ready")) })
	made := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: vm.Namespace, Name: virtualmachine.DisplaySecretName(vm.Name)}}
	theLab.Get(t, made)
	if len(made.Data[vmconfig.DisplayPassword]) < 16 || made.Data[vmconfig.DisplayExpiry] != nil {
		t.Errorf("the Secret has the keys %d", len(made.Data))
	}
	pod := podOf(vm)
	theLab.Get(t, pod)
	if told := pod.Annotations[virtualmachine.AnnotationDisplay]; told != made.ResourceVersion {
		t.Errorf("the pod was created with the Secret of version %q, which has %q", told, made.ResourceVersion)
	}

	lab.Change(t, theLab, made, func(s *corev1.Secret) { s.Data[vmconfig.DisplayPassword] = []byte("mine") })
	await(t, vm, "notified of its password", func() error {
		theLab.Get(t, made)
		if theLab.Get(t, pod); pod.Annotations[virtualmachine.AnnotationDisplay] != made.ResourceVersion {
			return fmt.Errorf("the pod has %v", pod.Annotations)
		}
		return nil
	})
	operator.Stop()
	serve(t)
	own := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: vm.Namespace, Name: "of-the-user",
		Labels: map[string]string{virtualmachine.LabelName: virtualmachine.Runner, virtualmachine.LabelInstance: vm.Name, virtualmachine.LabelComponent: virtualmachine.DisplaySecretComponent},
	}, StringData: map[string]string{vmconfig.DisplayPassword: "theirs"}}
	theLab.Create(t, own)
	await(t, vm, "waiting for a restart", func() error { return isTrue(t, vm, "RestartRequired") })
	before := made.ResourceVersion
	if theLab.Get(t, made); string(made.Data[vmconfig.DisplayPassword]) != "mine" || made.ResourceVersion != before {
		t.Error("the operator has changed a Secret that a user may change")
	}
	another := own.DeepCopy()
	another.Name, another.ResourceVersion, another.UID = "another-of-the-user", "", ""
	theLab.Create(t, another)
	await(t, vm, "in doubt", func() error {
		c := meta.FindStatusCondition(current(t, vm).Status.Conditions, "DeclarationAccepted")
		if c == nil || c.Reason != "DisplaySecretAmbiguous" {
			return fmt.Errorf("it says %+v", c)
		}
		return nil
	})
	theLab.Delete(t, vm)
	theLab.Delete(t, own)
	theLab.Delete(t, another)
}
