// Package report reports objects that the operator cannot decode. It changes nothing except the conditions that report
// them.
package report

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/giantswarm/microerror"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	releasev1alpha1 "github.com/kvm-operator/kvm-operator/pkg/apis/release/v1alpha1"
	smolvmv1alpha1 "github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	vmoperatorv1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/text"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/undecodable"
)

// ReasonInvalidObject is the reason of conditions and events of an object that cannot be decoded.
const ReasonInvalidObject = "InvalidObject"

const (
	// noteLength is the maximum length of an event's note, for an API server.
	noteLength = 1000
	// retryFirst and retryLast bound the back-off of a condition that cannot be stored.
	retryFirst = 200 * time.Millisecond
	retryLast  = time.Minute
)

var undecodables = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "kvm_operator_undecodable_objects",
	Help: "1 for each object that cannot be decoded and is left alone, by kind, namespace and name.",
}, []string{"kind", "namespace", "name"})

func init() { metrics.Registry.MustRegister(undecodables) }

// Undecodable reports the objects of one kind that the API server accepts and Go cannot decode.
type Undecodable struct {
	// Client reads from informers and writes to the API server.
	Client client.Client
	Live   client.Reader
	Clock  clock.PassiveClock
	Events events.EventRecorder
	// New returns an empty object of the kind.
	New func() client.Object
	// Kind and Resource are the names of the kind in messages and for kubectl.
	Kind, Resource string
	// Left says what happens to an object until it is corrected.
	Left string
	// Conditions returns the conditions of an object; nil if the kind has none.
	Conditions func(client.Object) []metav1.Condition
	// Cache has the objects of the kind; nil means the manager's. CacheSyncTimeout is how long it may take to fill; 0
	// means controller-runtime's default.
	Cache            cache.Cache
	CacheSyncTimeout time.Duration

	engine *apply.Engine
	mu     sync.Mutex
	// told has the last event's message of each object.
	told map[client.ObjectKey]string
}

// KVMConfigs reports KVMConfigs.
func KVMConfigs() *Undecodable {
	return &Undecodable{
		New: func() client.Object { return &v1alpha1.KVMConfig{} }, Kind: "KVMConfig", Resource: "kvmconfigs.provider.giantswarm.io",
		Left:       "the operator leaves the cluster as it is",
		Conditions: func(o client.Object) []metav1.Condition { return o.(*v1alpha1.KVMConfig).Status.Conditions },
	}
}

// Releases reports Releases.
func Releases() *Undecodable {
	return &Undecodable{
		New: func() client.Object { return &releasev1alpha1.Release{} }, Kind: "Release", Resource: "releases.release.giantswarm.io",
		Left: "clusters that name it do not get its versions",
	}
}

// VirtualMachines reports VirtualMachines.
func VirtualMachines() *Undecodable {
	return &Undecodable{
		New: func() client.Object { return &vmoperatorv1.VirtualMachine{} }, Kind: "VirtualMachine", Resource: "vms.vmoperator.jdrupes.org",
		Left:       "the operator leaves the machine as it is",
		Conditions: func(o client.Object) []metav1.Condition { return o.(*vmoperatorv1.VirtualMachine).Status.Conditions },
	}
}

// SmolVMs reports SmolVMs.
func SmolVMs() *Undecodable {
	return &Undecodable{
		New: func() client.Object { return &smolvmv1alpha1.SmolVM{} }, Kind: "SmolVM", Resource: "smolvms.vm.smolvm.dev",
		Left:       "the operator leaves the machine as it is",
		Conditions: func(o client.Object) []metav1.Condition { return o.(*smolvmv1alpha1.SmolVM).Status.Conditions },
	}
}

// SetupWithManager makes the controller run when an object becomes undecodable or decodable.
func (r *Undecodable) SetupWithManager(m manager.Manager) error {
	r.engine, r.told = apply.New(r.Client, r.Live, r.Clock), map[client.ObjectKey]string{}
	name := "undecodable-" + strings.ToLower(r.Kind)
	objects := r.Cache
	if objects == nil {
		objects = m.GetCache()
	}
	return microerror.Mask(builder.ControllerManagedBy(m).Named(name).
		WatchesRawSource(source.Kind(objects, r.New(), &handler.EnqueueRequestForObject{}, predicate.Predicate(concerned))).
		WithOptions(controller.Options{
			CacheSyncTimeout: r.CacheSyncTimeout,
			RateLimiter:      workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retryFirst, retryLast),
		}).Complete(r))
}

// concerned passes the events of objects that cannot be decoded before or after the event.
var concerned = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return undecodable.Why(e.Object) != "" },
	DeleteFunc: func(e event.DeleteEvent) bool { return undecodable.Why(e.Object) != "" },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return undecodable.Why(e.ObjectOld) != "" || undecodable.Why(e.ObjectNew) != ""
	},
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// Reconcile reports an object that cannot be decoded once: by a metric, by an event and, if the kind has conditions, by
// conditions.
func (r *Undecodable) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	object := r.New()
	err := r.Client.Get(ctx, request.NamespacedName, object)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, microerror.Mask(err)
	}
	why := undecodable.Why(object)
	if apierrors.IsNotFound(err) || why == "" {
		undecodables.DeleteLabelValues(r.Kind, request.Namespace, request.Name)
		r.tellOnce(request.NamespacedName, "", func() {})
		return reconcile.Result{}, nil
	}
	undecodables.WithLabelValues(r.Kind, request.Namespace, request.Name).Set(1)
	message := r.message(object, why)
	hasConditions := r.Conditions != nil
	conditions := []metav1.Condition(nil)
	if hasConditions {
		conditions = conditionsOf(r.Conditions(object), object.GetGeneration(), message, metav1.NewTime(r.Clock.Now()))
	}
	if hasConditions && conditions == nil {
		return reconcile.Result{}, nil // it was reported already
	}
	r.tellOnce(request.NamespacedName, string(object.GetUID())+message, func() {
		log.FromContext(ctx).Info("an object cannot be decoded and is left alone", "kind", r.Kind, "message", message)
		r.Events.Eventf(object, nil, corev1.EventTypeWarning, ReasonInvalidObject, "Decode", "%s", text.Beginning(message, noteLength))
	})
	if !hasConditions || key.Paused(object.GetAnnotations()) {
		return reconcile.Result{}, nil
	}
	err = r.engine.SetConditions(ctx, object, conditions...)
	if refused, ok := problem.As(err); ok {
		// The schema was changed after the object was stored. The event and the metric have to suffice.
		log.FromContext(ctx).Info("the API server refuses the conditions of an object that cannot be decoded", "kind", r.Kind, "message", refused.Message)
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, microerror.Mask(err)
}

// tellOnce calls tell unless what equals the last report of the object.
func (r *Undecodable) tellOnce(of client.ObjectKey, what string, tell func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case what == "":
		delete(r.told, of)
	case r.told[of] != what:
		r.told[of] = what
		tell()
	}
}

// message returns what is wrong with an object, what the operator does with it, and how to fix it.
func (r *Undecodable) message(object client.Object, why string) string {
	edit := "kubectl edit " + r.Resource + " " + object.GetName()
	if object.GetNamespace() != "" {
		edit += " -n " + object.GetNamespace()
	}
	if strings.HasPrefix(why, "status.") {
		edit += " --subresource=status"
	}
	left := r.Left
	if object.GetDeletionTimestamp() != nil && r.Conditions != nil {
		left += " and does not delete it either"
	}
	return fmt.Sprintf("the %s cannot be read: %s; until it is corrected, %s: %s", r.Kind, why, left, edit)
}

// conditionsOf returns the conditions that report the object; none if it has them already.
func conditionsOf(known []metav1.Condition, generation int64, message string, now metav1.Time) []metav1.Condition {
	conditions := []metav1.Condition{
		{Type: "Ready", Status: metav1.ConditionFalse, Reason: ReasonInvalidObject, Message: message},
		{Type: "Stalled", Status: metav1.ConditionTrue, Reason: ReasonInvalidObject, Message: message},
		{Type: "Reconciling", Status: metav1.ConditionFalse, Reason: ReasonInvalidObject},
	}
	said := 0
	for i := range conditions {
		c := &conditions[i]
		c.LastTransitionTime, c.ObservedGeneration = now, generation
		before := meta.FindStatusCondition(known, c.Type)
		if before == nil || before.Status != c.Status {
			continue
		}
		c.LastTransitionTime = before.LastTransitionTime
		if *before == *c {
			said++
		}
	}
	if said == len(conditions) {
		return nil
	}
	return conditions
}
