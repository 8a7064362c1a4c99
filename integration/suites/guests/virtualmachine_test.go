package guests_test

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kvm-operator/kvm-operator/integration/harness/blockdevice"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/integration/harness/spiceclient"
	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
)

// TestVirtualMachineRunsInAPod: an operator, a kubelet and a runner run a virtual machine with the block device of its
// claim, which needs no privileges, and change it while it runs. Nothing is on the disk, so the guest is its firmware, UEFI
// with Secure Boot.
func TestVirtualMachineRunsInAPod(t *testing.T) {
	s := newStage(t, "virtual-machine")
	s.operate(t)
	l := s.Lab
	system := newDevice(t, make([]byte, 64<<20))
	l.Create(t, system.Volume("tiny", "64Mi"))
	if _, err := s.cluster.KubectlInput(t.Context(), growingClass, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	vm := s.newMachine("tiny", "128Mi", "64Mi")
	vm.Spec.VM.PowerdownTimeout, vm.Spec.VM.Firmware, vm.Spec.VM.UseTPM = 2, v1.FirmwareSecure4M, true
	s.start(t, vm)
	becomes := func(what string, is func(v1.VirtualMachineStatus) bool) { t.Helper(); s.becomes(t, vm, what, is) }
	becomes("running", func(s v1.VirtualMachineStatus) bool {
		return runs(s) && s.CPUs == 1 && s.RAM == "128Mi" && s.Accelerator == "tcg"
	})
	pod := s.pod(t, vm)
	s.says(t, vm, "BdsDxe: failed to load Boot0001")

	testDisplay(t, s, vm)
	testGrowth(t, s, vm, system)

	lab.Change(t, l, vm, func(vm *v1.VirtualMachine) { vm.Spec.VM.CurrentCPUs = ptr.To[int32](2) })
	becomes("larger", func(s v1.VirtualMachineStatus) bool { return isReady(s) && s.CPUs == 2 })
	lab.Change(t, l, vm, func(vm *v1.VirtualMachine) { vm.Spec.VM.CurrentCPUs = ptr.To[int32](1) })
	becomes("stuck, because a firmware gives no CPU back", func(s v1.VirtualMachineStatus) bool {
		c := meta.FindStatusCondition(s.Conditions, "ChangesApplied")
		return c != nil && c.Reason == virtualmachine.ReasonCPUsNotAdjusted && strings.Contains(c.Message, "vm.currentCpus") && s.CPUs == 2
	})
	was := pod.UID
	if l.Get(t, pod); pod.UID != was || pod.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the machine was restarted: %+v", pod.Status.ContainerStatuses)
	}

	lab.Change(t, l, vm, func(vm *v1.VirtualMachine) { vm.Spec.VM.State = v1.StateStopped })
	becomes("stopped", func(s v1.VirtualMachineStatus) bool { return isStopped(s) && s.CPUs == 0 })
	l.Delete(t, vm)
	l.Get(t, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "system-disk-tiny-0"}})
}

// testDisplay connects to the display of a running machine with the password of its Secret, and changes the password.
func testDisplay(t *testing.T, s stage, vm *v1.VirtualMachine) {
	t.Helper()
	l, pod := s.Lab, s.pod(t, vm)
	becomes := func(what string, is func(v1.VirtualMachineStatus) bool) { t.Helper(); s.becomes(t, vm, what, is) }
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: vm.Namespace, Name: virtualmachine.DisplaySecretName(vm.Name)}}
	l.Get(t, secret)
	connect := func(password string) (net.Conn, error) {
		connection, err := s.cluster.Node(0).Dial(t.Context(), "tcp", net.JoinHostPort(pod.Status.PodIP, "5900"))
		if err != nil {
			return nil, err
		}
		return connection, spiceclient.Connect(connection, password)
	}
	first := string(secret.Data[vmconfig.DisplayPassword])
	viewer, err := connect(first)
	if err != nil {
		t.Fatalf("with the password of the Secret: %v", err)
	}
	becomes("viewed", func(s v1.VirtualMachineStatus) bool { return s.ConsoleClient != "" && s.DisplayPasswordSerial == 1 })
	if err := viewer.Close(); err != nil {
		t.Error(err)
	}
	becomes("viewed no more", func(s v1.VirtualMachineStatus) bool { return s.ConsoleClient == "" })
	if _, err := connect("guess"); !errors.Is(err, spiceclient.ErrRefused) {
		t.Errorf("with another password: %v", err)
	}

	begun := time.Now()
	lab.Change(t, l, secret, func(s *corev1.Secret) { s.Data[vmconfig.DisplayPassword] = []byte("new") })
	becomes("given a new password", func(s v1.VirtualMachineStatus) bool { return s.DisplayPasswordSerial == 2 })
	t.Logf("a new password took %s", time.Since(begun).Round(100*time.Millisecond))
	if _, err := connect("new"); err != nil {
		t.Errorf("with the new password: %v", err)
	}
	if _, err := connect(first); !errors.Is(err, spiceclient.ErrRefused) {
		t.Errorf("with the password of before: %v", err)
	}
	lab.Change(t, l, secret, func(s *corev1.Secret) { s.Data[vmconfig.DisplayExpiry] = []byte("tomorrow") })
	becomes("locked", func(s v1.VirtualMachineStatus) bool {
		c := meta.FindStatusCondition(s.Conditions, "ChangesApplied")
		return c != nil && c.Reason == virtualmachine.ReasonDisplayLocked && strings.Contains(c.Message, "none of now, never")
	})
	if _, err := connect("new"); !errors.Is(err, spiceclient.ErrRefused) {
		t.Errorf("with an expiry that is none: %v", err)
	}
	lab.Change(t, l, secret, func(s *corev1.Secret) { s.Data[vmconfig.DisplayExpiry] = []byte("never") })
	becomes("open again", func(s v1.VirtualMachineStatus) bool {
		return meta.IsStatusConditionTrue(s.Conditions, "ChangesApplied")
	})
}

// growingClass is the class of volumes whose claims may grow.
const growingClass = `{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: tiny}, provisioner: example.org/test, allowVolumeExpansion: true}`

// testGrowth declares a larger disk. The test does what the provider of a volume does.
func testGrowth(t *testing.T, s stage, vm *v1.VirtualMachine, d blockdevice.Device) {
	t.Helper()
	l := s.Lab
	becomes := func(what string, is func(v1.VirtualMachineStatus) bool) { t.Helper(); s.becomes(t, vm, what, is) }
	becomes("running with its disk", func(s v1.VirtualMachineStatus) bool { return s.Disks[0].Size == "64Mi" })
	larger := resource.MustParse("96Mi")
	lab.Change(t, l, vm, func(vm *v1.VirtualMachine) {
		vm.Spec.VM.Disks[0].VolumeClaimTemplate.Spec.Resources.Requests[corev1.ResourceStorage] = v1.Amount{Quantity: larger}
	})
	becomes("waiting for the provider", func(s v1.VirtualMachineStatus) bool {
		c := meta.FindStatusCondition(s.Conditions, "DisksBound")
		return c != nil && c.Reason == "ClaimGrowing" && strings.Contains(c.Message, "from 64Mi to 96Mi")
	})
	if meta.FindStatusCondition(vm.Status.Conditions, "RestartRequired") != nil {
		t.Error("a larger disk needs a restart")
	}
	if err := d.Grow(t.Context(), larger.Value()); err != nil {
		t.Fatal(err)
	}
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "tiny"}}
	lab.Change(t, l, volume, func(v *corev1.PersistentVolume) { v.Spec.Capacity[corev1.ResourceStorage] = larger })
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: vm.Namespace, Name: vm.Status.Disks[0].Claim}}
	l.Get(t, claim)
	claim.Status.Capacity[corev1.ResourceStorage] = larger
	if err := l.Client.Status().Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	becomes("grown", func(s v1.VirtualMachineStatus) bool {
		return s.Disks[0].Size == "96Mi" && meta.IsStatusConditionTrue(s.Conditions, "Ready")
	})
}
