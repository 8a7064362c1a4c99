package virtualmachine

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

// TestStatusOfAMachineThatHasNotChangedIsNotWritten: what is stored is what an API server returns, which sorts fields.
func TestStatusOfAMachineThatHasNotChangedIsNotWritten(t *testing.T) {
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "try"}}
	vm.Spec.VM.State, vm.Spec.VM.MaximumRAM = v1.StateRunning, "1Gi"
	pod := &corev1.Pod{Status: corev1.PodStatus{
		Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "try", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}},
	}}
	report := &vmconfig.Report{
		CPUs: 1, RAM: 1 << 30, Accelerator: "tcg", MachineType: "pc-q35-10.0", Runner: "4.0.0", Display: &vmconfig.DisplayReport{Serial: 2, Client: "::ffff:192.0.2.1"},
		OS: &vmconfig.OS{ID: "debian", Name: "Debian\a", VersionID: "12", KernelRelease: "6.1", Machine: "x86_64"},
	}
	observed := virtualmachine.Observed{VM: vm, Pod: pod, Link: virtualmachine.Link{Report: report}}
	first := status(virtualmachine.Plan(observed), nil)
	if first.OSInfo == nil || first.ConsoleClient != "192.0.2.1" || first.DisplayPasswordSerial != 2 || first.MachineType != "pc-q35-10.0" || first.RunnerVersion != "4.0.0" {
		t.Fatalf("it is %+v", first)
	}
	var fields map[string]string
	if err := json.Unmarshal(first.OSInfo.Raw, &fields); err != nil || fields["name"] != "Debian" {
		t.Fatalf("the system is %s, %v", first.OSInfo.Raw, err)
	}
	sorted, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	first.OSInfo.Raw = sorted
	vm.Status = first
	second := status(virtualmachine.Plan(observed), nil)
	if !equality.Semantic.DeepEqual(first, second) {
		t.Errorf("it would be written again (-stored +next):\n%s", cmp.Diff(first, second))
	}
}

// TestWordsOfAHostFitAStatus: the API server refuses a status with a message of more than 32 KiB, and then nothing is reported.
func TestWordsOfAHostFitAStatus(t *testing.T) {
	const most = 32 << 10
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "try"}}
	vm.Spec.VM.State, vm.Spec.VM.MaximumRAM = v1.StateRunning, "1Gi"
	waits := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: strings.Repeat("<p>", most)}}
	pod := &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "try", State: waits}}}}
	told := false
	for _, c := range status(virtualmachine.Plan(virtualmachine.Observed{VM: vm, Pod: pod}), nil).Conditions {
		if len(c.Message) > most {
			t.Errorf("the message of %s has %d bytes", c.Type, len(c.Message))
		}
		told = told || strings.Contains(c.Message, "ErrImagePull")
	}
	if !told {
		t.Error("no condition says what the pod waits for")
	}
}
