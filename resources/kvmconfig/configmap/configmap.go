// Package configmap is the handler of boot data. Each node has a ConfigMap with the public part and a Secret of the
// same name with the private part.
package configmap

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodepod"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
)

// New returns the handler.
func New() apply.Resource[*state.Cluster] {
	return apply.Resource[*state.Cluster]{
		Handler: "configmap", Kinds: []client.Object{&corev1.ConfigMap{}, &corev1.Secret{}}, Build: build,
	}
}

func build(s *state.Cluster) (apply.Desired, error) {
	if s.BootDataErr != nil {
		return apply.Desired{}, s.BootDataErr
	}
	var desired apply.Desired
	end := map[string]time.Time{key.RoleMaster: s.Certificates.FirstEnd()} // workers have no certificates
	for _, n := range s.Nodes {
		meta := s.Meta(key.BootDataName(n.Role, s.ID(), n.ID))
		config, secret := &corev1.ConfigMap{ObjectMeta: meta}, &corev1.Secret{ObjectMeta: *meta.DeepCopy()}
		secret.Annotations = notes(s, n, n.CertificatesEnd)
		if !s.KeepsBootData(n) {
			secret.Annotations = notes(s, n, end[n.Role])
			config.Data = map[string]string{nodepod.UserData: n.BootData.Public}
			secret.Data = map[string][]byte{nodepod.UserData: []byte(n.BootData.Private)}
			desired.Objects = append(desired.Objects, config, secret)
			continue
		}
		keepPublic(&desired, n, config)
		if n.Kept.Private == "" {
			desired.Keep = append(desired.Keep, secret)
		} else {
			secret.Data = map[string][]byte{nodepod.UserData: []byte(n.Kept.Private)}
			desired.Objects = append(desired.Objects, secret)
		}
	}
	for _, n := range s.Retiring {
		meta := s.Meta(key.BootDataName(n.Role, s.ID(), n.ID))
		desired.Keep = append(desired.Keep, &corev1.Secret{ObjectMeta: *meta.DeepCopy()})
		keepPublic(&desired, n, &corev1.ConfigMap{ObjectMeta: meta})
	}
	return desired, nil
}

// notes returns annotations that describe private boot data, so that readers need not read the data itself.
func notes(s *state.Cluster, n state.Node, certificatesEnd time.Time) map[string]string {
	notes := map[string]string{}
	if s.Tokens.Known() {
		notes[key.AnnotationBootstrapToken] = s.Tokens.Current(n.Joins()).ID
	}
	if !certificatesEnd.IsZero() {
		notes[key.AnnotationCertificatesEnd] = certificatesEnd.UTC().Format(time.RFC3339)
	}
	return notes
}

func keepPublic(desired *apply.Desired, n state.Node, config *corev1.ConfigMap) {
	if n.Kept.Public == "" {
		desired.Keep = append(desired.Keep, config)
		return
	}
	config.Data = map[string]string{nodepod.UserData: n.Kept.Public}
	desired.Objects = append(desired.Objects, config)
}
