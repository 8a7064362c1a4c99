package cluster

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodepod"
	"github.com/kvm-operator/kvm-operator/pkg/vm/bootdata"
)

// TestEachNodeHasItsBootData: a ConfigMap <role>-<cluster>-<node> with user_data like the original's and a Secret of
// the same name with the private half; nothing else.
func TestEachNodeHasItsBootData(t *testing.T) {
	s := simple()
	id := s.config.Spec.Cluster.ID
	rendered := s.render(t)
	var want, got []string
	for role, node := range map[string]string{key.RoleMaster: "m0aaa", key.RoleWorker: "w0aaa"} {
		name := role + "-" + id + "-" + node
		want = append(want, name, name)
		config := one[*corev1.ConfigMap](t, rendered, "configmap", name)
		secret := one[*corev1.Secret](t, rendered, "configmap", name)
		if config.Namespace != id || secret.Namespace != id || len(config.Data) != 1 || len(secret.Data) != 1 {
			t.Errorf("%s: namespaces %s and %s, %d and %d values", name, config.Namespace, secret.Namespace, len(config.Data), len(secret.Data))
		}
		for half, text := range map[string]string{"public": config.Data[nodepod.UserData], "private": string(secret.Data[nodepod.UserData])} {
			if _, err := bootdata.Decode(text); err != nil {
				t.Errorf("the %s half of %s is not base64 of gzip: %s", half, name, err)
			}
		}
	}
	for _, object := range objects(t, rendered, "configmap") {
		got = append(got, object.GetName())
	}
	slices.Sort(want)
	if slices.Sort(got); !slices.Equal(want, got) {
		t.Errorf("boot data %v, want %v", got, want)
	}
}
