package lab

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
)

// Observed returns an error unless the status of a KVMConfig is about its current generation.
func (l *Lab) Observed(config *v1alpha1.KVMConfig) error {
	current := &v1alpha1.KVMConfig{}
	if err := l.Client.Get(context.Background(), client.ObjectKeyFromObject(config), current); err != nil {
		return err
	}
	if current.Status.ObservedGeneration != current.Generation {
		return fmt.Errorf("generation %d is not observed yet", current.Generation)
	}
	return nil
}

// Gone returns an error while a KVMConfig exists.
func (l *Lab) Gone(config *v1alpha1.KVMConfig) error {
	current := &v1alpha1.KVMConfig{}
	err := l.Client.Get(context.Background(), client.ObjectKeyFromObject(config), current)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("KVMConfig %s still exists with finalizers %v", config.Name, current.Finalizers)
}
