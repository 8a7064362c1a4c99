package smolvm_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// private is an image that needs credentials, and password what its registry wants.
const (
	private  = "registry.example.org/team/web:v1"
	password = "the-password-of-the-registry"
)

// login returns what docker login writes for a registry.
func login(registry, password string) string {
	return fmt.Sprintf(`{"auths":{%q:{"username":"anna","password":%q}}}`, registry, password)
}

// secretOf makes a Secret in a namespace.
func secretOf(t *testing.T, namespace, name string, kind corev1.SecretType, text string) *corev1.Secret {
	t.Helper()
	key := corev1.DockerConfigJsonKey
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Type: kind, Data: map[string][]byte{key: []byte(text)}}
	theLab.Create(t, s)
	t.Cleanup(func() { _ = theLab.Client.Delete(context.Background(), s) })
	return s
}

// needs is the spec of a SmolVM whose image is pulled with Secrets.
func needs(secrets ...string) func(*v1alpha1.SmolVMSpec) {
	return func(s *v1alpha1.SmolVMSpec) {
		s.Image = private
		for _, name := range secrets {
			s.ImagePullSecrets = append(s.ImagePullSecrets, v1alpha1.SecretReference{Name: name})
		}
	}
}

// TestImagesArePulledWithSecrets: of several, the first one counts that is for the registry; and each start reads them.
func TestImagesArePulledWithSecrets(t *testing.T) {
	together(t)
	n := nodesOf(t, "a")[0]
	n.set(func(f *fakeRuntime) { f.password = password })
	secretOf(t, "default", label(t)+"-other", corev1.SecretTypeDockerConfigJson, login("quay.io", "another"))
	right := secretOf(t, "default", label(t)+"-right", corev1.SecretTypeDockerConfigJson, login("registry.example.org/team", password))
	secretOf(t, "default", label(t)+"-later", corev1.SecretTypeDockerConfigJson, login("registry.example.org", "not this one"))
	vm := vmOf(t, "vm", needs(label(t)+"-gone", label(t)+"-other", label(t)+"-right", label(t)+"-later"))
	phaseIs(t, vm, v1alpha1.PhaseRunning)

	change(t, vm, func(vm *v1alpha1.SmolVM) { vm.Spec.Running = false })
	phaseIs(t, vm, v1alpha1.PhaseStopped)
	lab.Change(t, theLab, right, func(s *corev1.Secret) {
		s.Data[corev1.DockerConfigJsonKey] = []byte(login("registry.example.org", "a new one"))
	})
	n.set(func(f *fakeRuntime) { f.password = "a new one" })
	change(t, vm, func(vm *v1alpha1.SmolVM) { vm.Spec.Running = true })
	phaseIs(t, vm, v1alpha1.PhaseRunning)

	// A public image needs none, whatever is wrong with the Secrets.
	n.set(func(f *fakeRuntime) { f.password = "" })
	open := vmOf(t, "open", needs(label(t)+"-gone"))
	phaseIs(t, open, v1alpha1.PhaseRunning)
}

// TestSecretsThatAreOfNoUse: the message says what is wrong with each, and nothing of what is in them.
func TestSecretsThatAreOfNoUse(t *testing.T) {
	together(t)
	n := nodesOf(t, "a")[0]
	n.set(func(f *fakeRuntime) { f.password = password })
	other := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: label(t)}}
	theLab.Create(t, other)
	secretOf(t, other.Name, label(t)+"-theirs", corev1.SecretTypeDockerConfigJson, login("registry.example.org", password))
	secretOf(t, "default", label(t)+"-opaque", corev1.SecretTypeOpaque, login("registry.example.org", password))
	secretOf(t, "default", label(t)+"-quay", corev1.SecretTypeDockerConfigJson, login("quay.io", password))
	secretOf(t, "default", label(t)+"-broken", corev1.SecretTypeDockerConfigJson, `{"auths":{"registry.example.org":{"auth":"`+password+`"}}}`)
	vm := vmOf(t, "vm", needs(label(t)+"-theirs", label(t)+"-opaque", label(t)+"-quay", label(t)+"-broken"))
	message := is(t, vm, "Reconciled=False/"+v1alpha1.ReasonImagePullFailed)
	for _, want := range []string{
		"HTTP 502 IMAGE_PULL_FAILED: no credentials: Secret " + label(t) + "-theirs does not exist", "-opaque is not of the type kubernetes.io/dockerconfigjson",
		"-quay has no credentials for the registry of the image", "-broken cannot be used: an auth is not base64 of user:password; registry.example.org: it answers 401",
	} {
		if !strings.Contains(message, want) {
			t.Errorf("the message has no %q: %s", want, message)
		}
	}
	n.set(func(f *fakeRuntime) {
		if auth, sent := f.auth[machineOf(vm)]; sent {
			t.Errorf("the runtime got %+v", auth)
		}
	})
	requireNoSecret(t, vm)
}

// TestCredentialsStayWithTheImageOfTheMachine: a user who may not read Secrets creates a machine with an image of a registry of
// their own, and then declares one of the registry that a Secret is for.
func TestCredentialsStayWithTheImageOfTheMachine(t *testing.T) {
	together(t)
	n := nodesOf(t, "a")[0]
	n.set(func(f *fakeRuntime) { f.password = password })
	secretOf(t, "default", label(t), corev1.SecretTypeDockerConfigJson, login("registry.example.org", password))
	vm := vmOf(t, "vm", func(s *v1alpha1.SmolVMSpec) {
		needs(label(t))(s)
		s.Image, s.Running = "evil.example.org/web:v1", false
	})
	phaseIs(t, vm, v1alpha1.PhaseCreated)
	change(t, vm, func(vm *v1alpha1.SmolVM) { vm.Spec.Image, vm.Spec.Running = private, true })
	message := is(t, vm, "Reconciled=False/"+v1alpha1.ReasonImagePullFailed)
	if want := "spec.image is not the image that the machine was created with, as the runtime reports"; !strings.Contains(message, want) {
		t.Errorf("the message has no %q: %s", want, message)
	}
	n.set(func(f *fakeRuntime) {
		if auth, sent := f.auth[machineOf(vm)]; sent {
			t.Errorf("the runtime got %+v", auth)
		}
	})
}

// requireNoSecret checks that neither the SmolVM nor its events have the password.
func requireNoSecret(t *testing.T, vm *v1alpha1.SmolVM) {
	t.Helper()
	var events corev1.EventList
	if err := theLab.Client.List(t.Context(), &events); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal([]any{current(t, vm), events})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), password) {
		t.Error("the password is shown")
	}
	if len(events.Items) == 0 {
		t.Error("there are no events")
	}
}

// TestThePasswordIsNotTold: also not while it is in use.
func TestThePasswordIsNotTold(t *testing.T) {
	together(t)
	n := nodesOf(t, "a")[0]
	n.set(func(f *fakeRuntime) {
		f.password = password
		f.fail["start"] = api.Errorf(api.CodeImagePullFailed, "it answers 500")
	})
	secretOf(t, "default", label(t), corev1.SecretTypeDockerConfigJson, login("registry.example.org", password))
	vm := vmOf(t, "vm", needs(label(t)))
	if message := is(t, vm, "Reconciled=False/"+v1alpha1.ReasonImagePullFailed); strings.Contains(message, "credentials") {
		t.Errorf("the message is %s", message)
	}
	requireNoSecret(t, vm)
}
