package guests_test

import (
	"context"
	"fmt"
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
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/blockdevice"
	"github.com/kvm-operator/kvm-operator/integration/harness/bootsector"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/integration/harness/realcluster"
	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
	"github.com/kvm-operator/kvm-operator/pkg/project"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine"
	"github.com/kvm-operator/kvm-operator/service"
)

// patience is how long something may take that takes seconds on a quiet machine. A guest with an operating system takes
// minutes.
const patience = time.Minute

// stage is where the machines of one test run: an operator on the cluster, and a namespace.
type stage struct {
	*lab.Lab
	cluster   *realcluster.Cluster
	namespace string
	// data is the StorageClass of the firmware's variables.
	data string
	// patience is how long to wait for something.
	patience time.Duration
	// reachable is how the operator connects to the API server.
	reachable *rest.Config
}

// newStage makes a namespace, and a volume for the variables of the firmware of one machine.
func newStage(t *testing.T, namespace string) stage {
	t.Helper()
	c := theCluster(t)
	l, err := lab.On(c.ControlPlane())
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := c.Publish(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// The exec of client-go ignores how the configuration dials, so the operator connects through a forwarded port.
	reachable, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	s := stage{l, c, namespace, namespace + "-data", patience, reachable}
	l.Create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	l.Create(t, blockdevice.Directory(s.data, t.TempDir()))
	return s
}

// operate runs an operator until the end of the test, or until it is stopped.
func (s stage) operate(t *testing.T, options ...lab.Option) *lab.Operator {
	t.Helper()
	settings := func(c *service.Config) {
		c.REST = s.reachable
		c.VirtualMachines = &virtualmachine.Settings{
			RunnerImage: "docker.io/kvm-operator/kvm-operator-vm-runner:" + project.Version(), AllowEmulation: true, DataStorageClass: &s.data,
		}
	}
	return s.Run(t, append([]lab.Option{settings}, options...)...)
}

// becomes waits until the status of a machine describes its declaration and is as wanted.
func (s stage) becomes(t *testing.T, vm *v1.VirtualMachine, what string, is func(v1.VirtualMachineStatus) bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, s.patience, true, func(ctx context.Context) (bool, error) {
		err := s.Client.Get(ctx, client.ObjectKeyFromObject(vm), vm)
		return err == nil && vm.Status.ObservedGeneration == vm.Generation && is(vm.Status), nil
	})
	if err != nil {
		t.Fatalf("the machine is not %s: %+v\n%s", what, vm.Status, s.cluster.Explain(s.namespace, virtualmachine.PodName(vm.Name)))
	}
}

// newMachine returns an emulated machine with UEFI and one disk, whose volume is in the StorageClass with the machine's
// name.
func (s stage) newMachine(name, ram, size string) *v1.VirtualMachine {
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

// newTiny returns a machine with the smallest guest, and makes its volume.
func (s stage) newTiny(t *testing.T, name string) *v1.VirtualMachine {
	t.Helper()
	s.Create(t, newTinyDevice(t, directory(t), 1<<20).Volume(name, "1Mi"))
	return s.declareTiny(name, "1Mi")
}

// newTinyDevice returns the disk of the smallest guest, whose file is in a directory.
func newTinyDevice(t *testing.T, directory string, size int64) blockdevice.Device {
	t.Helper()
	file := filepath.Join(directory, "disk")
	if err := bootsector.Write(file, size); err != nil {
		t.Fatal(err)
	}
	return attach(t, file)
}

// declareTiny returns such a machine, whose volume is the caller's.
func (s stage) declareTiny(name, size string) *v1.VirtualMachine {
	vm := s.newMachine(name, "32Mi", size)
	vm.Spec.VM.Firmware, vm.Spec.VM.PowerdownTimeout, vm.Spec.VM.Display, vm.Spec.VM.Networks = v1.FirmwareBIOS, 60, &v1.Display{}, []v1.Network{}
	vm.Spec.CloudInit = nil
	return vm
}

// start creates a machine, which the test deletes at its end.
func (s stage) start(t *testing.T, vm *v1.VirtualMachine) {
	t.Helper()
	s.Create(t, vm)
	t.Cleanup(func() { s.end(t, vm) })
}

// endTime is how long a machine may take to end whose guest does not shut down: the guest's time, and that of QEMU.
const endTime = 2 * time.Minute

// end deletes a machine, also one that a failed test left, and waits until nothing uses its volume.
func (s stage) end(t *testing.T, vm *v1.VirtualMachine) {
	t.Helper()
	ctx := context.Background()
	err := client.IgnoreNotFound(s.Client.Delete(ctx, vm))
	if err == nil {
		err = wait.PollUntilContextTimeout(ctx, time.Second, endTime, true, func(ctx context.Context) (bool, error) {
			return apierrors.IsNotFound(s.Client.Get(ctx, s.podKey(vm), &corev1.Pod{})), nil
		})
	}
	if err != nil {
		t.Errorf("ending the machine: %v", err)
		key := s.podKey(vm)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		_ = s.Client.Delete(ctx, pod, client.GracePeriodSeconds(0))
	}
}

func (s stage) podKey(vm *v1.VirtualMachine) client.ObjectKey {
	return client.ObjectKey{Namespace: s.namespace, Name: virtualmachine.PodName(vm.Name)}
}

// pod returns the pod of a machine.
func (s stage) pod(t *testing.T, vm *v1.VirtualMachine) *corev1.Pod {
	t.Helper()
	key := s.podKey(vm)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	s.Get(t, pod)
	return pod
}

// says waits until the console of a machine has a text.
func (s stage) says(t *testing.T, vm *v1.VirtualMachine, text string) {
	t.Helper()
	lab.Eventually(t, s.patience, func() error {
		console, err := s.cluster.Kubectl(t.Context(), "--namespace="+s.namespace, "logs", virtualmachine.PodName(vm.Name))
		if err == nil && !strings.Contains(console, text) {
			err = fmt.Errorf("the guest does not say %q: %s", text, console)
		}
		return err
	})
}

// leave is Ctrl-], which leaves a console.
const leave = "\x1d"

// tell types at the console of a machine.
func (s stage) tell(t *testing.T, vm *v1.VirtualMachine, text string) {
	t.Helper()
	output, err := s.cluster.KubectlInput(t.Context(), text+leave, "--namespace="+s.namespace, "exec", "-i", virtualmachine.PodName(vm.Name), "--", virtualmachine.Binary, "runner", "console")
	if err != nil { // a machine that ends cuts its console
		t.Logf("the console ends with %v: %s", err, output)
	}
}

// set changes the declaration of a machine.
func (s stage) set(t *testing.T, vm *v1.VirtualMachine, by func(*v1.VM)) {
	t.Helper()
	lab.Change(t, s.Lab, vm, func(vm *v1.VirtualMachine) { by(&vm.Spec.VM) })
}

// isReady returns whether a machine is as declared.
func isReady(s v1.VirtualMachineStatus) bool {
	return meta.IsStatusConditionTrue(s.Conditions, "Ready")
}

// runs returns whether a machine runs as declared.
func runs(s v1.VirtualMachineStatus) bool { return isReady(s) && s.Phase == v1.PhaseRunning }

// isStopped returns whether a machine is stopped as declared.
func isStopped(s v1.VirtualMachineStatus) bool { return isReady(s) && s.Phase == v1.PhaseStopped }

// newDevice returns a device with content.
func newDevice(t *testing.T, content []byte) blockdevice.Device {
	t.Helper()
	file := filepath.Join(directory(t), "disk")
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
