package vitistack_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
)

const (
	namespace = "ci"
	name      = "build-agent"
	uid       = "8f6f0c2e-6f7e-4a0e-9d5c-5a3d2b9b0001"
)

// settings are the operator's, with one more template.
var settings = vitistack.Settings{
	ManagedBy: "kubevirt-operator", MACSet: 0x12, AccessMode: "ReadWriteMany", VolumeMode: "Block",
	Templates: map[string]vitistack.Template{"wide": {
		CPU: v1alpha1.CPU{Cores: 3, Threads: 2, Sockets: 2}, Memory: "6Gi",
		Disks: []v1alpha1.Disk{{Name: "system", Size: "5Gi", StorageClass: "fast"}, {Name: "cache", Size: "7Gi", Boot: true}},
	}},
}

var (
	standard = class("standard", true, 1)
	fast     = class("fast", false, 2)
)

func class(name string, isDefault bool, second int64) storagev1.StorageClass {
	c := storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(second, 0)}}
	if isDefault {
		c.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
	}
	return c
}

func machineOf(spec v1alpha1.MachineSpec) *v1alpha1.Machine {
	return &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uid, Generation: 3, CreationTimestamp: metav1.Unix(100, 0)}, Spec: spec}
}

// observe returns what there is beside a Machine in most tests: two classes.
func observe(spec v1alpha1.MachineSpec) vitistack.Observed {
	return vitistack.Observed{
		Machine: machineOf(spec), Settings: settings, StorageClasses: []storagev1.StorageClass{standard, fast}, KubeVirt: vitistack.Installed, Now: time.Unix(0, 0),
	}
}

func plan(spec v1alpha1.MachineSpec) *vitistack.State { return vitistack.Plan(observe(spec)) }

// said returns the problems as "Type: message".
func said(s *vitistack.State) []string {
	var all []string
	for _, p := range s.Problems {
		all = append(all, p.Type+": "+p.Message)
	}
	return all
}

func same(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func raw(text string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(text)} }

// subset returns the values whose bits are set in choice.
func chosen(choice, bit int) bool { return choice>>bit&1 == 1 }
