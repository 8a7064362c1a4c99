package service

import (
	"os"
	"time"

	"github.com/giantswarm/microerror"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/election"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/fence"
	"github.com/kvm-operator/kvm-operator/pkg/project"
)

// Election configures the leader election among several replicas.
type Election struct {
	// Namespace and Name are those of the Lease. There is no leader election if Name is empty.
	Namespace, Name string
	// Holds is the duration of the Lease, in whole seconds.
	Holds time.Duration
}

// elect makes the manager's controllers wait for the Lease and creates the fence. Without leader election there is
// neither.
func (s *Service) elect(e Election, options *ctrl.Options) error {
	if e.Name == "" {
		return nil
	}
	host, err := os.Hostname()
	if err != nil {
		return microerror.Mask(err)
	}
	deadline, retry := election.Pace(e.Holds)
	config := rest.AddUserAgent(rest.CopyConfig(s.rest), "leader-election")
	// A single request without a response must not cost the lead.
	config.Timeout = max(deadline/2, time.Second)
	leases, err := coordinationclient.NewForConfig(config)
	if err != nil {
		return microerror.Mask(err)
	}
	s.lock = &election.Lock{
		Leases: leases.Leases(e.Namespace), Namespace: e.Namespace, Name: e.Name,
		Holder: host + "_" + string(uuid.NewUUID()), Version: project.Version(),
	}
	s.fence = fence.New(s.lock.Describe(), deadline, fence.SinceBoot)
	s.lock.Fence = s.fence
	options.LeaderElection, options.LeaderElectionID, options.LeaderElectionReleaseOnCancel = true, e.Name, true
	options.LeaderElectionResourceLockInterface = s.lock
	options.LeaseDuration, options.RenewDeadline, options.RetryPeriod = &e.Holds, &deadline, &retry
	return nil
}

// announce emits an event at the Lease when leadership changes.
func (s *Service) announce(m manager.Manager) {
	if s.lock == nil {
		return
	}
	events := m.GetEventRecorder("kvm-operator")
	s.lock.Record = func(lease *coordinationv1.Lease, message string) {
		events.Eventf(lease, nil, corev1.EventTypeNormal, "LeaderElection", "LeaderElection", "%s", message)
	}
}

// standing returns whether this replica leads or waits, and for which leader.
func (s *Service) standing() string {
	if s.lock == nil {
		return "there is no leader election"
	}
	return s.lock.Leader()
}
