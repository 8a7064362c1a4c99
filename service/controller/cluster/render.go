package cluster

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	releasev1alpha1 "github.com/kvm-operator/kvm-operator/pkg/apis/release/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/plan"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/endpoints"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/network"
)

// Inputs are the objects besides the KVMConfig that a rendering depends on; those that do not exist are left out.
type Inputs struct {
	Release *releasev1alpha1.Release
	Secrets []corev1.Secret
	Volumes []corev1.PersistentVolume
	// Pods are the node pods.
	Pods     []corev1.Pod
	Services plan.Services
	// Status is that of the KVMConfig, with the indexes of its nodes.
	Status *v1alpha1.KVMConfigStatus
	// Now is the time for which the bootstrap token in boot data is computed; if it is zero, the same inputs always
	// give the same bytes.
	Now time.Time
}

// Rendered are the objects that one handler wants.
type Rendered = apply.Rendered

// Render returns all objects that a KVMConfig leads to, in the order of the chain, without a cluster. Keys and
// certificates that have no Secret among the inputs are placeholders. The error contains what could not be rendered;
// the rest is returned nonetheless.
func Render(ctx context.Context, settings state.Settings, config *v1alpha1.KVMConfig, in Inputs) ([]Rendered, error) {
	if in.Status != nil {
		config = config.DeepCopy()
		config.Status = *in.Status
	}
	o := plan.Observed{
		Config: config, Settings: settings, Rendering: true, Release: in.Release, Secrets: in.Secrets, Volumes: in.Volumes, Services: in.Services,
		Hold: state.HoldNone, Objects: state.Objects{Pods: in.Pods},
	}
	s := planned(o, in.Now)
	_, conflict := network.Handler{}.EnsureCreated(ctx, s)
	return apply.Render(renderable(), s, conflict, s.VersionsErr, s.VersionsRefused, s.BootDataErr)
}

// planned returns the state of a cluster whose indexes are stored.
func planned(o plan.Observed, now time.Time) *state.Cluster {
	planner := plan.NewPlanner()
	o.Config = o.Config.DeepCopy()
	o.Config.Status.KVM = &v1alpha1.LegacyKVMStatus{NodeIndexes: planner.Plan(o, now).Indexes}
	return planner.Plan(o, now)
}

// renderable returns the handlers whose objects are rendered: those of this controller, and the drainer's.
func renderable() []apply.Resource[*state.Cluster] {
	return append(Resources(), endpoints.New())
}

// ReadInputs reads what a rendering depends on from a management cluster.
func ReadInputs(ctx context.Context, reader client.Reader, config *v1alpha1.KVMConfig) (Inputs, error) {
	var o plan.Observed
	var secrets corev1.SecretList
	var volumes corev1.PersistentVolumeList
	var pods corev1.PodList
	var living v1alpha1.KVMConfig
	err := errors.Join(
		readRelease(ctx, reader, config, &o),
		reader.List(ctx, &secrets, client.MatchingLabels{key.LabelGSCluster: config.Spec.Cluster.ID}),
		reader.List(ctx, &volumes, client.HasLabels{key.LabelMountTag}),
		reader.List(ctx, &pods, client.InNamespace(key.Namespace(config.Spec.Cluster.ID)), client.MatchingLabels{key.LabelPodWatcher: key.Operator}),
		readServices(ctx, reader, config.Spec.Cluster.ID, &o.Services),
		client.IgnoreNotFound(reader.Get(ctx, client.ObjectKeyFromObject(config), &living)),
	)
	return Inputs{
		Release: o.Release, Secrets: secrets.Items, Volumes: volumes.Items, Pods: pods.Items, Services: o.Services, Status: &living.Status, Now: time.Now(),
	}, err
}
