package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DiskRetention says whether the claims of a deleted machine are kept.
//
// +kubebuilder:validation:Enum=Retain;Delete
type DiskRetention string

const (
	// DiskRetentionRetain keeps the claims and their data.
	DiskRetentionRetain DiskRetention = "Retain"

	// DiskRetentionDelete deletes the claims with the machine.
	DiskRetentionDelete DiskRetention = "Delete"
)

// VirtualMachine declares one virtual machine that runs in a pod.
//
// The name is part of the names of the pod, the claims and their labels, and it is the guest's host name.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=vms,singular=vm,scope=Namespaced
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.spec.vm.state`,description="State that is wanted"
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`,description="State that is observed"
// +kubebuilder:printcolumn:name="CPUs",type=integer,JSONPath=`.status.cpus`,description="Virtual CPUs in use"
// +kubebuilder:printcolumn:name="RAM",type=string,JSONPath=`.status.ram`,description="Memory in use"
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.node`,description="Node that runs the machine"
// +kubebuilder:printcolumn:name="IP",type=string,JSONPath=`.status.podIP`,description="Address of the pod"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1,description="What the machine waits for"
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 52 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name must be a lower-case DNS label of at most 52 characters, letters, digits and '-' without dots, for example web-1"
type VirtualMachine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   VirtualMachineSpec   `json:"spec"`
	Status VirtualMachineStatus `json:"status,omitempty"`
}

// VirtualMachineList is a list of VirtualMachines.
//
// +kubebuilder:object:root=true
type VirtualMachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []VirtualMachine `json:"items"`
}

// VirtualMachineSpec is the desired state.
type VirtualMachineSpec struct {
	// Image is the container image of the runner. Default: the operator's own image. Takes effect at the next start.
	Image *Image `json:"image,omitempty"`

	// Resources are the limits and requests of the pod's container; they replace what the operator computes from
	// spec.vm. Default: computed. Takes effect at the next start.
	Resources *Resources `json:"resources,omitempty"`

	// NodeName binds the pod to a node without the scheduler. Default: the scheduler chooses. Takes effect at the next
	// start.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == \"\" || !format.dns1123Subdomain().validate(self).hasValue()",message="must be the name of a node, or empty to let the scheduler choose"
	NodeName string `json:"nodeName,omitempty"`

	// NodeSelector has the labels that a node must have to run the pod. Default: any node. Takes effect at the next
	// start.
	//
	// +kubebuilder:validation:MaxProperties=64
	NodeSelector map[string]LabelValue `json:"nodeSelector,omitempty"`

	// Affinity is the affinity of the pod to nodes and other pods. Default: none. Takes effect at the next start.
	//
	// +kubebuilder:validation:XValidation:rule="!has(self.nodeAffinity) || !has(self.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution) || self.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution.all(p, p.weight >= 1 && p.weight <= 100)",fieldPath=".nodeAffinity",message="must have weights of 1 to 100; write weight: 100 for the strongest preference"
	// +kubebuilder:validation:XValidation:rule="!has(self.podAffinity) || !has(self.podAffinity.preferredDuringSchedulingIgnoredDuringExecution) || self.podAffinity.preferredDuringSchedulingIgnoredDuringExecution.all(p, p.weight >= 1 && p.weight <= 100)",fieldPath=".podAffinity",message="must have weights of 1 to 100; write weight: 100 for the strongest preference"
	// +kubebuilder:validation:XValidation:rule="!has(self.podAntiAffinity) || !has(self.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution) || self.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution.all(p, p.weight >= 1 && p.weight <= 100)",fieldPath=".podAntiAffinity",message="must have weights of 1 to 100; write weight: 100 for the strongest preference"
	Affinity *corev1.Affinity `json:"affinity,omitempty"`

	// RunnerTemplate is accepted and ignored: the operator builds the command line of QEMU itself.
	//
	// +kubebuilder:default={}
	RunnerTemplate *RunnerTemplate `json:"runnerTemplate,omitempty"`

	// GuestShutdownStops makes a shutdown from inside the guest final: spec.vm.state becomes Stopped. Otherwise the
	// machine starts again. Default false. Takes effect live.
	//
	// +kubebuilder:default=false
	GuestShutdownStops bool `json:"guestShutdownStops,omitempty"`

	// LoadBalancerService has labels and annotations of the machine's load balancer Service. Default: those of the
	// operator's settings; empty: no such Service. Takes effect live.
	LoadBalancerService *LoadBalancerService `json:"loadBalancerService,omitempty"`

	// CloudInit attaches a disk with data for cloud-init, also when it is empty. Default: no such disk. Takes effect at
	// the next start.
	CloudInit *CloudInit `json:"cloudInit,omitempty"`

	// DiskRetention is what happens to the claims when the machine is deleted: Retain keeps them, Delete deletes them and
	// their data. Default Retain. Takes effect live.
	//
	// +kubebuilder:default=Retain
	DiskRetention DiskRetention `json:"diskRetention,omitempty"`

	// Permissions are accepted and ignored: access to a machine is granted by the RBAC of Kubernetes.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Permissions []Permission `json:"permissions,omitempty"`

	// Pools are accepted and ignored: there are no pools of machines.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	Pools []string `json:"pools,omitempty"`

	// LoggingProperties are accepted and ignored: the runner has no such file.
	//
	// +kubebuilder:validation:MaxLength=65536
	LoggingProperties string `json:"loggingProperties,omitempty"`

	// VM is the machine itself.
	VM VM `json:"vm"`
}

// RunnerTemplate is accepted and ignored.
type RunnerTemplate struct {
	// Source is ignored.
	//
	// +kubebuilder:validation:MaxLength=1024
	Source string `json:"source,omitempty"`

	// Update is ignored. Default true.
	//
	// +kubebuilder:default=true
	Update *bool `json:"update,omitempty"`
}

// LabelValue is the value of a label.
//
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:XValidation:rule="!format.labelValue().validate(self).hasValue()",message="must be the value of a label: letters, digits, '-', '_' and '.', a letter or digit first and last, or empty"
type LabelValue string

// In maps, controller-gen has no marker for values that may be null; make generate replaces the format by nullable.

// NullableLabelValue is the value of a label, or null.
//
// +kubebuilder:validation:Format=nullable
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:XValidation:rule="!format.labelValue().validate(self).hasValue()",message="must be the value of a label: letters, digits, '-', '_' and '.', a letter or digit first and last, or null to remove the label"
type NullableLabelValue string

// NullableText is a text, or null.
//
// +kubebuilder:validation:Format=nullable
type NullableText string

// LoadBalancerService has labels and annotations of a load balancer Service.
type LoadBalancerService struct {
	// Labels are merged over those of the operator's settings; null removes a label.
	//
	// +kubebuilder:validation:MaxProperties=64
	Labels map[string]*NullableLabelValue `json:"labels,omitempty"`

	// Annotations are merged over those of the operator's settings; null removes an annotation.
	//
	// +kubebuilder:validation:MaxProperties=64
	Annotations map[string]*NullableText `json:"annotations,omitempty"`
}

// Action is something that a Permission allows.
//
// +kubebuilder:validation:Enum=start;stop;reset;accessConsole;takeConsole;"*"
type Action string

// Permission is accepted and ignored.
//
// +kubebuilder:validation:XValidation:rule="has(self.user) != has(self.role)",message="must have exactly one of user and role; write two permissions to grant to both"
type Permission struct {
	// User is the name of a user.
	//
	// +kubebuilder:validation:MaxLength=253
	User *string `json:"user,omitempty"`

	// Role is the name of a role.
	//
	// +kubebuilder:validation:MaxLength=253
	Role *string `json:"role,omitempty"`

	// May are the actions that are allowed: start, stop, reset, accessConsole, takeConsole or "*".
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	May []Action `json:"may,omitempty"`
}
