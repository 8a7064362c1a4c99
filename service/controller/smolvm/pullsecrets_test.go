package smolvm

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"testing"

	diffs "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/smolvm/api"
)

// vault is a Reader that has one Secret, or fails.
type vault struct {
	client.Reader

	text string
	err  error
	read []string
}

func (v *vault) Get(ctx context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	v.read = append(v.read, key.String())
	if _, bounded := ctx.Deadline(); !bounded {
		return errors.New("the request has no end")
	}
	if v.err == nil {
		*object.(*corev1.Secret) = corev1.Secret{Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(v.text)}}
	}
	return v.err
}

func TestSecretsAreReadWhereTheyMayBe(t *testing.T) {
	secrets := schema.GroupResource{Resource: "secrets"}
	for name, test := range map[string]struct {
		refused bool
		vault   vault
		secrets []string
		from    string
		// image is that of the machine; empty for that of the spec.
		image string
		want  *api.RegistryAuth
		lacks string
		read  []string
	}{
		"a SmolVM that names none": {},
		"an operator that is not to read any": {
			refused: true, secrets: []string{"a"}, lacks: "spec.imagePullSecrets has no effect: the setting service.smolvm.pullsecrets is false",
		},
		"the first one has it": {
			vault: vault{text: `{"auths":{"r.io":{"username":"u","password":"p"}}}`}, secrets: []string{"a", "b"},
			want: &api.RegistryAuth{Username: "u", Password: "p"}, read: []string{"team/a"},
		},
		"a machine that is made from a file": {
			vault: vault{text: `{"auths":{"r.io":{"username":"u","password":"p"}}}`}, secrets: []string{"a"}, from: "/file",
		},
		"a spec that names another image than the machine has": {
			vault: vault{text: `{"auths":{"r.io":{"username":"u","password":"p"}}}`}, secrets: []string{"a"}, image: "evil.example.org/web",
			lacks: "spec.imagePullSecrets has no effect: spec.image is not the image that the machine was created with, as the runtime reports",
		},
		"one that the operator may not read": {
			vault: vault{err: apierrors.NewForbidden(secrets, "a", errors.New("no"))}, secrets: []string{"a"},
			lacks: "no credentials: Secret a may not be read by the operator: see the chart's smolvm.pullSecretNames", read: []string{"team/a"},
		},
		"an API server that does not answer": {
			vault: vault{err: errors.New("dial tcp 10.0.0.1:4711: refused")}, secrets: []string{"a", "b"},
			lacks: "no credentials: Secret a cannot be read now, Secret b cannot be read now", read: []string{"team/a", "team/b"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			vm := &v1alpha1.SmolVM{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "vm"}, Spec: v1alpha1.SmolVMSpec{Image: "r.io/web", From: test.from}}
			if test.from != "" {
				vm.Spec.Image = ""
			}
			for _, secret := range test.secrets {
				vm.Spec.ImagePullSecrets = append(vm.Spec.ImagePullSecrets, v1alpha1.SecretReference{Name: secret})
			}
			find := pullSecrets{&test.vault, !test.refused}.of(vm, &api.Machine{Image: cmp.Or(test.image, vm.Spec.Image)})
			if needed := len(test.secrets) > 0 && test.from == ""; needed != (find != nil) {
				t.Fatalf("Secrets are looked for: %t, want %t", find != nil, needed)
			}
			if find == nil {
				return
			}
			got, lacks := find(t.Context())
			if diff := diffs.Diff(test.want, got); diff != "" || lacks != test.lacks || !slices.Equal(test.vault.read, test.read) {
				t.Errorf("lacks %q, want %q; read %v, want %v; (-want +got):\n%s", lacks, test.lacks, test.vault.read, test.read, diff)
			}
		})
	}
}
