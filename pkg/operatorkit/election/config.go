package election

import (
	"os"
	"time"

	"github.com/giantswarm/microerror"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/fence"
)

// Config configures the leader election among several replicas.
type Config struct {
	// Namespace and Name are those of the Lease. There is no leader election if Name is empty.
	Namespace, Name string
	// Holds is the duration of the Lease, in whole seconds.
	Holds time.Duration
}

// Elect makes a manager's controllers wait for the Lease, and returns it with the fence; nil without leader election.
// version is the operator's. connection is that of the manager, without the fence, because a renewal opens it.
func (c Config) Elect(connection *rest.Config, version string, options *ctrl.Options) (*Lock, error) {
	if c.Name == "" {
		return nil, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, microerror.Mask(err)
	}
	deadline, retry := Pace(c.Holds)
	config := rest.AddUserAgent(rest.CopyConfig(connection), "leader-election")
	// A single request without a response must not cost the lead.
	config.Timeout = max(deadline/2, time.Second)
	leases, err := coordinationclient.NewForConfig(config)
	if err != nil {
		return nil, microerror.Mask(err)
	}
	lock := &Lock{
		Leases: leases.Leases(c.Namespace), Namespace: c.Namespace, Name: c.Name,
		Holder: host + "_" + string(uuid.NewUUID()), Version: version,
	}
	lock.Fence = fence.New(lock.Describe(), deadline, fence.SinceBoot)
	options.LeaderElection, options.LeaderElectionID, options.LeaderElectionReleaseOnCancel = true, c.Name, true
	options.LeaderElectionResourceLockInterface = lock
	options.LeaseDuration, options.RenewDeadline, options.RetryPeriod = &c.Holds, &deadline, &retry
	return lock, nil
}

// Announce emits an event at the Lease when leadership changes. The lock may be nil. The recorder's scheme need not have
// Leases: the event names the Lease by a reference.
func (l *Lock) Announce(recorder events.EventRecorder) {
	if l == nil {
		return
	}
	l.Record = func(lease *coordinationv1.Lease, message string) {
		at := &corev1.ObjectReference{
			APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease",
			Namespace: lease.Namespace, Name: lease.Name, UID: lease.UID, ResourceVersion: lease.ResourceVersion,
		}
		recorder.Eventf(at, nil, corev1.EventTypeNormal, "LeaderElection", "LeaderElection", "%s", message)
	}
}
