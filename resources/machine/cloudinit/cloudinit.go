// Package cloudinit is the handler of the Secret with the cloud-init data of a Machine, which it has if the data is too
// long for the VirtualMachine or comes from a Secret.
package cloudinit

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
)

// Name is the handler's name.
const Name = "cloudinit"

// New returns the handler.
func New() apply.Resource[*vitistack.State] {
	return apply.Resource[*vitistack.State]{Handler: Name, Kinds: []client.Object{&corev1.Secret{}}, Build: build}
}

func build(s *vitistack.State) (apply.Desired, error) {
	if err := s.Refusal(); err != nil {
		return apply.Desired{}, err // a Secret that exists does not change
	}
	data := s.Wanted.CloudInit
	secret := &corev1.Secret{ObjectMeta: s.ObjectMeta(vitistack.CloudInitSecret(s.Machine.Name), nil)}
	if data == nil || data.Secret == "" {
		desired := apply.Desired{NotConfigured: true}
		if inUse(s, secret.Name) {
			desired.Keep = []client.Object{secret}
		}
		return desired, nil
	}
	if data.Kept != nil {
		return apply.Desired{Keep: []client.Object{secret}}, nil
	}
	secret.Data = map[string][]byte{}
	if data.UserData != nil {
		secret.Data[vitistack.UserDataKey] = data.UserData
	}
	if data.NetworkData != nil {
		secret.Data[vitistack.NetworkDataKey] = data.NetworkData
	}
	return apply.Desired{Objects: []client.Object{secret}}, nil
}

// inUse returns whether the VirtualMachine or the guest that runs refers to the Secret, or may. A guest that was
// started with it needs it to be migrated.
func inUse(s *vitistack.State, secret string) bool {
	if s.KubeVirt == vitistack.Unknown {
		return true
	}
	if s.VM != nil && s.VM.Spec.Template != nil && refers(s.VM.Spec.Template.Spec.Volumes, secret) {
		return true
	}
	return s.VMI != nil && refers(s.VMI.Spec.Volumes, secret)
}

func refers(volumes []kubevirtv1.Volume, secret string) bool {
	return slices.ContainsFunc(volumes, func(v kubevirtv1.Volume) bool { return vitistack.RefersTo(v, secret) })
}
