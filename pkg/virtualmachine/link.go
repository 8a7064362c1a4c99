package virtualmachine

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/text"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

// Link is what is known through the link with the runner of a machine's pod.
type Link struct {
	// Report is the last one of this runner, also after the link was cut. Nil: there was none.
	Report *vmconfig.Report
	// Err is why there is no link now. Nil: there is one, or it is being made.
	Err error
}

// RunnerID identifies a runner: a container of a pod, from its start to its end.
type RunnerID struct {
	Pod types.NamespacedName
	// UID is the pod's, Container its name, and Instance the container's identity in the container runtime.
	UID                 types.UID
	Container, Instance string
}

// RunnerOf returns the runner of a machine's pod; false if none runs, or if the pod is being deleted.
func RunnerOf(pod *corev1.Pod, container string) (RunnerID, bool) {
	if pod == nil || pod.DeletionTimestamp != nil {
		return RunnerID{}, false
	}
	at := slices.IndexFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.Name == container })
	if at < 0 || pod.Status.ContainerStatuses[at].State.Running == nil {
		return RunnerID{}, false
	}
	return RunnerID{
		Pod: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, UID: pod.UID, Container: container,
		Instance: pod.Status.ContainerStatuses[at].ContainerID,
	}, true
}

// Order returns what the running machine is to be: what is declared, within what this machine can have until it is
// restarted. RestartFor tells the rest. The CDs do not change if it is not known what is for which drive, or if the
// pod has no files for them.
func (s *State) Order() vmconfig.Live {
	order, started := s.Live, s.Started()
	if there, err := vmconfig.Decode(machineOfPod(s.Pod, s.VM.Name)); err == nil {
		order.CurrentCPUs, order.CurrentRAM = min(order.CurrentCPUs, there.MaximumCPUs), min(order.CurrentRAM, there.MaximumRAM)
		if len(order.Media) != there.CDs() {
			order.Media = nil
		}
	}
	if s.KeepMedia || slices.ContainsFunc(order.Media, isFile) && !s.podHasRepository() {
		order.Media = nil
	}
	// The pod was created with a grace period for this.
	order.PowerdownTimeout = min(order.PowerdownTimeout, started.PowerdownTimeout)
	return order
}

// isFile returns whether a medium is a file of the image repository.
func isFile(medium string) bool { return medium != "" && !isURL(medium) }

// podHasRepository returns whether the pod has the image repository.
func (s *State) podHasRepository() bool {
	return slices.ContainsFunc(s.Pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == volumeRepository })
}

// changes returns whether an order changes a machine that was not changed since its start, or one that is known to have changed
// since then.
func (s *State) changes(order vmconfig.Live) bool {
	started := s.Started()
	if order.Media == nil {
		started.Media = nil
	}
	if !order.Same(started) {
		return true
	}
	ram, err := resource.ParseQuantity(s.VM.Status.RAM)
	return s.VM.Status.CPUs > 0 && (int(s.VM.Status.CPUs) != order.CurrentCPUs || err == nil && ram.Value() != order.CurrentRAM)
}

// keepsMedia returns whether CDs that were changed in the declaration are not changed in the machine, because the pod
// has no files.
func (s *State) keepsMedia(order vmconfig.Live) bool {
	there, err := vmconfig.Decode(machineOfPod(s.Pod, s.VM.Name))
	return err == nil && len(s.Live.Media) == there.CDs() && order.Media == nil && !slices.Equal(s.Live.Media, s.Started().Media)
}

// wasAdjusted returns whether an operator has found that the machine is what is declared now.
func (s *State) wasAdjusted() bool {
	c := meta.FindStatusCondition(s.VM.Status.Conditions, ConditionChanges)
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == s.VM.Generation
}

// ConditionChanges is False while a running machine is not what is declared, although that needs no restart.
const ConditionChanges = "ChangesApplied"

// Reasons why a running machine is not as declared, although that needs no restart.
const (
	ReasonChanging          = "Changing"
	ReasonNotLinked         = "RunnerNotLinked"
	ReasonCPUsNotAdjusted   = "CPUsNotAdjusted"
	ReasonMemoryNotAdjusted = "MemoryNotAdjusted"
	ReasonMediumNotInserted = "MediumNotInserted"
	ReasonDiskNotResized    = "DiskNotResized"
	ReasonDisplayLocked     = "DisplayLocked"
)

// problems are the parts of which a runner reports problems, in the order in which the operator reports them.
var problems = []struct{ part, field, reason string }{
	{vmconfig.PartCPUs, "vm.currentCpus", ReasonCPUsNotAdjusted},
	{vmconfig.PartRAM, "vm.currentRam", ReasonMemoryNotAdjusted},
	{vmconfig.PartMedia, "vm.disks.cdrom", ReasonMediumNotInserted},
	{vmconfig.PartDisks, "vm.disks.volumeClaimTemplate", ReasonDiskNotResized},
	{vmconfig.PartDisplay, "vm.display", ReasonDisplayLocked},
}

// maxProblem bounds what is repeated of what a runner reports, in bytes.
const maxProblem = 300

// Unadjusted returns the reason, and a sentence, why the running machine is not what was ordered; empty if it is.
func (s *State) Unadjusted() (reason, message string) {
	if !s.Serves() {
		return "", ""
	}
	report, order := s.Link.Report, s.Order()
	before := ptr.Deref(meta.FindStatusCondition(s.VM.Status.Conditions, ConditionChanges), metav1.Condition{})
	switch {
	case report == nil && (before.Reason == ReasonDisplayLocked || before.Reason == ReasonDiskNotResized):
		return before.Reason, before.Message // until the runner says more
	case report == nil && (!s.changes(order) || s.wasAdjusted()):
		return "", ""
	case s.Link.Err != nil && (report == nil || !report.Wanted.Same(order)):
		return ReasonNotLinked, fmt.Sprintf("changes wait because the operator cannot reach the runner in pod %s: %s", s.Pod.Name, text.Beginning(text.Steady(s.Link.Err.Error()), maxProblem))
	case report == nil:
		return ReasonChanging, fmt.Sprintf("the operator is connecting to the runner in pod %s", s.Pod.Name)
	case !report.Wanted.Same(order):
		return ReasonChanging, fmt.Sprintf("the operator sends the changes to the runner in pod %s", s.Pod.Name)
	case report.Busy:
		return ReasonChanging, fmt.Sprintf("the runner in pod %s applies the changes", s.Pod.Name)
	}
	if reason, message = problemsOf(*report); reason == "" && s.keepsMedia(order) {
		return ReasonMediumNotInserted, fmt.Sprintf("vm.disks.cdrom: no CD is changed because pod %s has no image repository for those that are files; restart the machine", s.Pod.Name)
	}
	return reason, message
}

// problemsOf returns what a runner reports as a reason and a sentence. Its text is not trusted, and is shortened.
func problemsOf(report vmconfig.Report) (reason, message string) {
	var notes []string
	for _, p := range problems {
		said := report.Problems[p.part]
		if said == "" {
			continue
		}
		notes = append(notes, p.field+": "+text.Beginning(said, maxProblem))
		if reason == "" {
			reason = p.reason
		}
	}
	return reason, strings.Join(notes, "; ")
}

// Has returns how many CPUs, and how many bytes of memory, the running machine has; false if that is not known.
func (s *State) Has() (cpus int, ram int64, known bool) {
	report := s.Link.Report
	if report == nil || report.CPUs <= 0 {
		return 0, 0, false
	}
	const most = 1 << 50 // more than any machine has
	ram = min(report.RAM, most)
	if ram <= 0 {
		ram = s.Started().CurrentRAM
	}
	return report.CPUs, ram, true
}

// OS returns what the guest agent says about its operating system; nil if none answers.
func (s *State) OS() *vmconfig.OS {
	if s.Link.Report == nil || s.Link.Report.OS == nil || !s.Serves() {
		return nil
	}
	return new(s.Link.Report.OS.Printable())
}

// machineType matches the types of QEMU's machine that are reported, as the API has them.
var machineType = regexp.MustCompile(`^pc-q35-[0-9]{1,3}\.[0-9]{1,3}$`)

// MachineType returns the type of QEMU's machine since the first start; empty before it. A guest keeps its hardware when
// the image of the runner gets another QEMU.
func (s *State) MachineType() string {
	if pinned := s.VM.Status.MachineType; pinned != "" && s.VM.Spec.VM.MachineType == nil {
		return pinned
	}
	if r := s.Link.Report; r != nil && machineType.MatchString(r.MachineType) {
		return r.MachineType
	}
	return s.VM.Status.MachineType
}

// RunnerVersion returns the version of the runner; empty if it is not known.
func (s *State) RunnerVersion() string {
	if r := s.Link.Report; r != nil && s.Serves() {
		return text.Beginning(r.Runner, maxVersion)
	}
	if s.Serves() {
		return s.VM.Status.RunnerVersion
	}
	return ""
}

// maxVersion bounds the version of a runner, in bytes.
const maxVersion = 64

// Accelerator returns what runs the guest's instructions, kvm or tcg, as the runner reports it; empty if it is not known.
func (s *State) Accelerator() string {
	if report := s.Link.Report; report != nil && (report.Accelerator == "kvm" || report.Accelerator == "tcg") {
		return report.Accelerator
	}
	return ""
}
