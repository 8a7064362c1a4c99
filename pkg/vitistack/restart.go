package vitistack

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
)

// needsRestart returns whether there is a guest to which changes wait for its next start: one that runs, or one that
// does not get that far, because what it waits for was removed. KubeVirt decides which changes do.
func needsRestart(o Observation) bool {
	switch o.Phase {
	case kubevirtv1.Running, kubevirtv1.VmPhaseUnset, kubevirtv1.Pending, kubevirtv1.Scheduling:
		return o.RestartRequired != "" && o.Instance
	}
	return false
}

// restartToken is the value of the annotation that approves a restart. It stands for the guest, so that it is worth one
// restart, for what differs between that and the VirtualMachine, and for what the spec asks of the VirtualMachine, so
// that a later change needs another approval, also one that has not reached the VirtualMachine yet.
func (s *State) restartToken(o Observation) string {
	type disk struct {
		Name, Claim, Bus, AccessMode string
		BootOrder                    uint
		Source                       *v1alpha1.DiskSource
	}
	w := &s.Wanted
	asked := struct {
		Guest      string
		Pending    []string
		CPU        v1alpha1.CPU
		CPUModel   string
		Memory     string
		Domain     v1alpha1.Domain
		Interfaces []Interface
		Disks      []disk
		CloudInit  bool // not the data, which could be guessed from the token
	}{Guest: string(o.UID), Pending: o.Pending, CPU: w.CPU, CPUModel: w.CPUModel, Memory: w.Memory.String(), Domain: w.Domain, Interfaces: w.Interfaces, CloudInit: w.CloudInit != nil}
	for i := range w.Disks {
		d := &w.Disks[i]
		asked.Disks = append(asked.Disks, disk{d.Name, d.Claim, d.Bus, string(d.AccessMode), d.BootOrder, d.Source})
	}
	data, err := json.Marshal(asked)
	if err != nil {
		panic(err) // strings and numbers can be encoded
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:6])
}

// restarts returns whether KubeVirt starts a guest again that was ended. It does so without a request for one run
// strategy.
func restarts(o Observation) bool { return o.RunStrategy == kubevirtv1.RunStrategyAlways }

// RestartApproved returns whether the guest is to be restarted now: it needs that, the Machine's annotation approves
// this restart, and the next guest can start. Everyone who may change the Machine may approve.
func (s *State) RestartApproved() bool {
	return s.VMI != nil && s.approved(s.Observation) && s.restartWaits(s.Observation) == ""
}

// restartWaits returns why the guest must not be ended yet; empty if it may.
func (s *State) restartWaits(o Observation) string {
	switch disk := s.unfilled(); {
	case disk != "":
		return "disk " + disk + " has been imported"
	case o.MovesVolumes:
		// KubeVirt would not start another guest before a person has corrected the VirtualMachine.
		return "KubeVirt has moved the guest's volumes"
	}
	return ""
}

func (s *State) approved(o Observation) bool {
	return needsRestart(o) && restarts(o) && s.Machine.Annotations[v1alpha1.AnnotationApproveRestart] == s.restartToken(o)
}

// awaitingRestart returns the condition AwaitingRestart. applied says whether the VirtualMachine is as wanted, without
// which nothing is restarted.
func (s *State) awaitingRestart(o Observation, applied bool) finding {
	if !needsRestart(o) {
		return finding{}
	}
	changes := "the guest does not have these changes yet: " + strings.Join(o.Pending, ", ")
	if len(o.Pending) == 0 {
		changes = "KubeVirt reports: " + o.RestartRequired
	}
	waits := s.restartWaits(o)
	if waits == "" && !applied {
		waits = "the VirtualMachine is as the Machine asks, see Ready"
	}
	switch {
	case s.approved(o) && waits != "":
		return isTrue(v1alpha1.ReasonRestartWaits, "the restart is approved, and waits until "+waits+"; "+changes)
	case s.approved(o):
		return isTrue(v1alpha1.ReasonRestarting, "the restart is approved; "+changes)
	}
	if !restarts(o) {
		return isTrue(v1alpha1.ReasonApprovalNeeded, fmt.Sprintf("%s; stop and start the guest, which the operator does not do with run strategy %s", changes, o.RunStrategy))
	}
	message := fmt.Sprintf("%s; to have the guest restarted: kubectl -n %s annotate machine %s --overwrite %s=%s",
		changes, s.Machine.Namespace, s.Machine.Name, v1alpha1.AnnotationApproveRestart, s.restartToken(o))
	if waits != "" {
		message += "; the restart then waits until " + waits
	}
	if s.Machine.Annotations[v1alpha1.AnnotationApproveRestart] != "" {
		message += "; the present value of the annotation is for another restart or for other changes"
	}
	return isTrue(v1alpha1.ReasonApprovalNeeded, message)
}
