package smolvm

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/pullauth"
)

// readSecrets bounds the time that a start waits for Secrets.
const readSecrets = 15 * time.Second

// pullSecrets reads credentials for images from Secrets, one by one and by name, when a machine is started. Nothing of them
// is kept: no cache has Secrets, and no message what they contain.
type pullSecrets struct {
	live client.Reader
	// allowed is whether Secrets are read at all.
	allowed bool
}

// of returns what finds the credentials of a SmolVM in Secrets of its own namespace, nil if it names none. One that cannot be
// used does not keep the machine from being started: its image may be on the node, or need none. The runtime sends what it
// gets to the registry of the image that the machine was created with. The spec may name another one by now, and who may
// change it need not be allowed to read Secrets: credentials are for the image that both have.
func (p pullSecrets) of(vm *v1alpha1.SmolVM, machine *api.Machine) func(context.Context) (*api.RegistryAuth, string) {
	names := vm.Spec.ImagePullSecrets
	if len(names) == 0 || vm.Spec.Image == "" {
		return nil
	}
	without := func(why string) func(context.Context) (*api.RegistryAuth, string) {
		return func(context.Context) (*api.RegistryAuth, string) {
			return nil, "spec.imagePullSecrets has no effect: " + why
		}
	}
	switch {
	case !p.allowed:
		return without("the setting service.smolvm.pullsecrets is false")
	case machine == nil || machine.Image != vm.Spec.Image:
		return without("spec.image is not the image that the machine was created with, as the runtime reports")
	}
	namespace, image := vm.Namespace, vm.Spec.Image
	return func(ctx context.Context) (*api.RegistryAuth, string) {
		ctx, cancel := context.WithTimeout(ctx, readSecrets)
		defer cancel()
		var wrong []string
		for _, name := range names {
			auth, err := p.read(ctx, client.ObjectKey{Namespace: namespace, Name: name.Name}, image)
			if auth != nil {
				return auth, ""
			}
			wrong = append(wrong, fmt.Sprintf("Secret %s %s", name.Name, err))
		}
		return nil, "no credentials: " + strings.Join(wrong, ", ")
	}
}

// read returns the credentials that a Secret has for an image, or why it has none, in words that follow its name.
func (p pullSecrets) read(ctx context.Context, key client.ObjectKey, image string) (*api.RegistryAuth, error) {
	secret := &corev1.Secret{}
	err := p.live.Get(ctx, key, secret)
	switch {
	case apierrors.IsNotFound(err):
		return nil, errors.New("does not exist")
	case apierrors.IsForbidden(err):
		return nil, errors.New("may not be read by the operator: see the chart's smolvm.pullSecretNames")
	case err != nil:
		return nil, errors.New("cannot be read now")
	// No other Secret is looked into, so that nothing else of a namespace is sent to a registry.
	case secret.Type != corev1.SecretTypeDockerConfigJson:
		return nil, fmt.Errorf("is not of the type %s", corev1.SecretTypeDockerConfigJson)
	}
	config, err := pullauth.Parse(secret.Data[corev1.DockerConfigJsonKey])
	if err != nil {
		return nil, fmt.Errorf("cannot be used: %w", err)
	}
	auth := config.For(image)
	if auth == nil {
		return nil, errors.New("has no credentials for the registry of the image")
	}
	return auth, nil
}
