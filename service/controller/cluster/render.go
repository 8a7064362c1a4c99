package cluster

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	releasev1alpha1 "github.com/kvm-operator/kvm-operator/pkg/apis/release/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/cloudconfig"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/observe"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/endpoints"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/network"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/nodeindexstatus"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/pvc"
)

// Inputs are the objects besides the KVMConfig that a rendering depends on; those that do not exist are left out.
type Inputs struct {
	Release *releasev1alpha1.Release
	Secrets []corev1.Secret
	Volumes []corev1.PersistentVolume
	// Pods are the node pods.
	Pods     []corev1.Pod
	Services Services
	// Status is that of the KVMConfig, with the indexes of its nodes.
	Status *v1alpha1.KVMConfigStatus
	// Now is the time for which the bootstrap token in boot data is computed; if it is zero, the same inputs always
	// give the same bytes.
	Now time.Time
}

// Rendered are the objects that one handler wants.
type Rendered struct {
	Handler string
	Owner   string
	Objects []client.Object
}

// Render returns all objects that a KVMConfig leads to, in the order of the chain, without a cluster. Keys and
// certificates that have no Secret among the inputs are placeholders. The error contains what could not be rendered;
// the rest is returned nonetheless.
func Render(ctx context.Context, settings state.Settings, config *v1alpha1.KVMConfig, in Inputs) ([]Rendered, error) {
	r := &Reconciler{
		Settings: settings, Readiness: state.PodReadiness, Issuer: pki.Placeholder{},
		NewKey: pki.PlaceholderKey, Clock: moment(in.Now), renderer: cloudconfig.NewRenderer(),
	}
	if in.Status != nil {
		config = config.DeepCopy()
		config.Status = *in.Status
	}
	s, err := r.complete(config, world{release: in.Release, secrets: in.Secrets, volumes: in.Volumes, Objects: observe.Objects{Pods: in.Pods}, services: in.Services})
	if err != nil {
		return nil, err
	}
	// Assigning indexes writes them to the snapshot's status, which the other handlers read.
	if _, err := (nodeindexstatus.Handler{}).EnsureCreated(ctx, s); err != nil {
		return nil, err
	}
	s.BootDataErr = r.decideRollout(s)
	_, conflict := network.Handler{}.EnsureCreated(ctx, s)
	errs := []error{conflict, s.VersionsErr, s.VersionsRefused, s.BootDataErr}
	var all []Rendered
	for _, resource := range renderable() {
		desired, err := resource.Build(s)
		owner := s.Owner(resource.Handler)
		for _, object := range desired.Objects {
			apply.SetOwner(object, owner)
		}
		all = append(all, Rendered{Handler: resource.Handler, Owner: owner.String(), Objects: desired.Objects})
		errs = append(errs, err)
	}
	return all, joinDistinct(errs)
}

// renderable returns the handlers whose objects are rendered: those of this controller, and the drainer's.
func renderable() []apply.Resource[*state.Cluster] {
	return append(Resources(), pvc.Resource(), endpoints.New())
}

// moment is a clock that does not advance.
type moment time.Time

// Now returns the moment.
func (m moment) Now() time.Time { return time.Time(m) }

// Since returns the time from then to the moment.
func (m moment) Since(then time.Time) time.Duration { return time.Time(m).Sub(then) }

// joinDistinct joins errors, each text once, because several handlers often miss the same thing.
func joinDistinct(errs []error) error {
	seen := map[string]bool{}
	var distinct []error
	for _, err := range errs {
		if err != nil && !seen[err.Error()] {
			seen[err.Error()] = true
			distinct = append(distinct, err)
		}
	}
	return errors.Join(distinct...)
}

// ReadInputs reads what a rendering depends on from a management cluster.
func ReadInputs(ctx context.Context, reader client.Reader, config *v1alpha1.KVMConfig) (Inputs, error) {
	var w world
	var secrets corev1.SecretList
	var volumes corev1.PersistentVolumeList
	var pods corev1.PodList
	var living v1alpha1.KVMConfig
	err := errors.Join(
		readRelease(ctx, reader, config, &w),
		reader.List(ctx, &secrets, client.MatchingLabels{key.LabelGSCluster: config.Spec.Cluster.ID}),
		reader.List(ctx, &volumes, client.HasLabels{key.LabelMountTag}),
		reader.List(ctx, &pods, client.InNamespace(key.Namespace(config.Spec.Cluster.ID)), client.MatchingLabels{key.LabelPodWatcher: key.Operator}),
		w.services.read(ctx, reader, config.Spec.Cluster.ID),
		client.IgnoreNotFound(reader.Get(ctx, client.ObjectKeyFromObject(config), &living)),
	)
	return Inputs{
		Release: w.release, Secrets: secrets.Items, Volumes: volumes.Items, Pods: pods.Items, Services: w.services, Status: &living.Status, Now: time.Now(),
	}, err
}
