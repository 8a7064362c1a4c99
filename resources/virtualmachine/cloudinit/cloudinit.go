// Package cloudinit is the handler of the Secret with the cloud-init data of a virtual machine. The data may have
// passwords, so it is in no ConfigMap.
package cloudinit

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/virtualmachine"
)

// New returns the handler.
func New() apply.Resource[*virtualmachine.State] {
	return apply.Resource[*virtualmachine.State]{Handler: "cloudinit", Kinds: []client.Object{&corev1.Secret{}}, Build: build}
}

func build(s *virtualmachine.State) (apply.Desired, error) {
	if s.CloudInit == nil {
		// A pod that was created with data needs its Secret to start again.
		secret := &corev1.Secret{ObjectMeta: s.ObjectMeta(virtualmachine.CloudInitName(s.VM.Name))}
		if s.Pod != nil && s.Pod.Annotations[virtualmachine.AnnotationCloudInit] != "" {
			return apply.Desired{NotConfigured: true, Keep: []client.Object{secret}}, nil
		}
		return apply.Desired{NotConfigured: true}, nil
	}
	if s.CloudInit.Err != nil {
		return apply.Desired{}, s.CloudInit.Err // a Secret that exists does not change
	}
	return apply.Desired{Objects: []client.Object{s.CloudInitSecret()}}, nil
}
