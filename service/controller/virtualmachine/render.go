package virtualmachine

import (
	"context"
	"errors"

	"github.com/giantswarm/microerror"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine"
)

// Inputs are the objects besides the VirtualMachine that a rendering depends on; those that do not exist are nil.
type Inputs struct {
	StatefulSet *appsv1.StatefulSet
	// CloudInit is the Secret with the cloud-init data.
	CloudInit *corev1.Secret
	// Displays are the Secrets with the labels of the password of the display.
	Displays []metav1.ObjectMeta
	// Claims are those with the names of the machine's claims, by name.
	Claims map[string]*corev1.PersistentVolumeClaim
}

// unknownPassword stands for a password that the operator would make.
func unknownPassword() string { return "made by the operator" }

// Render returns the objects that a VirtualMachine leads to, without a cluster. The error says what cannot be rendered;
// the rest is.
func Render(settings virtualmachine.Settings, vm *v1.VirtualMachine, in Inputs) ([]apply.Rendered, error) {
	if vm.UID == "" {
		vm = vm.DeepCopy()
		vm.UID = ownership.UnstoredUID
	}
	s := virtualmachine.Plan(virtualmachine.Observed{VM: vm, StatefulSet: in.StatefulSet, CloudInit: in.CloudInit, Displays: in.Displays, Claims: in.Claims, Settings: settings})
	return apply.Render(apply.Resources(newChain(nil, nil, unknownPassword)), s, s.Err)
}

// ReadInputs reads what a rendering depends on from a management cluster, and the identity of the VirtualMachine, which it
// sets in vm.
func ReadInputs(ctx context.Context, reader client.Reader, vm *v1.VirtualMachine) (Inputs, error) {
	stored, storedErr := read(ctx, reader, vm.Namespace, vm.Name, &v1.VirtualMachine{})
	if stored != nil {
		vm.UID, vm.ResourceVersion, vm.Generation = stored.UID, stored.ResourceVersion, stored.Generation
	}
	set, setErr := read(ctx, reader, vm.Namespace, vm.Name, &appsv1.StatefulSet{})
	secret, secretErr := read(ctx, reader, vm.Namespace, virtualmachine.CloudInitName(vm.Name), &corev1.Secret{})
	displays, displaysErr := displaysOf(ctx, reader, vm, client.MatchingLabels{
		virtualmachine.LabelName: virtualmachine.Runner, virtualmachine.LabelComponent: virtualmachine.DisplaySecretComponent, virtualmachine.LabelInstance: vm.Name,
	})
	claims, claimsErr := claimsOf(ctx, reader, vm)
	return Inputs{StatefulSet: set, CloudInit: secret, Displays: displays, Claims: claims}, microerror.Mask(errors.Join(storedErr, setErr, secretErr, displaysErr, claimsErr))
}
