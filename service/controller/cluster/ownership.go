package cluster

import (
	"slices"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// secretPlaces returns the namespaces that may have Secrets of the cluster: the KVMConfig's, the cluster's, and those
// to adopt from.
func (r *Reconciler) secretPlaces(config *v1alpha1.KVMConfig) []string {
	places := append([]string{config.Namespace, key.Namespace(config.Spec.Cluster.ID)}, r.Settings.AdoptFrom...)
	slices.Sort(places)
	return slices.Compact(places)
}

// outside returns what was read without the objects in the cluster's namespace, which belongs to another owner: nothing
// in it is trusted.
func (w world) outside() world {
	return world{release: w.release, secrets: w.secrets, volumes: w.volumes, hold: w.hold}
}
