package plan

import (
	"errors"

	"github.com/giantswarm/microerror"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodepod"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/rolling"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
)

// rollOut adds to every node its hash and its readiness, and decides which nodes may be replaced. Without boot data no
// node is outdated, because the current hash is not known.
func (p Planner) rollOut(s *state.Cluster, connects bool, stored map[string]BootData) error {
	var nodes []rolling.Node
	var failed error
	answered := answers(s)
	for i := range s.Nodes {
		n := &s.Nodes[i]
		p.readiness(s, n, connects, answered)
		if failed == nil {
			failed = p.render(s, n, stored[key.BootDataName(n.Role, s.ID(), n.ID)])
		}
		if s.Holds(*n) && n.Deployment != nil {
			continue // it is not rolled out
		}
		nodes = append(nodes, rolling.Node{
			ID: n.ID, Master: n.Role == key.RoleMaster, Exists: n.Deployment != nil, Outdated: n.Outdated(), Ready: n.Ready && !silent(s, *n),
		})
	}
	limits := rolling.Limits{Lost: lost(s, rolling.Minority(nodes))}
	if failed != nil {
		return failed
	}
	if rollout := s.Config.Spec.Rollout; rollout != nil {
		limits.MaxUnavailable, limits.Paused = int(rollout.MaxUnavailable), rollout.Paused
	}
	limits.Blind = connects && !s.Workload.Connected
	s.Rollout = rolling.Decide(nodes, limits)
	return nil
}

// lost returns whether the rollout no longer waits for masters without a majority, and records since when there is no
// majority. If etcd was never founded it does not wait, because there is nothing that could recover.
func lost(s *state.Cluster, minority bool) bool {
	since := s.Config.Status.MinoritySince
	switch now := metav1.NewTime(s.Now); {
	case !minority:
		since = nil
	case since == nil:
		since = &now
	}
	s.MinoritySince = since
	return minority && (!s.Founded() || !s.Now.Before(s.LostAt()))
}

// render renders a node's boot data, of which some is stored, and computes the hash of the boot data and the pod.
func (p Planner) render(s *state.Cluster, n *state.Node, stored BootData) error {
	err := errors.Join(s.VersionsErr, s.CertificatesErr, s.KeysErr)
	switch {
	case err != nil:
		return err
	case len(s.Issuing())+len(s.MissingKeys) > 0:
		return errIssuing
	case s.Index(n.ID) == 0:
		return errNoIndex
	}
	if n.BootData, err = p.Renderer.Render(s.BootParams(*n), stored.halves()); err != nil {
		return problem.Newf("BootDataInvalid", "boot data of node %s: %s", n.ID, err)
	}
	n.Hash, err = nodepod.Hash(s, *n, n.BootData.Hash)
	return microerror.Mask(err)
}

// Boot data has the node's index and keys of the cluster, so it is not rendered before these are stored.
var (
	errNoIndex = errors.New("the node has no index yet")
	errIssuing = errors.New("certificates and keys are being issued")
)
