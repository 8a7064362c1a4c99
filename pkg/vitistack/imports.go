package vitistack

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/text"
)

// A disk is imported by a DataVolume of the name of its claim. CDI makes the claim, with the DataVolume as its controller,
// and fills it. Then the DataVolume is deleted without the claim, which from then on is one as any other: it grows, and it
// outlives CDI, whose removal deletes all DataVolumes and with them what they control.

// importURL returns what a disk is imported from; empty for a disk that is not imported.
func importURL(source *v1alpha1.DiskSource) string {
	switch {
	case source == nil:
		return ""
	case source.HTTP != nil:
		return source.HTTP.URL
	case source.Registry != nil:
		return source.Registry.URL
	}
	return ""
}

// ImportAnnotations are the annotations of the DataVolume of a disk, and of the claim that CDI makes of it.
func (d *Disk) ImportAnnotations() map[string]string {
	return map[string]string{v1alpha1.AnnotationImport: d.Claim + " " + importURL(d.Source)}
}

// importedClaim returns whether a claim was made by CDI for a disk of its name, and is not a copy of such a one. Such a claim
// has no controller from the end of its DataVolume until it is adopted.
func importedClaim(claim metav1.Object) bool {
	c := metav1.GetControllerOf(claim)
	return forItsDisk(claim) && (c == nil || c.Kind == dataVolume)
}

// torn returns whether the DataVolume of a claim was removed, by someone else, before CDI had filled the claim: half a disk is
// none.
func (o *Observed) torn(claim *corev1.PersistentVolumeClaim) bool {
	c := metav1.GetControllerOf(claim)
	return forItsDisk(claim) && (c == nil || o.controls(c)) && claim.Annotations[importerPhase] != string(corev1.PodSucceeded)
}

// importerPhase is the annotation of a claim with the phase of the pod of CDI that fills it.
const importerPhase = "cdi.kubevirt.io/storage.pod.phase"

// forItsDisk returns whether a claim or DataVolume has the annotation of an import, and is no copy under another name.
func forItsDisk(object metav1.Object) bool {
	name, _, _ := strings.Cut(object.GetAnnotations()[v1alpha1.AnnotationImport], " ")
	return name == object.GetName()
}

const dataVolume = "DataVolume"

// usual returns the claim that a disk has unless another one was given to it.
func (o *Observed) usual(d *Disk) string { return o.Machine.Name + "-" + d.Name }

// otherData reports a claim of the Machine that was not filled from the source of the disk: the guest would find other data
// than the spec says. It is that of a disk which was removed from the spec, or half of one.
func (p *plan) otherData(d *Disk) {
	claim := p.Claims[d.Claim]
	if d.Claim != p.usual(d) || claim == nil || !p.owns(claim) {
		return
	}
	c := metav1.GetControllerOf(claim)
	switch {
	case p.torn(claim):
		p.report(v1alpha1.InvalidSpec, "PersistentVolumeClaim %s/%s of disk %s is not filled, because its DataVolume was removed before the import ended; delete it to import again",
			p.Machine.Namespace, d.Claim, d.Name)
	case importURL(d.Source) == "":
	case c != nil && c.Kind != dataVolume && !p.controls(c): // KubeVirt has restored it from a snapshot
	case claim.Annotations[v1alpha1.AnnotationImport] != d.ImportAnnotations()[v1alpha1.AnnotationImport]:
		object := "it"
		if c != nil && c.Kind == dataVolume {
			object = "its DataVolume"
		}
		p.report(v1alpha1.InvalidSpec, "PersistentVolumeClaim %s/%s of disk %s exists and was not imported from %s, so it has other data; delete %s, or name the disk otherwise",
			p.Machine.Namespace, d.Claim, d.Name, importURL(d.Source), object)
	}
}

// ToImport returns whether a disk waits for CDI to make its claim.
func (s *State) ToImport(d *Disk) bool {
	return importURL(d.Source) != "" && d.Claim == s.usual(d) && s.Claims[d.Claim] == nil
}

// ClaimsToBegin are the claims that a DataVolume is to be created for in this pass, and those that a DataVolume says it has
// filled and that were not seen. They must not exist, or not be another one's.
func (s *State) ClaimsToBegin() []string {
	if s.CDI != Installed || s.KubeVirt == Unknown || s.Machine.DeletionTimestamp != nil || s.Refusal() != nil || len(s.PendingNetworks()) > 0 {
		return nil
	}
	var names []string
	for i := range s.Wanted.Disks {
		d := &s.Wanted.Disks[i]
		if dv := s.Imports[d.Claim]; s.ToImport(d) && (dv == nil || dv.Status.Phase == cdiv1.Succeeded) {
			names = append(names, d.Claim)
		}
	}
	return names
}

// ImportsAnything returns whether CDI has, or may have, anything to do for the Machine.
func (s *State) ImportsAnything() bool {
	if slices.ContainsFunc(s.Machine.Spec.Disks, func(d v1alpha1.Disk) bool { return importURL(d.Source) != "" }) ||
		slices.ContainsFunc(s.Wanted.Disks, func(d Disk) bool { return importURL(d.Source) != "" }) {
		return true
	}
	for _, claim := range s.Claims {
		if c := metav1.GetControllerOf(claim); c != nil && c.Kind == dataVolume && s.Owns(claim) {
			return true
		}
	}
	return len(s.OwnImports()) > 0
}

// OwnImports are the DataVolumes of the Machine, by name.
func (s *State) OwnImports() []*cdiv1.DataVolume {
	var own []*cdiv1.DataVolume
	for _, name := range slices.Sorted(maps.Keys(s.Imports)) {
		if dv := s.Imports[name]; s.Owns(dv) && s.made(dv) && forItsDisk(dv) {
			own = append(own, dv)
		}
	}
	return own
}

// FinishedImports are the DataVolumes of the Machine that can be deleted now, without their claims.
func (s *State) FinishedImports() []*cdiv1.DataVolume {
	var finished []*cdiv1.DataVolume
	for _, dv := range s.OwnImports() {
		if s.Imported(dv) {
			finished = append(finished, dv)
		}
	}
	return finished
}

// unfilled returns a disk that has no claim yet, or one that CDI still fills; empty if there is none. One whose import waits for
// the guest's next start, because its class does, does not count.
func (s *State) unfilled() string {
	for i := range s.Wanted.Disks {
		d := &s.Wanted.Disks[i]
		claim := s.Claims[d.Claim]
		if claim == nil {
			if s.ToImport(d) {
				return d.Name
			}
			continue
		}
		if c := metav1.GetControllerOf(claim); c != nil && c.Kind == dataVolume && s.Owns(claim) && !s.filled(claim) {
			return d.Name
		}
	}
	return ""
}

// filled returns whether the DataVolume of a claim says that it has done its work, or that it does none before a pod uses the
// claim.
func (s *State) filled(claim *corev1.PersistentVolumeClaim) bool {
	dv := s.Imports[claim.Name]
	if dv == nil {
		return false
	}
	waits := dv.Status.Phase == cdiv1.WaitForFirstConsumer || dv.Status.Phase == cdiv1.PendingPopulation
	return s.Imported(dv) || waits && claim.Status.Phase != corev1.ClaimBound
}

// Imported returns whether a DataVolume has done its work, so that it can be deleted and its claim kept. It is not while its
// claim has not been seen, because CDI would fill a new one, and while that is not bound, because CDI may still be about to give
// it the volume that it has filled.
func (s *State) Imported(dv *cdiv1.DataVolume) bool {
	claim := s.Claims[dv.Name]
	return dv.Status.Phase == cdiv1.Succeeded && claim != nil && claim.Status.Phase == corev1.ClaimBound && metav1.IsControlledBy(claim, dv)
}

// importFailures returns what CDI reports about imports that fail. It tries again by itself, unless their phase is Failed.
func (s *State) importFailures() []Problem {
	var found []Problem
	for _, dv := range s.OwnImports() {
		cause := failureOf(dv)
		if cause == "" {
			continue
		}
		out := ""
		if s.Refusal() == nil && !slices.ContainsFunc(s.Wanted.Disks, func(d Disk) bool { return d.Claim == dv.Name }) {
			out = "; no disk of the spec needs it, so you can delete the DataVolume, and with it the claim"
		}
		found = append(found, Problem{Type: v1alpha1.ImportFailed, Message: fmt.Sprintf(
			"disk %s cannot be imported: DataVolume %s/%s is %s: %s%s", s.diskOf(dv), dv.Namespace, dv.Name, phaseOf(dv), cause, out)})
	}
	return found
}

// importing says which imports are under way, and how far; empty if none is.
func (s *State) importing() string {
	var texts []string
	for _, dv := range s.OwnImports() {
		if dv.Status.Phase == cdiv1.Succeeded || failureOf(dv) != "" {
			continue
		}
		t := fmt.Sprintf("disk %s is being imported: DataVolume %s/%s is %s", s.diskOf(dv), dv.Namespace, dv.Name, phaseOf(dv))
		if percent, ok := progressOf(dv); ok {
			t += fmt.Sprintf(", %d%%", percent)
		}
		texts = append(texts, t)
	}
	return strings.Join(texts, "; ")
}

func (s *State) diskOf(dv *cdiv1.DataVolume) string {
	return strings.TrimPrefix(dv.Name, s.Machine.Name+"-")
}

func phaseOf(dv *cdiv1.DataVolume) string {
	return text.Beginning(cmp.Or(string(dv.Status.Phase), string(cdiv1.Pending)), mostWord)
}

const (
	// mostWord and mostCause are how many bytes of a word and of a sentence of CDI are taken over. The sentence may be an
	// answer of the server that a user has named.
	mostWord, mostCause = 63, 512
	// step is the precision of the progress. CDI reports it every two seconds, and each new text is a write.
	step = 10
)

// progressOf returns the progress of an import in per cent, in steps.
func progressOf(dv *cdiv1.DataVolume) (percent int, ok bool) {
	number, isPercent := strings.CutSuffix(string(dv.Status.Progress), "%")
	f, err := strconv.ParseFloat(number, 64)
	if !isPercent || err != nil || !(f >= 0 && f <= 100) {
		return 0, false
	}
	return int(f) / step * step, true
}

// goesOn are the reasons of CDI's condition Running of an import that makes progress, or has succeeded. Others are
// those of Kubernetes for containers that do not start, or have failed, and CDI's own.
// https://github.com/kubevirt/containerized-data-importer/blob/main/doc/datavolumes.md
var goesOn = []string{"", "Pending", "ContainerCreating", "PodInitializing", "Completed", "Scratch space required", "ScratchSpaceRequired"}

// podRuns is the reason of the condition Running that CDI leaves there when a container has failed and waits for its next start.
const podRuns = "Pod is running"

// failureOf returns why an import is stuck; empty if it is not.
func failureOf(dv *cdiv1.DataVolume) string {
	if dv.Status.Phase == cdiv1.Succeeded {
		return ""
	}
	said := map[cdiv1.DataVolumeConditionType]cdiv1.DataVolumeCondition{}
	for _, c := range dv.Status.Conditions {
		said[c.Type] = c
	}
	running, bound := said[cdiv1.DataVolumeRunning], said[cdiv1.DataVolumeBound]
	cause := ""
	switch {
	case running.Status == corev1.ConditionFalse && running.Reason == podRuns:
		cause = "the pod that imports has ended, and is started again; look at its log"
	case running.Status == corev1.ConditionFalse && !slices.Contains(goesOn, running.Reason):
		cause = cmp.Or(running.Message, running.Reason)
	case bound.Status == corev1.ConditionFalse && strings.HasPrefix(bound.Reason, "Err"):
		// CDI could not make the claim: a quota, or a class that it does not know.
		cause = cmp.Or(bound.Message, bound.Reason)
	case dv.Status.Phase == cdiv1.Failed:
		cause = "CDI has given up; delete the DataVolume to import again"
	}
	if quota, ok := QuotaExceeded(cause); ok {
		cause = quota + "; raise the quota or ask for less"
	}
	return text.Beginning(cause, mostCause)
}

// ClaimSpec is the specification of the claim of a disk, but for what it is filled from.
func (d *Disk) ClaimSpec() corev1.PersistentVolumeClaimSpec {
	spec := corev1.PersistentVolumeClaimSpec{
		StorageClassName: d.StorageClass,
		AccessModes:      []corev1.PersistentVolumeAccessMode{d.AccessMode},
		Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: d.Size}},
	}
	if d.VolumeMode != "" {
		mode := d.VolumeMode
		spec.VolumeMode = &mode
	}
	return spec
}
