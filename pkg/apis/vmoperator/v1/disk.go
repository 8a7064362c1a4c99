package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Disk is a disk on a persistent volume, or a CD drive.
//
// +kubebuilder:validation:XValidation:rule="has(self.volumeClaimTemplate) != has(self.cdrom)",message="must have exactly one of volumeClaimTemplate and cdrom; write cdrom: {image: \"\"} for an empty drive"
type Disk struct {
	// VolumeClaimTemplate is the claim of the disk's volume. Takes effect at the next start, except for a larger
	// request, which takes effect live.
	VolumeClaimTemplate *VolumeClaimTemplate `json:"volumeClaimTemplate,omitempty"`

	// CDROM is a CD drive.
	CDROM *CDROM `json:"cdrom,omitempty"`

	// BootIndex is the place in the order in which the firmware tries to boot, 0 first; unique in the machine. Default:
	// the firmware decides. Takes effect at the next start.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	BootIndex *int32 `json:"bootindex,omitempty"`
}

// CDROM is a CD drive.
type CDROM struct {
	// Image is the medium: an http or https URL, or the name of a file in the image repository; empty for an empty drive.
	// Takes effect live.
	//
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule=`self == "" || (self.contains(':') ? isURL(self) && self.matches(r'^https?://[^/?#\p{Z}\p{Cc}]+/[^\p{Z}\p{Cc}]+$') : self.matches(r'^[^/\p{Cc}]+(/[^/\p{Cc}]+)*$') && !self.matches('(^|/)[.][.]?(/|$)'))`,message="must be an http or https URL of a file, a file name in the image repository without '/' at its start and without '.', '..' and ':', or empty; for example install.iso"
	Image string `json:"image"`
}

// VolumeClaimTemplate is the claim of a disk's volume.
type VolumeClaimTemplate struct {
	// Metadata names the disk.
	Metadata *ClaimMetadata `json:"metadata,omitempty"`

	// Spec is the claim.
	Spec ClaimSpec `json:"spec"`
}

// ClaimMetadata names a disk.
type ClaimMetadata struct {
	// Name of the disk, unique in the machine; the claim is <name>-disk-<machine>-0. A lower-case DNS label of at most 53
	// characters. Default: the claim is disk-<n>-<machine>-0, where n counts the machine's claims from 0.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="size(self) <= 53 && !format.dns1123Label().validate(self).hasValue()",message="must be a lower-case DNS label of at most 53 characters, letters, digits and '-', for example system; leave it out to get a number"
	// +kubebuilder:validation:XValidation:rule="self != 'runner-data'",message="must not be runner-data, which is the runner's own volume; choose another name"
	Name *string `json:"name,omitempty"`

	// Labels are accepted and ignored.
	//
	// +kubebuilder:validation:MaxProperties=64
	Labels map[string]string `json:"labels,omitempty"`

	// Annotations are copied to the claim.
	//
	// +kubebuilder:validation:MaxProperties=64
	Annotations map[string]string `json:"annotations,omitempty"`
}

// ClaimSpec is the spec of a PersistentVolumeClaim.
//
// +kubebuilder:validation:XValidation:rule="has(self.resources) && has(self.resources.requests) && 'storage' in self.resources.requests",message="must request storage; write resources: {requests: {storage: 10Gi}}, for example"
type ClaimSpec struct {
	// AccessModes are how nodes mount the volume. Default ReadWriteOnce.
	//
	// +listType=atomic
	// +kubebuilder:default={ReadWriteOnce}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:Enum=ReadWriteOnce;ReadOnlyMany;ReadWriteMany;ReadWriteOncePod
	AccessModes []corev1.PersistentVolumeAccessMode `json:"accessModes,omitempty"`

	// DataSource is a VolumeSnapshot or a claim in the namespace, with whose data the volume begins. Default: empty.
	DataSource *corev1.TypedLocalObjectReference `json:"dataSource,omitempty"`

	// DataSourceRef is the same for objects of other kinds.
	//
	// +structType=atomic
	DataSourceRef *corev1.TypedLocalObjectReference `json:"dataSourceRef,omitempty"`

	// Resources request the size of the volume, which is requests.storage.
	Resources *Resources `json:"resources,omitempty"`

	// Selector chooses among volumes that exist by their labels. Default: any, or a new one.
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	// StorageClassName is the class of the volume. Default: the default class; empty: no class, for a volume that
	// exists.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == \"\" || !format.dns1123Subdomain().validate(self).hasValue()",message="must be the name of a StorageClass, or empty for a volume without one"
	StorageClassName *string `json:"storageClassName,omitempty"`

	// VolumeMode is Block, the default: the volume is the disk.
	//
	// +kubebuilder:default=Block
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self == 'Block'",message="must be Block, because the volume itself is the disk; write volumeMode: Block, or leave it out"
	VolumeMode string `json:"volumeMode,omitempty"`

	// VolumeName binds the claim to a volume that exists. Default: any, or a new one.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == \"\" || !format.dns1123Subdomain().validate(self).hasValue()",message="must be the name of a PersistentVolume, or empty for any"
	VolumeName string `json:"volumeName,omitempty"`

	// VolumeAttributesClassName is the class of the volume's attributes. Default: none.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == \"\" || !format.dns1123Subdomain().validate(self).hasValue()",message="must be the name of a VolumeAttributesClass, or empty for none"
	VolumeAttributesClassName *string `json:"volumeAttributesClassName,omitempty"`
}
