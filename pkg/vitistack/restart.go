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

// needsRestart returns whether a guest runs to which changes wait for its next start. KubeVirt decides which changes do.
func needsRestart(o Observation) bool { return o.RestartRequired != "" && o.Runs() }

// restartToken is the value of the annotation that approves a restart. It stands for the guest, so that it is worth one
// restart, for what differs between that and the VirtualMachine, and for what the spec asks of the VirtualMachine, so that a
// later change needs another approval, also one that has not reached the VirtualMachine yet.
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
		CloudInit  bool
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

// restarts returns whether KubeVirt starts a guest again that was ended. It does so without a request for one run strategy.
func restarts(o Observation) bool { return o.RunStrategy == kubevirtv1.RunStrategyAlways }

// RestartApproved returns whether the guest is to be restarted now: it needs that, and the Machine's annotation approves this
// restart. Everyone who may change the Machine may approve.
func (s *State) RestartApproved() bool {
	return s.VMI != nil && s.approved(s.Observation)
}

func (s *State) approved(o Observation) bool {
	return needsRestart(o) && restarts(o) && s.Machine.Annotations[v1alpha1.AnnotationApproveRestart] == s.restartToken(o)
}

// awaitingRestart returns the condition AwaitingRestart.
func (s *State) awaitingRestart(o Observation) finding {
	if !needsRestart(o) {
		return finding{}
	}
	changes := "the guest does not have these changes yet: " + strings.Join(o.Pending, ", ")
	if len(o.Pending) == 0 {
		changes = "KubeVirt reports: " + o.RestartRequired
	}
	if s.approved(o) {
		return isTrue(v1alpha1.ReasonRestarting, "the restart is approved; "+changes)
	}
	if !restarts(o) {
		return isTrue(v1alpha1.ReasonApprovalNeeded, fmt.Sprintf("%s; stop and start the guest, which the operator does not do with run strategy %s", changes, o.RunStrategy))
	}
	message := fmt.Sprintf("%s; to have the guest restarted: kubectl -n %s annotate machine %s --overwrite %s=%s",
		changes, s.Machine.Namespace, s.Machine.Name, v1alpha1.AnnotationApproveRestart, s.restartToken(o))
	if s.Machine.Annotations[v1alpha1.AnnotationApproveRestart] != "" {
		message += "; the present value of the annotation is for another restart or for other changes"
	}
	return isTrue(v1alpha1.ReasonApprovalNeeded, message)
}
