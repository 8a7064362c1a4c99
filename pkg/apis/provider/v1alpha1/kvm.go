package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
)

// StorageType is where etcd keeps its data.
//
// +kubebuilder:validation:Enum="";hostPath;persistentVolume
type StorageType string

const (
	// StorageTypeHostPath keeps etcd's data in a directory of the host that runs the master.
	StorageTypeHostPath StorageType = "hostPath"

	// StorageTypePersistentVolume keeps etcd's data in a persistent volume, one for each master.
	StorageTypePersistentVolume StorageType = "persistentVolume"
)

// Acceleration is how QEMU runs the guest's instructions.
//
// +kubebuilder:validation:Enum="";auto;kvm;tcg
type Acceleration string

const (
	// AccelerationAuto uses KVM where it is proved to work, else software emulation.
	AccelerationAuto Acceleration = "auto"

	// AccelerationKVM uses KVM or fails.
	AccelerationKVM Acceleration = "kvm"

	// AccelerationTCG uses software emulation.
	AccelerationTCG Acceleration = "tcg"
)

// KVM is the workload cluster as the hosts see it.
//
// No file system can shrink under a running etcd, and no volume plugin tries; so the volumes of etcd only ever grow,
// counting from the 15Gi that they have when no size is given. A size that is no quantity has its own rule; one with an
// exponent of many digits would keep the API server busy for minutes.
//
// +kubebuilder:validation:XValidation:rule="has(self.etcd) && has(self.etcd.size) && (string(self.etcd.size).matches('[eE].{4}') || !isQuantity(string(self.etcd.size))) || has(oldSelf.etcd) && has(oldSelf.etcd.size) && (string(oldSelf.etcd.size).matches('[eE].{4}') || !isQuantity(string(oldSelf.etcd.size))) || !quantity(has(self.etcd) && has(self.etcd.size) ? string(self.etcd.size) : '15Gi').isLessThan(quantity(has(oldSelf.etcd) && has(oldSelf.etcd.size) ? string(oldSelf.etcd.size) : '15Gi'))",fieldPath=".etcd.size",message="must not shrink, because volumes can only grow (15Gi when left out); set it back or raise it"
type KVM struct {
	// Masters are the machines of spec.cluster.masters, as many as there are masters. They are matched by id, or by position
	// if they have no ids.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(m, !m.memory.matches('^[0-9]{1,12}([.][0-9]{1,9})?[MGT]i?$') || quantity(m.memory).compareTo(quantity('1500M')) >= 0)",message="must have 1500M of memory or more each, because the control plane does not start with less; 4G is recommended"
	Masters []Machine `json:"masters"`

	// Workers are the machines of spec.cluster.workers, as many as there are workers. They are matched by id, or by position
	// if they have no ids.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=500
	// +kubebuilder:validation:XValidation:rule="self.all(m, m.?dockerVolumeSizeGB.orValue(0) > 0 ? m.dockerVolumeSizeGB >= 2 : m.?disk.orValue(0.0) < 0.5 || m.disk >= 1.5)",message="must have a disk of 2 GB or more each, because no kubelet starts with less; leave it out to get 50 and 5 GB"
	Workers []Machine `json:"workers,omitempty"`

	// K8sKVM has settings of the virtual machines.
	//
	// +kubebuilder:default={}
	K8sKVM K8sKVM `json:"k8sKVM,omitzero"`

	// Etcd describes the volumes of etcd if spec.kvm.k8sKVM.storageType is persistentVolume.
	Etcd *EtcdVolume `json:"etcd,omitempty"`

	// PortMappings are the ports of the Service "worker". Default: http 30010 and https 30011. Names, node ports and target
	// ports are unique. Only a single mapping may have no name.
	//
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:rule="size(self) < 2 || self.all(p, p.name != \"\")",message="must give every port a name when there are several"
	// +kubebuilder:validation:XValidation:rule="self.all(p, p.nodePort == 0 || self.exists_one(q, q.nodePort == p.nodePort))",message="must not use a nodePort twice; give every port its own nodePort"
	// +kubebuilder:validation:XValidation:rule="self.all(p, self.exists_one(q, q.targetPort == p.targetPort))",message="must not use a targetPort twice because it is the Service's port as well; remove one of the mappings"
	PortMappings []PortMapping `json:"portMappings,omitempty"`

	// Network is accepted for old manifests and ignored: a guest takes over its pod's address.
	Network Network `json:"network,omitzero"`

	// EndpointUpdater is accepted for old manifests and ignored.
	EndpointUpdater Component `json:"endpointUpdater,omitzero"`

	// NodeController is accepted for old manifests and ignored.
	NodeController Component `json:"nodeController,omitzero"`
}

// K8sKVM has settings of the virtual machines.
//
// Under another storage type masters would start with an empty etcd.
//
// +kubebuilder:validation:XValidation:rule="(self.?storageType.orValue(\"\") == 'persistentVolume') == (oldSelf.?storageType.orValue(\"\") == 'persistentVolume')",fieldPath=".storageType",message="is immutable, because under another storage type masters would start with an empty etcd; create another cluster instead"
type K8sKVM struct {
	// Docker is accepted for old manifests and ignored: the runner's image is a setting of the operator.
	Docker DockerImage `json:"docker,omitzero"`

	// StorageType is where etcd keeps its data: hostPath (also when empty) or persistentVolume. Immutable, because
	// masters would start with an empty etcd under another storage type.
	//
	// +kubebuilder:default=hostPath
	StorageType StorageType `json:"storageType,omitempty"`

	// Acceleration is how QEMU runs the guest: auto (also when empty) uses KVM where it is proved to work, and software
	// emulation otherwise; kvm uses KVM or fails; tcg is software emulation.
	//
	// +kubebuilder:default=auto
	Acceleration Acceleration `json:"acceleration,omitempty"`
}

// EtcdVolume describes the persistent volumes of etcd.
type EtcdVolume struct {
	// Size of the volume of each master. It can grow, but not shrink. Default: 15Gi.
	//
	// +kubebuilder:validation:XValidation:rule="!string(self).matches('^[-+0-9.]+([a-zA-Z]i?|[eE][-+0-9.]+)?$') || !string(self).matches('[eE].{4}') && isQuantity(string(self)) && quantity(string(self)).isGreaterThan(quantity('0'))",message="must be a quantity of more than zero, for example 15Gi"
	Size *resource.Quantity `json:"size,omitempty"`

	// StorageClassName is the class of volumes that are created from now on. Default: g8s-storage. The empty string means
	// the default class of the management cluster.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == \"\" || !format.dns1123Subdomain().validate(self).hasValue()",message="must be the name of a StorageClass, or empty for the default class"
	StorageClassName *string `json:"storageClassName,omitempty"`
}

// PortMapping is one port of the Service "worker".
type PortMapping struct {
	// Name of the port, a lower-case DNS label. It may be empty only if there is a single mapping.
	//
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self == \"\" || !format.dns1123Label().validate(self).hasValue()",message="must be a lower-case DNS label, letters, digits and '-' with a letter or digit at both ends, for example http"
	Name string `json:"name"`

	// NodePort is the port on the hosts. It has to be in the management cluster's range of node ports. With 0, the
	// management cluster chooses.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	NodePort int32 `json:"nodePort"`

	// TargetPort is the port in the guests, and of the Service.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	TargetPort int32 `json:"targetPort"`
}

// Network is accepted for old manifests and ignored.
type Network struct {
	// Flannel is ignored.
	Flannel Flannel `json:"flannel,omitzero"`
}

// Flannel is accepted for old manifests and ignored.
type Flannel struct {
	// VNI is ignored. A VXLAN network identifier has 24 bits.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=16777215
	VNI int32 `json:"vni,omitempty"`
}

// Component is accepted for old manifests and ignored.
type Component struct {
	// Docker is ignored.
	Docker DockerImage `json:"docker,omitzero"`
}
