package machine

import (
	"context"

	"github.com/giantswarm/microerror"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/kubevirt"
	"github.com/kvm-operator/kvm-operator/pkg/late"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
)

// Gather reads what there is of a Machine, from caches but for claims that are to be imported, and plans.
func (r *Reconciler) Gather(ctx context.Context, m *v1alpha1.Machine) (*vitistack.State, error) {
	o := vitistack.Observed{Machine: m, Settings: r.Settings, Now: r.Clock.Now()}
	for _, read := range []func(context.Context, *vitistack.Observed) error{
		r.kubeVirt, r.imports, r.class, r.networks, r.storage, r.sources, r.macs,
	} {
		if err := read(ctx, &o); err != nil {
			return nil, r.failed(err)
		}
	}
	s := vitistack.Plan(o)
	taken, err := r.taken(ctx, s)
	if err != nil {
		return nil, r.failed(err)
	}
	if taken {
		s = vitistack.Plan(o)
	}
	tellPending(s)
	return s, nil
}

// tellPending finds what a restart of the guest would change. The VirtualMachine may not have the latest change yet; it
// has before the guest is restarted, and one that nothing can be applied to does not change.
func tellPending(s *vitistack.State) {
	if s.Observation.RestartRequired == "" || !s.Observation.Instance {
		return
	}
	vm := s.VM
	if s.Refusal() == nil {
		vm = apply.Merged(s.VM, kubevirt.VirtualMachine(s.Machine, s.Wanted, s.Settings))
	}
	s.Observation.Pending = kubevirt.Pending(vm, s.VMI)
}

// kubeVirt reads the VirtualMachine and its instance.
func (r *Reconciler) kubeVirt(ctx context.Context, o *vitistack.Observed) error {
	view := r.Sessions.KubeVirt.View()
	o.KubeVirt = vitistack.KubeVirt(view.State)
	if view.State != late.Installed {
		return nil
	}
	name := client.ObjectKeyFromObject(o.Machine)
	var err error
	if o.VM, err = get(ctx, view.Reader, name, &kubevirtv1.VirtualMachine{}); err != nil {
		return err
	}
	if o.VMI, err = get(ctx, view.Reader, name, &kubevirtv1.VirtualMachineInstance{}); err != nil {
		return err
	}
	if s := (&vitistack.State{Observed: *o}); o.VM != nil && s.Owns(o.VM) {
		o.Observation = kubevirt.Observe(o.VM, o.VMI)
	}
	return nil
}

// imports reads the DataVolumes with the Machine's label.
func (r *Reconciler) imports(ctx context.Context, o *vitistack.Observed) error {
	view := r.Sessions.CDI.View()
	o.CDI = vitistack.KubeVirt(view.State)
	if view.State != late.Installed {
		return nil
	}
	var list cdiv1.DataVolumeList
	if err := view.Reader.List(ctx, &list, client.InNamespace(o.Machine.Namespace), client.MatchingFields{IndexMachine: o.Machine.Name}); err != nil {
		return microerror.Mask(err)
	}
	o.Imports = map[string]*cdiv1.DataVolume{}
	for i := range list.Items {
		o.Imports[list.Items[i].Name] = &list.Items[i]
	}
	return nil
}

// taken reads the claims that are to be made by CDI from the API server, and returns whether it has found one. The
// cache has only claims with the labels of Machines, and CDI may give a DataVolume a claim that it has not made, which
// is deleted with it.
func (r *Reconciler) taken(ctx context.Context, s *vitistack.State) (found bool, err error) {
	for _, name := range s.ClaimsToBegin() {
		claim, err := get(ctx, r.Live, client.ObjectKey{Namespace: s.Machine.Namespace, Name: name}, &corev1.PersistentVolumeClaim{})
		if err != nil {
			return false, err
		}
		if claim != nil {
			s.Claims[name], found = claim, true
		}
	}
	return found, nil
}

// get returns an object, nil if there is none.
func get[T client.Object](ctx context.Context, reader client.Reader, name client.ObjectKey, into T) (T, error) {
	err := reader.Get(ctx, name, into)
	if err != nil {
		var none T
		return none, microerror.Mask(client.IgnoreNotFound(err))
	}
	return into, nil
}

// class reads the MachineClass.
func (r *Reconciler) class(ctx context.Context, o *vitistack.Observed) error {
	view := r.Sessions.Classes.View()
	if o.Machine.Spec.MachineClass == "" || view.State != late.Installed {
		return nil
	}
	var err error
	o.Class, err = get(ctx, view.Reader, client.ObjectKey{Name: o.Machine.Spec.MachineClass}, &v1alpha1.MachineClass{})
	return err
}

// networks reads the NetworkConfigurations that the Machine names. Of one that is being deleted, those too that list
// it.
func (r *Reconciler) networks(ctx context.Context, o *vitistack.Observed) error {
	o.Networks = map[string]*v1alpha1.NetworkConfiguration{}
	view := r.Sessions.Networks.View()
	if view.State != late.Installed {
		return nil
	}
	for _, named := range o.Machine.Spec.Networks {
		network, err := get(ctx, view.Reader, client.ObjectKey{Namespace: o.Machine.Namespace, Name: named.NetworkName}, &v1alpha1.NetworkConfiguration{})
		if err != nil {
			return err
		}
		if network != nil && (network.DeletionTimestamp == nil || o.Machine.DeletionTimestamp == nil) {
			o.Networks[network.Name] = network
		}
	}
	if o.Machine.DeletionTimestamp == nil {
		return nil
	}
	var listing v1alpha1.NetworkConfigurationList
	if err := view.Reader.List(ctx, &listing, client.InNamespace(o.Machine.Namespace), client.MatchingFields{IndexAttached: o.Machine.Name}); err != nil {
		return microerror.Mask(err)
	}
	for i := range listing.Items {
		// The status of a NetworkConfiguration that is being deleted is not written.
		if network := &listing.Items[i]; network.DeletionTimestamp == nil {
			o.Networks[network.Name] = network
		}
	}
	return nil
}

// storage reads the StorageClasses and the claims.
func (r *Reconciler) storage(ctx context.Context, o *vitistack.Observed) error {
	var classes storagev1.StorageClassList
	if err := r.Client.List(ctx, &classes); err != nil {
		return microerror.Mask(err)
	}
	o.StorageClasses, o.Claims = classes.Items, map[string]*corev1.PersistentVolumeClaim{}
	var claims corev1.PersistentVolumeClaimList
	if err := r.Client.List(ctx, &claims, client.InNamespace(o.Machine.Namespace), client.MatchingFields{IndexMachine: o.Machine.Name}); err != nil {
		return microerror.Mask(err)
	}
	for i := range claims.Items {
		o.Claims[claims.Items[i].Name] = &claims.Items[i]
	}
	for _, name := range vitistack.ClaimsOf(o.Machine, r.Settings, o.VM) {
		if o.Claims[name] != nil {
			continue
		}
		claim := &corev1.PersistentVolumeClaim{}
		err := r.Client.Get(ctx, client.ObjectKey{Namespace: o.Machine.Namespace, Name: name}, claim)
		if err == nil {
			o.Claims[name] = claim
		}
		if client.IgnoreNotFound(err) != nil {
			return microerror.Mask(err)
		}
	}
	return nil
}

// sources reads what the Machine refers to in Secrets and ConfigMaps. One that is being deleted needs nothing of it.
func (r *Reconciler) sources(ctx context.Context, o *vitistack.Observed) error {
	if o.Machine.DeletionTimestamp != nil {
		r.values.forget(client.ObjectKeyFromObject(o.Machine))
		return nil
	}
	var err error
	o.Sources, err = r.values.of(ctx, o.Machine)
	return err
}

// macs reads which MAC addresses of the Machine others have.
func (r *Reconciler) macs(ctx context.Context, o *vitistack.Observed) error {
	var others []v1alpha1.Machine
	for _, mac := range vitistack.MACsOf(o.Machine, r.Settings.MACSet) {
		var list v1alpha1.MachineList
		err := r.Client.List(ctx, &list, client.InNamespace(o.Machine.Namespace), client.MatchingFields{indexMAC: mac}, client.UnsafeDisableDeepCopy)
		if err != nil {
			return microerror.Mask(err)
		}
		others = append(others, list.Items...)
	}
	o.MACs = vitistack.TakenMACs(o.Machine, r.Settings.MACSet, others)
	return nil
}
