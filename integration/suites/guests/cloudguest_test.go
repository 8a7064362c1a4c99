package guests_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/blockdevice"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
	"github.com/kvm-operator/kvm-operator/pkg/project"
)

// userData has the guest shut itself down when a line is written to its console, and tell what it sees on the console and
// at port 8000: its memory, and the data of cloud-init.
const userData = `{"write_files": [
  {"path": "/srv/cgi-bin/memory", "permissions": "0755", "content": "#!/bin/sh\necho\nexec cat /proc/meminfo\n"},
  {"path": "/etc/systemd/system/web.service", "content": "[Service]\nWorkingDirectory=/srv\nExecStart=python3 -m http.server --cgi 8000\n[Install]\nWantedBy=multi-user.target\n"}
], "runcmd": [
  ["ln", "-s", "/var/lib/cloud/data", "/srv/data"],
  ["systemctl", "enable", "--now", "web"],
  ["systemctl", "stop", "serial-getty@ttyS0"],
  ["sh", "-c", "(read line && poweroff) </dev/ttyS0 >/dev/null 2>&1 &"],
  ["sh", "-c", "{ echo; echo guest: name $(hostname), system-disk $(readlink /dev/system-disk), root $(findmnt -no SOURCE /), TPM $(cat /sys/class/tpm/tpm0/tpm_version_major); } >/dev/ttyS0"]
]}`

// TestCloudGuest: a real Debian with cloud-init and a guest agent boots by UEFI, is set up by its declaration, gets a CPU
// that it uses and gives it back, and is shut down in order.
func TestCloudGuest(t *testing.T) {
	s := newStage(t, "cloud-guest")
	s.operate(t)
	s.patience = 5 * time.Minute
	file := filepath.Join(directory(t), "cloud.img")
	if err := blockdevice.Copy(t.Context(), filepath.Join(tools, "guest", "cloud.img"), file); err != nil {
		t.Fatalf("%v; run `make tools`", err)
	}
	s.Create(t, attach(t, file).Volume("cloud", "900Mi"))
	vm := s.newMachine("cloud", "1Gi", "900Mi")
	vm.Spec.CloudInit.UserData = &runtime.RawExtension{Raw: []byte(userData)}
	vm.Spec.VM.PowerdownTimeout, vm.Spec.VM.MaximumCPUs, vm.Spec.VM.UseTPM = 120, ptr.To[int32](4), true
	vm.Spec.VM.Networks = []v1.Network{{Pod: &v1.PodNetwork{}}}
	begun := time.Now()
	s.start(t, vm)
	s.becomes(t, vm, "booted", func(s v1.VirtualMachineStatus) bool { return meta.IsStatusConditionTrue(s.Conditions, "Booted") })
	t.Logf("the guest agent answers after %s", time.Since(begun).Round(time.Second))
	var system struct{ ID string }
	if err := json.Unmarshal(vm.Status.OSInfo.Raw, &system); err != nil || system.ID != "debian" {
		t.Errorf("the system is %s, %v", vm.Status.OSInfo.Raw, err)
	}
	s.says(t, vm, "guest: name cloud, system-disk vda, root /dev/vda2, TPM 2")
	t.Logf("cloud-init is done after %s", time.Since(begun).Round(time.Second))

	changeCPUs(t, s, vm)
	instance := fetch(t, s, vm, "/data/instance-id")
	if instance != vm.Status.InstanceID {
		t.Errorf("the guest is the instance %q, want %q", instance, vm.Status.InstanceID)
	}
	changeMemory(t, s, vm)

	// The guest shuts itself down and comes back in another pod; then the machine is stopped.
	pod := s.pod(t, vm)
	shut := time.Now()
	s.tell(t, vm, "off\n")
	s.becomes(t, vm, "back", func(status v1.VirtualMachineStatus) bool {
		again := &corev1.Pod{}
		err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), again)
		return err == nil && again.UID != pod.UID && status.Phase == v1.PhaseRunning && meta.IsStatusConditionTrue(status.Conditions, "Booted")
	})
	t.Logf("booted again %s after the guest was to shut itself down", time.Since(shut).Round(time.Second))

	if again := fetch(t, s, vm, "/data/instance-id"); again != instance || vm.Status.InstanceID != instance {
		t.Errorf("the guest was the instance %q and is %q now; the status has %q", instance, again, vm.Status.InstanceID)
	}
	if s := vm.Status; s.MachineType != "pc-q35-10.0" || s.RunnerVersion != project.Version() || meta.FindStatusCondition(s.Conditions, "RestartRequired") != nil {
		t.Errorf("the machine is %q of runner %q: %+v", s.MachineType, s.RunnerVersion, s.Conditions)
	}

	stopped := time.Now()
	s.set(t, vm, func(vm *v1.VM) { vm.State = v1.StateStopped })
	s.becomes(t, vm, "stopped", isStopped)
	took := time.Since(stopped)
	t.Logf("stopped after %s", took.Round(time.Second))
	if took > time.Duration(vm.Spec.VM.PowerdownTimeout)*time.Second {
		t.Error("the guest did not shut itself down")
	}
	if s.Get(t, vm); vm.Status.OSInfo != nil {
		t.Errorf("a stopped machine has the system %s", vm.Status.OSInfo.Raw)
	}
	s.Delete(t, vm)
	s.Get(t, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "system-disk-cloud-0"}})
}

// changeCPUs gives the guest more CPUs, and takes them away, which its agent confirms.
func changeCPUs(t *testing.T, s stage, vm *v1.VirtualMachine) {
	t.Helper()
	for _, cpus := range []int32{3, 2} {
		changed := time.Now()
		s.set(t, vm, func(vm *v1.VM) { vm.CurrentCPUs = &cpus })
		s.becomes(t, vm, fmt.Sprintf("using %d CPUs", cpus), func(s v1.VirtualMachineStatus) bool {
			return s.CPUs == cpus && isReady(s) && meta.IsStatusConditionTrue(s.Conditions, "ChangesApplied")
		})
		t.Logf("%d CPUs after %s", cpus, time.Since(changed).Round(100*time.Millisecond))
	}
}

// changeMemory takes memory away from the guest and gives it back, and the guest sees both.
func changeMemory(t *testing.T, s stage, vm *v1.VirtualMachine) {
	t.Helper()
	for _, change := range []struct {
		ram         string
		least, most int // KiB, as the guest sees it: the kernel keeps a part for itself
	}{{"640Mi", 512 << 10, 640 << 10}, {"1Gi", 900 << 10, 1 << 20}} {
		changed := time.Now()
		s.set(t, vm, func(vm *v1.VM) { vm.CurrentRAM = &change.ram })
		lab.Eventually(t, 2*time.Minute, func() error {
			total, err := memoryOf(fetch(t, s, vm, "/cgi-bin/memory"))
			if err == nil && (total > change.most || total < change.least) {
				err = fmt.Errorf("the guest has %d KiB", total)
			}
			return err
		})
		s.becomes(t, vm, "with "+change.ram, func(s v1.VirtualMachineStatus) bool {
			return s.RAM == change.ram && meta.IsStatusConditionTrue(s.Conditions, "ChangesApplied")
		})
		t.Logf("the guest sees %s after %s", change.ram, time.Since(changed).Round(100*time.Millisecond))
	}
}

// fetch gets what the guest serves at the address of its pod.
func fetch(t *testing.T, s stage, vm *v1.VirtualMachine, path string) (content string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DialContext: s.cluster.Dial, DisableKeepAlives: true}, Timeout: 30 * time.Second}
	lab.Eventually(t, 2*time.Minute, func() error {
		s.Get(t, vm)
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+net.JoinHostPort(vm.Status.PodIP, "8000")+path, http.NoBody)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		body, err := io.ReadAll(response.Body)
		if err = errors.Join(err, response.Body.Close()); err == nil && response.StatusCode != http.StatusOK {
			err = fmt.Errorf("the guest answers %s to %s", response.Status, path)
		}
		content = strings.TrimSpace(string(body))
		return err
	})
	return content
}

// memoryOf returns the total of /proc/meminfo in KiB.
func memoryOf(meminfo string) (total int, err error) {
	_, err = fmt.Sscanf(meminfo, "MemTotal: %d kB", &total)
	return total, err
}
