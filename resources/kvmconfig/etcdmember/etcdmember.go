// Package etcdmember is the handler of the members of a cluster's etcd. Package etcd does the work that it reports,
// outside of the chain, because members may answer slowly or not at all.
package etcdmember

import (
	"context"
	"fmt"
	"strings"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
)

// New returns the handler.
func New() chain.Handler[*state.Cluster] { return handler{} }

type handler struct{}

// Name is the handler's name.
func (handler) Name() string { return "etcdmember" }

// EnsureCreated waits until every master has a member and no other member exists. A change triggers a reconcile.
func (handler) EnsureCreated(_ context.Context, s *state.Cluster) (chain.Outcome, error) {
	return decide(s), nil
}

// EnsureDeleted does nothing because members are removed with their machines.
func (handler) EnsureDeleted(context.Context, *state.Cluster) (chain.Outcome, error) {
	return chain.Done(), nil
}

// decide reports that etcd is unreachable only when a member is to change, when the operator has not reached etcd since
// the cluster began, or when the API server does not answer either. The API server does not answer without etcd.
func decide(s *state.Cluster) chain.Outcome {
	step := s.Etcd.Step
	asked := step.Reason != "" && !s.Restore.Halted()
	gone := asked && !s.Workload.Connected && (s.Founded() || s.Restore.Done != "")
	// Until the operator has reached etcd once, it is unknown which master has a member, and no member can be
	// protected.
	unmarked := asked && s.Workload.Connected && !s.Founded()
	switch {
	case len(s.AwaitingFounding) > 0 && !s.Etcd.Known():
		return chain.Wait("Founding", fmt.Sprintf("etcd is being founded by masters %s; masters %s were removed from the spec and are kept until it is founded: "+
			"etcd needs a majority of its founding members; if too few of them can run, and the cluster has never been in use, delete the KVMConfig and create it again",
			strings.Join(s.Founders, ", "), strings.Join(s.AwaitingFounding, ", ")), 0)
	case !s.Etcd.Known() && !changes(s) && !gone && !unmarked && s.Founded():
		return chain.Done()
	case !s.Etcd.Known() && !changes(s) && !gone && !unmarked:
		return chain.Unknown("NotAsked", "the members of etcd have not been asked yet")
	case len(s.Etcd.Alarms) > 0:
		message := "etcd has an alarm: " + strings.Join(s.Etcd.Alarms, "; ")
		if step.Action != etcd.None {
			message += "; " + step.Message
		}
		return chain.Wait("Alarm", message, 0)
	case step.Action == etcd.None && len(s.Retiring) > 0:
		return chain.Wait(etcd.ReasonLeaving, "masters were removed from the spec, and etcd has not been asked for their members since", 0)
	case step.Action == etcd.None:
		return chain.Done()
	}
	return chain.Wait(step.Reason, step.Message, 0)
}

// changes reports whether masters are to be added or removed.
func changes(s *state.Cluster) bool {
	for _, n := range s.Masters() {
		if n.Deployment == nil && s.AwaitsMember(n) {
			return true
		}
	}
	return len(s.Retiring) > 0
}
