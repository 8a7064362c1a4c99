package vitistack_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
)

// TestALife follows a Machine from its creation to its end: what each step shows, and which Events it makes.
func TestALife(t *testing.T) {
	s := state("", "")
	s.Claims = nil
	step := func(name, phase, ready string, events ...string) v1alpha1.MachineStatus {
		t.Helper()
		s.Now = s.Now.Add(time.Minute)
		old := s.Machine.Status
		status := vitistack.Status(s, results(nil))
		if got := show(status); got.phase != phase || got.ready != ready {
			t.Errorf("%s: the phase is %s and Ready %s, not %s and %s", name, got.phase, got.ready, phase, ready)
		}
		var got []string
		for _, e := range vitistack.Transitions(old, status) {
			got = append(got, e.Type+" "+e.Reason)
		}
		if diff := cmp.Diff(events, got); diff != "" {
			t.Errorf("%s: the Events are others (-want +got):\n%s", name, diff)
		}
		s.Machine.Status = status
		if again := vitistack.Status(s, results(nil)); !cmp.Equal(status, again) {
			t.Errorf("%s: another pass writes again:\n%s", name, cmp.Diff(status, again))
		}
		return status
	}

	first := step("the objects are created", "Creating", "False/Creating", "Normal NetworkConfigured", "Normal PVCCreated", "Normal VMCreated")
	if first.VMName != "agent" || first.VMIName != "" || first.NetworkInterfaces[0].MACAddress != "02:12:00:00:00:01" || first.ResourceVersion != "7" {
		t.Errorf("the status is %+v", first)
	}
	s.Observation = vitistack.Observation{Created: true, Printable: kubevirtv1.VirtualMachineStatusStopped, RunStrategy: kubevirtv1.RunStrategyAlways}
	step("the word is the default of KubeVirt's API", "Creating", "False/Creating")

	s.Claims = state("", "").Claims
	s.Observation = runningGuest
	s.Observation.Interfaces = []v1alpha1.NetworkInterfaceStatus{
		{MACAddress: "0a:00:00:00:00:01", IPAddresses: []string{"172.17.0.1"}},
		{Name: "default", MACAddress: "02:12:00:00:00:01", IPAddresses: []string{"10.0.0.4", "2001:db8::4"}, IPv6Addresses: []string{"2001:db8::4"}},
	}
	runs := step("the guest runs", "Running", "True/Running", "Normal Running")
	got := [][]string{runs.IPAddresses, runs.IPv6Addresses, runs.PublicIPAddresses, runs.PrivateIPAddresses, {runs.NodeName, runs.VMIName, runs.State}}
	want := [][]string{{"10.0.0.4", "2001:db8::4", "172.17.0.1"}, {"2001:db8::4"}, {"10.0.0.4", "2001:db8::4"}, {"172.17.0.1"}, {"node-1", "agent", "Running"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the guest is shown otherwise (-want +got):\n%s", diff)
	}

	s.Problems = missing(v1alpha1.TemplateNotFound, v1alpha1.StorageClassNotFound)
	step("the spec becomes invalid", "Running", "False/TemplateNotFound", "Warning TemplateNotFound", "Warning StorageClassNotFound")
	s.Problems = nil
	step("it is fixed", "Running", "True/Running")

	s.Observation.Phase = kubevirtv1.Unknown
	step("the node does not answer", "Running", "Unknown/NodeUnreachable")
	s.Observation = vitistack.Observation{Created: true, Printable: kubevirtv1.VirtualMachineStatusStopping, RunStrategy: kubevirtv1.RunStrategyHalted, Stopping: true}
	step("the instance is gone before the word", "Running", "False/Stopping")
	s.Observation = vitistack.Observation{Created: true, Printable: kubevirtv1.VirtualMachineStatusStopped, RunStrategy: kubevirtv1.RunStrategyHalted}
	stopped := step("it is stopped", "Stopped", "False/Stopped", "Normal Stopped")
	if len(stopped.IPAddresses) > 0 || stopped.NodeName != "" || stopped.VMIName != "" {
		t.Errorf("a stopped guest has %v on %q", stopped.IPAddresses, stopped.NodeName)
	}

	s.KubeVirt, s.Observation = vitistack.Unknown, vitistack.Observation{}
	step("the operator restarts", "Stopped", "False/Stopped")
	s.KubeVirt, s.Machine.DeletionTimestamp = vitistack.Installed, &metav1.Time{Time: s.Now}
	s.Observation = vitistack.Observation{Created: true, Printable: kubevirtv1.VirtualMachineStatusTerminating, Stopping: true}
	if status := step("it is deleted", "Stopped", "False/Terminating"); status.VMName != "agent" {
		t.Errorf("the VirtualMachine is %q", status.VMName)
	}
	s.KubeVirt, s.Observation = vitistack.Unknown, vitistack.Observation{}
	if status := step("the operator restarts again", "Stopped", "False/Terminating"); status.VMName != "agent" {
		t.Errorf("the VirtualMachine is %q", status.VMName)
	}
	s.KubeVirt = vitistack.Installed
	if status := step("the VirtualMachine is gone", "Stopped", "False/Terminating"); status.VMName != "" {
		t.Errorf("the VirtualMachine is %q", status.VMName)
	}
}

// TestTimesAndVersionsChangeWithTheStatusOnly: a write makes a new version, and a version makes no write.
func TestTimesAndVersionsChangeWithTheStatusOnly(t *testing.T) {
	s := state("", "")
	s.Observation = runningGuest
	first := vitistack.Status(s, results(nil))
	s.Machine.Status, s.Machine.ResourceVersion, s.Now = first, "8", s.Now.Add(time.Hour)
	if diff := cmp.Diff(first, vitistack.Status(s, results(nil))); diff != "" {
		t.Errorf("a pass without news changes the status:\n%s", diff)
	}
	versioned := first
	versioned.ResourceVersion, versioned.LastUpdated = "9", &metav1.Time{Time: s.Now}
	if vitistack.Substantive(first, versioned) {
		t.Error("a version and a time count as news")
	}
	s.Observation.Node = "node-2"
	next := vitistack.Status(s, results(nil))
	if next.ResourceVersion != "8" || !next.LastUpdated.Time.Equal(s.Now.Truncate(time.Second)) {
		t.Errorf("the version is %s of %s", next.ResourceVersion, next.LastUpdated)
	}
	for i := range next.Conditions {
		if diff := cmp.Diff(first.Conditions[i], next.Conditions[i]); diff != "" {
			t.Errorf("a condition changes with the node:\n%s", diff)
		}
	}
}

// TestAddressesOfAnotherOperator are shown where KubeVirt knows none, by MAC address and while the guest runs.
func TestAddressesOfAnotherOperator(t *testing.T) {
	network := &v1alpha1.NetworkConfiguration{Status: v1alpha1.NetworkConfigurationStatus{NetworkInterfaces: []v1alpha1.AssignedInterface{
		{MACAddress: "02:12:00:00:00:09", IPv4Addresses: []string{"10.0.0.9"}},
		{MACAddress: "02-12-00-00-00-01", IPv4Addresses: []string{"169.254.1.1", "10.0.0.7", "x"}, IPv6Addresses: []string{"2001:db8::7"}},
	}}}
	for name, test := range map[string]struct {
		guest vitistack.Observation
		known []string
		want  []string
	}{
		"KubeVirt knows none":        {runningGuest, nil, []string{"10.0.0.7", "2001:db8::7"}},
		"KubeVirt knows one":         {runningGuest, []string{"10.0.0.1"}, []string{"10.0.0.1"}},
		"the guest does not run":     {vitistack.Observation{Created: true}, nil, nil},
		"there is no VirtualMachine": {vitistack.Observation{}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := state("", "")
			s.Machine.Spec.Networks = []v1alpha1.Network{{Name: "default", NetworkName: "front"}}
			s.Networks = map[string]*v1alpha1.NetworkConfiguration{"front": network}
			s.Observation = test.guest
			s.Observation.Interfaces = []v1alpha1.NetworkInterfaceStatus{{Name: "default", MACAddress: "02:12:00:00:00:01", IPAddresses: test.known}}
			if diff := cmp.Diff(test.want, vitistack.Status(s, results(nil)).IPAddresses); diff != "" {
				t.Errorf("the addresses are others (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNoEventForClaimsThatAreNotNeeded: a Machine whose disks are images has none.
func TestNoEventForClaimsThatAreNotNeeded(t *testing.T) {
	s := state("", "")
	s.Claims, s.Wanted.Disks = nil, []vitistack.Disk{{Name: "root"}}
	status := vitistack.Status(s, results(nil))
	for _, e := range vitistack.Transitions(v1alpha1.MachineStatus{}, status) {
		if e.Reason == v1alpha1.EventPVCCreated {
			t.Errorf("there is an Event %+v", e)
		}
	}
	if got := show(status).storage; got != bound {
		t.Errorf("StorageReady is %s", got)
	}
	if e := vitistack.CleanedUp(); e.Type != corev1.EventTypeNormal || e.Reason != v1alpha1.EventCleanedUp {
		t.Errorf("the last Event is %+v", e)
	}
}

// TestAClaimOfAUser, whose labels are the user's, keeps no Machine from being ready.
func TestAClaimOfAUser(t *testing.T) {
	for name, test := range map[string]struct {
		claim, want string
	}{
		"mounted by a user": {"golden", "True/Running"},
		"of the usual name": {"agent-root", "False/PVCPending"},
	} {
		s := state("", "")
		s.Claims, s.Observation, s.Wanted.Disks[0].Claim = nil, runningGuest, test.claim
		if got := show(vitistack.Status(s, results(nil))).ready; got != test.want {
			t.Errorf("%s: Ready is %s", name, got)
		}
	}
}

// TestALongDeletionSaysWhatItWaitsFor: a short one does not, so that it costs few writes.
func TestALongDeletionSaysWhatItWaitsFor(t *testing.T) {
	s := state("", "")
	s.Machine.DeletionTimestamp = &metav1.Time{Time: s.Now}
	pass := results(nil)
	for i := range pass {
		if pass[i].Handler == vitistack.HandlerStorage {
			pass[i].Outcome = chain.Wait("Deleting", "waits until gone: PersistentVolumeClaim ci/agent-root", 30*time.Second)
		}
	}
	for after, want := range map[time.Duration]string{
		time.Second:     "the Machine is being deleted",
		5 * time.Minute: "the Machine is being deleted; waits until gone: PersistentVolumeClaim ci/agent-root",
		9 * time.Minute: "the Machine is being deleted; waits until gone: PersistentVolumeClaim ci/agent-root",
	} {
		late := *s
		late.Now = s.Now.Add(after)
		status := vitistack.Status(&late, pass)
		ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
		if ready == nil || ready.Reason != v1alpha1.ReasonTerminating || ready.Message != want {
			t.Errorf("after %s Ready is %+v, want %q", after, ready, want)
		}
	}
}
