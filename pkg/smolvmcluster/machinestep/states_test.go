package machinestep

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// situation is what a step depends on, each thing by its own value.
type situation struct {
	deleting          bool
	force, recreate   string
	bound             string // the node that has the machine; the spec pins n1 if pinned
	pinned            bool
	unavailable       bool
	recorded, reports types.UID
	trace             string // by which the status shows that the machine was seen
	state             api.State
	owner             string // of the machine
	drift             string
	disks             string
	running, short    bool
}

const absent api.State = "absent"

var (
	flags  = []bool{false, true}
	states = []api.State{api.StateCreated, api.StateRunning, api.StateStopped, api.StateFailed, api.StateUnreachable, "frozen"}
	// owners are those of the machine: none is known, the object itself, or another.
	owners = []string{"", uid, "another"}
	// changes are what was changed in the spec: nothing, what the runtime reports, or what only its hash shows.
	changes = []string{"", "cpus", "hash"}
	// disks are the sizes that the spec asks for.
	disks = []string{"same", "unset", "larger", "smaller", "both"}
	// traces are what the status of a machine that was seen may have; each alone is enough.
	traces = map[string]func(*v1alpha1.SmolVMStatus){
		"": func(s *v1alpha1.SmolVMStatus) { s.Phase = v1alpha1.PhaseScheduled },
		"condition": func(s *v1alpha1.SmolVMStatus) {
			s.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionLocalStateLost}}
		},
		"lost": func(s *v1alpha1.SmolVMStatus) {
			s.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionLocalStateLost, Status: metav1.ConditionTrue}}
		},
		"phase":   func(s *v1alpha1.SmolVMStatus) { s.Phase = v1alpha1.PhaseStopped },
		"process": func(s *v1alpha1.SmolVMStatus) { s.RuntimePID = new(int32) },
		"size":    func(s *v1alpha1.SmolVMStatus) { s.StorageGiB = new(int64) },
		"start":   func(s *v1alpha1.SmolVMStatus) { s.StartTime = &metav1.Time{} },
	}
)

const uid = "uid"

// stored is the name of the machine, which ends as that UID demands.
const stored = "k8s-m-17b788a70e"

// seen builds what Decide gets.
func (s situation) seen() Seen {
	vm := &v1alpha1.SmolVM{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "web", UID: uid, Annotations: map[string]string{
		v1alpha1.AnnotationForceDelete: s.force, v1alpha1.AnnotationRecreate: s.recreate,
	}}}
	if s.deleting {
		vm.DeletionTimestamp = &metav1.Time{}
	}
	vm.Spec = v1alpha1.SmolVMSpec{Image: "alpine", Running: s.running, Resources: v1alpha1.Resources{CPUs: 2}, Storage: v1alpha1.Storage{StorageGiB: 20, OverlayGiB: 10}}
	if s.pinned {
		vm.Spec.NodeName = "n1"
	}
	traces[s.trace](&vm.Status)
	vm.Status.NodeName, vm.Status.NodeUID, vm.Status.MachineName = s.bound, s.recorded, stored
	switch s.disks {
	case "unset":
		vm.Spec.Storage = v1alpha1.Storage{}
	case "larger":
		vm.Spec.Storage.StorageGiB = 30
	case "smaller":
		vm.Spec.Storage.OverlayGiB = 5
	case "both":
		vm.Spec.Storage = v1alpha1.Storage{StorageGiB: 30, OverlayGiB: 5}
	}
	seen := Seen{VM: vm, NodeUID: s.reports, SpecHash: "smolvm1a"}
	if s.unavailable {
		seen.Unavailable = "no answer"
	}
	if s.short {
		seen.Shortage = "insufficient storage"
	}
	if s.state != absent && !s.unavailable {
		seen.Machine = &api.Machine{Name: stored, State: s.state, CPUs: 2, MemoryMB: 512, StorageGB: 20, OverlayGB: 10, Image: "alpine", SpecHash: "smolvm1a", Owner: &api.Owner{UID: s.owner}}
		switch s.drift {
		case "cpus":
			seen.Machine.CPUs, seen.Machine.SpecHash = 1, "smolvm1b"
		case "hash":
			seen.Machine.SpecHash = "smolvm1b"
		}
	}
	return seen
}

// A row of the table of steps: the first row that holds gives the step.
type row struct {
	holds          func(situation) bool
	action, reason string
}

func (s situation) ours() bool { return s.state != absent && s.owner != "another" }
func (s situation) lost() bool {
	return s.recorded != "" && s.reports != "" && s.recorded != s.reports
}

// recreated: the annotation counts once the loss is stored.
func (s situation) recreated() bool { return s.recreate == "true" && s.trace == "lost" }
func (s situation) up() bool        { return s.state == api.StateRunning || s.state == api.StateUnreachable }
func (s situation) down() bool      { return !s.up() && s.state != "frozen" }
func (s situation) grows() bool     { return s.disks == "larger" }
func (s situation) shrinks() bool   { return s.disks == "smaller" || s.disks == "both" }

// rows are the steps in words, apart from what is objected to while something is done.
var rows = []row{
	{func(s situation) bool { return s.deleting && s.bound == "" }, "Release", ""},
	{func(s situation) bool { return s.deleting && s.unavailable && s.force == "true" }, "Release", "ForceDeleteLocalState"},
	{func(s situation) bool { return s.deleting && s.unavailable }, "Refuse", "DeletionBlocked"},
	{func(s situation) bool { return s.deleting && s.ours() }, "Delete", ""},
	{func(s situation) bool { return s.deleting }, "Release", ""},
	{func(s situation) bool { return s.pinned && s.bound == "n2" }, "Refuse", "InvalidSpec"},
	{func(s situation) bool { return s.bound == "" }, "Refuse", "AwaitingNodeAssignment"},
	{func(s situation) bool { return s.unavailable }, "Refuse", "RuntimeUnavailable"},
	{func(s situation) bool { return s.state == absent && !s.recreated() && s.lost() }, "Refuse", "NodeReplaced"},
	{func(s situation) bool { return s.state == absent && !s.recreated() && s.trace != "" }, "Refuse", "MachineMissing"},
	{func(s situation) bool { return s.state == absent && s.short }, "Refuse", "InsufficientResources"},
	{func(s situation) bool { return s.state == absent }, "Create", ""},
	{func(s situation) bool { return !s.ours() }, "Refuse", "MachineNotOwned"},
	{func(s situation) bool { return s.up() && !s.running }, "Stop", "*"},
	{func(s situation) bool { return s.state == api.StateUnreachable }, "Refuse", "MachineUnreachable"},
	{func(s situation) bool { return s.grows() && s.down() && !s.short }, "Resize", "*"},
	{func(s situation) bool { return s.running && s.state != api.StateRunning }, "Start", "*"},
	{func(s situation) bool { return s.drift != "" || s.shrinks() || s.grows() }, "Refuse", "*"},
	{func(situation) bool { return true }, "Nothing", ""},
}

// objected are the reasons of the rows with a star; the first one that holds counts.
var objected = []row{
	{func(s situation) bool { return s.drift != "" }, "", "UnsupportedUpdate"},
	{situation.shrinks, "", "InvalidStorageResize"},
	{func(s situation) bool { return s.grows() && s.short }, "", "InsufficientResources"},
	{func(s situation) bool { return s.grows() && (s.up() && s.running || s.state == "frozen") }, "", "ResizeRequiresStoppedMachine"},
	{func(situation) bool { return true }, "", ""},
}

func first(rows []row, s situation) row {
	return rows[slices.IndexFunc(rows, func(r row) bool { return r.holds(s) })]
}

// TestEveryState decides every combination of what a step depends on.
func TestEveryState(t *testing.T) {
	decided, used := 0, map[string]int{}
	eachSituation(func(s situation) {
		decided++
		want := first(rows, s)
		if want.reason == "*" {
			want.reason = first(objected, s).reason
		}
		got := Decide(s.seen())
		if string(got.Action) != want.action || got.Reason != want.reason {
			t.Fatalf("%+v: %s for %q, want %s for %q", s, got.Action, got.Reason, want.action, want.reason)
		}
		if complaint := s.check(got); complaint != "" {
			t.Fatalf("%+v: %+v: %s", s, got, complaint)
		}
		used[want.action+" "+want.reason]++
	})
	t.Logf("%d states decided", decided)
	for _, step := range slices.Sorted(maps.Keys(used)) {
		t.Logf("%8d %s", used[step], step)
	}
	if decided < 100_000 || len(used) < 25 {
		t.Errorf("only %d states were decided, with %d results", decided, len(used))
	}
}

// check holds what must never happen against a step, with nothing of the tables.
func (s situation) check(got Step) string {
	asks := slices.Contains([]Action{Create, Start, Stop, Resize, Delete}, got.Action)
	switch {
	case asks && s.unavailable:
		return "a runtime is asked that cannot be"
	case asks && got.Action != Create && !s.ours():
		return "a machine is touched that is not there, or is not ours"
	case got.Action == Create && (s.lost() || s.trace != "") && s.recreate != "true":
		return "a machine whose state is lost is created again without being asked"
	case got.Action == Create && s.state != absent, got.Action == Delete && !s.deleting, got.Action == Release && !s.deleting:
		return "this destroys something"
	case got.Action == Stop && s.running, got.Action == Start && !s.running:
		return "this is the opposite of what is wanted"
	case got.Action == Resize && (s.up() || got.Resize.StorageGB == nil || *got.Resize.StorageGB != 30 || *got.Resize.OverlayGB != 10):
		return "these disks cannot be resized so"
	case got.Action == Refuse && (got.Reason == "" || got.Message == ""), got.Action == Nothing && got.Reason != "":
		return "the reason is missing, or there is one without need"
	case got.StateLost() && (s.unavailable || s.state != absent):
		return "the state is not lost"
	}
	uid := s.recorded
	if s.bound != "" && s.reports != "" && (s.recorded == "" || got.Action == Create || s.ours() && !s.unavailable) {
		uid = s.reports
	}
	if got.NodeUID != uid {
		return fmt.Sprintf("the UID %q would be stored, want %q", got.NodeUID, uid)
	}
	return ""
}

// eachSituation visits all situations. Without an answer, or without a machine, what is about the machine does not matter.
func eachSituation(visit func(situation)) {
	eachDeclaration(func(s situation) {
		for _, s.short = range flags {
			s.state = absent
			for _, s.trace = range slices.Sorted(maps.Keys(traces)) {
				visit(s)
			}
		}
		if s.unavailable {
			return
		}
		s.trace = "condition"
		for _, s.state = range states {
			for _, s.owner = range owners {
				for _, s.drift = range changes {
					for _, s.disks = range disks {
						for _, s.short = range flags {
							visit(s)
						}
					}
				}
			}
		}
	})
}

// eachDeclaration visits what does not depend on the machine.
func eachDeclaration(visit func(situation)) {
	annotations := []string{"", "true", "True"}
	for bits := range 16 {
		s := situation{deleting: bits&1 > 0, running: bits&2 > 0, unavailable: bits&4 > 0, pinned: bits&8 > 0}
		for _, s.bound = range []string{"", "n1", "n2"} {
			for _, s.force = range annotations {
				for _, s.recreate = range annotations {
					for _, uids := range [][2]types.UID{{"", ""}, {"a", ""}, {"", "a"}, {"a", "a"}, {"a", "b"}} {
						s.recorded, s.reports = uids[0], uids[1]
						visit(s)
					}
				}
			}
		}
	}
}
