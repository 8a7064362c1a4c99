package v1alpha1

// Disk is one disk of a machine. Its claim is called <machine>-<name>.
//
// +kubebuilder:validation:XValidation:rule="!has(self.size) || !isQuantity(self.size) || (has(oldSelf.size) ? !isQuantity(oldSelf.size) || !quantity(self.size).isLessThan(quantity(oldSelf.size)) : !has(oldSelf.sizeGB) || quantity(self.size).asApproximateFloat() >= double(oldSelf.sizeGB) * 1073741824.0)",fieldPath=".size",message="must not shrink, because claims can only grow; set it back or raise it"
// +kubebuilder:validation:XValidation:rule="has(self.size) || !has(self.sizeGB) || (has(oldSelf.size) ? !isQuantity(oldSelf.size) || double(self.sizeGB) * 1073741824.0 >= quantity(oldSelf.size).asApproximateFloat() : !has(oldSelf.sizeGB) || self.sizeGB >= oldSelf.sizeGB)",fieldPath=".sizeGB",message="must not shrink, because claims can only grow; set it back or raise it"
// +kubebuilder:validation:XValidation:rule="(has(self.storageClass) ? self.storageClass : \"\") == (has(oldSelf.storageClass) ? oldSelf.storageClass : \"\")",fieldPath=".storageClass",message="is immutable, because the disk has its data there; set it back, or add another disk"
// +kubebuilder:validation:XValidation:rule="has(self.accessMode) == has(oldSelf.accessMode) && (!has(self.accessMode) || self.accessMode == oldSelf.accessMode)",fieldPath=".accessMode",message="is immutable, because claims keep theirs; set it back, or add another disk"
// +kubebuilder:validation:XValidation:rule="has(self.volumeMode) == has(oldSelf.volumeMode) && (!has(self.volumeMode) || self.volumeMode == oldSelf.volumeMode)",fieldPath=".volumeMode",message="is immutable, because claims keep theirs; set it back, or add another disk"
// +kubebuilder:validation:XValidation:rule="has(self.source) == has(oldSelf.source) && (!has(self.source) || self.source == oldSelf.source)",fieldPath=".source",message="is immutable, because the disk is filled from it; set it back, or add another disk"
// +kubebuilder:validation:XValidation:rule="!has(self.source) || !has(self.source.containerDisk) || !has(self.size) && !has(self.storageClass) && !has(self.accessMode) && !has(self.volumeMode) && !has(self.sizeGB)",message="a disk from a containerDisk has no claim, so it has neither size, sizeGB, storageClass, accessMode nor volumeMode"
type Disk struct {
	// Name of the disk. Default: root, which is the disk that is booted from unless another one has boot: true.
	//
	// +kubebuilder:default=root
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Label().validate(self).hasValue()",message="must be small letters, digits and '-', with a letter or digit at both ends"
	// +kubebuilder:validation:XValidation:rule="!(self in ['cloudinitdisk', 'cdrom-iso'])",message="is the operator's own name for a disk; choose another one"
	Name string `json:"name,omitempty"`

	// Size as a quantity, more than zero, for example 40Gi. It can grow. Default: the template's.
	Size Quantity `json:"size,omitempty"`

	// StorageClass of the claim. Default: the operator's, else the cluster's default. The value default means the class of
	// that name if there is one, else the cluster's default.
	//
	// +kubebuilder:validation:MaxLength=253
	StorageClass string `json:"storageClass,omitempty"`

	// AccessMode of the claim. Default: ReadWriteOnce.
	//
	// +kubebuilder:validation:Enum=ReadWriteOnce;ReadWriteMany;ReadOnlyMany
	AccessMode string `json:"accessMode,omitempty"`

	// VolumeMode of the claim. Default: that of Kubernetes, Filesystem.
	//
	// +kubebuilder:validation:Enum=Filesystem;Block
	VolumeMode string `json:"volumeMode,omitempty"`

	// Source is what is on the disk at first. Default: nothing.
	Source *DiskSource `json:"source,omitempty"`

	// SizeGB is the size in GiB, 1 to 65536. Deprecated: use size.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65536
	SizeGB int64 `json:"sizeGB,omitempty"`

	// Type is the bus: sata, scsi, and virtio for every other value. Default: virtio.
	//
	// +kubebuilder:validation:MaxLength=63
	Type string `json:"type,omitempty"`

	// Boot makes this the disk that is booted from.
	Boot bool `json:"boot,omitempty"`

	// Device has no effect.
	//
	// +kubebuilder:validation:MaxLength=253
	Device string `json:"device,omitempty"`

	// Encrypted has no effect.
	Encrypted bool `json:"encrypted,omitempty"`

	// IOPS have no effect.
	IOPS int64 `json:"iops,omitempty"`

	// Throughput has no effect.
	Throughput int64 `json:"throughput,omitempty"`
}

// DiskSource is what is on a disk at first.
//
// +kubebuilder:validation:ExactlyOneOf=containerDisk;pvc;snapshot;http;registry
type DiskSource struct {
	// ContainerDisk is a container image with a disk image. The disk forgets its changes when the machine stops.
	ContainerDisk *ContainerDisk `json:"containerDisk,omitempty"`

	// PVC is a claim of the namespace that the storage driver clones.
	PVC *ObjectReference `json:"pvc,omitempty"`

	// Snapshot is a VolumeSnapshot of the namespace that the storage driver restores.
	Snapshot *ObjectReference `json:"snapshot,omitempty"`

	// HTTP is a disk image on a web server, which CDI imports once.
	HTTP *HTTPImage `json:"http,omitempty"`

	// Registry is a container image with a disk image, which CDI imports once. The disk keeps its changes.
	Registry *RegistryImage `json:"registry,omitempty"`
}

// HTTPImage is a disk image on a web server: raw or qcow2, also compressed with gz or xz. CDI fetches it from a pod in the
// namespace of the Machine.
type HTTPImage struct {
	// URL of the image. Everyone who may read the Machine reads it.
	//
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.matches('^https?://[A-Za-z0-9._:%[-]+[]]?(:[0-9]+)?([/?][[:graph:]]*)?$')",message="must be an http:// or https:// URL without user name and password; use secretRef for these"
	URL string `json:"url"`

	// SecretRef is the Secret of the namespace with the user name in its key accessKeyId and the password in secretKey.
	SecretRef *ObjectReference `json:"secretRef,omitempty"`

	// CertConfigMapRef is the ConfigMap of the namespace with the certificates that the server's is checked by. Default: those
	// of CDI.
	CertConfigMapRef *ObjectReference `json:"certConfigMapRef,omitempty"`
}

// RegistryImage is a container image with a disk image in its folder /disk. CDI pulls it in a pod in the namespace of the
// Machine.
type RegistryImage struct {
	// URL is docker:// and the reference of the image. Everyone who may read the Machine reads it.
	//
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^docker://[A-Za-z0-9._-]+(:[0-9]+)?(/[A-Za-z0-9._-]+)+(:[A-Za-z0-9._-]+)?(@sha256:[0-9a-f]{64})?$')",message="must be docker:// and the reference of an image with its registry, for example docker://quay.io/containerdisks/debian:13, without user name and password; use secretRef for these"
	URL string `json:"url"`

	// SecretRef is the Secret of the namespace with the user name in its key accessKeyId and the password in secretKey.
	SecretRef *ObjectReference `json:"secretRef,omitempty"`

	// CertConfigMapRef is the ConfigMap of the namespace with the certificates that the registry's is checked by. Default:
	// those of CDI.
	CertConfigMapRef *ObjectReference `json:"certConfigMapRef,omitempty"`
}

// ContainerDisk is a container image with a disk image.
type ContainerDisk struct {
	// Image is the reference of the image.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image"`

	// ImagePullSecret is the Secret of the namespace for pulling the image.
	//
	// +kubebuilder:validation:MaxLength=253
	ImagePullSecret string `json:"imagePullSecret,omitempty"`
}

// ObjectReference names an object of the namespace.
type ObjectReference struct {
	// Name of the object.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// Network is one network interface of a machine.
type Network struct {
	// Name of the interface.
	//
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_-]+$')",message="must be letters, digits, '_' and '-'"
	Name string `json:"name"`

	// NetworkName is the NetworkConfiguration of the namespace that the interface is attached to.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	NetworkName string `json:"networkName"`

	// Model of the interface. Default: virtio.
	//
	// +kubebuilder:validation:Enum=virtio;e1000;e1000e;igb;ne2k_pci;pcnet;rtl8139
	Model string `json:"model,omitempty"`

	// MACAddress is 6 octets, a unicast address. Default: one that is derived from the Machine and stays the same.
	//
	// +kubebuilder:validation:MaxLength=17
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9A-Fa-f][02468ACEace]([:-][0-9A-Fa-f]{2}){5}$') && !self.matches('^00([:-]00){5}$')",message="must be a unicast address of 6 octets, for example 52:54:00:12:34:56"
	MACAddress string `json:"macAddress,omitempty"`
}

// CloudInit is what the guest is configured with at its first boot. User data and network data have one source each; the
// first of those that are set counts, in the order of the fields.
//
// +kubebuilder:validation:XValidation:rule="!has(self.userData) || self.userData == \"\" || !has(self.userDataBase64) || self.userDataBase64 == \"\"",message="userData and userDataBase64 are two sources of one thing; remove one"
// +kubebuilder:validation:XValidation:rule="!has(self.networkData) || self.networkData == \"\" || !has(self.networkDataBase64) || self.networkDataBase64 == \"\"",message="networkData and networkDataBase64 are two sources of one thing; remove one"
type CloudInit struct {
	// UserData for the guest.
	//
	// +kubebuilder:validation:MaxLength=262144
	UserData string `json:"userData,omitempty"`

	// NetworkData for the guest.
	//
	// +kubebuilder:validation:MaxLength=262144
	NetworkData string `json:"networkData,omitempty"`

	// SecretRef has the user data. Default key: userdata.
	SecretRef *DataReference `json:"secretRef,omitempty"`

	// Type is the kind of disk that the guest finds its data on. Default: noCloud.
	//
	// +kubebuilder:validation:Enum=noCloud;configDrive
	Type string `json:"type,omitempty"`

	// UserDataBase64 is the user data in base64.
	//
	// +kubebuilder:validation:MaxLength=349528
	UserDataBase64 string `json:"userDataBase64,omitempty"`

	// NetworkDataBase64 is the network data in base64.
	//
	// +kubebuilder:validation:MaxLength=349528
	NetworkDataBase64 string `json:"networkDataBase64,omitempty"`

	// UserDataSecretRef is secretRef.
	UserDataSecretRef *DataReference `json:"userDataSecretRef,omitempty"`

	// UserDataConfigMapRef has the user data. Default key: userdata.
	UserDataConfigMapRef *DataReference `json:"userDataConfigMapRef,omitempty"`

	// NetworkDataSecretRef has the network data. Default key: networkdata.
	NetworkDataSecretRef *DataReference `json:"networkDataSecretRef,omitempty"`

	// NetworkDataConfigMapRef has the network data. Default key: networkdata.
	NetworkDataConfigMapRef *DataReference `json:"networkDataConfigMapRef,omitempty"`
}

// DataReference is one value of a Secret or ConfigMap of the namespace.
type DataReference struct {
	// Name of the object.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Key of the value.
	//
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`
}
