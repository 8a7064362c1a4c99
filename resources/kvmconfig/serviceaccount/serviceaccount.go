// Package serviceaccount is the handler of the service account of node pods. Its token is never mounted.
package serviceaccount

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
)

// New returns the handler.
func New() apply.Resource[*state.Cluster] {
	return apply.Resource[*state.Cluster]{Handler: "serviceaccount", Kinds: []client.Object{&corev1.ServiceAccount{}}, Build: build}
}

func build(s *state.Cluster) (apply.Desired, error) {
	labels := map[string]string{key.LabelClusterID: s.ID()}
	if customer := s.Cluster().Customer.ID; customer != "" {
		labels[key.LabelCustomerID] = customer
	}
	return apply.Desired{Objects: []client.Object{
		&corev1.ServiceAccount{ObjectMeta: s.Meta(s.Namespace(), labels), AutomountServiceAccountToken: ptr.To(false)},
	}}, nil
}
