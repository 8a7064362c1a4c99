// Package placement is the handler that keeps a master where the data of its etcd is.
//
// When etcd keeps its data in a directory of the host, a master that started on another host would find no data there
// and found a new, empty cluster. So the pods of such masters have a scheduling gate. The handler removes the gate once
// the pod is bound to the host with the data, or at once while there is no data yet.
package placement

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
)

// Placer lets a gated pod be scheduled, on the named host or, if that is empty, on any.
type Placer interface {
	PlacePod(ctx context.Context, pod *corev1.Pod, gate, host string) error
}

// New returns the handler.
func New(placer Placer) chain.Handler[*state.Cluster] { return &handler{placer: placer} }

type handler struct{ placer Placer }

// Name is the handler's name.
func (h *handler) Name() string { return "placement" }

// EnsureCreated removes the gates of pods. A host that was found is stored before anything else happens to the node.
func (h *handler) EnsureCreated(ctx context.Context, s *state.Cluster) (chain.Outcome, error) {
	var errs []error
	var lost []string
	found := false
	for _, n := range slices.Concat(s.Nodes, s.Retiring) {
		d := decide(s, n)
		switch {
		case n.FoundHost != "":
			found = true
		case d.lost:
			lost = append(lost, n.ID)
		case d.release != nil:
			errs = append(errs, h.placer.PlacePod(ctx, d.release, key.GateEtcdHost, n.EtcdHost))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return chain.Outcome{}, err
	}
	if found {
		return chain.Store("the hosts of masters were recorded"), nil
	}
	if len(lost) > 0 {
		return chain.Wait("HostUnknown", fmt.Sprintf("masters %s are not scheduled because the hosts with their etcd data are not known: "+
			"name the hosts in status.nodes[].etcdHost, with etcdMark where the directory there has one, or replace these masters by new ones with other ids", strings.Join(lost, ", ")), 0), nil
	}
	return chain.Done(), nil
}

// EnsureDeleted does nothing because pods are deleted with their Deployment, gated or not.
func (h *handler) EnsureDeleted(context.Context, *state.Cluster) (chain.Outcome, error) {
	return chain.Done(), nil
}

// decision is what to do for one master.
type decision struct {
	// release is the gated pod that may be scheduled, on the host with the data if that is known.
	release *corev1.Pod
	// lost reports that the master has run an etcd member but its host is unknown. On another host its machine would be
	// useless, and that host would from then on count as the one with the data.
	lost bool
}

func decide(s *state.Cluster, n state.Node) decision {
	if !s.EtcdOnHost(n) {
		return decision{}
	}
	var d decision
	for i := range n.Pods {
		if pod := &n.Pods[i]; d.release == nil && pod.DeletionTimestamp == nil && gated(pod) {
			d.release = pod
		}
	}
	d.lost = d.release != nil && cmp.Or(n.EtcdHost, n.FoundHost) == "" && n.RecordedMember() != ""
	return d
}

func gated(pod *corev1.Pod) bool {
	for _, gate := range pod.Spec.SchedulingGates {
		if gate.Name == key.GateEtcdHost {
			return true
		}
	}
	return false
}
