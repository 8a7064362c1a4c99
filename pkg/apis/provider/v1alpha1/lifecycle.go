package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Versions are component versions without a leading "v", for example "1.35.4".
type Versions struct {
	// Kubernetes is the version of the control plane and the kubelets.
	//
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self == \"\" || self.matches('^(0|[1-9][0-9]*)[.](0|[1-9][0-9]*)[.](0|[1-9][0-9]*)(-[0-9A-Za-z.-]+)?([+][0-9A-Za-z.-]+)?$')",message="must be a version of three numbers without a leading \"v\", for example 1.35.4"
	Kubernetes string `json:"kubernetes,omitempty"`

	// Etcd is the version of etcd.
	//
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self == \"\" || self.matches('^(0|[1-9][0-9]*)[.](0|[1-9][0-9]*)[.](0|[1-9][0-9]*)(-[0-9A-Za-z.-]+)?([+][0-9A-Za-z.-]+)?$')",message="must be a version of three numbers without a leading \"v\", for example 3.6.5"
	Etcd string `json:"etcd,omitempty"`

	// ContainerLinux is the version of the Flatcar image; it is not used if spec.guestImage is set.
	//
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self == \"\" || self.matches('^(0|[1-9][0-9]*)[.](0|[1-9][0-9]*)[.](0|[1-9][0-9]*)(-[0-9A-Za-z.-]+)?([+][0-9A-Za-z.-]+)?$')",message="must be a version of three numbers without a leading \"v\", for example 4459.2.1"
	ContainerLinux string `json:"containerLinux,omitempty"`
}

// Rollout limits how outdated nodes are replaced.
type Rollout struct {
	// MaxUnavailable is how many workers may be unavailable at the same time, 1 or more. Masters are replaced one at a time,
	// unless no majority of them has been Ready for twenty minutes.
	//
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	MaxUnavailable int32 `json:"maxUnavailable,omitempty"`

	// Paused stops the replacement of outdated nodes; all other work continues.
	Paused bool `json:"paused,omitempty"`
}

// Certificates are about the key pairs of a cluster. The operator renews them when a third of their term is left.
type Certificates struct {
	// AuthorityGeneration is raised to rotate the cluster's CAs. All nodes are replaced three times, so that every node
	// trusts every other one at any time. Adopted CAs are not rotated.
	//
	// +kubebuilder:validation:Minimum=0
	AuthorityGeneration int64 `json:"authorityGeneration,omitempty"`
}

// Drain limits how long a node is drained before its machine is powered down.
type Drain struct {
	// Timeout is how long the operator waits for evictions before it powers the machine down, for example 30m. Zero means no
	// limit. Default: the operator's setting.
	//
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^(0|[0-9]{1,6}h|([0-9]{1,5}([.][0-9]{1,9})?h|[0-9]{1,6}([.][0-9]{1,9})?(ns|us|µs|ms|s|m)){1,4})$')",message="must be a duration of zero or more, for example 90s, 30m or 1h30m, with at most six digits to a number"
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}

// Remediation replaces nodes that stay unhealthy.
type Remediation struct {
	// Enabled says whether unhealthy nodes are replaced. It takes precedence over the annotation and the operator's setting.
	Enabled bool `json:"enabled"`

	// UnhealthyAfter is how long a node has to be unready before it is replaced, for example 5m. Default: 10m.
	//
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^(0|[0-9]{1,6}h|([0-9]{1,5}([.][0-9]{1,9})?h|[0-9]{1,6}([.][0-9]{1,9})?(ns|us|µs|ms|s|m)){1,4})$')",message="must be a duration of zero or more, for example 90s, 30m or 1h30m, with at most six digits to a number"
	UnhealthyAfter *metav1.Duration `json:"unhealthyAfter,omitempty"`
}
