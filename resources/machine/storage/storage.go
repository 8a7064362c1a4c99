// Package storage is the handler of the claims of a Machine's disks. Claims hold data: they are never replaced and never
// shrink, and the claim of a disk that was removed from the spec stays until the Machine is deleted.
package storage

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
)

// Name is the handler's name.
const Name = "storage"

// again is when a pass looks again without an event.
const again = 30 * time.Second

// New returns the handler.
func New() apply.Resource[*vitistack.State] {
	return apply.Resource[*vitistack.State]{Handler: Name, Kinds: []client.Object{&corev1.PersistentVolumeClaim{}}, Build: build, KeepUnwanted: true}
}

func build(s *vitistack.State) (apply.Desired, error) {
	if err := s.Refusal(); err != nil {
		return apply.Desired{}, err
	}
	var desired apply.Desired
	for i := range s.Wanted.Disks {
		d := &s.Wanted.Disks[i]
		switch {
		case d.Claim == "" || s.LeftAlone(d) || s.ToImport(d):
		case s.KubeVirt == vitistack.Unknown && s.Claims[d.Claim] == nil:
			// The VirtualMachine may have another claim for the disk: this one would stay empty.
			wait := chain.Wait(v1alpha1.ReasonPending, "it is not known yet which claim the VirtualMachine has for disk "+d.Name, again)
			desired.Wait = &wait
		default:
			desired.Objects = append(desired.Objects, claim(s, d))
		}
	}
	return desired, nil
}

func claim(s *vitistack.State, d *vitistack.Disk) *corev1.PersistentVolumeClaim {
	more := map[string]string{}
	if d.Root {
		more[v1alpha1.LabelDiskType] = v1alpha1.DiskTypeBoot
	}
	spec := d.ClaimSpec()
	spec.DataSource = dataSource(d.Source)
	return &corev1.PersistentVolumeClaim{ObjectMeta: s.ObjectMeta(d.Claim, more), Spec: spec}
}

// dataSource is what the storage driver fills the claim from; nil for an empty one.
func dataSource(source *v1alpha1.DiskSource) *corev1.TypedLocalObjectReference {
	switch {
	case source == nil:
		return nil
	case source.PVC != nil:
		return &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: source.PVC.Name}
	case source.Snapshot != nil:
		group := "snapshot.storage.k8s.io"
		return &corev1.TypedLocalObjectReference{APIGroup: &group, Kind: "VolumeSnapshot", Name: source.Snapshot.Name}
	}
	return nil
}
