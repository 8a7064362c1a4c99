package virtualmachine

import (
	"context"
	"errors"

	"github.com/giantswarm/microerror"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine"
)

// observe reads, from caches, what belongs to a virtual machine.
func (r *Reconciler) observe(ctx context.Context, vm *v1.VirtualMachine) (virtualmachine.Observed, error) {
	o := virtualmachine.Observed{VM: vm, Settings: r.Settings, Claims: map[string]*corev1.PersistentVolumeClaim{}}
	set, setErr := read[*appsv1.StatefulSet](ctx, r.Client, vm.Namespace, vm.Name, &appsv1.StatefulSet{})
	pod, podErr := read[*corev1.Pod](ctx, r.Client, vm.Namespace, virtualmachine.PodName(vm.Name), &corev1.Pod{})
	var claims corev1.PersistentVolumeClaimList
	err := r.Client.List(ctx, &claims, client.InNamespace(vm.Namespace), client.MatchingFields{indexInstance: vm.Name}, client.DisableReadYourWritesConsistency)
	if err := errors.Join(setErr, podErr, err); err != nil {
		return o, microerror.Mask(err)
	}
	o.StatefulSet = set
	// A pod of the same name that is not the StatefulSet's is no runner, whatever it reports.
	if pod != nil && set != nil && isOf(pod, set) {
		o.Pod = pod
	}
	for i := range claims.Items {
		o.Claims[claims.Items[i].Name] = &claims.Items[i]
	}
	return o, nil
}

// isOf returns whether a StatefulSet controls a pod.
func isOf(pod *corev1.Pod, set *appsv1.StatefulSet) bool {
	for _, reference := range pod.OwnerReferences {
		if reference.UID == set.UID && reference.Controller != nil && *reference.Controller {
			return true
		}
	}
	return false
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
