// Package kubeconfig is the handler of the Secret with the administrator's kubeconfig.
package kubeconfig

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
)

// secretKeys are the keys of the Secret under which tools look for a kubeconfig: the original operator's companions,
// and Flux, Argo CD, clusterctl and other tools that follow Cluster API.
var secretKeys = []string{"kubeConfig", "value"}

// New returns the handler.
func New() apply.Resource[*state.Cluster] {
	return apply.Resource[*state.Cluster]{Handler: "kubeconfig", Kinds: []client.Object{&corev1.Secret{}}, Build: build}
}

func build(s *state.Cluster) (apply.Desired, error) {
	address, missing := s.PublishedURL()
	secret := &corev1.Secret{ObjectMeta: s.Meta(key.KubeconfigName(s.ID()))}
	if missing != "" {
		wait := chain.Wait("NoAddress", missing, 0)
		return apply.Desired{Keep: []client.Object{secret}, Wait: &wait}, nil
	}
	admin, group := s.AdministratorPair()
	if unbound(s, group) {
		// The stored kubeconfig has permissions. The new one would have none yet.
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

// unbound reports whether a running cluster may not have bound the group yet, and the stored kubeconfig is for another
// group.
func unbound(s *state.Cluster, group string) bool {
	return group != pki.Masters && s.Founded() && s.KubeconfigOf != nil && *s.KubeconfigOf != group && s.Workload.Administrators != group
}

// render returns a kubeconfig for the published API. Clients check the certificate for a name that does not depend on
// the address, so an address that was unknown when the certificate was issued works as well.
func render(s *state.Cluster, address string, admin pki.KeyPair) ([]byte, error) {
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
