package placing

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
)

// A variant changes what a node is decided on, and says why the node is refused then; empty if that is no reason.
type variant struct {
	change func(*situation)
	reason string
}

type situation struct {
	vm    *v1alpha1.SmolVM
	node  Node
	bound []Claim
}

const (
	notEligible = "runtime not ready, heartbeat stale, or endpoint missing"
	noMatch     = "nodeSelector does not match"
)

// none changes nothing.
func none(*situation) {}

// reports are all that a runtime can report.
func reports() []variant {
	beat := func(age time.Duration) *metav1.Time { t := metav1.NewTime(now.Add(-age)); return &t }
	endpoints := []v1alpha1.Endpoint{{PodIP: "192.0.2.1", Port: 9443}, {Port: 9443}, {PodIP: "192.0.2.1"}}
	var all []variant
	for bits := range 16 {
		ready, runtime, schedulable, kvm := bits&1 > 0, bits&2 > 0, bits&4 > 0, bits&8 > 0
		for _, accelerator := range []v1alpha1.Accelerator{"", v1alpha1.AcceleratorKVM, v1alpha1.AcceleratorTCG} {
			for protocol, spoken := range map[string]bool{"": true, "v1alpha1": true, "v1alpha2": false} {
				for i, heartbeat := range []*metav1.Time{beat(0), beat(2 * time.Minute), beat(-time.Minute), beat(2*time.Minute + time.Nanosecond), nil} {
					for j, endpoint := range endpoints {
						reason := notEligible
						if ready && runtime && schedulable && (kvm || accelerator == v1alpha1.AcceleratorTCG) && spoken && i < 3 && j == 0 {
							reason = ""
						}
						all = append(all, variant{reason: reason, change: func(s *situation) {
							status := &s.node.Runtime.Status
							status.Conditions, status.Accelerator, status.ProtocolVersion = conditions(ready, runtime, schedulable, kvm), accelerator, protocol
							status.HeartbeatTime, status.Endpoint = heartbeat, endpoint
						}})
					}
				}
			}
		}
	}
	return all
}

var selectors = []variant{
	{none, ""},
	{func(s *situation) { s.vm.Spec.NodeSelector = nil }, ""},
	{func(s *situation) { s.vm.Spec.NodeSelector = map[string]string{"zone": "b"} }, noMatch},
	{func(s *situation) { s.vm.Spec.NodeSelector = map[string]string{"zone": "a", "disk": ""} }, noMatch},
}

// hosts are all states of a Node.
func hosts() []variant {
	all := []variant{{func(s *situation) { s.node.Host = nil }, `Kubernetes Node unavailable: Node "n1" not found`}}
	for _, cordoned := range []bool{false, true} {
		for _, ready := range []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown, ""} {
			for _, taint := range taints {
				reason := taint.reason
				if ready != corev1.ConditionTrue {
					reason = "Kubernetes Node is not Ready"
				}
				if cordoned {
					reason = "Kubernetes Node is unschedulable"
				}
				all = append(all, variant{reason: reason, change: func(s *situation) {
					taint.change(s)
					s.node.Host.Spec.Unschedulable = cordoned
					s.node.Host.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
					if ready == "" {
						s.node.Host.Status.Conditions = nil
					}
				}})
			}
		}
	}
	return all
}

const untolerated = "Kubernetes Node has untolerated taint "

var taints = []variant{
	{none, ""},
	tainted("a", "b", corev1.TaintEffectNoSchedule, untolerated+"a=b:NoSchedule"),
	tainted("a", "b", corev1.TaintEffectNoExecute, untolerated+"a=b:NoExecute"),
	tainted("a", "", corev1.TaintEffectNoSchedule, untolerated+"a:NoSchedule"),
	tainted("a", "b", corev1.TaintEffectPreferNoSchedule, ""),
	tainted("a", "b", corev1.TaintEffectNoSchedule, "", corev1.Toleration{Key: "a", Value: "b"}),
	tainted("a", "b", corev1.TaintEffectNoExecute, "", corev1.Toleration{Key: "a", Operator: corev1.TolerationOpEqual, Value: "b", Effect: corev1.TaintEffectNoExecute}),
	tainted("a", "b", corev1.TaintEffectNoSchedule, "", corev1.Toleration{Key: "a", Operator: corev1.TolerationOpExists}),
	tainted("a", "b", corev1.TaintEffectNoSchedule, "", corev1.Toleration{Key: "c", Operator: corev1.TolerationOpExists}, corev1.Toleration{Operator: corev1.TolerationOpExists}),
	tainted("a", "b", corev1.TaintEffectNoSchedule, untolerated+"a=b:NoSchedule", corev1.Toleration{Key: "a", Value: "c"}, corev1.Toleration{Key: "c", Value: "b"}),
	tainted("a", "b", corev1.TaintEffectNoSchedule, untolerated+"a=b:NoSchedule", corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}),
	tainted("a", "", corev1.TaintEffectNoSchedule, untolerated+"a:NoSchedule", corev1.Toleration{}, corev1.Toleration{Key: "a", Operator: corev1.TolerationOpLt}),
}

func tainted(key, value string, effect corev1.TaintEffect, reason string, tolerations ...corev1.Toleration) variant {
	return variant{reason: reason, change: func(s *situation) {
		s.node.Host.Spec.Taints = []corev1.Taint{{Key: key, Value: value, Effect: effect}}
		s.vm.Spec.Tolerations = tolerations
	}}
}

// room are all combinations of enough, too little and unlimited, of ports, and of Claims that do and do not count.
func room() []variant {
	other := claim("other", "n1", withPort(9090))
	var all []variant
	for _, cpus := range []int32{4, 3, 0} {
		for _, memory := range []int64{2048, 2047, 0} {
			for _, storage := range []int64{60, 59, 0} {
				reason := ""
				switch {
				case cpus == 3:
					reason = "insufficient cpu: requested 2 used 2 allocatable 3"
				case memory == 2047:
					reason = "insufficient memory: requested 1024MiB used 1024MiB allocatable 2047MiB"
				case storage == 59:
					reason = "insufficient storage: requested 30GiB used 30GiB allocatable 59GiB"
				}
				for _, more := range claims {
					if reason != "" {
						more.reason = reason
					}
					all = append(all, variant{reason: more.reason, change: func(s *situation) {
						s.node.Runtime.Status.Allocatable = v1alpha1.Allocatable{CPUs: cpus, MemoryMiB: memory, StorageGiB: storage}
						s.bound = []Claim{other}
						more.change(s)
					}})
				}
			}
		}
	}
	return all
}

// claims are further Claims, none of which takes room of n1.
var claims = []variant{
	{none, ""},
	{func(s *situation) { s.bound = append(s.bound, claim("far", "n2", withPort(8080))) }, ""},
	{func(s *situation) { s.bound = append(s.bound, claim("unbound", "", withPort(8080))) }, ""},
	{func(s *situation) { s.bound = append(s.bound, claim("web", "n1", withPort(8080))) }, ""}, // the machine itself
	{func(s *situation) { s.bound = append(s.bound, portOnly("third", 8080)) }, "hostPort 8080 conflicts with team-b/third"},
	{func(s *situation) { s.bound = append(s.bound, portOnly("third", 8080), portOnly("second", 8080)) }, "hostPort 8080 conflicts with team-b/second"},
	{func(s *situation) { s.vm.Spec.Network.Ports, s.bound = nil, append(s.bound, portOnly("third", 8080)) }, ""},
}

// portOnly is a Claim of another namespace on nothing but a port.
func portOnly(name string, port int32) Claim {
	c := claim(name, "n1", withPort(port))
	c.VM.Namespace, c.CPUs, c.MemoryMiB, c.StorageGiB = "team-b", 0, 0, 0
	return c
}

// TestEveryStateOfANode decides every combination of what can be wrong with a node: the first reason in the order of the
// rules is given, and a node is chosen exactly if there is none.
func TestEveryStateOfANode(t *testing.T) {
	decided := 0
	check := func(variants ...variant) {
		want := ""
		s := situation{vm: machine("web"), node: node("n1")}
		for i, v := range variants {
			v.change(&s)
			if want == "" {
				want = variants[i].reason
			}
		}
		for _, pinned := range []bool{false, true} {
			decided++
			seen := Seen{Nodes: []Node{s.node}, Bound: s.bound, Now: now}
			format := "no ready SmolVMNode matches this VM: n1: %s"
			if pinned {
				s.vm.Spec.NodeName, format = "n1", "pinned node n1 is not eligible: %s"
			}
			got, message := Decide(s.vm, seen), ""
			if want != "" {
				message = fmt.Sprintf(format, want)
			}
			if got.Message != message || (got.Node == "n1") != (want == "") {
				t.Fatalf("%+v on %+v, %+v: %+v, want %q", s.vm.Spec, s.node.Runtime.Status, s.node.Host, got, message)
			}
		}
	}
	someRoom := []variant{room()[0], {func(s *situation) { s.bound = []Claim{portOnly("third", 8080)} }, "hostPort 8080 conflicts with team-b/third"}}
	allHosts := hosts()
	for _, report := range reports() {
		for _, selector := range selectors {
			for _, host := range []variant{allHosts[0], allHosts[1], allHosts[2], allHosts[13], allHosts[len(allHosts)-1]} {
				for _, rest := range someRoom {
					check(report, selector, host, rest)
				}
			}
		}
	}
	for _, selector := range selectors {
		for _, host := range allHosts {
			for _, rest := range room() {
				check(selector, host, rest)
			}
		}
	}
	t.Logf("%d states decided", decided)
	if decided < 200_000 {
		t.Errorf("only %d states were decided", decided)
	}
}
