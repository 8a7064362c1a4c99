package realcluster_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/blockdevice"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/integration/harness/realcluster"
	"github.com/kvm-operator/kvm-operator/integration/harness/spiceclient"
	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
	"github.com/kvm-operator/kvm-operator/pkg/project"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine"
	"github.com/kvm-operator/kvm-operator/pkg/vm/vmconfig"
	"github.com/kvm-operator/kvm-operator/service"
)

// stage is where virtual machines run: an operator on a real cluster.
type vmStage struct {
	*lab.Lab
	cluster   *realcluster.Cluster
	namespace string
}

// startVMs starts an operator that runs virtual machines in a new namespace, whose firmware variables are on the volume
// of the StorageClass data.
func startVMs(t *testing.T, namespace, data string) vmStage {
	t.Helper()
	c := theCluster(t)
	l, err := lab.On(c.ControlPlane())
	if err != nil {
		t.Fatal(err)
	}
	l.Create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	l.Create(t, blockdevice.Directory(data, t.TempDir()))
	kubeconfig, err := c.Publish(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// The exec of client-go ignores how the configuration dials, so the operator connects through a forwarded port.
	reachable, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	l.Run(t, func(c *service.Config) {
		c.REST = reachable
		c.VirtualMachines = &virtualmachine.Settings{
			RunnerImage: "docker.io/kvm-operator/kvm-operator-vm-runner:" + project.Version(), AllowEmulation: true, DataStorageClass: &data,
		}
	})
	return vmStage{l, c, namespace}
}

// becomes waits until the status of a machine is as wanted.
func (s vmStage) becomes(t *testing.T, vm *v1.VirtualMachine, what string, is func(v1.VirtualMachineStatus) bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 200*time.Millisecond, 5*time.Minute, true, func(context.Context) (bool, error) {
		s.Get(t, vm)
		return is(vm.Status), nil
	})
	if err != nil {
		t.Fatalf("the machine is not %s: %+v\n%s", what, vm.Status, explained(s.cluster, s.namespace, virtualmachine.PodName(vm.Name)))
	}
}

// newVM returns an emulated machine with UEFI and one disk, whose volume is in the StorageClass with the machine's name.
func (s vmStage) newVM(name, ram, size string) *v1.VirtualMachine {
	return &v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec: v1.VirtualMachineSpec{
			CloudInit: &v1.CloudInit{},
			VM: v1.VM{
				State: v1.StateRunning, MaximumCPUs: ptr.To[int32](2), CurrentCPUs: ptr.To[int32](1), MaximumRAM: ram, Firmware: v1.FirmwareUEFI,
				Display: &v1.Display{SPICE: &v1.SPICE{Port: 5900}}, Acceleration: v1.AccelerationTCG, RTCBase: "utc", RTCClock: "rt", CPUModel: "host",
				Disks: []v1.Disk{{VolumeClaimTemplate: &v1.VolumeClaimTemplate{Metadata: &v1.ClaimMetadata{Name: ptr.To("system")}, Spec: v1.ClaimSpec{
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &name, VolumeMode: "Block",
					Resources: &v1.Resources{Requests: map[corev1.ResourceName]v1.Amount{corev1.ResourceStorage: {Quantity: resource.MustParse(size)}}},
				}}}},
			},
		},
	}
}

// isReady returns whether a machine is as declared.
func isReady(s v1.VirtualMachineStatus) bool {
	return meta.IsStatusConditionTrue(s.Conditions, "Ready")
}

// TestVirtualMachineRunsInAPod: an operator, a kubelet and a runner run a virtual machine with the block device of its
// claim, which needs no privileges, and change it while it runs. Nothing is on the disk, so the guest is its firmware, UEFI
// with Secure Boot.
func TestVirtualMachineRunsInAPod(t *testing.T) {
	const namespace = "virtual-machine"
	s := startVMs(t, namespace, "tiny-data")
	c, l := s.cluster, s.Lab
	system := newDevice(t, make([]byte, 64<<20))
	l.Create(t, system.Volume("tiny", "64Mi"))
	if _, err := c.KubectlInput(t.Context(), growingClass, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	vm := s.newVM("tiny", "128Mi", "64Mi")
	vm.Spec.VM.PowerdownTimeout, vm.Spec.VM.Firmware, vm.Spec.VM.UseTPM = 2, v1.FirmwareSecure4M, true
	l.Create(t, vm)
	t.Cleanup(func() { endMachine(t, l, vm) })
	becomes := func(what string, is func(v1.VirtualMachineStatus) bool) { t.Helper(); s.becomes(t, vm, what, is) }
	ready := isReady
	becomes("running", func(s v1.VirtualMachineStatus) bool {
		return ready(s) && s.Phase == v1.PhaseRunning && s.CPUs == 1 && s.RAM == "128Mi" && s.Accelerator == "tcg"
	})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "tiny-0"}}
	l.Get(t, pod)

	await(t, 2*time.Minute, func() error {
		if console := kubectl(t, c, "--namespace="+namespace, "logs", "tiny-0"); !strings.Contains(console, "BdsDxe: failed to load Boot0001") {
			return errors.New("the firmware has not looked for a system yet: " + console)
		}
		return nil
	})

	testDisplay(t, c, l, vm, becomes)
	testGrowth(t, l, vm, system, becomes)

	lab.Change(t, l, vm, func(vm *v1.VirtualMachine) { vm.Spec.VM.CurrentCPUs = ptr.To[int32](2) })
	becomes("larger", func(s v1.VirtualMachineStatus) bool { return ready(s) && s.CPUs == 2 })
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
	becomes("stopped", func(s v1.VirtualMachineStatus) bool { return ready(s) && s.Phase == v1.PhaseStopped && s.CPUs == 0 })
	l.Delete(t, vm)
	kubectl(t, c, "--namespace="+namespace, "get", "pvc", "system-disk-tiny-0")
}

// testDisplay connects to the display of a running machine with the password of its Secret, and changes the password.
func testDisplay(t *testing.T, c *realcluster.Cluster, l *lab.Lab, vm *v1.VirtualMachine, becomes func(string, func(v1.VirtualMachineStatus) bool)) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: vm.Namespace, Name: virtualmachine.PodName(vm.Name)}}
	l.Get(t, pod)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: vm.Namespace, Name: virtualmachine.DisplaySecretName(vm.Name)}}
	l.Get(t, secret)
	connect := func(password string) (net.Conn, error) {
		connection, err := c.Node(0).Dial(t.Context(), "tcp", net.JoinHostPort(pod.Status.PodIP, "5900"))
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

// endMachine deletes a machine, also one that a failed test left, and waits until nothing uses its volume.
func endMachine(t *testing.T, l *lab.Lab, vm *v1.VirtualMachine) {
	t.Helper()
	ctx := context.Background()
	err := client.IgnoreNotFound(l.Client.Delete(ctx, vm))
	if err == nil {
		err = wait.PollUntilContextTimeout(ctx, time.Second, time.Minute, true, func(ctx context.Context) (bool, error) {
			err := l.Client.Get(ctx, client.ObjectKey{Namespace: vm.Namespace, Name: virtualmachine.PodName(vm.Name)}, &corev1.Pod{})
			return apierrors.IsNotFound(err), nil
		})
	}
	if err != nil {
		t.Errorf("ending the machine: %v", err)
	}
}

// growingClass is the class of volumes whose claims may grow.
const growingClass = `{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: tiny}, provisioner: example.org/test, allowVolumeExpansion: true}`

// testGrowth declares a larger disk. The test does what the provider of a volume does.
func testGrowth(t *testing.T, l *lab.Lab, vm *v1.VirtualMachine, d blockdevice.Device, becomes func(string, func(v1.VirtualMachineStatus) bool)) {
	t.Helper()
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

// newDevice returns a device with content.
func newDevice(t *testing.T, content []byte) blockdevice.Device {
	t.Helper()
	file := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return attach(t, file)
}

// attach returns a device with a file behind it, until the test ends.
func attach(t *testing.T, file string) blockdevice.Device {
	t.Helper()
	device, err := blockdevice.Attach(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := device.Detach(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return device
}
