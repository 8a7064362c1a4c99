package virtualmachine

import (
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
)

// StatefulSet returns the StatefulSet of a virtual machine. It creates the claims and one pod, and never two of them. A
// change of its template takes effect when the machine starts the next time.
func (s *State) StatefulSet() (*appsv1.StatefulSet, error) {
	template, err := s.Template()
	if err != nil {
		return nil, err
	}
	replicas := int32(0)
	if s.mayRun() && (s.startable() || s.replicas() > 0) {
		replicas = 1
	}
	retention := appsv1.RetainPersistentVolumeClaimRetentionPolicyType
	if s.VM.Spec.DiskRetention == v1.DiskRetentionDelete {
		retention = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	}
	return &appsv1.StatefulSet{
		ObjectMeta: s.ObjectMeta(s.VM.Name),
		Spec: appsv1.StatefulSetSpec{
			Replicas:       ptr.To(replicas),
			Selector:       &metav1.LabelSelector{MatchLabels: map[string]string{LabelName: Runner, LabelInstance: s.VM.Name}},
			Template:       template,
			UpdateStrategy: appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType},
			PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
				WhenDeleted: retention, WhenScaled: appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
			},
			VolumeClaimTemplates: s.claims(),
		},
	}, nil
}

// startable returns whether the machine would start with its own disks.
func (s *State) startable() bool { return len(s.ForeignClaims())+len(s.FormerClaims()) == 0 }

// mayRun returns whether there may be a pod. One that runs a machine at a bridge that is no longer allowed is left until
// the machine ends, and is not replaced, because its template may still name the bridge.
func (s *State) mayRun() bool {
	return s.Wanted() && (len(s.ForbiddenBridges()) == 0 || s.Serves())
}

// replicas returns how many replicas the StatefulSet has now.
func (s *State) replicas() int32 {
	if s.Observed.StatefulSet == nil {
		return 0
	}
	return ptr.Deref(s.Observed.StatefulSet.Spec.Replicas, 1)
}

// MustStop returns whether the machine is to stop and its StatefulSet does not say so, because something prevents it from
// being applied. A machine can always be stopped.
func (s *State) MustStop() bool {
	return !s.mayRun() && s.replicas() > 0 && meta.IsStatusConditionFalse(s.VM.Status.Conditions, ConditionObjects)
}

// claims returns the claim templates: the user's, and one for what the runner keeps.
func (s *State) claims() []corev1.PersistentVolumeClaim {
	var list []corev1.PersistentVolumeClaim
	for _, d := range s.Disks {
		c := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: d.Name, Labels: Labels(s.VM.Name)}, Spec: claimSpec(d.Template.Spec)}
		if d.Template.Metadata != nil {
			c.Annotations = maps.Clone(d.Template.Metadata.Annotations)
		}
		list = append(list, c)
	}
	if s.keepsData() {
		list = append(list, corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: RunnerData, Labels: Labels(s.VM.Name)},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				StorageClassName: s.Settings.DataStorageClass,
				Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("16Mi")}},
			},
		})
	}
	return list
}

func claimSpec(spec v1.ClaimSpec) corev1.PersistentVolumeClaimSpec {
	claim := corev1.PersistentVolumeClaimSpec{
		AccessModes: spec.AccessModes, Selector: spec.Selector, VolumeName: spec.VolumeName, StorageClassName: spec.StorageClassName,
		VolumeMode: ptr.To(corev1.PersistentVolumeMode(spec.VolumeMode)), DataSource: spec.DataSource, VolumeAttributesClassName: spec.VolumeAttributesClassName,
	}
	if r := spec.Resources; r != nil {
		claim.Resources = corev1.VolumeResourceRequirements{Limits: v1.List(r.Limits), Requests: v1.List(r.Requests)}
	}
	if ref := spec.DataSourceRef; ref != nil {
		claim.DataSourceRef = &corev1.TypedObjectReference{APIGroup: ref.APIGroup, Kind: ref.Kind, Name: ref.Name}
	}
	return claim
}
