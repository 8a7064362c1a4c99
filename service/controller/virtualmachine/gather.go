package virtualmachine

import (
	"context"
	"errors"

	"github.com/giantswarm/microerror"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine"
)

// Gather reads what belongs to the virtual machine, and plans.
func (r *Reconciler) Gather(ctx context.Context, vm *v1.VirtualMachine) (*virtualmachine.State, error) {
	observed, err := r.observe(ctx, vm)
	if err != nil {
		return nil, err
	}
	return virtualmachine.Plan(observed), nil
}

// observe reads, from caches, what belongs to a virtual machine.
func (r *Reconciler) observe(ctx context.Context, vm *v1.VirtualMachine) (virtualmachine.Observed, error) {
	o := virtualmachine.Observed{VM: vm, Settings: r.Settings, Now: r.Clock.Now()}
	set, setErr := read(ctx, r.Client, vm.Namespace, vm.Name, &appsv1.StatefulSet{})
	pod, podErr := read(ctx, r.Client, vm.Namespace, virtualmachine.PodName(vm.Name), &corev1.Pod{})
	secret, secretErr := read(ctx, r.Client, vm.Namespace, virtualmachine.CloudInitName(vm.Name), &corev1.Secret{})
	errs := []error{setErr, podErr, secretErr}
	claims, claimsErr := claimsOf(ctx, r.Client, vm)
	o.Claims = claims
	errs = append(errs, claimsErr)
	displays, err := displaysOf(ctx, r.Client, vm, client.MatchingFields{indexDisplay: vm.Name})
	o.Displays = displays
	if err := errors.Join(append(errs, err)...); err != nil {
		return o, microerror.Mask(err)
	}
	// Objects of others are not believed, whatever their labels and annotations.
	if set != nil && metav1.IsControlledBy(set, vm) {
		o.StatefulSet = set
	} else {
		set = nil
	}
	if secret != nil && metav1.IsControlledBy(secret, vm) {
		o.CloudInit = secret
	}
	// A pod of the same name that is not the StatefulSet's is no runner, whatever it reports.
	if pod != nil && set != nil && metav1.IsControlledBy(pod, set) {
		o.Pod = pod
	}
	if runner, ok := virtualmachine.RunnerOf(o.Pod, vm.Name); ok && r.Links != nil {
		o.Link = r.Links.Known(client.ObjectKeyFromObject(vm), runner)
	}
	return o, nil
}

// claimsOf returns the claims with the names of the machine's, by name. Those without VM-Operator's label are in no cache,
// and are left out here, too.
func claimsOf(ctx context.Context, reader client.Reader, vm *v1.VirtualMachine) (map[string]*corev1.PersistentVolumeClaim, error) {
	claims := map[string]*corev1.PersistentVolumeClaim{}
	var errs []error
	for _, name := range virtualmachine.ClaimNames(vm) {
		claim, err := read(ctx, reader, vm.Namespace, name, &corev1.PersistentVolumeClaim{})
		errs = append(errs, err)
		if claim != nil && claim.Labels[virtualmachine.LabelName] == virtualmachine.Runner {
			claims[name] = claim
		}
	}
	return claims, errors.Join(errs...)
}

// displaysOf returns the Secrets with the password of the machine's display.
func displaysOf(ctx context.Context, reader client.Reader, vm *v1.VirtualMachine, theirs client.ListOption) ([]metav1.ObjectMeta, error) {
	if d := vm.Spec.VM.Display; d == nil || d.SPICE == nil {
		return nil, nil
	}
	var secrets corev1.SecretList
	err := reader.List(ctx, &secrets, client.InNamespace(vm.Namespace), theirs)
	var found []metav1.ObjectMeta
	for _, secret := range secrets.Items {
		if secret.DeletionTimestamp == nil {
			found = append(found, secret.ObjectMeta)
		}
	}
	return found, err
}

// follow links with the runner of a machine's pod, if one runs.
func (r *Reconciler) follow(_ context.Context, s *virtualmachine.State) (changed bool, err error) {
	if r.Links == nil {
		return false, nil
	}
	name := client.ObjectKeyFromObject(s.VM)
	if runner, ok := virtualmachine.RunnerOf(s.Pod, s.VM.Name); ok {
		return r.Links.Follow(name, runner), nil
	}
	return r.Links.Forget(name), nil
}

// read returns an object, or nil if there is none.
func read[T client.Object](ctx context.Context, reader client.Reader, namespace, name string, into T) (T, error) {
	err := reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into)
	if apierrors.IsNotFound(err) {
		var none T
		return none, nil
	}
	return into, err
}
