package cluster

import (
	"cmp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodestep"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// hangCheck is how often a node that is not Ready is checked without an event. It costs no request unless the node has
// started to hang.
const hangCheck = 30 * time.Second

// step returns the node's step, since when it is at that step, and what its console printed if it hangs there; before
// is the stored status.
func step(before []v1alpha1.NodeStatus, n state.Node, now time.Time) (name string, since *metav1.Time, console string) {
	if n.Step == "" {
		return "", nil, ""
	}
	if n.Step == nodestep.Failed && n.Pod() != nil {
		// The runner recorded it when it ended.
		console = strings.ToValidUTF8(nodestep.Console(n.Pod()), "?")
	}
	if known := state.StatusOf(before, n.Role, n.ID); known != nil && known.Step == string(n.Step) && known.Since != nil && samePod(*known, n) {
		return known.Step, known.Since, cmp.Or(console, known.Console)
	}
	at := metav1.NewTime(now)
	return string(n.Step), &at, console
}

func samePod(known v1alpha1.NodeStatus, n state.Node) bool {
	pod := n.Pod()
	return pod == nil && known.Pod == "" || pod != nil && pod.Name == known.Pod
}

// nextHangCheck returns when nodes that are not Ready are checked again; zero if all are Ready.
func nextHangCheck(nodes []v1alpha1.NodeStatus) time.Duration {
	for _, n := range nodes {
		if n.Since != nil && n.Console == "" && n.Step != string(nodestep.Ready) {
			return hangCheck
		}
	}
	return 0
}

// tellSteps emits an event for each node whose step changed, and a warning with the console for each that started to
// hang.
func (r *Reconciler) tellSteps(before, after *v1alpha1.KVMConfig) {
	for _, n := range after.Status.Nodes {
		known := state.StatusOf(before.Status.Nodes, n.Role, n.ID)
		if n.Step != "" && (known == nil || known.Step != n.Step) {
			note := n.Message
			if note == "" {
				note = n.Step
			}
			r.Events.Eventf(after, nodePod(after, n), corev1.EventTypeNormal, "NodeStep", n.Step, "%s %s: %s", n.Role, n.ID, shortened(note))
		}
		if n.Console != "" && (known == nil || known.Console == "") {
			r.Events.Eventf(after, nodePod(after, n), corev1.EventTypeWarning, "NodeHangs", n.Step, "%s %s hangs at %s; the end of its console:\n%s",
				n.Role, n.ID, n.Step, shortened(n.Console))
		}
	}
}

// nodePod returns a reference to the pod of a node. Events with the same objects, reason and action are counted as one;
// the pod and the step make them different.
func nodePod(config *v1alpha1.KVMConfig, n v1alpha1.NodeStatus) runtime.Object {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace(config.Spec.Cluster.ID), Name: n.Pod}}
}

// shortened returns the end of a text that fits into an event, whose note has 1024 bytes at most.
func shortened(text string) string {
	const most = 800
	if len(text) > most {
		text = strings.ToValidUTF8("…"+text[len(text)-most:], "")
	}
	return text
}
