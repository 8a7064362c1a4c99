package virtualmachine

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

// runningPod returns the pod of a machine, whose runner is Ready.
func runningPod(t *testing.T, vm *v1.VirtualMachine) *corev1.Pod {
	t.Helper()
	template, err := Plan(Observed{VM: vm}).Template()
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec, Status: corev1.PodStatus{
		Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: vm.Name, Ready: true, ContainerID: "c1", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}},
	}}
}

// sized is a machine with 4 CPUs and 4 GiB, of which it has 2, and with one CD drive.
func sized(change func(*v1.VirtualMachine)) *v1.VirtualMachine {
	return machine(func(vm *v1.VirtualMachine) {
		vm.Spec.VM.MaximumCPUs, vm.Spec.VM.CurrentCPUs = ptr.To[int32](4), ptr.To[int32](2)
		vm.Spec.VM.MaximumRAM, vm.Spec.VM.CurrentRAM = "4Gi", ptr.To("2Gi")
		vm.Spec.VM.PowerdownTimeout = 90
		vm.Spec.VM.Disks = []v1.Disk{{CDROM: &v1.CDROM{Image: "http://x.example/a.iso"}}}
		if change != nil {
			change(vm)
		}
	})
}

// TestOrderFitsTheRunningMachine: a runner is ordered what its machine can have until it is restarted.
func TestOrderFitsTheRunningMachine(t *testing.T) {
	was := vmconfig.Live{CurrentCPUs: 2, CurrentRAM: 2 << 30, PowerdownTimeout: 90, Media: []string{"http://x.example/a.iso"}}
	for name, test := range map[string]struct {
		change func(*v1.VirtualMachine)
		want   func(*vmconfig.Live)
	}{
		"nothing changed": {nil, func(*vmconfig.Live) {}},
		"CPUs and memory": {
			func(vm *v1.VirtualMachine) {
				vm.Spec.VM.CurrentCPUs, vm.Spec.VM.CurrentRAM = ptr.To[int32](3), ptr.To("3Gi")
			},
			func(l *vmconfig.Live) { l.CurrentCPUs, l.CurrentRAM = 3, 3<<30 },
		},
		"more than it can have": {
			func(vm *v1.VirtualMachine) {
				vm.Spec.VM.MaximumCPUs, vm.Spec.VM.CurrentCPUs, vm.Spec.VM.MaximumRAM, vm.Spec.VM.CurrentRAM = ptr.To[int32](8), ptr.To[int32](8), "8Gi", ptr.To("8Gi")
			},
			func(l *vmconfig.Live) { l.CurrentCPUs, l.CurrentRAM = 4, 4<<30 },
		},
		"another CD": {
			func(vm *v1.VirtualMachine) { vm.Spec.VM.Disks[0].CDROM.Image = "" }, func(l *vmconfig.Live) { l.Media = []string{""} },
		},
		"one drive more": {
			func(vm *v1.VirtualMachine) { vm.Spec.VM.Disks = append(vm.Spec.VM.Disks, v1.Disk{CDROM: &v1.CDROM{}}) }, func(l *vmconfig.Live) { l.Media = nil },
		},
		"a CD that is a file, without a repository": {
			func(vm *v1.VirtualMachine) { vm.Spec.VM.Disks[0].CDROM.Image = "a.iso" }, func(l *vmconfig.Live) { l.Media = nil },
		},
		"less patience":                  {func(vm *v1.VirtualMachine) { vm.Spec.VM.PowerdownTimeout = 10 }, func(l *vmconfig.Live) { l.PowerdownTimeout = 10 }},
		"more patience":                  {func(vm *v1.VirtualMachine) { vm.Spec.VM.PowerdownTimeout = 900 }, func(*vmconfig.Live) {}},
		"a guest that shuts itself down": {func(vm *v1.VirtualMachine) { vm.Spec.GuestShutdownStops = true }, func(l *vmconfig.Live) { l.GuestShutdownStops = true }},
	} {
		want := was
		test.want(&want)
		if diff := cmp.Diff(want, Plan(Observed{VM: sized(test.change), Pod: runningPod(t, sized(nil))}).Order()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestFilesAreOrderedWhereTheyAre: a pod that does not mount the image repository keeps the CDs that it has.
func TestFilesAreOrderedWhereTheyAre(t *testing.T) {
	vm := sized(func(vm *v1.VirtualMachine) { vm.Spec.VM.Disks[0].CDROM.Image = "a.iso" })
	without := runningPod(t, vm)
	with := without.DeepCopy()
	with.Spec.Volumes = append(with.Spec.Volumes, corev1.Volume{Name: volumeRepository})
	settings := Settings{ImageRepository: "images"}
	if order := Plan(Observed{VM: vm, Pod: without, Settings: settings}).Order(); order.Media != nil {
		t.Errorf("a pod without the repository is ordered %q", order.Media)
	}
	if order := Plan(Observed{VM: vm, Pod: with, Settings: settings}).Order(); !cmp.Equal(order.Media, []string{"a.iso"}) {
		t.Errorf("a pod with the repository is ordered %q", order.Media)
	}
}

// TestUnadjusted: what keeps a running machine from being what is declared is said, and nothing if it is.
func TestUnadjusted(t *testing.T) {
	same, more := sized(nil), sized(func(vm *v1.VirtualMachine) { vm.Spec.VM.CurrentCPUs = ptr.To[int32](3) })
	orderOf := func(vm *v1.VirtualMachine) vmconfig.Live {
		return Plan(Observed{VM: vm, Pod: runningPod(t, sized(nil))}).Order()
	}
	report := func(vm *v1.VirtualMachine, change func(*vmconfig.Report)) *vmconfig.Report {
		r := &vmconfig.Report{Wanted: orderOf(vm), CPUs: 2, RAM: 2 << 30}
		if change != nil {
			change(r)
		}
		return r
	}
	file := sized(func(vm *v1.VirtualMachine) { vm.Spec.VM.Disks[0].CDROM.Image = "a.iso" })
	has := func(vm *v1.VirtualMachine, cpus int32) *v1.VirtualMachine {
		vm = vm.DeepCopy()
		vm.Status.CPUs, vm.Status.RAM = cpus, "2Gi"
		return vm
	}
	cut := errors.New("the link was cut")
	done := func(vm *v1.VirtualMachine) *v1.VirtualMachine {
		vm = vm.DeepCopy()
		vm.Status.Conditions = []metav1.Condition{{Type: ConditionChanges, Status: metav1.ConditionTrue, ObservedGeneration: vm.Generation}}
		return vm
	}
	for name, test := range map[string]struct {
		vm            *v1.VirtualMachine
		link          Link
		reason, words string
	}{
		"no link, and nothing to say":               {same, Link{}, "", ""},
		"no link, and it was done before":           {done(more), Link{Err: cut}, "", ""},
		"it has other CPUs than at its start":       {has(same, 4), Link{Err: cut}, ReasonNotLinked, "the link was cut"},
		"a CD that is a file, without a repository": {file, Link{Report: report(file, nil)}, ReasonMediumNotInserted, "no image repository"},
		"no link yet":                      {more, Link{}, ReasonChanging, "is connecting to the runner"},
		"no link, because of an error":     {more, Link{Err: cut}, ReasonNotLinked, "the link was cut"},
		"an error, and nothing to say":     {same, Link{Err: cut}, "", ""},
		"it was done before the link":      {more, Link{Report: report(more, nil), Err: cut}, "", ""},
		"it was not":                       {more, Link{Report: report(same, nil), Err: cut}, ReasonNotLinked, "the link was cut"},
		"the runner does not know":         {more, Link{Report: report(same, nil)}, ReasonChanging, "sends the changes"},
		"the runner is at it":              {more, Link{Report: report(more, func(r *vmconfig.Report) { r.Busy = true })}, ReasonChanging, "applies the changes"},
		"all is as it should be":           {more, Link{Report: report(more, nil)}, "", ""},
		"the guest keeps its memory":       {more, Link{Report: report(more, func(r *vmconfig.Report) { r.Problems = map[string]string{"currentRam": "no"} })}, ReasonMemoryNotAdjusted, "vm.currentRam: no"},
		"two problems":                     {more, Link{Report: report(more, func(r *vmconfig.Report) { r.Problems = map[string]string{"cdrom": "b", "currentCpus": "a"} })}, ReasonCPUsNotAdjusted, "vm.currentCpus: a; vm.disks.cdrom: b"},
		"a part of which nothing is known": {more, Link{Report: report(more, func(r *vmconfig.Report) { r.Problems = map[string]string{"x": "y"} })}, "", ""},
	} {
		reason, message := Plan(Observed{VM: test.vm, Pod: runningPod(t, sized(nil)), Link: test.link}).Unadjusted()
		if reason != test.reason || !strings.Contains(message, test.words) {
			t.Errorf("%s: it says %s: %s", name, reason, message)
		}
	}
	long := Link{Report: report(more, func(r *vmconfig.Report) { r.Problems = map[string]string{"cdrom": strings.Repeat("ä", 9999)} })}
	if _, message := Plan(Observed{VM: more, Pod: runningPod(t, sized(nil)), Link: long}).Unadjusted(); len(message) > 2*maxProblem {
		t.Errorf("a runner makes a message of %d bytes", len(message))
	}
}

// TestRunnerOf: only a container that runs in a pod that stays is linked with, each under its own identity.
func TestRunnerOf(t *testing.T) {
	pod := runningPod(t, sized(nil))
	first, ok := RunnerOf(pod, sized(nil).Name)
	if !ok {
		t.Fatal("a runner that runs is none")
	}
	pod.Status.ContainerStatuses[0].ContainerID = "c2"
	if second, _ := RunnerOf(pod, sized(nil).Name); second == first {
		t.Error("a container that was started again has the identity of the one before")
	}
	ending := pod.DeepCopy()
	ending.DeletionTimestamp = &metav1.Time{}
	waiting := pod.DeepCopy()
	waiting.Status.ContainerStatuses[0].State = corev1.ContainerState{}
	for name, none := range map[string]*corev1.Pod{"no pod": nil, "a pod that ends": ending, "a container that waits": waiting} {
		if _, ok := RunnerOf(none, sized(nil).Name); ok {
			t.Errorf("%s has a runner", name)
		}
	}
}
