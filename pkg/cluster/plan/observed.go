// Package plan decides what a reconcile is to do: from what was observed of a cluster, and the time, to the state on
// which the handlers act. It reads nothing, and the same input gives the same state.
package plan

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	releasev1alpha1 "github.com/kvm-operator/kvm-operator/pkg/apis/release/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/cloudconfig"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodepod"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// Observed is what was read of a cluster. It is written once, and never changed.
type Observed struct {
	// Config is the KVMConfig as it is stored, with the masters AwaitingFounding that only the record of the founders
	// has, see state.HoldFounders.
	Config           *v1alpha1.KVMConfig
	AwaitingFounding []string
	Settings         state.Settings
	// Connects says that the operator connects to workload clusters and manages the members of their etcd.
	Connects bool
	// OnlyMachines says that no Secrets were read, because only machines and members of etcd matter.
	OnlyMachines bool
	// Rendering fills in placeholders for keys and certificates that do not exist.
	Rendering bool
	// Doubt is why the time is in doubt; nil if it is not.
	Doubt error

	// Release is the one that the KVMConfig names; nil if there is none.
	Release *releasev1alpha1.Release
	// Secrets are those that may have key pairs and keys of the cluster, and its kubeconfig.
	Secrets []corev1.Secret
	// Namespace is the cluster's, and Hold says who owns it.
	Namespace corev1.Namespace
	Hold      state.Hold
	// Objects are those of the machines.
	state.Objects
	// BootData are the stored boot data of nodes with machines, by the name of their objects.
	BootData map[string]BootData
	Services Services
	Volumes  []corev1.PersistentVolume
	// Ingresses are those of all clusters that have one of this cluster's hosts.
	Ingresses []networkingv1.Ingress
	// Restores are the Jobs of a restore, and Snapshots is the CronJob that takes snapshots of etcd; nil if there is
	// none.
	Restores  []batchv1.Job
	Snapshots *batchv1.CronJob
	// Retirements are the Jobs on etcd data that masters have left on hosts.
	Retirements []batchv1.Job
	// Workload is what is known of the workload cluster, and Etcd what is known of its etcd.
	Workload state.Workload
	Etcd     etcd.State
}

// Services are the Services of a cluster whose addresses handlers need; one that does not exist has no UID.
type Services struct{ Master, Worker, API corev1.Service }

// BootData is the stored boot data of a node; nil for objects that do not exist.
type BootData struct {
	Private *corev1.Secret
	Public  *corev1.ConfigMap
}

// halves returns the stored text, which is empty for what does not exist.
func (d BootData) halves() (halves cloudconfig.Halves) {
	if d.Private != nil {
		halves.Private = string(d.Private.Data[nodepod.UserData])
	}
	if d.Public != nil {
		halves.Public = d.Public.Data[nodepod.UserData]
	}
	return halves
}

// trusted returns what was observed, without the objects in the cluster's namespace if that belongs to another owner.
func (o Observed) trusted() Observed {
	if o.Hold != state.HoldForeign {
		return o
	}
	return Observed{
		Config: o.Config, Settings: o.Settings, Connects: o.Connects, OnlyMachines: o.OnlyMachines, Rendering: o.Rendering, Doubt: o.Doubt,
		Release: o.Release, Secrets: o.Secrets, Hold: o.Hold, Volumes: o.Volumes, Workload: o.Workload, Etcd: o.Etcd,
	}
}
