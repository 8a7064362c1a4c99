// Package nodestep describes which step a node is at on its way from a pod to a Ready Node, for conditions, events and
// status.nodes.
//
// Everything here is pure: no client, no clock, no randomness.
package nodestep

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/joining"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/text"
)

// Name is the name of a step.
type Name string

// The steps, in the order in which a node takes them.
const (
	// NoPod means that the Deployment has not created a pod.
	NoPod Name = "NoPod"
	// Scheduling means that no host has been chosen.
	Scheduling Name = "Scheduling"
	// Starting means that the host prepares the pod's volumes, network and container.
	Starting Name = "Starting"
	// PullingRunner means that the host gets the runner's image.
	PullingRunner Name = "PullingRunner"
	// GettingImage means that the host gets the image of the guest.
	GettingImage Name = "GettingImage"
	// Booting means that the runner prepares the machine, or the guest boots.
	Booting Name = "Booting"
	// WaitsForAPI means that the kubelet runs, but the operator is not connected to the workload cluster.
	WaitsForAPI Name = "WaitsForAPI"
	// KubeletUp means that the kubelet runs and has not requested anything.
	KubeletUp Name = "KubeletUp"
	// RequestsCertificate means that the kubelet has requested a certificate.
	RequestsCertificate Name = "RequestsCertificate"
	// NetworkMissing means that the Node exists and has no pod network.
	NetworkMissing Name = "NetworkMissing"
	// NotReady means that the Node exists and is not Ready for another reason.
	NotReady Name = "NotReady"
	// Ready means that the Node is Ready.
	Ready Name = "Ready"
	// Failed means that the runner or the pod has ended.
	Failed Name = "Failed"
	// Terminating means that the pod is being deleted.
	Terminating Name = "Terminating"
)

// API is what the operator knows of the workload cluster's API server.
type API string

// Values of API.
const (
	APIConnecting  API = "connecting"
	APIUnreachable API = "unreachable"
	APIConnected   API = "connected"
)

// Names of the containers of a node pod.
const (
	// Container is the runner's.
	Container = "k8s-kvm"
	// ImageContainer is the init container that gets the guest image.
	ImageContainer = "image"
)

// Seen is what is known of a node.
type Seen struct {
	// Pod is the node pod, nil if there is none.
	Pod *corev1.Pod
	// API says whether what is known of the workload cluster is current. Empty means APIConnecting.
	API API
	// Request is the decision on the newest pending certificate signing request of this node; nil if there is none.
	Request *joining.Decision
	// Node is the workload cluster's Node, nil if there is none.
	Node *corev1.Node
}

// Step is where a node is.
type Step struct {
	Name Name
	// Message is a sentence for a person, without parts that change by themselves.
	Message string
	// Problem says that the node does not progress by itself.
	Problem bool
}

// At returns the step that a node is at.
func At(s Seen) Step {
	for _, look := range []func(Seen) *Step{atPod, atScheduling, atImage, atContainer, atKubelet, atAPI, atNode} {
		if step := look(s); step != nil {
			step.Message = text.Steady(step.Message)
			return *step
		}
	}
	return *atRequest(s)
}

// bounds are how long a step takes at most if nothing is wrong, under software emulation, which is ten times slower
// than KVM. Steps without a bound have no machine whose console could be shown.
var bounds = map[Name]time.Duration{
	Booting:             6 * time.Minute,
	WaitsForAPI:         6 * time.Minute,
	KubeletUp:           3 * time.Minute,
	RequestsCertificate: 2 * time.Minute,
	NetworkMissing:      4 * time.Minute,
	NotReady:            2 * time.Minute,
}

// Hangs reports whether a node has been at a step for so long that the end of its console is worth showing. The console
// of a failed node is in the pod, see Console.
func Hangs(step Name, since time.Duration) bool {
	bound, ok := bounds[step]
	return ok && since >= bound
}

func atPod(s Seen) *Step {
	switch {
	case s.Pod == nil:
		return &Step{Name: NoPod, Message: "there is no node pod yet"}
	case s.Pod.DeletionTimestamp != nil:
		return &Step{Name: Terminating, Message: "the node pod is terminating"}
	case s.Pod.Status.Phase == corev1.PodFailed, s.Pod.Status.Phase == corev1.PodSucceeded:
		return &Step{Name: Failed, Message: "the node pod has ended" + because(s.Pod.Status.Reason, s.Pod.Status.Message), Problem: true}
	}
	return nil
}

func atScheduling(s Seen) *Step {
	scheduled := podCondition(s.Pod, corev1.PodScheduled)
	switch {
	case s.Pod.Spec.NodeName != "" || scheduled != nil && scheduled.Status == corev1.ConditionTrue:
		return nil
	case len(s.Pod.Spec.SchedulingGates) > 0:
		return &Step{Name: Scheduling, Message: "the node pod has the scheduling gate " + s.Pod.Spec.SchedulingGates[0].Name +
			" until its host is known"}
	case scheduled != nil && scheduled.Reason == corev1.PodReasonUnschedulable:
		return &Step{Name: Scheduling, Message: "the node pod is unschedulable" + because("", scheduled.Message), Problem: true}
	}
	return &Step{Name: Scheduling, Message: "the scheduler looks for a host"}
}

// atKubelet is about a runner that runs: its container is ready once the guest's kubelet is healthy and, on a master,
// its API server is ready.
func atKubelet(s Seen) *Step {
	status := runner(s.Pod)
	if status.Ready {
		return nil
	}
	if s.API == APIConnected && isReady(s.Node) {
		return &Step{Name: NotReady, Message: "the guest's kubelet does not answer the runner, although its Node is Ready", Problem: true}
	}
	step := Step{Name: Booting, Message: "the machine boots: its kubelet does not answer yet"}
	switch {
	case s.API == APIConnected && isSilent(s.Node):
		step = Step{Name: NotReady, Message: "the machine hangs or reboots: neither its Node nor its kubelet answers"}
	case s.Pod.Labels[key.LabelApp] == key.RoleMaster:
		step.Message = "the machine boots: its kubelet or its API server does not answer yet"
	}
	if ended := status.LastTerminationState.Terminated; ended != nil {
		step.Message += "; last time " + howItEnded(ended)
	}
	return &step
}

func atAPI(s Seen) *Step {
	switch s.API {
	case APIConnected:
		return nil
	case APIUnreachable:
		return &Step{Name: WaitsForAPI, Message: "the kubelet runs; the API server of the workload cluster cannot be reached"}
	}
	return &Step{Name: WaitsForAPI, Message: "the kubelet runs; the operator is connecting to the API server of the workload cluster"}
}

func atNode(s Seen) *Step {
	if s.Node == nil {
		return nil
	}
	if s.Node.DeletionTimestamp != nil {
		return &Step{Name: NotReady, Message: "its Node is being deleted in the workload cluster", Problem: true}
	}
	c := nodeCondition(s.Node)
	switch {
	case c == nil:
		return &Step{Name: NotReady, Message: "its Node has not reported yet"}
	case c.Status == corev1.ConditionTrue:
		return readyStep(s)
	case c.Status == corev1.ConditionUnknown:
		return &Step{Name: NotReady, Message: "its Node has stopped reporting" + because("", c.Message), Problem: true}
	case says(c.Message, "NetworkPluginNotReady", "cni plugin not initialized", "cni config uninitialized"):
		return &Step{Name: NetworkMissing, Message: "its Node has no pod network yet" + because("", c.Message)}
	}
	// A kubelet that has just started reports that itself.
	starts := says(c.Message, "not yet", "may not have completed")
	return &Step{Name: NotReady, Message: "its Node is not Ready" + because(c.Reason, c.Message), Problem: !starts}
}

// readyStep: a Node without a serving certificate is Ready, but provides no logs.
func readyStep(s Seen) *Step {
	if s.Request != nil && s.Request.Verdict == joining.Wait {
		return &Step{Name: Ready, Message: "its Node is Ready; its request for a certificate is not approved" + because(s.Request.Reason, s.Request.Message), Problem: true}
	}
	return &Step{Name: Ready, Message: "its Node is Ready"}
}

func atRequest(s Seen) *Step {
	switch {
	case s.Request == nil:
		return &Step{Name: KubeletUp, Message: "the kubelet runs and has not asked for a certificate yet"}
	case s.Request.Verdict == joining.Wait:
		return &Step{Name: RequestsCertificate, Message: "its request for a certificate is not approved" + because(s.Request.Reason, s.Request.Message), Problem: true}
	}
	return &Step{Name: RequestsCertificate, Message: "its certificate is being issued"}
}

// because appends a reason and a message, either of which may be missing, to a sentence.
func because(reason, message string) string {
	text := ""
	for _, part := range []string{reason, strings.TrimSpace(message)} {
		if part != "" {
			text += ": " + part
		}
	}
	return text
}

func says(message string, phrases ...string) bool {
	return slices.ContainsFunc(phrases, func(phrase string) bool { return strings.Contains(message, phrase) })
}

func podCondition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	if i < 0 {
		return nil
	}
	return &pod.Status.Conditions[i]
}

func nodeCondition(node *corev1.Node) *corev1.NodeCondition {
	i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	if i < 0 {
		return nil
	}
	return &node.Status.Conditions[i]
}

// isSilent reports whether the workload cluster has not heard from a kubelet for some time.
func isSilent(node *corev1.Node) bool {
	if node == nil {
		return false
	}
	c := nodeCondition(node)
	return c != nil && c.Status == corev1.ConditionUnknown
}

func isReady(node *corev1.Node) bool {
	return joining.Ready(node) && node.DeletionTimestamp == nil
}
