package service

import (
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/election"
	"github.com/kvm-operator/kvm-operator/pkg/project"
)

// Election configures the leader election among several replicas.
type Election = election.Config

// elect makes the manager's controllers wait for the Lease and creates the fence. Without leader election there is
// neither.
func (s *Service) elect(e Election, options *ctrl.Options) error {
	lock, err := e.Elect(s.rest, project.Version(), options)
	if lock != nil {
		s.lock, s.fence = lock, lock.Fence
	}
	return err
}

// standing returns whether this replica leads or waits, and for which leader.
func (s *Service) standing() string {
	if s.lock == nil {
		return "there is no leader election"
	}
	return s.lock.Leader()
}
