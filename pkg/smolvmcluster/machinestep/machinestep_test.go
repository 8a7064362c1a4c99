package machinestep

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// changed is what Decide gets for a machine that runs as it should, and a test changes.
func changed(change func(*Seen)) Seen {
	s := situation{bound: "n1", running: true, state: api.StateRunning, disks: "same", recorded: "a", reports: "a"}.seen()
	change(&s)
	return s
}

// seenBefore makes the machine one that was seen.
func seenBefore(s *Seen) { s.VM.Status.Phase = v1alpha1.PhaseRunning }

func now() *metav1.Time { return &metav1.Time{Time: time.Unix(1, 0)} }

func TestWhatASpecIsToldToDifferIn(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Seen)
		want   string
	}{
		"CPUs":   {func(s *Seen) { s.VM.Spec.Resources.CPUs = 4 }, "cpus is immutable after creation; runtime has 2 and spec requests 4"},
		"memory": {func(s *Seen) { s.VM.Spec.Resources.MemoryMiB = 1024 }, "memoryMiB is immutable after creation; runtime has 512 and spec requests 1024"},
		"ports": {
			func(s *Seen) { s.VM.Spec.Network.Ports = []v1alpha1.Port{{HostPort: 1, GuestPort: 1}} }, "network port mappings are immutable after creation",
		},
		"another port of the guest": {func(s *Seen) {
			s.VM.Spec.Network.Ports, s.Machine.Ports = []v1alpha1.Port{{HostPort: 1, GuestPort: 1}}, []api.Port{{Host: 1, Guest: 2}}
		}, "network port mappings are immutable after creation"},
		"no ports":        {func(s *Seen) { s.Machine.Ports = []api.Port{{Host: 1, Guest: 1}} }, "network port mappings are immutable after creation"},
		"the image":       {func(s *Seen) { s.VM.Spec.Image = "debian" }, `image is immutable after creation; runtime has "alpine" and spec requests "debian"`},
		"an outbound way": {func(s *Seen) { s.VM.Spec.Network.Enabled = true }, "network.enabled is immutable after creation; runtime has false and spec requests true"},
		"networks":        {func(s *Seen) { s.VM.Spec.Network.AllowedCIDRs = []string{"192.0.2.0/24"} }, "network.allowedCIDRs are immutable after creation"},
		"no networks":     {func(s *Seen) { s.Machine.AllowedCIDRs = &[]string{"192.0.2.0/24"} }, "network.allowedCIDRs are immutable after creation"},
		"something else":  {func(s *Seen) { s.SpecHash = "smolvm1b" }, "the machine was created with another spec, and of it command, args, env, workingDir and memoryMiB are immutable after creation"},
		"a file, by an image": {
			func(s *Seen) { s.VM.Spec.Image, s.VM.Spec.From = "", "/a" },
			`image is immutable after creation; runtime has "alpine" and spec requests ""; from is immutable after creation; runtime has "" and spec requests "/a"`,
		},
		"two things": {
			func(s *Seen) { s.VM.Spec.Resources = v1alpha1.Resources{CPUs: 4, MemoryMiB: 64} },
			"cpus is immutable after creation; runtime has 2 and spec requests 4; memoryMiB is immutable after creation; runtime has 512 and spec requests 64",
		},
		"nothing: ports in another order": {func(s *Seen) {
			s.VM.Spec.Network.Ports = []v1alpha1.Port{{HostPort: 1, GuestPort: 1}, {HostPort: 2, GuestPort: 1}}
			s.Machine.Ports = []api.Port{{Host: 2, Guest: 1}, {Host: 1, Guest: 1}}
		}, ""},
		"nothing: networks in another form and order": {func(s *Seen) {
			s.VM.Spec.Network.AllowedCIDRs, s.Machine.AllowedCIDRs = []string{"192.0.2.7/24", "198.51.100.0/24"}, &[]string{"198.51.100.0/24", "192.0.2.0/24"}
		}, ""},
		"nothing: CPUs that are left out":        {func(s *Seen) { s.VM.Spec.Resources.CPUs = 0 }, ""},
		"nothing: an image that is not reported": {func(s *Seen) { s.Machine.Image, s.Machine.SpecHash, s.VM.Spec.Image = "", "", "debian" }, ""},
		"nothing: a hash of the runtime's own":   {func(s *Seen) { s.Machine.SpecHash = "b" }, ""},
		"nothing: a hash that is not known":      {func(s *Seen) { s.SpecHash = "" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := Decide(changed(test.change))
			if test.want == "" && (got.Action != Nothing || got.Reason != "") {
				t.Errorf("it is %+v", got)
			}
			if test.want != "" && (got.Action != Refuse || got.Reason != v1alpha1.ReasonUnsupportedUpdate || got.Message != test.want) {
				t.Errorf("it is %+v, want %q", got, test.want)
			}
		})
	}
}

func TestWhatIsSaid(t *testing.T) {
	gone := func(s *Seen) { s.Machine = nil }
	for name, test := range map[string]struct {
		change func(*Seen)
		want   string
	}{
		"everything matches":                     {func(*Seen) {}, "desired state matches smolvm runtime state"},
		"everything matches, as far as is known": {func(s *Seen) { s.SpecHash, s.VM.Spec.Command = "", []string{"a"} }, "desired state matches smolvm runtime state, as far as the runtime reports it: command, args, env, workingDir and memoryMiB cannot be compared"},
		"a disk shrinks":                         {func(s *Seen) { s.VM.Spec.Storage.StorageGiB = 5 }, "storageGiB cannot shrink from 20 to 5"},
		"both disks shrink":                      {func(s *Seen) { s.VM.Spec.Storage = v1alpha1.Storage{StorageGiB: 5, OverlayGiB: 6} }, "storageGiB cannot shrink from 20 to 5; overlayGiB cannot shrink from 10 to 6"},
		"a disk grows while it runs":             {func(s *Seen) { s.VM.Spec.Storage.StorageGiB = 30 }, "set spec.running=false before expanding storage"},
		"a disk grows in an unknown state":       {func(s *Seen) { s.VM.Spec.Running, s.Machine.State, s.VM.Spec.Storage.StorageGiB = false, "frozen", 30 }, "the machine is frozen; its storage can be expanded once it is stopped"},
		"no room for a disk": {
			func(s *Seen) { s.VM.Spec.Storage.StorageGiB, s.Shortage = 30, "insufficient storage" }, "node n1 has no room for the larger disks: insufficient storage",
		},
		"the guest is silent":                  {func(s *Seen) { s.Machine.State = api.StateUnreachable }, "the guest does not answer; to restart it, set spec.running to false, and to true once it has stopped"},
		"the guest is silent, and is known of": {func(s *Seen) { s.Machine.State, s.Machine.Message = api.StateUnreachable, "no pong" }, "the guest does not answer: no pong; to restart it, set spec.running to false, and to true once it has stopped"},
		"the machine is gone":                  {gone, `node n1 no longer has machine k8s-m-17b788a70e and its disks; to create it again with empty disks, set the annotation vm.smolvm.dev/recreate-lost-local-state: "true"`},
		"the node is another": {
			func(s *Seen) { s.Machine, s.NodeUID = nil, "b" },
			`node n1 was replaced since machine k8s-m-17b788a70e was created, and does not have its disks; to create it again with empty disks, set the annotation vm.smolvm.dev/recreate-lost-local-state: "true"`,
		},
		"the machine is another's": {
			func(s *Seen) { s.Machine.Owner = &api.Owner{Namespace: "b", Name: "c", UID: "d"} }, "machine k8s-m-17b788a70e of node n1 belongs to SmolVM b/c with UID d; it is left alone",
		},
		"the runtime does not answer": {func(s *Seen) { s.Unavailable = "get machine: timeout" }, "get machine: timeout"},
		"nothing is deleted":          {func(s *Seen) { s.Unavailable, s.VM.DeletionTimestamp = "a", now() }, "owning node n1 is unavailable; local VM state may still exist"},
		"it is given up": {func(s *Seen) {
			s.Unavailable, s.VM.DeletionTimestamp = "a", now()
			s.VM.Annotations[v1alpha1.AnnotationForceDelete] = "true"
		}, "removing finalizer while runtime for node n1 is unavailable; local VM state may remain"},
		"no room for the machine": {func(s *Seen) {
			s.Machine, s.VM.Status.Conditions, s.VM.Status.Phase, s.Shortage = nil, nil, v1alpha1.PhaseScheduled, "insufficient cpu"
		}, "node n1 has no room for the machine: insufficient cpu"},
		"no node":        {func(s *Seen) { s.VM.Status.NodeName = "" }, "no node has been chosen"},
		"a bad spec":     {func(s *Seen) { s.VM.Spec.Image = "" }, "one of spec.image or spec.from is required"},
		"another's node": {func(s *Seen) { s.VM.Spec.NodeName = "n2" }, `spec.nodeName is immutable after binding; machine is owned by node "n1"`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Decide(changed(func(s *Seen) { seenBefore(s); test.change(s) })); got.Message != test.want {
				t.Errorf("it is %+v, want %q", got, test.want)
			}
		})
	}
}

// TestAMachineComesToItsSpec follows the steps from nothing to a running machine, to larger disks and to its end.
func TestAMachineComesToItsSpec(t *testing.T) {
	s := situation{bound: "n1", running: true, state: absent, disks: "same", reports: "a"}.seen()
	var took []string
	follow := func() {
		for range 10 {
			step := Decide(s)
			took = append(took, string(step.Action))
			s.VM.Status.NodeUID = step.NodeUID
			switch step.Action {
			case Create:
				s.Machine = &api.Machine{Name: "m", State: api.StateCreated, CPUs: 2, Image: "alpine", SpecHash: "smolvm1a", StorageGB: 20, OverlayGB: 10}
			case Start:
				s.Machine.State = api.StateRunning
			case Stop:
				s.Machine.State = api.StateStopped
			case Resize:
				s.Machine.StorageGB, s.Machine.OverlayGB = *step.Resize.StorageGB, *step.Resize.OverlayGB
			case Delete:
				s.Machine = nil
			case Nothing, Refuse, Release:
				return
			}
		}
	}
	follow()
	s.VM.Spec.Storage.StorageGiB = 30
	follow()
	s.VM.Spec.Running = false // with the larger disk, which smolvm-operator would not get to
	follow()
	s.VM.Spec.Running = true
	follow()
	s.VM.DeletionTimestamp = now()
	follow()
	const want = "Create Start Nothing Refuse Stop Resize Nothing Start Nothing Delete Release"
	if got := strings.Join(took, " "); got != want {
		t.Errorf("it took %s, want %s", got, want)
	}
}
