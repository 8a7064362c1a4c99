// Package etcdmember is the handler of the members of a cluster's etcd. What it tells is done by package etcd beside the chain,
// for members may answer slowly or not at all.
package etcdmember

import (
	"context"
	"fmt"
	"strings"

	"github.com/kvm-operator/kvm-operator/pkg/chain"
	"github.com/kvm-operator/kvm-operator/pkg/cluster"
	"github.com/kvm-operator/kvm-operator/pkg/etcd"
)

// New makes the handler.
func New() chain.Handler[*cluster.Snapshot] { return handler{} }

type handler struct{}

// Name is the handler's name.
func (handler) Name() string { return "etcdmember" }

// EnsureCreated waits until every master has a member and nobody else has one. A change wakes the controller.
func (handler) EnsureCreated(_ context.Context, s *cluster.Snapshot) (chain.Outcome, error) {
	return decide(s), nil
}

// EnsureDeleted has nothing to do: members go with their machines.
func (handler) EnsureDeleted(context.Context, *cluster.Snapshot) (chain.Outcome, error) {
	return chain.Done(), nil
}

// decide: as long as the API server answers, which does not without etcd, who does not reach etcd itself says so only when something
// about it is to change, or has not reached it since it began.
func decide(s *cluster.Snapshot) chain.Outcome {
	step := s.Etcd.Step
	asked := step.Reason != "" && !s.Restore.Halted()
	gone := asked && !s.Workload.Connected && (s.Founded() || s.Restore.Done != "")
	// Until etcd was reached once nobody knows which master has a member, and none can be protected.
	unmarked := asked && s.Workload.Connected && !s.Founded()
	switch {
	case len(s.Held) > 0 && !s.Etcd.Known():
		return chain.Wait("Founding", fmt.Sprintf("etcd is to begin with the masters %s, and %s, which the spec has lost meanwhile, stay until it has: "+
			"it needs a majority of its founding members; if too few of them can run, and the cluster has never served, delete the KVMConfig and create it again",
			strings.Join(s.Founders, ", "), strings.Join(s.Held, ", ")), 0)
	case !s.Etcd.Known() && !changes(s) && !gone && !unmarked && s.Founded():
		return chain.Done()
	case !s.Etcd.Known() && !changes(s) && !gone && !unmarked:
		return chain.Unknown("NotAsked", "the members of etcd have not been asked yet")
	case len(s.Etcd.Alarms) > 0:
		message := "etcd warns: " + strings.Join(s.Etcd.Alarms, "; ")
		if step.Action != etcd.None {
			message += "; " + step.Message
		}
		return chain.Wait("Alarm", message, 0)
	case step.Action == etcd.None && len(s.Retiring) > 0:
		return chain.Wait(etcd.ReasonLeaving, "masters have left the spec, and etcd has not been asked for their members since", 0)
	case step.Action == etcd.None:
		return chain.Done()
	}
	return chain.Wait(step.Reason, step.Message, 0)
}

// changes says whether masters have come or go.
func changes(s *cluster.Snapshot) bool {
	for _, n := range s.Masters() {
		if n.Deployment == nil && s.AwaitsMember(n) {
			return true
		}
	}
	return len(s.Retiring) > 0
}
