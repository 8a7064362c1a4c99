package vitistack_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
)

const imageURL = "https://images.example.com/debian.qcow2"

func importingSpec() v1alpha1.MachineSpec {
	return v1alpha1.MachineSpec{Template: "small", Disks: []v1alpha1.Disk{{Name: "root", Source: &v1alpha1.DiskSource{HTTP: &v1alpha1.HTTPImage{URL: imageURL}}}}}
}

// meta1 is the metadata of the claim of the root disk, and of its DataVolume.
func meta1(uid string, controller *metav1.OwnerReference) metav1.ObjectMeta {
	m := metav1.ObjectMeta{
		Namespace: namespace, Name: name + "-root", UID: types.UID(uid),
		Labels:      map[string]string{v1alpha1.LabelMachine: name, v1alpha1.LabelSourceMachine: name, v1alpha1.LabelManagedBy: "kubevirt-operator"},
		Annotations: map[string]string{ownership.Annotation: "Machine.vitistack.io/" + namespace + "/" + name + "/storage", v1alpha1.AnnotationImport: name + "-root " + imageURL},
	}
	if controller != nil {
		m.OwnerReferences = []metav1.OwnerReference{*controller}
	}
	return m
}

func byMachine() *metav1.OwnerReference {
	return metav1.NewControllerRef(machineOf(v1alpha1.MachineSpec{}), v1alpha1.GroupVersion.WithKind("Machine"))
}

func dataVolume(phase cdiv1.DataVolumePhase, conditions ...cdiv1.DataVolumeCondition) *cdiv1.DataVolume {
	dv := &cdiv1.DataVolume{ObjectMeta: meta1("dv-1", byMachine())}
	dv.Status.Phase, dv.Status.Conditions = phase, conditions
	return dv
}

// filledBy returns the claim of a DataVolume.
func filledBy(dv *cdiv1.DataVolume) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: meta1("claim-1", metav1.NewControllerRef(dv, cdiv1.SchemeGroupVersion.WithKind("DataVolume")))}
	claim.Status.Phase = corev1.ClaimBound
	return claim
}

// unbound returns the claim of a DataVolume before it has a volume.
func unbound(dv *cdiv1.DataVolume) *corev1.PersistentVolumeClaim {
	claim := filledBy(dv)
	claim.Status.Phase = corev1.ClaimPending
	return claim
}

// importing returns the state of a Machine whose root disk is imported. Both objects may be nil.
func importing(dv *cdiv1.DataVolume, claim *corev1.PersistentVolumeClaim) *vitistack.State {
	o := observe(importingSpec())
	o.CDI, o.Imports, o.Claims = vitistack.Installed, map[string]*cdiv1.DataVolume{}, map[string]*corev1.PersistentVolumeClaim{}
	if dv != nil {
		o.Imports[dv.Name] = dv
	}
	if claim != nil {
		o.Claims[claim.Name] = claim
	}
	return vitistack.Plan(o)
}

// TestImportsAreReported: what StorageReady and Ready say, by what CDI says.
func TestImportsAreReported(t *testing.T) {
	running := func(reason, message string) cdiv1.DataVolumeCondition {
		return cdiv1.DataVolumeCondition{Type: cdiv1.DataVolumeRunning, Status: corev1.ConditionFalse, Reason: reason, Message: message}
	}
	bound := func(reason, message string) cdiv1.DataVolumeCondition {
		return cdiv1.DataVolumeCondition{Type: cdiv1.DataVolumeBound, Status: corev1.ConditionFalse, Reason: reason, Message: message}
	}
	at := func(progress string) *cdiv1.DataVolume {
		dv := dataVolume(cdiv1.ImportInProgress)
		dv.Status.Progress = cdiv1.DataVolumeProgress(progress)
		return dv
	}
	const is = "disk root is being imported: DataVolume ci/build-agent-root is "
	const fails = "disk root cannot be imported: DataVolume ci/build-agent-root is "
	for test, c := range map[string]struct {
		dv              *cdiv1.DataVolume
		reason, message string
	}{
		"nothing said yet":                {dataVolume(""), v1alpha1.ReasonImporting, is + "Pending"},
		"scheduled":                       {dataVolume(cdiv1.ImportScheduled, running("Pending", "")), v1alpha1.ReasonImporting, is + "ImportScheduled"},
		"it waits for a consumer":         {dataVolume(cdiv1.WaitForFirstConsumer, bound("Pending", "PVC Pending")), v1alpha1.ReasonImporting, is + "WaitForFirstConsumer"},
		"a progress, in steps":            {at("49.99%"), v1alpha1.ReasonImporting, is + "ImportInProgress, 40%"},
		"no progress":                     {at("N/A"), v1alpha1.ReasonImporting, is + "ImportInProgress"},
		"a progress that is none":         {at("NaN%"), v1alpha1.ReasonImporting, is + "ImportInProgress"},
		"a progress of too much":          {at("1e9%"), v1alpha1.ReasonImporting, is + "ImportInProgress"},
		"the server does not answer":      {dataVolume(cdiv1.ImportInProgress, running("Error", "got 404")), v1alpha1.ImportFailed, fails + "ImportInProgress: got 404"},
		"an image that cannot be pulled":  {dataVolume(cdiv1.ImportScheduled, running("ImagePullFailed", "")), v1alpha1.ImportFailed, fails + "ImportScheduled: ImagePullFailed"},
		"no node for the pod":             {dataVolume(cdiv1.ImportScheduled, running("Unschedulable", "no room")), v1alpha1.ImportFailed, fails + "ImportScheduled: no room"},
		"a quota":                         {dataVolume(cdiv1.Pending, bound("ErrExceededQuota", "exceeded quota: disks, used: a, limited: b")), v1alpha1.ImportFailed, fails + "Pending: exceeded quota: disks, limited: b; raise the quota or ask for less"},
		"it has failed":                   {dataVolume(cdiv1.Failed), v1alpha1.ImportFailed, fails + "Failed: CDI has given up; delete the DataVolume to import again"},
		"a container out of memory":       {dataVolume(cdiv1.ImportInProgress, running("OOMKilled", "")), v1alpha1.ImportFailed, fails + "ImportInProgress: OOMKilled"},
		"a Secret that is missing":        {dataVolume(cdiv1.ImportScheduled, running("CreateContainerConfigError", "no Secret s")), v1alpha1.ImportFailed, fails + "ImportScheduled: no Secret s"},
		"a container that is created":     {dataVolume(cdiv1.ImportScheduled, running("ContainerCreating", "")), v1alpha1.ReasonImporting, is + "ImportScheduled"},
		"it has succeeded after an error": {dataVolume(cdiv1.Succeeded, running("Error", "an old one")), "", ""},
	} {
		s := importing(c.dv, filledBy(c.dv))
		status := vitistack.Status(s, results(nil))
		storage, ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionStorageReady), meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
		want := metav1.ConditionFalse
		if c.reason == "" {
			want, c.reason, c.message = metav1.ConditionTrue, v1alpha1.ReasonPVCBound, "bound: build-agent-root"
		} else if !strings.Contains(ready.Message, c.message) {
			t.Errorf("%s: Ready says %q", test, ready.Message)
		}
		if storage.Status != want || storage.Reason != c.reason || storage.Message != c.message {
			t.Errorf("%s: StorageReady is %+v", test, storage)
		}
		if failed := c.reason == v1alpha1.ImportFailed; failed != (status.FailureReason == v1alpha1.ImportFailed) || status.Phase != v1alpha1.PhaseCreating {
			t.Errorf("%s: the phase is %s, and the failure %q", test, status.Phase, status.FailureReason)
		}
	}
}

// TestWhatCDISaysIsBounded: the words are those of a server that a user has named.
func TestWhatCDISaysIsBounded(t *testing.T) {
	long := strings.Repeat("x", 1<<16)
	dv := dataVolume(cdiv1.DataVolumePhase(long), cdiv1.DataVolumeCondition{Type: cdiv1.DataVolumeRunning, Status: corev1.ConditionFalse, Reason: "Error", Message: long})
	for _, c := range vitistack.Status(importing(dv, filledBy(dv)), results(nil)).Conditions {
		if len(c.Message) > 1024 {
			t.Errorf("%s says %d bytes", c.Type, len(c.Message))
		}
	}
}

// TestAClaimIsFilledOnceAndKept goes through the life of a claim: who has it, and what is done about it.
func TestAClaimIsFilledOnceAndKept(t *testing.T) {
	done, under := dataVolume(cdiv1.Succeeded), dataVolume(cdiv1.ImportInProgress)
	foreign := dataVolume(cdiv1.ImportInProgress)
	foreign.Annotations, foreign.Labels, foreign.OwnerReferences = nil, nil, nil
	restored := &corev1.PersistentVolumeClaim{ObjectMeta: meta1("claim-2", metav1.NewControllerRef(&kubevirtv1.VirtualMachine{}, kubevirtv1.VirtualMachineGroupVersionKind))}
	delete(restored.Annotations, v1alpha1.AnnotationImport)
	orphan := func(phase string, controller ...*metav1.OwnerReference) *corev1.PersistentVolumeClaim {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: meta1("claim-1", append(controller, nil)[0])}
		claim.Annotations["cdi.kubevirt.io/storage.pod.phase"] = phase
		return claim
	}
	other := filledBy(done)
	other.OwnerReferences[0].UID = "dv-0"
	for test, c := range map[string]struct {
		dv       *cdiv1.DataVolume
		claim    *corev1.PersistentVolumeClaim
		toImport bool // a DataVolume is needed
		alone    bool // the claim is not written
		imported bool // the DataVolume can go
		counts   bool // the claim goes with the Machine
		problem  string
	}{
		"nothing is there":                         {toImport: true},
		"a DataVolume without a claim":             {dv: under, toImport: true},
		"a DataVolume at its end without a claim":  {dv: done, toImport: true},
		"the claim is being filled":                {dv: under, claim: filledBy(under), alone: true, counts: true},
		"the claim is filled":                      {dv: done, claim: filledBy(done), alone: true, imported: true, counts: true},
		"the claim is another DataVolume's":        {dv: done, claim: other, alone: true, counts: true},
		"the DataVolume is gone":                   {claim: orphan("Succeeded"), counts: true},
		"the DataVolume is gone before its end":    {claim: orphan("Running"), problem: v1alpha1.InvalidSpec, counts: true},
		"half a disk was adopted for an empty one": {claim: orphan("Running", byMachine()), problem: v1alpha1.InvalidSpec, counts: true},
		"the claim is filled and not bound yet":    {dv: done, claim: unbound(done), alone: true, counts: true},
		"the DataVolume is gone before it began":   {claim: &corev1.PersistentVolumeClaim{ObjectMeta: meta1("claim-1", nil)}, problem: v1alpha1.InvalidSpec, counts: true},
		"the claim is the Machine's":               {claim: orphan("Succeeded", byMachine()), counts: true},
		"KubeVirt has restored the claim":          {claim: restored, alone: true},
		"the claim is another one's":               {claim: &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-root"}}, problem: v1alpha1.NameConflict},
		"the DataVolume is another one's":          {dv: foreign, toImport: true},
		"the claim has other data, an empty one":   {claim: with(meta1("claim-1", byMachine()), ""), problem: v1alpha1.InvalidSpec, counts: true},
		"the claim has other data, another image":  {claim: with(meta1("claim-1", byMachine()), name+"-root https://images.example.com/fedora.raw"), problem: v1alpha1.InvalidSpec, counts: true},
		"the claim is a copy of an imported claim": {claim: with(meta1("claim-1", nil), name+"-data "+imageURL), problem: v1alpha1.InvalidSpec},
	} {
		s := importing(c.dv, c.claim)
		d := &s.Wanted.Disks[0]
		if got := s.ToImport(d); got != c.toImport {
			t.Errorf("%s: it is to be imported: %t", test, got)
		}
		if c.claim != nil && c.problem == "" && s.LeftAlone(d) != c.alone {
			t.Errorf("%s: the claim is left alone: %t", test, !c.alone)
		}
		if c.dv != nil && s.Imported(c.dv) != c.imported {
			t.Errorf("%s: the DataVolume can go: %t", test, !c.imported)
		}
		if c.claim != nil && s.Places().Counts(c.claim) != c.counts {
			t.Errorf("%s: the claim goes with the Machine: %t", test, !c.counts)
		}
		if types := said(s); (len(types) > 0) != (c.problem != "") || c.problem != "" && !strings.HasPrefix(types[0], c.problem) {
			t.Errorf("%s: the problems are %v", test, types)
		}
	}
	if own := importing(foreign, nil).OwnImports(); len(own) > 0 {
		t.Errorf("the Machine has %d DataVolumes of others", len(own))
	}
}

// with returns a claim with a value of the annotation; empty for none.
func with(m metav1.ObjectMeta, annotation string) *corev1.PersistentVolumeClaim {
	if m.Annotations[v1alpha1.AnnotationImport] = annotation; annotation == "" {
		delete(m.Annotations, v1alpha1.AnnotationImport)
	}
	return &corev1.PersistentVolumeClaim{ObjectMeta: m}
}

// TestADataVolumeHasTheOwnerOfItsClaim: CDI copies the annotations of the one to the other.
func TestADataVolumeHasTheOwnerOfItsClaim(t *testing.T) {
	s := importing(nil, nil)
	if a, b := s.Owner(vitistack.HandlerImport), s.Owner(vitistack.HandlerStorage); a != b {
		t.Errorf("the owners are %s and %s", a, b)
	}
}

func TestWhetherCDIMatters(t *testing.T) {
	dv := dataVolume(cdiv1.ImportInProgress)
	plain := func(change func(*vitistack.Observed)) *vitistack.State {
		o := observe(v1alpha1.MachineSpec{Template: "small"})
		change(&o)
		return vitistack.Plan(o)
	}
	for i, c := range []struct {
		s    *vitistack.State
		want bool
	}{
		{importing(nil, nil), true},
		{plain(func(*vitistack.Observed) {}), false},
		{plain(func(o *vitistack.Observed) { o.Imports = map[string]*cdiv1.DataVolume{dv.Name: dv} }), true},
		{plain(func(o *vitistack.Observed) {
			o.Claims = map[string]*corev1.PersistentVolumeClaim{dv.Name: filledBy(dv)}
		}), true},
		{plain(func(o *vitistack.Observed) {
			o.Machine.Spec.Disks = []v1alpha1.Disk{{Name: "root", Source: &v1alpha1.DiskSource{PVC: &v1alpha1.ObjectReference{Name: "a"}}}}
		}), false},
	} {
		if got := c.s.ImportsAnything(); got != c.want {
			t.Errorf("case %d: %t", i, got)
		}
	}
	if types := vitistack.Problems(importing(nil, nil), results(nil)); slices.ContainsFunc(types, func(p vitistack.Problem) bool { return p.Type == v1alpha1.ImportFailed }) {
		t.Errorf("an import that has not begun fails: %s", fmt.Sprint(types))
	}
}

// TestHalfADiskIsNotTakenForAnEmptyOne, which a disk without a source asks for.
func TestHalfADiskIsNotTakenForAnEmptyOne(t *testing.T) {
	o := observe(v1alpha1.MachineSpec{Template: "small"})
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: meta1("claim-1", nil)}
	o.Claims = map[string]*corev1.PersistentVolumeClaim{claim.Name: claim}
	if problems := said(vitistack.Plan(o)); len(problems) != 1 || !strings.Contains(problems[0], "is not filled") {
		t.Errorf("the problems are %v", problems)
	}
}
