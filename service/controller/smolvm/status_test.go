package smolvm

import (
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/machinespec"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/machinestep"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/placing"
	"github.com/kvm-operator/kvm-operator/pkg/smolvmcluster/state"
)

// answers is a runtime that answers each step with one Progress.
type answers struct {
	progress state.Progress
	did      []machinestep.Action
}

func (a *answers) Do(_ context.Context, s *state.State) state.Progress {
	a.did = append(a.did, s.Step.Action)
	return a.progress
}

// seen returns what is observed of a SmolVM that runs as it is declared.
func seen() state.Observed {
	vm := &v1alpha1.SmolVM{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "web", UID: "u", Generation: 3}}
	vm.Spec = v1alpha1.SmolVMSpec{Running: true, Image: "nginx", Storage: v1alpha1.Storage{StorageGiB: 20}, Network: v1alpha1.Network{Ports: []v1alpha1.Port{{HostPort: 8080, GuestPort: 80}}}}
	vm.Status.NodeName, vm.Status.NodeUID, vm.Status.MachineName = "n1", "node-uid", machinespec.Name(vm)
	return state.Observed{VM: vm, Cluster: "c", Now: time.Unix(1_700_000_000, 0), Runtime: state.Runtime{Known: true, NodeUID: "node-uid", Machine: &api.Machine{
		Name: vm.Status.MachineName, State: api.StateRunning, CPUs: 1, MemoryMB: 512, PID: 7, Image: "nginx", StorageGB: 20, OverlayGB: 10,
		Ports: []api.Port{{Host: 8080, Guest: 80}}, Owner: &api.Owner{UID: "u"}, SpecHash: machinespec.Hash(&vm.Spec),
		StartedAt: 1_699_999_999, ImageDigest: "sha256:abc", Workload: api.WorkloadRunning, Accelerator: "kvm",
	}}}
}

func unplaced(o *state.Observed) {
	o.VM.Status, o.Runtime = v1alpha1.SmolVMStatus{}, state.Runtime{}
}

func in(s api.State) func(*state.Observed) {
	return func(o *state.Observed) {
		m := o.Runtime.Machine
		m.State, m.PID, m.Accelerator, m.Workload = s, 0, "", ""
	}
}

func deleting(o *state.Observed) {
	o.VM.DeletionTimestamp = new(metav1.NewTime(o.Now))
}

func away(o *state.Observed) {
	o.Runtime = state.Runtime{Known: true, Reason: v1alpha1.ReasonRuntimeUnavailable, Message: "runtime of node n1 at https://10.0.0.1:9443: connection refused"}
}

func all(changes ...func(*state.Observed)) func(*state.Observed) {
	return func(o *state.Observed) {
		for _, change := range changes {
			change(o)
		}
	}
}

func failed(reason string) state.Progress {
	return state.Progress{Reason: reason, Message: "smolvm API returned HTTP 500: " + reason, After: time.Second}
}

// situations are those that statuses are recorded of.
var situations = map[string]struct {
	change   func(*state.Observed)
	progress state.Progress
}{
	"no node suits": {change: all(unplaced, func(o *state.Observed) { o.Decision.Message = "no SmolVMNode objects exist" })},
	"a node is chosen": {change: all(unplaced, func(o *state.Observed) {
		o.Decision, o.DecisionUID = placing.Decision{Node: "n1"}, "node-uid"
	})},
	"the spec contradicts itself":  {change: all(unplaced, func(o *state.Observed) { o.VM.Spec.From = "/a" })},
	"the spec names another node":  {change: func(o *state.Observed) { o.VM.Spec.NodeName = "n2" }},
	"the runtime has not answered": {change: func(o *state.Observed) { o.Runtime = state.Runtime{} }},
	"the runtime does not answer for long": {change: func(o *state.Observed) {
		o.Runtime = state.Runtime{Message: "the runtime of node n1 has not answered yet"}
	}},
	"the machine is being made":             {change: func(o *state.Observed) { o.Runtime.Machine = nil }},
	"the machine cannot be made":            {change: func(o *state.Observed) { o.Runtime.Machine = nil }, progress: failed(v1alpha1.ReasonDiskFull)},
	"there is no room for the machine":      {change: func(o *state.Observed) { o.Runtime.Machine, o.Shortage = nil, "insufficient cpu" }},
	"the machine is being started at first": {change: in(api.StateCreated)},
	"the machine cannot be started":         {change: in(api.StateCreated), progress: failed(v1alpha1.ReasonPortConflict)},
	"the machine runs":                      {change: func(*state.Observed) {}},
	"the image's process has ended": {change: func(o *state.Observed) {
		o.Runtime.Machine.Workload, o.Runtime.Machine.ExitCode = api.WorkloadEnded, new(3)
	}},
	"the machine is being stopped": {change: func(o *state.Observed) { o.VM.Spec.Running = false }},
	"the machine is stopped":       {change: all(in(api.StateStopped), func(o *state.Observed) { o.VM.Spec.Running = false })},
	"the machine was never to run": {change: all(in(api.StateCreated), func(o *state.Observed) { o.VM.Spec.Running = false })},
	"the machine is started again": {change: in(api.StateStopped)},
	"the machine has failed": {change: all(in(api.StateFailed), func(o *state.Observed) {
		o.Runtime.Machine.Message = "QEMU ended with code 1"
	}), progress: failed(v1alpha1.ReasonImagePullFailed)},
	"the guest does not answer":                     {change: in(api.StateUnreachable)},
	"the machine is in a state of smolvm's":         {change: in("frozen")},
	"a disk is to grow while it runs":               {change: func(o *state.Observed) { o.VM.Spec.Storage.StorageGiB = 30 }},
	"a disk grows":                                  {change: all(in(api.StateStopped), func(o *state.Observed) { o.VM.Spec.Running, o.VM.Spec.Storage.StorageGiB = false, 30 })},
	"a disk is to shrink":                           {change: func(o *state.Observed) { o.VM.Spec.Storage.StorageGiB = 10 }},
	"what is immutable was changed":                 {change: func(o *state.Observed) { o.VM.Spec.Image = "debian" }},
	"what is not reported was changed":              {change: func(o *state.Observed) { o.VM.Spec.Args = []string{"a"} }},
	"the machine is another object's":               {change: func(o *state.Observed) { o.Runtime.Machine.Owner.UID = "v" }},
	"the runtime is away":                           {change: away},
	"another answers in the runtime's place":        {change: func(o *state.Observed) { away(o); o.Runtime.Reason = v1alpha1.ReasonCertificateMismatch }},
	"the machine is missing":                        {change: func(o *state.Observed) { o.Runtime.Machine, o.VM.Status.Phase = nil, v1alpha1.PhaseRunning }},
	"the node was replaced":                         {change: func(o *state.Observed) { o.Runtime.Machine, o.Runtime.NodeUID = nil, "another" }},
	"the machine came along to another node":        {change: func(o *state.Observed) { o.Runtime.NodeUID = "another" }},
	"the machine is being deleted":                  {change: deleting},
	"the machine cannot be deleted":                 {change: deleting, progress: failed(v1alpha1.ReasonTimeout)},
	"the machine is deleted while it is being made": {change: all(deleting, func(o *state.Observed) { o.Runtime = state.Runtime{} })},
	"the deletion is blocked":                       {change: all(deleting, away)},
	"the deletion is blocked no longer": {change: all(deleting, func(o *state.Observed) {
		o.VM.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionDeletionBlocked, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonRuntimeUnavailable}}
	})},
}

// pass runs the chain over what was observed, and returns the status after it.
func pass(o state.Observed, runtime *answers) (v1alpha1.SmolVMStatus, *state.State) {
	s := state.Plan(o)
	return status(s, newChain(runtime).Run(context.Background(), s, o.VM.DeletionTimestamp != nil)), s
}

// TestEveryStatusIsAsRecorded compares the statuses of all situations with testdata/statuses.golden, which UPDATE=1
// rewrites. A status is not written again while nothing changes.
func TestEveryStatusIsAsRecorded(t *testing.T) {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(situations)) {
		situation, o := situations[name], seen()
		situation.change(&o)
		runtime := &answers{progress: situation.progress}
		next, s := pass(o, runtime)
		fmt.Fprintf(&text, "%s: step %s, asked for %v\n%s\n", name, s.Step.Action, runtime.did, describe(next))
		if again := seen(); o.Decision.Node == "" {
			situation.change(&again)
			again.VM.Status, again.Now = next, again.Now.Add(time.Hour)
			if second, _ := pass(again, &answers{progress: situation.progress}); !equality.Semantic.DeepEqual(next, second) {
				t.Errorf("%s: it would be written again (-stored +next):\n%s", name, cmp.Diff(next, second))
			}
		}
	}
	path := filepath.Join("testdata", "statuses.golden")
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (UPDATE=1 writes it)", err)
	}
	if diff := cmp.Diff(string(want), text.String()); diff != "" {
		t.Errorf("%s (-recorded +now):\n%s", path, diff)
	}
}

func describe(s v1alpha1.SmolVMStatus) string {
	var text strings.Builder
	fmt.Fprintf(&text, "  %s on %s (%s), generation %d", s.Phase, s.NodeName, s.NodeUID, s.ObservedGeneration)
	if s.RuntimePID != nil {
		fmt.Fprintf(&text, ", pid %d", *s.RuntimePID)
	}
	if s.ExitCode != nil {
		fmt.Fprintf(&text, ", exit code %d", *s.ExitCode)
	}
	text.WriteString("\n")
	for _, c := range s.Conditions {
		fmt.Fprintf(&text, "  %s %s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
	}
	return text.String()
}

// TestNoStatusIsRefused: whatever a runtime answers, and whatever state it is in, the status is one that the API server
// takes, and one that is not written repeatedly.
func TestNoStatusIsRefused(t *testing.T) {
	hostile := func(o *state.Observed) {
		m := o.Runtime.Machine
		m.PID, m.ExitCode, m.StartedAt, m.StorageGB, m.OverlayGB = math.MaxInt64, new(math.MaxInt64), math.MaxInt64, -1, math.MinInt64
		m.ImageDigest, m.Message, m.Image, m.Accelerator = strings.Repeat("d", 1<<20), strings.Repeat("m", 1<<20), strings.Repeat("i", 1<<20), "magic"
		m.Ports = slices.Repeat([]api.Port{{Host: 1}, {Guest: 1}, {Host: 2, Guest: 3}}, 1000)
	}
	decided := 0
	for _, running := range []bool{true, false} {
		for _, gone := range []bool{true, false} {
			for _, machine := range []api.State{"", api.StateCreated, api.StateRunning, api.StateStopped, api.StateFailed, api.StateUnreachable, api.State(strings.Repeat("s", 1<<20))} {
				for _, reason := range []string{"", v1alpha1.ReasonTimeout, v1alpha1.ReasonInvalidRequest} {
					for _, uid := range []types.UID{"node-uid", "another", ""} {
						o := seen()
						o.VM.Spec.Running, o.Runtime.Machine.State = running, machine
						hostile(&o)
						if gone {
							deleting(&o)
						}
						if machine == "" {
							o.Runtime.Machine = nil
						}
						o.Runtime.NodeUID = uid
						next, _ := pass(o, &answers{progress: state.Progress{Reason: reason, Message: reason}})
						check(t, next)
						decided++
					}
				}
			}
		}
	}
	t.Logf("%d situations", decided)
}

// check returns what the definition of SmolVM says against a status.
func check(t *testing.T, s v1alpha1.SmolVMStatus) {
	t.Helper()
	there := map[string]bool{}
	for _, c := range s.Conditions {
		if there[c.Type] || c.Reason == "" || len(c.Message) > 32768 || c.LastTransitionTime.IsZero() {
			t.Errorf("the condition %s %s %s with %d bytes is refused, or there twice", c.Type, c.Status, c.Reason, len(c.Message))
		}
		there[c.Type] = true
	}
	if slices.ContainsFunc(s.Ports, func(p v1alpha1.Port) bool { return p.HostPort < 1 || p.GuestPort < 1 }) {
		t.Errorf("the status has ports that are none: %v", s.Ports)
	}
	if len(s.Ports) > 128 || len(s.ImageDigest) > maxDigest || s.Accelerator == "magic" || s.StartTime != nil && s.StartTime.Year() > 9999 ||
		s.StorageGiB != nil && *s.StorageGiB < 0 || s.RuntimePID != nil && *s.RuntimePID < 0 {
		t.Errorf("the status has what no machine has: %d ports, %d bytes of a digest, %s", len(s.Ports), len(s.ImageDigest), s.Accelerator)
	}
}
