package v1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Amount is a quantity of zero or more. Whatever its rule accepts can be parsed.
//
// +kubebuilder:validation:Type=""
// +kubebuilder:validation:XIntOrString
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:XValidation:rule="string(self).matches('^[0-9]{1,18}([.][0-9]{1,9})?(m|k|Ki|[MGTPE]i?|[eE][0-9]{1,2})?$')",message="must be a quantity of zero or more, for example 2, 500m or 4Gi"
type Amount struct {
	resource.Quantity `json:"-"`
}

// Resources are limits and requests by the name of the resource.
type Resources struct {
	// Limits are the most that may be used.
	//
	// +kubebuilder:validation:MaxProperties=32
	Limits map[corev1.ResourceName]Amount `json:"limits,omitempty"`

	// Requests are what is reserved.
	//
	// +kubebuilder:validation:MaxProperties=32
	Requests map[corev1.ResourceName]Amount `json:"requests,omitempty"`
}

// List returns amounts in the form of Kubernetes; nil for none.
func List(amounts map[corev1.ResourceName]Amount) corev1.ResourceList {
	if amounts == nil {
		return nil
	}
	list := corev1.ResourceList{}
	for name, amount := range amounts {
		list[name] = amount.Quantity
	}
	return list
}
