package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SmolVM declares a machine that boots from a container image, with its disks, on one node.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=smolvms,singular=smolvm,scope=Namespaced
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`,description="State that is observed"
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.nodeName`,description="Node that has the machine"
// +kubebuilder:printcolumn:name="Machine",type=string,JSONPath=`.status.machineName`,description="Name of the machine on its node"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Reconciled")].message`,priority=1,description="What the machine waits for"
type SmolVM struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   SmolVMSpec   `json:"spec"`
	Status SmolVMStatus `json:"status,omitempty"`
}

// SmolVMList is a list of SmolVMs.
//
// +kubebuilder:object:root=true
type SmolVMList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []SmolVM `json:"items"`
}

// SmolVMSpec is the desired state.
//
// +kubebuilder:validation:XValidation:rule="(has(self.image) && self.image != \"\") != (has(self.from) && self.from != \"\")",message="exactly one of spec.image or spec.from is required"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.nodeName) || oldSelf.nodeName == \"\" || has(self.nodeName) && self.nodeName == oldSelf.nodeName",message="spec.nodeName is immutable after binding"
type SmolVMSpec struct {
	// Running is whether the machine runs. Default true. Takes effect live.
	//
	// +kubebuilder:default=true
	Running bool `json:"running"`

	// NodeName is the node that gets the machine; it has to be suitable. Default: the controller chooses one. It cannot change
	// once it is set.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == \"\" || !format.dns1123Subdomain().validate(self).hasValue()",message="must be the name of a node, or empty to have one chosen"
	NodeName string `json:"nodeName,omitempty"`

	// NodeSelector are the labels that a node must have to get the machine. Default: any node. It has no effect once the
	// machine has a node.
	//
	// +kubebuilder:validation:MaxProperties=64
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// Tolerations are taints that do not keep the machine from a node. Default: none. They have no effect once the machine
	// has a node; taints move no machine away. An addition.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.operator) || t.operator in [\"\", \"Equal\", \"Exists\"])",message="must have the operator Equal or Exists"
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.effect) || t.effect in [\"\", \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\"])",message="must have the effect NoSchedule, PreferNoSchedule or NoExecute, or none for all of them"
	// +kubebuilder:validation:XValidation:rule="self.all(t, has(t.key) && t.key != \"\" || has(t.operator) && t.operator == \"Exists\")",message="must have a key; write operator: Exists to tolerate all taints"
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.operator) || t.operator != \"Exists\" || !has(t.value) || t.value == \"\")",message="must not have a value where the operator is Exists"
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// Image is the container image that the machine boots from. Exactly one of image and from is set. It is immutable once
	// the machine is created.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`

	// From is the path of a .smolmachine file on the node, for this operator's runtime below /var/lib/smolvm/artifacts. It has to
	// be there when the machine is created. It is immutable once the machine is created.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	From string `json:"from,omitempty"`

	// ImagePullSecrets are Secrets of type kubernetes.io/dockerconfigjson in the namespace, for pulling the image. The
	// operator uses the first one with credentials for the registry of the image. It reads them at each start, if the
	// setting service.smolvm.pullsecrets is on; otherwise they have no effect. An addition.
	//
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	ImagePullSecrets []SecretReference `json:"imagePullSecrets,omitempty"`

	// Command replaces the entrypoint of the image. Default: the image's. It is immutable once the machine is created. An
	// addition.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=32768
	Command []string `json:"command,omitempty"`

	// Args replace the command of the image, which are the arguments of its entrypoint. Default: the image's. They are
	// immutable once the machine is created. An addition.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=32768
	Args []string `json:"args,omitempty"`

	// Env is added to the environment of the image. Default: nothing. It is immutable once the machine is created. An
	// addition.
	//
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Env []EnvVar `json:"env,omitempty"`

	// WorkingDir replaces the working directory of the image. Default: the image's. It is immutable once the machine is
	// created. An addition.
	//
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule="self == \"\" || self.startsWith(\"/\")",message="must be an absolute path, for example /srv"
	WorkingDir string `json:"workingDir,omitempty"`

	// Resources are the processors and the memory of the machine. Default: those of the runtime.
	Resources Resources `json:"resources,omitempty,omitzero"`

	// Storage are the sizes of the machine's disks. Default: those of the runtime.
	Storage Storage `json:"storage,omitempty,omitzero"`

	// Network is what the machine may reach, and its published ports. Default: nothing.
	Network Network `json:"network,omitempty,omitzero"`
}

// SecretReference names a Secret of the namespace.
type SecretReference struct {
	// Name of the Secret.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="must be the name of a Secret"
	Name string `json:"name"`
}

// EnvVar is an environment variable.
type EnvVar struct {
	// Name of the variable.
	//
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z_][A-Za-z0-9_]*$')",message="must be the name of a variable: letters, digits and '_', and no digit first"
	Name string `json:"name"`

	// Value of the variable. Default: empty.
	//
	// +kubebuilder:validation:MaxLength=32768
	Value string `json:"value,omitempty"`
}

// Resources are the processors and the memory of a machine.
type Resources struct {
	// CPUs is the number of processors, 1 to 255. Default: that of the file in from, or that of the runtime, 1. It is
	// immutable once the machine is created.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=255
	CPUs int32 `json:"cpus,omitempty"`

	// MemoryMiB is the memory in MiB, at least 64. Default: that of the file in from, or that of the runtime, 512. It
	// is immutable once the machine is created.
	//
	// +kubebuilder:validation:Minimum=64
	// +kubebuilder:validation:Maximum=2147483647
	MemoryMiB int32 `json:"memoryMiB,omitempty"`
}

// Storage are the sizes of a machine's disks.
type Storage struct {
	// StorageGiB is the size of the disk for data in GiB, 1 to 16384. Default: that of the runtime, 20. It can grow while the
	// machine is stopped.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16384
	StorageGiB int64 `json:"storageGiB,omitempty"`

	// OverlayGiB is the size of the disk for changes to the image in GiB, 1 to 16384. Default: that of the runtime, 10. It can
	// grow while the machine is stopped.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16384
	OverlayGiB int64 `json:"overlayGiB,omitempty"`
}

// Network is what a machine may reach, and its published ports.
type Network struct {
	// Enabled lets the machine open connections. Default false: the machine only accepts connections to its ports. It is
	// immutable once the machine is created.
	Enabled bool `json:"enabled,omitempty"`

	// AllowedCIDRs are the only networks that the machine may reach. Default: all that the node allows. They are
	// immutable once the machine is created.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self)",message="must be a network with its length, for example 192.0.2.0/24"
	AllowedCIDRs []string `json:"allowedCIDRs,omitempty"`

	// Ports are ports of the node that lead to the machine. They are immutable once the machine is created.
	//
	// +listType=map
	// +listMapKey=hostPort
	// +kubebuilder:validation:MaxItems=128
	Ports []Port `json:"ports,omitempty"`
}

// Port is a TCP port of the node that leads to one of the machine.
type Port struct {
	// HostPort is opened on the node, 1 to 65535.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	HostPort int32 `json:"hostPort"`

	// GuestPort is the machine's, 1 to 65535.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	GuestPort int32 `json:"guestPort"`
}
