// Package kubeconfig is the handler of the Secret with the administrator's kubeconfig.
package kubeconfig

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kvm-operator/kvm-operator/pkg/apply"
	"github.com/kvm-operator/kvm-operator/pkg/chain"
	"github.com/kvm-operator/kvm-operator/pkg/cluster"
	"github.com/kvm-operator/kvm-operator/pkg/key"
	"github.com/kvm-operator/kvm-operator/pkg/pki"
)

// secretKeys are the keys of the Secret under which a kubeconfig is looked for: by the original's neighbours, and by Flux, Argo CD, clusterctl and
// what else follows Cluster API.
var secretKeys = []string{"kubeConfig", "value"}

// New makes the handler.
func New() apply.Resource[*cluster.Snapshot] {
	return apply.Resource[*cluster.Snapshot]{Handler: "kubeconfig", Kinds: []client.Object{&corev1.Secret{}}, Build: build}
}

func build(s *cluster.Snapshot) (apply.Desired, error) {
	address, missing := s.PublishedURL()
	secret := &corev1.Secret{ObjectMeta: s.Meta(key.KubeconfigName(s.ID()))}
	if missing != "" {
		wait := chain.Wait("NoAddress", missing, 0)
		return apply.Desired{Keep: []client.Object{secret}, Wait: &wait}, nil
	}
	admin, group := s.AdministratorPair()
	if unbound(s, group) {
		// The one that there is has rights, this one would have none yet.
		return apply.Desired{Keep: []client.Object{secret}}, nil
	}
	text, err := render(s, address, admin)
	if err != nil {
		return apply.Desired{}, err
	}
	secret.Annotations = map[string]string{key.AnnotationAdministrators: group}
	secret.Data = map[string][]byte{}
	for _, name := range secretKeys {
		secret.Data[name] = text
	}
	return apply.Desired{Objects: []client.Object{secret}}, nil
}

// unbound says that a living cluster may not know a group yet that the stored kubeconfig is not of.
func unbound(s *cluster.Snapshot, group string) bool {
	return group != pki.Masters && s.Founded() && s.KubeconfigOf != nil && *s.KubeconfigOf != group && s.Workload.Administrators != group
}

// render speaks to the API where it is published. The name that its certificate is checked for does not depend on the address: so one
// that nobody knew when the certificate was issued is as good as any.
func render(s *cluster.Snapshot, address string, admin pki.KeyPair) ([]byte, error) {
	id := s.ID()
	return yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": id,
		"clusters": []any{map[string]any{"name": id, "cluster": map[string]any{
			"server":                     address,
			"tls-server-name":            s.PublishedServerName(),
			"certificate-authority-data": admin.CA,
		}}},
		"users": []any{map[string]any{"name": id + "-admin", "user": map[string]any{
			"client-certificate-data": admin.Certificate, "client-key-data": admin.Key,
		}}},
		"contexts": []any{map[string]any{"name": id, "context": map[string]any{"cluster": id, "user": id + "-admin"}}},
	})
}
