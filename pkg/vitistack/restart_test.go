package vitistack_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
)

// changed is the state of a Machine whose guest lacks a change.
func changed() *vitistack.State {
	s := state(v1alpha1.PhaseRunning, "")
	s.Wanted.CPU = v1alpha1.CPU{Cores: 2, Threads: 1, Sockets: 1}
	s.VMI = &kubevirtv1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "agent", UID: "guest-1"}}
	s.Observation = vitistack.Observation{
		Created: true, Printable: kubevirtv1.VirtualMachineStatusRunning, RunStrategy: kubevirtv1.RunStrategyAlways,
		Instance: true, UID: "guest-1", Phase: kubevirtv1.Running, Ready: true,
		RestartRequired: "a non-live-updatable field was changed in the template spec", Pending: []string{"cores 1 → 2"},
	}
	return s
}

func waits(s *vitistack.State) *metav1.Condition {
	return meta.FindStatusCondition(vitistack.Status(s, results(nil)).Conditions, v1alpha1.ConditionAwaitingRestart)
}

// approve sets the annotation to the value that the condition names.
func approve(t *testing.T, s *vitistack.State) {
	t.Helper()
	c := waits(s)
	if c == nil {
		t.Fatal("no restart is awaited")
	}
	_, after, ok := strings.Cut(c.Message, v1alpha1.AnnotationApproveRestart+"=")
	if !ok {
		t.Fatalf("the condition does not say how to approve: %s", c.Message)
	}
	token, _, _ := strings.Cut(after, ";")
	s.Machine.Annotations = map[string]string{v1alpha1.AnnotationApproveRestart: token}
}

func TestARestartAwaitsItsApproval(t *testing.T) {
	s := changed()
	c := waits(s)
	if s.RestartApproved() || c == nil || c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonApprovalNeeded || !strings.Contains(c.Message, "cores 1 → 2") {
		t.Errorf("approved: %t, %+v", s.RestartApproved(), c)
	}
	status := vitistack.Status(s, results(nil))
	if ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady); ready.Status != metav1.ConditionTrue {
		t.Errorf("a guest that runs is not ready: %+v", ready)
	}
	approve(t, s)
	if c := waits(s); !s.RestartApproved() || c.Reason != v1alpha1.ReasonRestarting {
		t.Errorf("it is not approved: %+v", c)
	}
	if events := vitistack.Transitions(status, vitistack.Status(s, results(nil))); !slices.ContainsFunc(events, func(e vitistack.Event) bool { return e.Reason == v1alpha1.EventRestarting }) {
		t.Errorf("the events are %v", events)
	}
}

// TestAnApprovalIsWorthOneRestartOfOneChange: the approved state, with one thing changed.
func TestAnApprovalIsWorthOneRestartOfOneChange(t *testing.T) {
	for name, test := range map[string]struct {
		by       func(*vitistack.State)
		approved bool
		awaited  bool
	}{
		"nothing":                             {func(*vitistack.State) {}, true, true},
		"the guest is another one":            {func(s *vitistack.State) { s.Observation.UID = "guest-2" }, false, true},
		"the VirtualMachine has more changes": {func(s *vitistack.State) { s.Observation.Pending = append(s.Observation.Pending, "memory 2Gi → 4Gi") }, false, true},
		"the spec asks for other processors":  {func(s *vitistack.State) { s.Wanted.CPU.Cores = 3 }, false, true},
		"the spec asks for more memory":       {func(s *vitistack.State) { s.Wanted.Memory = resource.MustParse("9Gi") }, false, true},
		"the spec asks for another disk": {func(s *vitistack.State) {
			s.Wanted.Disks = append(s.Wanted.Disks, vitistack.Disk{Name: "data", Claim: "agent-data"})
		}, false, true},
		"the spec asks for another interface":    {func(s *vitistack.State) { s.Wanted.Interfaces[0].Model = "e1000" }, false, true},
		"the spec asks for another machine type": {func(s *vitistack.State) { s.Wanted.Domain.Machine.Type = "q35" }, false, true},
		"a disk grows, which needs no restart":   {func(s *vitistack.State) { s.Wanted.Disks[0].Size = resource.MustParse("99Gi") }, true, true},
		"the change is reverted":                 {func(s *vitistack.State) { s.Observation.RestartRequired, s.Observation.Pending = "", nil }, false, false},
		"the guest is being started":             {func(s *vitistack.State) { s.Observation.Phase = kubevirtv1.Scheduled }, false, false},
		"the guest waits for something":          {func(s *vitistack.State) { s.Observation.Phase = kubevirtv1.Pending }, true, true},
		"KubeVirt moves the guest's volumes":     {func(s *vitistack.State) { s.Observation.MovesVolumes = true }, false, true},
		"a disk is being imported":               {importedDisk(cdiv1.ImportInProgress), false, true},
		"a disk waits for the next guest":        {importedDisk(cdiv1.WaitForFirstConsumer), true, true},
		"a disk waits for the next guest's node": {importedDisk(cdiv1.PendingPopulation), true, true},
		"there is no guest":                      {func(s *vitistack.State) { s.VMI, s.Observation.Instance = nil, false }, false, false},
		"KubeVirt would not start it again":      {func(s *vitistack.State) { s.Observation.RunStrategy = kubevirtv1.RunStrategyManual }, false, true},
		"it is another annotation":               {func(s *vitistack.State) { s.Machine.Annotations[v1alpha1.AnnotationApproveRestart] = "yes" }, false, true},
		"the approval is removed":                {func(s *vitistack.State) { s.Machine.Annotations = nil }, false, true},
	} {
		s := changed()
		approve(t, s)
		test.by(s)
		if s.RestartApproved() != test.approved {
			t.Errorf("%s: it is approved: %t", name, !test.approved)
		}
		c := waits(s)
		if (c != nil) != test.awaited {
			t.Errorf("%s: a restart is awaited: %+v", name, c)
		}
		if c != nil && (c.Reason == v1alpha1.ReasonRestarting) != test.approved {
			t.Errorf("%s: the condition is %+v", name, c)
		}
	}
}

// importedDisk has CDI import the disk, to a claim that is not bound.
func importedDisk(phase cdiv1.DataVolumePhase) func(*vitistack.State) {
	return func(s *vitistack.State) {
		dv := &cdiv1.DataVolume{ObjectMeta: s.ObjectMeta(s.Wanted.Disks[0].Claim, nil), Status: cdiv1.DataVolumeStatus{Phase: phase}}
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: s.ObjectMeta(dv.Name, nil)}
		claim.Annotations = map[string]string{ownership.Annotation: "Machine.vitistack.io/ci/agent/storage"}
		claim.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(dv, cdiv1.SchemeGroupVersion.WithKind("DataVolume"))}
		s.Claims, s.Imports = map[string]*corev1.PersistentVolumeClaim{dv.Name: claim}, map[string]*cdiv1.DataVolume{dv.Name: dv}
	}
}
