package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// KVMConfig declares one workload cluster: its nodes, their machines, its network and its versions.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=kvmconfigs,singular=kvmconfig,scope=Namespaced,shortName=kvmc,categories={giantswarm,kvm}
// +kubebuilder:printcolumn:name="ID",type=string,JSONPath=`.spec.cluster.id`,description="Cluster ID and namespace"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the cluster is as declared"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why the cluster is ready or not"
// +kubebuilder:printcolumn:name="Kubernetes",type=string,JSONPath=`.status.versions.kubernetes`,description="Version of Kubernetes"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Customer",type=string,JSONPath=`.spec.cluster.customer.id`,priority=1,description="Organization that owns the cluster"
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1,description="What the cluster waits for"
type KVMConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   KVMConfigSpec   `json:"spec"`
	Status KVMConfigStatus `json:"status,omitzero"`
}

// KVMConfigList is a list of KVMConfigs.
//
// +kubebuilder:object:root=true
type KVMConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []KVMConfig `json:"items"`
}

// KVMConfigSpec is the desired state.
//
// Machines belong to nodes by id or by position, so each list of machines is as long as its list of nodes. Either all
// machines of a list have ids, or none has one.
//
// +kubebuilder:validation:XValidation:rule="size(self.kvm.masters) == size(self.cluster.masters)",fieldPath=".kvm.masters",message="must have one machine for each node of spec.cluster.masters; add or remove machines"
// +kubebuilder:validation:XValidation:rule="size(self.kvm.?workers.orValue([])) == size(self.cluster.?workers.orValue([]))",fieldPath=".kvm.workers",message="must have one machine for each node of spec.cluster.workers; add or remove machines"
// +kubebuilder:validation:XValidation:rule="self.kvm.masters.all(m, m.?id.orValue(\"\") == \"\") || self.kvm.masters.all(m, m.?id.orValue(\"\") != \"\")",fieldPath=".kvm.masters",message="must give an id to every machine or to none; add the missing ids, or remove all to match by position"
// +kubebuilder:validation:XValidation:rule="!has(self.kvm.workers) || self.kvm.workers.all(m, m.?id.orValue(\"\") == \"\") || self.kvm.workers.all(m, m.?id.orValue(\"\") != \"\")",fieldPath=".kvm.workers",message="must give an id to every machine or to none; add the missing ids, or remove all to match by position"
// +kubebuilder:validation:XValidation:rule="size(self.kvm.masters) != size(self.cluster.masters) || self.kvm.masters.exists(m, m.?id.orValue(\"\") == \"\") || sets.contains(self.kvm.masters.map(m, m.id), self.cluster.masters.map(n, n.id))",fieldPath=".kvm.masters",message="must have exactly the ids of spec.cluster.masters; correct the ids, or remove all to match by position"
// +kubebuilder:validation:XValidation:rule="!has(self.kvm.workers) || !has(self.cluster.workers) || size(self.kvm.workers) != size(self.cluster.workers) || self.kvm.workers.exists(m, m.?id.orValue(\"\") == \"\") || sets.contains(self.kvm.workers.map(m, m.id), self.cluster.workers.map(n, n.id))",fieldPath=".kvm.workers",message="must have exactly the ids of spec.cluster.workers; correct the ids, or remove all to match by position"
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || !has(self.access) || !has(self.access.nodePort) || self.access.nodePort == 0 || (has(self.kvm.portMappings) && size(self.kvm.portMappings) > 0 ? self.kvm.portMappings.all(p, p.nodePort != self.access.nodePort) : !(self.access.nodePort in [30010, 30011]))",optionalOldSelf=true,fieldPath=".access.nodePort",message="must not be the nodePort of one of spec.kvm.portMappings, which are http 30010 and https 30011 when left out; choose another port"
// +kubebuilder:validation:XValidation:rule="!has(self.access) || !has(self.access.nodePort) || self.access.nodePort == 0 || (has(self.kvm.portMappings) && size(self.kvm.portMappings) > 0 ? self.kvm.portMappings.all(p, p.nodePort != self.access.nodePort) : !(self.access.nodePort in [30010, 30011])) || !(!has(oldSelf.access) || !has(oldSelf.access.nodePort) || oldSelf.access.nodePort == 0 || (has(oldSelf.kvm.portMappings) && size(oldSelf.kvm.portMappings) > 0 ? oldSelf.kvm.portMappings.all(p, p.nodePort != oldSelf.access.nodePort) : !(oldSelf.access.nodePort in [30010, 30011])))",fieldPath=".access.nodePort",message="must not be the nodePort of one of spec.kvm.portMappings, which are http 30010 and https 30011 when left out; choose another port"
// +kubebuilder:validation:XValidation:rule="self.?addons.?cni.?type.orValue('flannel') != 'flannel' || self.cluster.calico.cidr < 8 || self.cluster.calico.cidr > 30 || (size(self.cluster.masters) + size(self.cluster.?workers.orValue([]))) <= [65536, 32768, 16384, 8192, 4096, 2048, 1024, 512, 256, 128, 64, 32, 16, 16, 16, 16, 16, 16, 16, 8, 4, 2, 1][self.cluster.calico.cidr - 8] || oldSelf.hasValue() && (size(self.cluster.masters) + size(self.cluster.?workers.orValue([]))) <= (size(oldSelf.value().cluster.masters) + size(oldSelf.value().cluster.?workers.orValue([])))",optionalOldSelf=true,fieldPath=".cluster.calico.cidr",message="must leave room for all nodes, of which each gets a part of the pod network; choose a larger pod network, or fewer nodes",messageExpression="'must leave room for all nodes, of which each gets a part of the pod network: it has room for ' + ['65536', '32768', '16384', '8192', '4096', '2048', '1024', '512', '256', '128', '64', '32', '16', '16', '16', '16', '16', '16', '16', '8', '4', '2', '1'][self.cluster.calico.cidr - 8] + ', and more are wanted; choose a larger pod network, or fewer nodes'"
type KVMConfigSpec struct {
	// Cluster is the workload cluster as Kubernetes sees it.
	Cluster Cluster `json:"cluster"`

	// KVM is the workload cluster as the hosts see it: machines, volumes, ports.
	KVM KVM `json:"kvm"`

	// Versions sets component versions if the label release.giantswarm.io/version names no Release. A version that is not
	// set does not change; a new cluster gets it from the operator's built-in catalog.
	//
	// +kubebuilder:validation:XValidation:rule="!has(self.kubernetes) || !self.kubernetes.contains('+')",fieldPath=".kubernetes",message="must not have build metadata (+...), because the version is the tag of images; leave it out"
	// +kubebuilder:validation:XValidation:rule="!has(self.etcd) || !self.etcd.contains('+')",fieldPath=".etcd",message="must not have build metadata (+...), because the version is the tag of an image; leave it out"
	Versions *Versions `json:"versions,omitempty"`

	// GuestImage is the operating system image of the nodes. Default: Flatcar in the version in force.
	GuestImage *GuestImage `json:"guestImage,omitempty"`

	// AddOns are the add-ons that the operator installs in the workload cluster. Default: all.
	AddOns *AddOns `json:"addons,omitempty"`

	// Access is how clients outside the management cluster reach the API of the workload cluster. Default: not at all; the
	// Service "master" serves the management cluster.
	Access *Access `json:"access,omitempty"`

	// Rollout limits how outdated nodes are replaced.
	//
	// +kubebuilder:default={}
	Rollout *Rollout `json:"rollout,omitempty"`

	// Drain limits how long a node is drained before its machine is powered down.
	Drain *Drain `json:"drain,omitempty"`

	// Certificates are about the key pairs of the cluster.
	Certificates *Certificates `json:"certificates,omitempty"`

	// Etcd are snapshots of the cluster's etcd, and the restore of one.
	Etcd *EtcdData `json:"etcd,omitempty"`

	// Remediation enables the replacement of unhealthy nodes. If it is not set, the annotation
	// node.giantswarm.io/terminate-unhealthy decides, and without it the operator's setting.
	Remediation *Remediation `json:"remediation,omitempty"`

	// VersionBundle is accepted for old manifests and ignored; label kvm-operator.giantswarm.io/version replaced it.
	VersionBundle *VersionBundle `json:"versionBundle,omitempty"`
}

// VersionBundle is accepted for old manifests and ignored.
type VersionBundle struct {
	// Version is ignored.
	//
	// +kubebuilder:validation:MaxLength=253
	Version string `json:"version,omitempty"`
}
