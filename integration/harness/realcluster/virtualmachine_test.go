package realcluster_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
	"github.com/kvm-operator/kvm-operator/pkg/project"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine"
	controller "github.com/kvm-operator/kvm-operator/service/controller/virtualmachine"
)

// TestPodOfAVirtualMachineRunsIt: the StatefulSet that the operator creates makes a claim and a pod, whose runner starts
// QEMU with the block device of the claim, which needs no privileges. Nothing is on the disk, so the guest is its BIOS.
func TestPodOfAVirtualMachineRunsIt(t *testing.T) {
	c := theCluster(t)
	const namespace = "virtual-machine"
	vm := &v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "tiny", UID: "9a3e5b0e-2f5c-4a39-8f0f-0242ac120002", ResourceVersion: "1"},
		Spec: v1.VirtualMachineSpec{
			CloudInit: &v1.CloudInit{},
			VM: v1.VM{
				State: v1.StateRunning, MaximumCPUs: ptr.To[int32](2), MaximumRAM: "128Mi", Firmware: v1.FirmwareBIOS, PowerdownTimeout: 2, Acceleration: v1.AccelerationTCG,
				RTCBase: "utc", RTCClock: "rt", CPUModel: "host",
				Disks: []v1.Disk{{VolumeClaimTemplate: &v1.VolumeClaimTemplate{Metadata: &v1.ClaimMetadata{Name: ptr.To("system")}, Spec: v1.ClaimSpec{
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: ptr.To(""), VolumeMode: "Block", VolumeName: "tiny-system",
					Resources: &v1.Resources{Requests: map[corev1.ResourceName]v1.Amount{corev1.ResourceStorage: {Quantity: resource.MustParse("64Mi")}}},
				}}}},
			},
		},
	}
	settings := virtualmachine.Settings{RunnerImage: "docker.io/kvm-operator/kvm-operator-runner:" + project.Version(), AllowEmulation: true}
	rendered, err := controller.Render(settings, vm, controller.Inputs{})
	if err != nil {
		t.Fatal(err)
	}
	items := []any{blockVolume(t, "tiny-system")}
	for _, part := range rendered {
		for _, object := range part.Objects {
			object.SetOwnerReferences(nil) // no VirtualMachine is stored
			kind, err := apiutil.GVKForObject(object, scheme.Scheme)
			if err != nil {
				t.Fatal(err)
			}
			object.GetObjectKind().SetGroupVersionKind(kind)
			items = append(items, object)
		}
	}
	list, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
	if err != nil {
		t.Fatal(err)
	}
	apply(t, c, namespace, string(list))
	wait := func(more ...string) error {
		_, err := c.Kubectl(t.Context(), append([]string{"--namespace=" + namespace, "wait", "--timeout=120s"}, more...)...)
		return err
	}
	if err := wait("--for=create", "pod/tiny-0"); err != nil {
		t.Fatal(err)
	}
	if err := wait("--for=condition=Ready", "pod/tiny-0"); err != nil {
		t.Fatalf("%v\n%s", err, explained(c, namespace, "tiny-0"))
	}
	status := kubectl(t, c, "--namespace="+namespace, "exec", "tiny-0", "--", virtualmachine.Binary, "runner", "status")
	if !strings.Contains(status, "Running") {
		t.Errorf("the runner says %q", status)
	}
	kubectl(t, c, "--namespace="+namespace, "scale", "statefulset/tiny", "--replicas=0")
	if err := wait("--for=delete", "pod/tiny-0"); err != nil {
		t.Errorf("%v\n%s", err, explained(c, namespace, "tiny-0"))
	}
	kubectl(t, c, "--namespace="+namespace, "get", "pvc", "system-disk-tiny-0")
}

// blockVolume returns a volume that is a loop device of this machine.
func blockVolume(t *testing.T, name string) *corev1.PersistentVolume {
	t.Helper()
	file := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(file, make([]byte, 64<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "losetup", "--find", "--show", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		// The kubelet has a loop device of its own on this one until it has unmapped the volume.
		for range 60 {
			if devices, _ := filepath.Glob("/sys/block/loop*/loop/backing_file"); !backs(device, devices) {
				break
			}
			time.Sleep(time.Second)
		}
		if err := exec.Command("losetup", "--detach", device).Run(); err != nil {
			t.Errorf("detaching %s: %v", device, err)
		}
	})
	return &corev1.PersistentVolume{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolume"}, ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeMode: ptr.To(corev1.PersistentVolumeBlock),
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("64Mi")},
			PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: device}},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "kubernetes.io/hostname", Operator: corev1.NodeSelectorOpExists}},
			}}}},
		},
	}
}

// backs returns whether a device backs one of the loop devices with these descriptions.
func backs(device string, descriptions []string) bool {
	for _, description := range descriptions {
		if text, err := os.ReadFile(description); err == nil && strings.TrimSpace(string(text)) == device {
			return true
		}
	}
	return false
}
