package nodestep_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/joining"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodestep"
)

var now = metav1.NewTime(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))

// pod is a pod on a host, whose container the kubelet has not reported yet, with changes applied.
func pod(changes ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "host"}}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}
	for _, change := range changes {
		change(p)
	}
	return p
}

// unscheduled is a pod without a host.
func unscheduled(reason, message string, gates ...corev1.PodSchedulingGate) *corev1.Pod {
	return pod(func(p *corev1.Pod) {
		p.Spec = corev1.PodSpec{SchedulingGates: gates}
		p.Status.Conditions[0] = corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: reason, Message: message}
	})
}

func container(change func(*corev1.ContainerStatus)) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		if len(p.Status.ContainerStatuses) == 0 {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "a sidecar"}, {Name: nodestep.Container}}
		}
		change(&p.Status.ContainerStatuses[1])
	}
}

// image is the init container that gets the guest image.
func image(c corev1.ContainerStatus) func(*corev1.Pod) {
	c.Name = nodestep.ImageContainer
	return func(p *corev1.Pod) {
		waiting("PodInitializing", "")(p)
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "another"}, c}
	}
}

func waiting(reason, message string) func(*corev1.Pod) {
	return container(func(c *corev1.ContainerStatus) {
		c.State.Waiting = &corev1.ContainerStateWaiting{Reason: reason, Message: message}
	})
}

func terminated(code int32, reason, message string) *corev1.ContainerStateTerminated {
	return &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, Message: message, FinishedAt: now}
}

func ended(code int32, reason, message string) func(*corev1.Pod) {
	return container(func(c *corev1.ContainerStatus) { c.State.Terminated = terminated(code, reason, message) })
}

func endedBefore(code int32, reason, message string) func(*corev1.Pod) {
	return container(func(c *corev1.ContainerStatus) { c.LastTerminationState.Terminated = terminated(code, reason, message) })
}

var (
	sandbox = func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue})
	}
	running = container(func(c *corev1.ContainerStatus) { c.State.Running = &corev1.ContainerStateRunning{StartedAt: now} })
	well    = container(func(c *corev1.ContainerStatus) {
		c.State.Running, c.Ready = &corev1.ContainerStateRunning{StartedAt: now}, true
	})
)

var (
	imageRuns   = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}
	imageFailed = corev1.ContainerState{Terminated: terminated(13, "Error", "ImageMismatch: other sum\n")}
)

func phase(phase corev1.PodPhase, reason, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase, p.Status.Reason, p.Status.Message = phase, reason, message }
}

func node(status corev1.ConditionStatus, reason, message string) *corev1.Node {
	return &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse}, {Type: corev1.NodeReady, Status: status, Reason: reason, Message: message},
	}}}
}

func going(object *corev1.Node) *corev1.Node {
	object.DeletionTimestamp = &now
	return object
}

const (
	connected = nodestep.APIConnected
	cniSays   = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized"
)

var (
	ready   = node("True", "KubeletReady", "kubelet is posting ready status")
	refused = &joining.Decision{Verdict: joining.Wait, Reason: joining.ReasonNotANodePod, Message: `"x" is no node pod of this cluster`}
	granted = &joining.Decision{Verdict: joining.Approve, Reason: joining.ReasonNodePod}
)

// TestStepsOfNodes, in the order in which a node takes them.
func TestStepsOfNodes(t *testing.T) {
	type seen = nodestep.Seen
	ok := func(name nodestep.Name, message string) nodestep.Step {
		return nodestep.Step{Name: name, Message: message}
	}
	bad := func(name nodestep.Name, message string) nodestep.Step {
		return nodestep.Step{Name: name, Message: message, Problem: true}
	}
	for name, test := range map[string]struct {
		seen seen
		want nodestep.Step
	}{
		"there is no pod":                    {seen{}, ok("NoPod", "there is no node pod yet")},
		"a Node of a pod that is gone":       {seen{API: connected, Node: ready}, ok("NoPod", "there is no node pod yet")},
		"the pod terminates":                 {seen{Pod: pod(well, func(p *corev1.Pod) { p.DeletionTimestamp = &now }), API: connected, Node: ready}, ok("Terminating", "the node pod is terminating")},
		"the pod was evicted":                {seen{Pod: pod(phase(corev1.PodFailed, "Evicted", "The node was low on resource: ephemeral-storage. "))}, bad("Failed", "the node pod has ended: Evicted: The node was low on resource: ephemeral-storage.")},
		"the pod has ended":                  {seen{Pod: pod(phase(corev1.PodSucceeded, "", ""))}, bad("Failed", "the node pod has ended")},
		"the pod is held by a gate":          {seen{Pod: unscheduled("SchedulingGated", "Scheduling is blocked", corev1.PodSchedulingGate{Name: "example.org/gate"})}, ok("Scheduling", "the node pod has the scheduling gate example.org/gate until its host is known")},
		"no host takes the pod":              {seen{Pod: unscheduled("Unschedulable", "0/3 nodes are available: 3 Insufficient memory.")}, bad("Scheduling", "the node pod is unschedulable: 0/3 nodes are available: 3 Insufficient memory.")},
		"the scheduler had an error":         {seen{Pod: unscheduled("SchedulerError", "x")}, ok("Scheduling", "the scheduler looks for a host")},
		"the scheduler has not seen the pod": {seen{Pod: &corev1.Pod{}}, ok("Scheduling", "the scheduler looks for a host")},
		"the host has not seen the pod":      {seen{Pod: pod()}, ok("Starting", "the host prepares volumes and network of the node pod")},
		"the host is known, not the condition": {
			seen{Pod: &corev1.Pod{Spec: corev1.PodSpec{NodeName: "host"}}}, ok("Starting", "the host prepares volumes and network of the node pod"),
		},
		"the condition is known, not the host": {
			seen{Pod: pod(func(p *corev1.Pod) { p.Spec.NodeName = "" })}, ok("Starting", "the host prepares volumes and network of the node pod"),
		},
		"the container is created":          {seen{Pod: pod(waiting("ContainerCreating", ""))}, ok("Starting", "the host prepares volumes and network of the node pod")},
		"the container is created in a pod": {seen{Pod: pod(waiting("PodInitializing", ""))}, ok("Starting", "the host prepares volumes and network of the node pod")},
		"the container waits for its image": {seen{Pod: pod(sandbox, waiting("ContainerCreating", ""))}, ok("PullingRunner", "the host pulls the runner's image")},
		"the image cannot be had":           {seen{Pod: pod(sandbox, waiting("ErrImagePull", `failed to resolve reference "r/x:1": read udp 10.0.0.1:4321->10.0.0.2:53: i/o timeout`))}, bad("PullingRunner", `the host cannot pull the runner's image: failed to resolve reference "r/x:1": read udp 10.0.0.1->10.0.0.2:53: i/o timeout`)},
		"the same in the pause after it":    {seen{Pod: pod(sandbox, waiting("ImagePullBackOff", `Back-off pulling image "r/x:1": ErrImagePull: failed to resolve reference "r/x:1": read udp 10.0.0.1:8765->10.0.0.2:53: i/o timeout`))}, bad("PullingRunner", `the host cannot pull the runner's image: failed to resolve reference "r/x:1": read udp 10.0.0.1->10.0.0.2:53: i/o timeout`)},
		"a pause that tells nothing":        {seen{Pod: pod(sandbox, waiting("ImagePullBackOff", `Back-off pulling image "r/x:1"`))}, bad("PullingRunner", "the host cannot pull the runner's image")},
		"the image's name is none":          {seen{Pod: pod(waiting("InvalidImageName", "couldn't parse image name"))}, bad("PullingRunner", "the host cannot pull the runner's image: couldn't parse image name")},
		"boot data is not there":            {seen{Pod: pod(waiting("CreateContainerConfigError", `secret "x" not found`))}, bad("Starting", `the host cannot start the runner: CreateContainerConfigError: secret "x" not found`)},
		"the container does not start":      {seen{Pod: pod(waiting("RunContainerError", "exec: not found"))}, bad("Starting", "the host cannot start the runner: RunContainerError: exec: not found")},
		"a back-off without an end":         {seen{Pod: pod(waiting("CrashLoopBackOff", "back-off 5m0s restarting"))}, bad("Starting", "the host cannot start the runner: CrashLoopBackOff: back-off … restarting")},
		"the guest image is got":            {seen{Pod: pod(image(corev1.ContainerStatus{State: imageRuns}))}, ok("GettingImage", "the host downloads the guest image; the log of container image has the progress")},
		"the guest image is got again": {
			seen{Pod: pod(image(corev1.ContainerStatus{State: imageRuns, LastTerminationState: imageFailed}))},
			bad("GettingImage", "the host downloads the guest image; last time it ended with ImageMismatch: other sum"),
		},
		"the guest image was not got": {seen{Pod: pod(image(corev1.ContainerStatus{State: imageFailed}))}, bad("GettingImage", "the host tries again to download the guest image; last time it ended with ImageMismatch: other sum")},
		"the guest image cannot be had": {
			seen{Pod: pod(image(corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}, LastTerminationState: imageFailed}))},
			bad("GettingImage", "the host cannot download the guest image; last time it ended with ImageMismatch: other sum"),
		},
		"nor can the image of what gets it": {
			seen{Pod: pod(image(corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "access denied"}}}))},
			bad("PullingRunner", "the host cannot pull the runner's image: access denied"),
		},
		"the guest image is there": {
			seen{Pod: pod(sandbox, image(corev1.ContainerStatus{State: corev1.ContainerState{Terminated: terminated(0, "Completed", "")}}))}, ok("PullingRunner", "the host pulls the runner's image"),
		},
		"a machine that runs has its image": {seen{Pod: pod(image(corev1.ContainerStatus{State: imageFailed}), func(p *corev1.Pod) { p.Status.ContainerStatuses = nil }, running)}, ok("Booting", "the machine boots: its kubelet does not answer yet")},
		"the runner ends repeatedly":        {seen{Pod: pod(waiting("CrashLoopBackOff", "back-off 5m0s restarting"), endedBefore(12, "Error", "ImageUnavailable: get https://x/y: 404\n\nconsole:\nlast: words\n"))}, bad("Failed", "the machine keeps failing; last time it ended with ImageUnavailable: get https://x/y: 404")},
		"with a sentence of several lines":  {seen{Pod: pod(waiting("CrashLoopBackOff", ""), endedBefore(20, "Error", "QEMURefused: a\n  b\n"))}, bad("Failed", "the machine keeps failing; last time it ended with QEMURefused: a b")},
		"the runner was killed for memory":  {seen{Pod: pod(waiting("CrashLoopBackOff", ""), endedBefore(137, "OOMKilled", ""))}, bad("Failed", "the machine keeps failing; last time it ended with code 137: OOMKilled")},
		"the guest shuts down all the time": {seen{Pod: pod(waiting("CrashLoopBackOff", ""), endedBefore(0, "Completed", "GuestShutDown: the guest shut itself down\n"))}, bad("Failed", "the machine keeps failing; last time it ended with GuestShutDown: the guest shut itself down")},
		"the runner has just ended":         {seen{Pod: pod(ended(21, "Error", "QEMUCrashed: signal: killed\n"))}, bad("Failed", "the machine is restarted; last time it ended with QEMUCrashed: signal: killed")},
		"the guest has just shut down":      {seen{Pod: pod(ended(0, "Completed", "GuestShutDown: the guest shut itself down\n"))}, ok("Failed", "the machine is restarted; last time it ended with GuestShutDown: the guest shut itself down")},
		"the machine boots":                 {seen{Pod: pod(running)}, ok("Booting", "the machine boots: its kubelet does not answer yet")},
		"the first master boots":            {seen{Pod: pod(running), API: nodestep.APIUnreachable}, ok("Booting", "the machine boots: its kubelet does not answer yet")},
		"the machine boots again":           {seen{Pod: pod(running, endedBefore(21, "Error", "QEMUCrashed: x\n")), API: connected, Node: node("Unknown", "", "")}, ok("NotReady", "the machine hangs or reboots: neither its Node nor its kubelet answers; last time it ended with QEMUCrashed: x")},
		"the kubelet has become silent":     {seen{Pod: pod(running), API: connected, Node: ready}, bad("NotReady", "the guest's kubelet does not answer the runner, although its Node is Ready")},
		"the same, by an old view":          {seen{Pod: pod(running), API: nodestep.APIUnreachable, Node: ready}, ok("Booting", "the machine boots: its kubelet does not answer yet")},
		"it boots while its Node goes":      {seen{Pod: pod(running), API: connected, Node: going(node("True", "", ""))}, ok("Booting", "the machine boots: its kubelet does not answer yet")},
		"the API was not queried yet":       {seen{Pod: pod(well)}, ok("WaitsForAPI", "the kubelet runs; the operator is connecting to the API server of the workload cluster")},
		"the operator connects":             {seen{Pod: pod(well), API: nodestep.APIConnecting, Node: ready}, ok("WaitsForAPI", "the kubelet runs; the operator is connecting to the API server of the workload cluster")},
		"the API is not there":              {seen{Pod: pod(well), API: nodestep.APIUnreachable, Request: refused, Node: ready}, ok("WaitsForAPI", "the kubelet runs; the API server of the workload cluster cannot be reached")},
		"the kubelet has not asked":         {seen{Pod: pod(well), API: connected}, ok("KubeletUp", "the kubelet runs and has not asked for a certificate yet")},
		"its request waits":                 {seen{Pod: pod(well), API: connected, Request: refused}, bad("RequestsCertificate", `its request for a certificate is not approved: NotANodePod: "x" is no node pod of this cluster`)},
		"its request is approved":           {seen{Pod: pod(well), API: connected, Request: granted}, ok("RequestsCertificate", "its certificate is being issued")},
		"the Node has not reported":         {seen{Pod: pod(well), API: connected, Node: &corev1.Node{}}, ok("NotReady", "its Node has not reported yet")},
		"there is no pod network":           {seen{Pod: pod(well), API: connected, Node: node("False", "KubeletNotReady", cniSays)}, ok("NetworkMissing", "its Node has no pod network yet: "+cniSays)},
		"the Node has just been started":    {seen{Pod: pod(well), API: connected, Node: node("False", "KubeletNotReady", "CSINode is not yet initialized")}, ok("NotReady", "its Node is not Ready: KubeletNotReady: CSINode is not yet initialized")},
		"the Node is not Ready":             {seen{Pod: pod(well), API: connected, Node: node("False", "KubeletNotReady", "PLEG is not healthy: pleg was last seen active 3m2.1s ago; threshold is 3m0s")}, bad("NotReady", "its Node is not Ready: KubeletNotReady: PLEG is not healthy: pleg was last seen active … ago; threshold is …")},
		"the machine hangs":                 {seen{Pod: pod(running), API: connected, Node: node("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")}, ok("NotReady", "the machine hangs or reboots: neither its Node nor its kubelet answers")},
		"the Node is silent":                {seen{Pod: pod(well), API: connected, Node: node("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")}, bad("NotReady", "its Node has stopped reporting: Kubelet stopped posting node status.")},
		"the Node is being deleted":         {seen{Pod: pod(well), API: connected, Node: going(node("True", "", ""))}, bad("NotReady", "its Node is being deleted in the workload cluster")},
		"the Node is Ready":                 {seen{Pod: pod(well), API: connected, Node: ready}, ok("Ready", "its Node is Ready")},
		"Ready, its certificate on the way": {seen{Pod: pod(well), API: connected, Request: granted, Node: ready}, ok("Ready", "its Node is Ready")},
		"Ready, but without a certificate":  {seen{Pod: pod(well), API: connected, Request: refused, Node: ready}, bad("Ready", `its Node is Ready; its request for a certificate is not approved: NotANodePod: "x" is no node pod of this cluster`)},
		"Ready, with a past":                {seen{Pod: pod(well, endedBefore(21, "Error", "QEMUCrashed: x\n")), API: connected, Node: ready}, ok("Ready", "its Node is Ready")},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, nodestep.At(test.seen)); diff != "" {
				t.Errorf("another step (-want +got):\n%s", diff)
			}
		})
	}
}

// TestStepsThatHang covers the steps whose machine has a console and that take longer than they should.
func TestStepsThatHang(t *testing.T) {
	for step, bound := range map[nodestep.Name]time.Duration{
		nodestep.Booting: 6 * time.Minute, nodestep.WaitsForAPI: 6 * time.Minute, nodestep.KubeletUp: 3 * time.Minute,
		nodestep.RequestsCertificate: 2 * time.Minute, nodestep.NetworkMissing: 4 * time.Minute, nodestep.NotReady: 2 * time.Minute,
	} {
		if nodestep.Hangs(step, bound-1) || !nodestep.Hangs(step, bound) {
			t.Errorf("%s does not hang from %s on", step, bound)
		}
	}
	for _, step := range []nodestep.Name{
		nodestep.NoPod, nodestep.Scheduling, nodestep.Starting, nodestep.PullingRunner, nodestep.GettingImage, nodestep.Ready, nodestep.Failed,
		nodestep.Terminating,
	} {
		if nodestep.Hangs(step, 1000*time.Hour) {
			t.Errorf("%s hangs, although no console shows the cause", step)
		}
	}
}

// TestConsoleOfTheLastEnd covers what the runner stored.
func TestConsoleOfTheLastEnd(t *testing.T) {
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"it runs for the first time": {pod(running), ""},
		"it is not there yet":        {pod(), ""},
		"it ended without a console": {pod(waiting("CrashLoopBackOff", ""), endedBefore(12, "Error", "ImageUnavailable: x\n")), ""},
		"it ended before":            {pod(running, endedBefore(21, "Error", "QEMUCrashed: x\n\nconsole:\na\nconsole:\nb\n")), "a\nconsole:\nb\n"},
		"it has just ended":          {pod(ended(21, "Error", "QEMUCrashed: x\n\nconsole:\nnew\n"), endedBefore(21, "Error", "QEMUCrashed: x\n\nconsole:\nold\n")), "new\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, nodestep.Console(test.pod)); diff != "" {
				t.Errorf("another console (-want +got):\n%s", diff)
			}
		})
	}
}
