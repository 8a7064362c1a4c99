// Package clusterrolebinding is the handler of the cluster role bindings of node pods.
//
// The original operator bound node pods to its own role, so an attacker who broke out of a virtual machine controlled
// the management cluster. The bindings keep their names. The role that they refer to by default grants nothing.
package clusterrolebinding

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
)

// New returns the handler.
func New() apply.Resource[*state.Cluster] {
	return apply.Resource[*state.Cluster]{Handler: "clusterrolebinding", Kinds: []client.Object{&rbacv1.ClusterRoleBinding{}}, Build: build}
}

func build(s *state.Cluster) (apply.Desired, error) {
	var desired apply.Desired
	add := func(name, role string) {
		if role != "" {
			desired.Objects = append(desired.Objects, binding(s, name, role))
		}
	}
	add(s.ID(), s.Settings.ClusterRole)
	add(key.PSPBindingName(s.ID()), s.Settings.PSPClusterRole)
	return desired, nil
}

func binding(s *state.Cluster, name, role string) *rbacv1.ClusterRoleBinding {
	labels := map[string]string{key.LabelApp: key.Operator, key.LabelGSClusterID: s.ID()}
	if customer := s.Cluster().Customer.ID; customer != "" {
		labels[key.LabelGSCustomerID] = customer
	}
	meta := s.Meta(name, labels)
	meta.Namespace = ""
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: s.Namespace(), Namespace: s.Namespace()}},
	}
}
