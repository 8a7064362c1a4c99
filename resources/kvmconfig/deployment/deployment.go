// Package deployment is the handler of the Deployments, one for each node.
package deployment

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodepod"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/rolling"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
)

// New returns the handler.
func New() apply.Resource[*state.Cluster] {
	return apply.Resource[*state.Cluster]{Handler: "deployment", Kinds: []client.Object{&appsv1.Deployment{}}, Build: build, Note: rolls}
}

// build does not change nodes that must not start or be replaced yet, and those that keep their boot data. It waits
// while a node is not Ready.
func build(s *state.Cluster) (apply.Desired, error) {
	var desired apply.Desired
	for _, n := range s.Nodes {
		add(&desired, s, n)
	}
	for _, n := range s.Retiring {
		if s.Restore.Halted() {
			// Masters that were removed from the spec since then are part of the old etcd. They must not join the restored one.
			desired.Objects = append(desired.Objects, haltedAsItIs(s, n))
			continue
		}
		keep(&desired, s, n)
	}
	desired.Wait = wait(s)
	return desired, nil
}

// add adds the Deployment of a node of the spec.
func add(desired *apply.Desired, s *state.Cluster, n state.Node) {
	delayed := s.Delayed(n) != ""
	switch {
	case s.LostMember(n):
		// The Deployment is pruned. The node starts again when the next member is added.
	case restores(s, n):
		if n.Deployment != nil { // otherwise it starts with the restored snapshot
			desired.Objects = append(desired.Objects, restoring(s, n))
		}
	case delayed && n.Deployment != nil:
		desired.Objects = append(desired.Objects, haltedAsItIs(s, n)) // the restore is over, but it may not start yet
	case delayed || s.KeepsBootData(n):
		keep(desired, s, n)
	default:
		desired.Objects = append(desired.Objects, deployment(s, n))
	}
}

// restores reports whether a master is stopped, or must not start, because of a restore.
func restores(s *state.Cluster, n state.Node) bool {
	if n.Role != key.RoleMaster || s.Restore.Phase() == etcd.NotRestoring {
		return false
	}
	return s.Restore.Halted() || n.Deployment == nil && !s.Founded()
}

// restoring is a master that is stopped for a restore. While the restore can still be canceled, the master's
// specification does not change, because this is not a rollout.
func restoring(s *state.Cluster, n state.Node) *appsv1.Deployment {
	if s.Restore.Committed == "" {
		return haltedAsItIs(s, n)
	}
	return halted(deployment(s, n))
}

// named is how many nodes a message lists.
const named = 20

func wait(s *state.Cluster) *chain.Outcome {
	if len(s.Rollout.Waiting) > 0 {
		return ptr.To(chain.Wait("RollingOut", state.Sentence(rolloutMessage(s.Rollout), heldUp(s)), 0))
	}
	var messages []string
	for _, n := range s.Nodes {
		switch {
		case !n.Ready:
			messages = append(messages, n.Role+" "+n.ID+": "+state.Sentence(n.Message, state.WhyHeld(n.Pods...)))
		case n.Outdated():
			messages = append(messages, n.Role+" "+n.ID+": is being replaced") // the old pod was Ready
		}
	}
	reason := "NodesNotReady"
	if len(messages) == 0 {
		reason = "NodesLeaving"
	}
	messages = append(messages, leaving(s)...)
	if more := len(messages) - named; more > 0 {
		messages = append(messages[:named], fmt.Sprintf("and %d more, see status.nodes", more))
	}
	if len(messages) > 0 {
		return ptr.To(chain.Wait(reason, strings.Join(messages, "; "), 0))
	}
	return nil
}

// leaving describes nodes that are no longer in the spec but still have machines.
func leaving(s *state.Cluster) []string {
	var messages []string
	for _, n := range s.Retiring {
		messages = append(messages, n.Role+" "+n.ID+": "+state.Sentence(state.MessageRetiring, state.WhyHeld(n.Pods...)))
	}
	for _, pod := range s.RemovedPods() {
		messages = append(messages, pod.Labels[key.LabelApp]+" "+pod.Labels[key.LabelNode]+": "+state.Sentence(state.MessageLeaving, state.WhyHeld(pod)))
	}
	return messages
}

// heldUp returns what blocks the old machine of the node that the others wait for.
func heldUp(s *state.Cluster) string {
	at := slices.IndexFunc(s.Nodes, func(n state.Node) bool { return n.ID == s.Rollout.WaitingFor })
	if at < 0 {
		return ""
	}
	return state.WhyHeld(s.Nodes[at].Pods...)
}

func rolloutMessage(d rolling.Decision) string {
	nodes := slices.Sorted(slices.Values(d.Waiting))
	message := fmt.Sprintf("outdated nodes %s wait", strings.Join(nodes, ", "))
	if d.Reason == "ClusterUnreachable" {
		return message + " until the API of the workload cluster answers (ClusterUnreachable)"
	}
	if d.WaitingFor == "" {
		return message + " until spec.rollout.paused is unset"
	}
	return message + " until updated node " + d.WaitingFor + " is Ready"
}

func deployment(s *state.Cluster, n state.Node) *appsv1.Deployment {
	selector := nodepod.Selector(s, n)
	return &appsv1.Deployment{
		ObjectMeta: metaOf(s, n),
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1),
			Selector: &metav1.LabelSelector{MatchLabels: selector},
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
			Template: nodepod.Template(s, n),
		},
	}
}

func metaOf(s *state.Cluster, n state.Node) metav1.ObjectMeta {
	meta := s.Meta(key.DeploymentName(n.Role, n.ID), nodepod.Selector(s, n))
	meta.Annotations = annotations(s, n)
	return meta
}

// keep leaves a Deployment as it is, with two exceptions: it records the node's etcd member, and it starts a master
// again that was stopped for a canceled restore. That master keeps its old specification.
func keep(desired *apply.Desired, s *state.Cluster, n state.Node) {
	meta := metaOf(s, n)
	if n.Deployment == nil || !n.Halted() &&
		n.Deployment.Annotations[key.AnnotationEtcdMember] == meta.Annotations[key.AnnotationEtcdMember] {
		desired.Keep = append(desired.Keep, &appsv1.Deployment{ObjectMeta: meta})
		return
	}
	spec := n.Deployment.Spec.DeepCopy()
	spec.Replicas = ptr.To[int32](1)
	desired.Objects = append(desired.Objects, &appsv1.Deployment{ObjectMeta: meta, Spec: *spec})
}

// halted is a master whose machine is stopped while a snapshot replaces its data. The record of its etcd member stays
// because the restore can be canceled until then.
func halted(d *appsv1.Deployment) *appsv1.Deployment {
	d.Annotations[key.AnnotationEtcdHalted] = "true"
	d.Spec.Replicas = ptr.To[int32](0)
	return d
}

func haltedAsItIs(s *state.Cluster, n state.Node) *appsv1.Deployment {
	return halted(&appsv1.Deployment{ObjectMeta: metaOf(s, n), Spec: *n.Deployment.Spec.DeepCopy()})
}

func annotations(s *state.Cluster, n state.Node) map[string]string {
	a := map[string]string{}
	if v := s.ReleaseVersion(); v != "" {
		a[key.AnnotationReleaseVersion] = v
	}
	if v := s.Version(); v != "" {
		a[key.AnnotationVersionBundle] = v
	}
	if mark := s.MemberToRecord(n); mark != "" {
		a[key.AnnotationEtcdMember] = mark
	}
	return a
}
