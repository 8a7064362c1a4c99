package addons

import (
	"cmp"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/joining"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// kubeletClient is the user as which the API server requests logs and the like from kubelets: the common name of the
// pair pki.KubeletClient.
const kubeletClient = "kube-apiserver-kubelet-client"

// Administrators is the default group of the holders of the administrator's kubeconfig, and the name of its binding.
const Administrators = "kvm-operator:cluster-admins"

// RBAC lets kubelets request a certificate and the API server talk to kubelets. Only the operator approves requests, so
// the roles that kubeadm binds for approval are missing.
//
// The holders of the administrator's kubeconfig are administrators by a binding, which can be removed; the operator,
// which creates it, is one by the group system:masters. Of the users of the original's certificates, that of "worker"
// keeps the role of kube-proxy; the original's system:node would let it read every Secret, and kubelets have users of
// their own.
func RBAC(p Params) []client.Object {
	return []client.Object{
		p.binding(Administrators, "cluster-admin", rbacv1.GroupKind, cmp.Or(p.Administrators, Administrators)),
		p.binding("kvm-operator:kubelet-bootstrap", "system:node-bootstrapper", rbacv1.GroupKind, joining.BootstrapGroup),
		p.binding("kvm-operator:kubelet-client", "system:kubelet-api-admin", rbacv1.UserKind, kubeletClient),
		p.binding("kvm-operator:worker", "system:node-proxier", rbacv1.UserKind, key.WorkerDomain(p.Cluster)),
	}
}

// binding gives a user or a group a role in the whole cluster.
func (p Params) binding(name, role, kind, subject string) client.Object {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: p.meta("", name, nil), RoleRef: clusterRole(role),
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: kind, Name: subject}},
	}
}

func clusterRole(name string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
}
