package v1

import (
	"k8s.io/apimachinery/pkg/runtime"
)

// InstanceIDPolicy is when the guest gets another instance-id. With another one, cloud-init sets the guest up again.
//
// +kubebuilder:validation:Enum=OnDataChange;Stable;PerResourceVersion
type InstanceIDPolicy string

const (
	// InstanceIDOnDataChange gives another instance-id when the data for cloud-init has changed.
	InstanceIDOnDataChange InstanceIDPolicy = "OnDataChange"

	// InstanceIDStable keeps the instance-id as long as the object exists.
	InstanceIDStable InstanceIDPolicy = "Stable"

	// InstanceIDPerResourceVersion gives another instance-id after every change of the object.
	InstanceIDPerResourceVersion InstanceIDPolicy = "PerResourceVersion"
)

// CloudInit is the data of a NoCloud data source
// (https://docs.cloud-init.io/en/latest/reference/datasources/nocloud.html).
//
// +kubebuilder:validation:XValidation:rule="!has(self.userData) || !has(self.userDataFrom)",message="must have only one of userData and userDataFrom; remove one"
// +kubebuilder:validation:XValidation:rule="!has(self.networkConfig) || !has(self.networkConfigFrom)",message="must have only one of networkConfig and networkConfigFrom; remove one"
type CloudInit struct {
	// MetaData is the file meta-data. A missing local-hostname becomes the machine's name, a missing instance-id one
	// according to instanceIDPolicy. Takes effect at the next start.
	//
	// +kubebuilder:validation:MaxProperties=64
	MetaData map[string]string `json:"metaData,omitempty"`

	// UserData is the file user-data, a cloud-config. Default: none. Takes effect at the next start.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	UserData *runtime.RawExtension `json:"userData,omitempty"`

	// UserDataFrom takes the file user-data from a Secret, so that the object does not show it. Default: userData.
	// Takes effect at the next start.
	UserDataFrom *DataSource `json:"userDataFrom,omitempty"`

	// NetworkConfig is the file network-config. Default: none, or DHCP at the card of a network of type pod. Takes
	// effect at the next start.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	NetworkConfig *runtime.RawExtension `json:"networkConfig,omitempty"`

	// NetworkConfigFrom takes the file network-config from a Secret. Default: networkConfig. Takes effect at the next
	// start.
	NetworkConfigFrom *DataSource `json:"networkConfigFrom,omitempty"`

	// InstanceIDPolicy is when the guest gets another instance-id: OnDataChange when the data for cloud-init has changed,
	// Stable never, PerResourceVersion after every change of the object. Default OnDataChange. Takes effect at the next
	// start.
	//
	// +kubebuilder:default=OnDataChange
	InstanceIDPolicy InstanceIDPolicy `json:"instanceIDPolicy,omitempty"`

	// DiskLinks gives the guest a rule for udev by which its disks also have the names of spec.vm.disks. Default true.
	// Takes effect at the next start.
	//
	// +kubebuilder:default=true
	DiskLinks *bool `json:"diskLinks,omitempty"`
}

// DataSource is where data comes from.
type DataSource struct {
	// SecretKeyRef is a key of a Secret.
	SecretKeyRef SecretKeyRef `json:"secretKeyRef"`
}

// SecretKeyRef is a key of a Secret in the machine's namespace.
type SecretKeyRef struct {
	// Name of the Secret.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="must be the name of a Secret, lower-case letters, digits, '-' and '.', for example web-1-user-data"
	Name string `json:"name"`

	// Key in the Secret.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9._-]+$') && !self.startsWith('..') && self != '.'",message="must be a key of the Secret, letters, digits, '-', '_' and '.', for example user-data"
	Key string `json:"key"`
}
