package cluster

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// claim is what a volume claim requests.
type claim struct{ Size, Class, Access, MountTag string }

func claims(t *testing.T, s scenario) map[string]claim {
	t.Helper()
	got := map[string]claim{}
	for _, object := range objects(t, s.render(t), "pvc") {
		spec := object.(*corev1.PersistentVolumeClaim).Spec
		size := spec.Resources.Requests[corev1.ResourceStorage]
		c := claim{Size: size.String(), Class: ptr.Deref(spec.StorageClassName, "(default)"), Access: string(spec.AccessModes[0])}
		if spec.Selector != nil {
			c.MountTag = spec.Selector.MatchLabels["mount-tag"]
		}
		got[object.GetName()] = c
	}
	return got
}

// TestVolumeClaims: claims are named after node IDs, not after positions as in the original; only one pod can use that
// of etcd.
func TestVolumeClaims(t *testing.T) {
	onVolume := func(etcd *v1alpha1.EtcdVolume) scenario {
		s := simple()
		s.config.Spec.KVM.K8sKVM.StorageType, s.config.Spec.KVM.Etcd = v1alpha1.StorageTypePersistentVolume, etcd
		return s
	}
	const name = "pvc-master-etcd-ab1cd-m0aaa"
	for sentence, test := range map[string]struct {
		scenario scenario
		want     map[string]claim
	}{
		"etcd on the host needs none":            {simple(), nil},
		"etcd as the original asked for it":      {onVolume(nil), map[string]claim{name: {"15Gi", "g8s-storage", "ReadWriteOncePod", ""}}},
		"another class, the original's size":     {onVolume(&v1alpha1.EtcdVolume{StorageClassName: ptr.To("fast")}), map[string]claim{name: {"15Gi", "fast", "ReadWriteOncePod", ""}}},
		"the management cluster's default class": {onVolume(&v1alpha1.EtcdVolume{StorageClassName: ptr.To("")}), map[string]claim{name: {"15Gi", "(default)", "ReadWriteOncePod", ""}}},
		"one a master, one a worker and mount tag, as large as the volume": {full(), map[string]claim{
			"pvc-master-etcd-full1-m0aaa":         {"20Gi", "g8s-storage", "ReadWriteOncePod", ""},
			"pvc-master-etcd-full1-m1aaa":         {"20Gi", "g8s-storage", "ReadWriteOncePod", ""},
			"pvc-master-etcd-full1-m2aaa":         {"20Gi", "g8s-storage", "ReadWriteOncePod", ""},
			"local-pvc-worker-full1-w1aaa-data1":  {"5Gi", "local-storage", "ReadWriteOnce", "data1"},
			"local-pvc-worker-full1-w1aaa-images": {"5Gi", "local-storage", "ReadWriteOnce", "images"},
			"local-pvc-worker-full1-w4aaa-data2":  {"5Gi", "local-storage", "ReadWriteOnce", "data2"},
		}},
	} {
		t.Run(sentence, func(t *testing.T) {
			if diff := cmp.Diff(test.want, claims(t, test.scenario), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("other claims (-want +got):\n%s", diff)
			}
		})
	}
}

// TestHostVolumesThatCannotBeHad: the condition says which volume is missing and why; everything else is created.
func TestHostVolumesThatCannotBeHad(t *testing.T) {
	claimed := func(namespace, name string) corev1.PersistentVolume {
		volume := fixture.MakeVolume("pv1", "data1")
		volume.Spec.ClaimRef = &corev1.ObjectReference{Namespace: namespace, Name: name}
		return *volume
	}
	annotated := func(name, value string) corev1.PersistentVolume {
		volume := fixture.MakeVolume("pv1", "data1")
		volume.Annotations = map[string]string{name: value}
		return *volume
	}
	own := "local-pvc-worker-full1-w1aaa-data1"
	for name, test := range map[string]struct {
		volumes []corev1.PersistentVolume
		want    string
		claims  int
	}{
		"no volume carries the tag": {
			nil,
			"False HostVolumeMissing: worker w1aaa: no PersistentVolume carries the label mount-tag=data1; create one or remove the host volume", 5,
		},
		"two volumes carry the tag": {
			[]corev1.PersistentVolume{*fixture.MakeVolume("pv1", "data1"), *fixture.MakeVolume("pv4", "data1")},
			"False HostVolumeAmbiguous: worker w1aaa: the PersistentVolumes pv1 and pv4 both carry the label mount-tag=data1; exactly one may", 5,
		},
		"another claim has it": {
			[]corev1.PersistentVolume{claimed("other", "data")},
			"False HostVolumeClaimed: worker w1aaa: PersistentVolume pv1 with the label mount-tag=data1 is claimed by other/data", 5,
		},
		"another worker of the cluster has it": {
			[]corev1.PersistentVolume{claimed("full1", "local-pvc-worker-full1-w3aaa-data1")},
			"False HostVolumeClaimed: worker w1aaa: PersistentVolume pv1 with the label mount-tag=data1 is claimed by full1/local-pvc-worker-full1-w3aaa-data1", 5,
		},
		"it is for others": {
			[]corev1.PersistentVolume{annotated(key.AnnotationVolumeFor, "tenant-a, tenant-b")},
			"False HostVolumeNotForNamespace: worker w1aaa: PersistentVolume pv1 is for KVMConfigs of other namespaces than default; add it to the annotation " +
				"kvm-operator.giantswarm.io/for-namespaces of the volume, or use another mount tag", 5,
		},
		"it is for no namespace": {
			[]corev1.PersistentVolume{annotated(key.AnnotationVolumeFor, "")},
			"False HostVolumeNotForNamespace: worker w1aaa: PersistentVolume pv1 is for KVMConfigs of other namespaces than default; add it to the annotation " +
				"kvm-operator.giantswarm.io/for-namespaces of the volume, or use another mount tag", 5,
		},
		"it is for this one, too": {[]corev1.PersistentVolume{annotated(key.AnnotationVolumeFor, "tenant-a, default")}, "True Done: ", 6},
		"it has data of others": {
			[]corev1.PersistentVolume{annotated(key.AnnotationDataOf, "tenant-a")},
			"False HostVolumeNeedsWiping: worker w1aaa: PersistentVolume pv1 holds data of a KVMConfig of another namespace; an administrator has to remove the data, " +
				"and then: kubectl annotate persistentvolume pv1 kvm-operator.giantswarm.io/data-of-", 5,
		},
		"it has data of this namespace": {[]corev1.PersistentVolume{annotated(key.AnnotationDataOf, "default")}, "True Done: ", 6},
		"the worker's own claim has it": {[]corev1.PersistentVolume{claimed("full1", own)}, "True Done: ", 6},
	} {
		t.Run(name, func(t *testing.T) {
			s := full()
			whole := must(t, renderedFull)
			s.inputs.Volumes = append(test.volumes, s.inputs.Volumes[1:]...)
			desired, err := build(t, s.snapshot(t, world{}), "pvc")
			if diff := cmp.Diff([]any{test.want, test.claims}, []any{condition("pvc", err), len(desired.Objects)}); diff != "" {
				t.Errorf("another condition or number of claims (-want +got):\n%s", diff)
			}
			rendered, _ := s.tryRender(t) // the error is the one above
			for _, handler := range []string{"configmap", "deployment", "service", "endpoints"} {
				if diff := cmp.Diff(objects(t, whole, handler), objects(t, rendered, handler)); diff != "" {
					t.Errorf("objects of %s differ (-with volume +without):\n%s", handler, diff)
				}
			}
		})
	}
}
