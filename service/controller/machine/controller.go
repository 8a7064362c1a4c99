package machine

import (
	"context"
	"time"

	"github.com/giantswarm/microerror"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/late"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/reconciler"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
)

// Name of the controller.
const Name = "machine"

// reconcileTimeout bounds one pass over one Machine.
const reconcileTimeout = time.Minute

// Sessions are the kinds that may be installed, and removed, while the operator runs.
type Sessions struct {
	// KubeVirt has VirtualMachines and their instances, CDI DataVolumes, Networks NetworkConfigurations, and Classes
	// MachineClasses.
	KubeVirt, CDI, Networks, Classes *late.Session
}

// known returns whether it is known what there is of the kinds without which no pass can decide anything. What KubeVirt has
// is not among them: a pass says that it is not known yet.
func (s Sessions) known() bool {
	return s.Networks.View().State != late.Unknown && s.Classes.View().State != late.Unknown
}

// Reconciler has KubeVirt run the machine of each Machine.
type Reconciler struct {
	// Client reads from informers and writes to the API server; Live reads from the API server.
	Client client.Client
	Live   client.Reader
	// References reads the metadata of Secrets and ConfigMaps from informers.
	References client.Reader
	Sessions   Sessions
	Settings   vitistack.Settings
	// Interval is how often each Machine is reconciled without an event, and Workers is how many are at a time.
	Interval time.Duration
	Workers  int
	Metrics  *Metrics
	Clock    clock.PassiveClock
	Events   events.EventRecorder
	// Outdated returns what the definitions lack: nothing is reconciled then.
	Outdated func(ctx context.Context) string

	reconciler.Loop[*v1alpha1.Machine, *vitistack.State]

	engine *apply.Engine
	values values
	pace   *pace
	wake   reconciler.Waker
}

// Init creates the engine and the chain. It fails if the chain is inconsistent.
func (r *Reconciler) Init() error {
	r.engine = apply.New(r.Client, r.Live, r.Clock)
	r.engine.Adopts = vitistack.Adopts
	r.pace = newPace()
	r.values = values{metadata: r.References, live: r.Live, known: map[types.NamespacedName]map[vitistack.Source]reading{}}
	r.Loop = reconciler.Loop[*v1alpha1.Machine, *vitistack.State]{
		Name: Name, Controller: r, Outdated: r.Outdated,
		Chain:     newChain(r.engine, engineOf(r.Sessions.CDI), engineOf(r.Sessions.KubeVirt)),
		Finalizer: v1alpha1.Finalizer, Adds: []string{v1alpha1.Finalizer}, Finalizers: finalizers{r.engine, r.Events},
	}
	return microerror.Mask(r.Chain.Validate())
}

// Reconcile takes one Machine through the loop, and measures that.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	began := time.Now()
	result, err := r.Loop.Reconcile(ctx, request)
	r.Metrics.Pass(time.Since(began))
	return result, err
}

// Get returns the Machine of a request. Those of other providers are ignored, except for what this operator has made of
// them before.
func (r *Reconciler) Get(ctx context.Context, request reconcile.Request) (*v1alpha1.Machine, bool, error) {
	m := &v1alpha1.Machine{}
	if err := r.Client.Get(ctx, request.NamespacedName, m); err != nil {
		if apierrors.IsNotFound(err) {
			r.values.forget(request.NamespacedName)
			r.pace.rest(request.NamespacedName)
		}
		return nil, false, r.failed(client.IgnoreNotFound(err))
	}
	ours := vitistack.Handles(m) || m.DeletionTimestamp != nil && held(m)
	return m, ours && r.Sessions.known(), nil
}

// failed counts an error that has no error type of its own.
func (r *Reconciler) failed(err error) error {
	if err != nil {
		r.Metrics.Error("")
	}
	return microerror.Mask(err)
}

// Again returns when to look again without an event.
func (r *Reconciler) Again(s *vitistack.State, after time.Duration) time.Duration {
	after = reconciler.Sooner(after, r.pace.again(client.ObjectKeyFromObject(s.Machine), r.Clock.Now()))
	return reconciler.Sooner(after, reconciler.Jitter(r.Interval))
}

// Wake makes the controller run for all Machines, once it has been started.
func (r *Reconciler) Wake() { r.wake.All(r.Client, &v1alpha1.MachineList{}) }
