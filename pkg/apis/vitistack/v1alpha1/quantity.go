package v1alpha1

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Quantity is a number of bytes, more than zero, with a suffix of Kubernetes, for example 8Gi or 500M.
//
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9]{1,15}([.][0-9]{1,9})?(k|Ki|[MGTPE]i?|[eE][0-9]{1,2})?$') && quantity(self).isGreaterThan(quantity('0'))",message="must be a quantity of more than zero, for example 8Gi"
type Quantity string

// Parse returns the quantity. Values that the API server has accepted have no error.
func (q Quantity) Parse() (resource.Quantity, error) {
	return resource.ParseQuantity(string(q))
}

// UnmarshalJSON reads a text, or a number of bytes: the CRD of vitistack/common allows numbers in a MachineClass, and one
// stored object that cannot be read would make the list of all classes unreadable.
func (q *Quantity) UnmarshalJSON(content []byte) error {
	var number json.Number
	if err := json.Unmarshal(content, &number); err == nil && len(content) > 0 && content[0] != '"' {
		*q = Quantity(number)
		return nil
	}
	var text string
	if err := json.Unmarshal(content, &text); err != nil {
		return err
	}
	*q = Quantity(text)
	return nil
}
