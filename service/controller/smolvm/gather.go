package smolvm

import (
	"context"

	"github.com/giantswarm/microerror"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/machinespec"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/state"
)

// Gather reads what is known of the SmolVM, from caches and from what its node has told, and plans.
func (r *Reconciler) Gather(ctx context.Context, vm *v1alpha1.SmolVM) (*state.State, error) {
	o, err := r.observe(ctx, vm)
	if err != nil {
		return nil, err
	}
	return state.Plan(o), nil
}

func (r *Reconciler) observe(ctx context.Context, vm *v1alpha1.SmolVM) (o state.Observed, err error) {
	o.VM, o.Now = vm, r.Clock.Now()
	if o.Cluster, err = r.clusterUID(ctx); err != nil {
		return o, err
	}
	if vm.Status.NodeName == "" {
		if vm.DeletionTimestamp == nil && machinespec.Validate(vm) == nil {
			o.Decision, o.DecisionUID, err = r.placer.place(ctx, vm)
		}
		return o, err
	}
	o.Runtime = r.Nodes.Look(vm.Status.NodeName, machinespec.Name(vm))
	if !o.Runtime.Known || o.Runtime.Reason != "" || vm.DeletionTimestamp != nil {
		return o, nil
	}
	if !mayTakeMore(vm, o.Runtime.Machine) {
		r.placer.settle(vm, o.Runtime.Machine)
		return o, nil
	}
	var changed bool
	if o.Shortage, changed, err = r.placer.shortage(ctx, vm, o.Runtime.Machine); changed && r.room != nil {
		r.room(vm.Status.NodeName)
	}
	return o, err
}

// follow has the connection to the node of a SmolVM be where its SmolVMNode says now.
func (r *Reconciler) follow(ctx context.Context, s *state.State) (changed bool, err error) {
	name := s.VM.Status.NodeName
	if name == "" {
		return false, nil
	}
	node := &v1alpha1.SmolVMNode{}
	err = r.Client.Get(ctx, client.ObjectKey{Name: name}, node)
	switch {
	case apierrors.IsNotFound(err):
		return r.Nodes.Forget(name), nil
	case err == nil:
		return r.Nodes.Follow(node), nil
	}
	return false, microerror.Mask(err)
}

// mayTakeMore returns whether the next step may take more of the node than the machine has.
func mayTakeMore(vm *v1alpha1.SmolVM, m *api.Machine) bool {
	return m == nil || vm.Spec.Storage.StorageGiB > m.StorageGB || vm.Spec.Storage.OverlayGiB > m.OverlayGB
}
