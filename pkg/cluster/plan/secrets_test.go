package plan

import (
	"errors"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// TestMissingKeysOfARunningCluster: the keys of a cluster that runs are not generated again. Those of a new cluster are,
// and those of machines of the original operator, which are still to be handed over.
func TestMissingKeysOfARunningCluster(t *testing.T) {
	for name, test := range map[string]struct {
		machines, reported bool
		lost               bool
	}{
		"a new cluster":                       {false, false, false},
		"its machines are not created yet":    {false, true, false},
		"machines of the original operator":   {true, false, false},
		"machines that have run with its own": {true, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			o := settled(t, fixture.MakeCluster("ab1cd"))
			o.Rendering = false
			if !test.machines {
				o.Objects = state.Objects{}
			}
			if test.reported {
				o.Config.Status.Conditions = []metav1.Condition{{Type: state.ConditionCertificates, Status: metav1.ConditionTrue}}
			}
			s := planner.Plan(o, now)
			if lost := s.KeysErr != nil && s.CertificatesErr != nil; lost != test.lost {
				t.Errorf("they are lost: %t, want %t (%v)", lost, test.lost, errors.Join(s.KeysErr, s.CertificatesErr))
			}
			if generated := slices.Contains(s.MissingKeys, state.KeyEncryption); generated == test.lost {
				t.Errorf("the key that encrypts data in etcd is generated: %t", generated)
			}
			if issued := slices.Contains(s.Issuing(), pki.ServiceAccount); issued == test.lost {
				t.Errorf("the key of service accounts is issued: %t", issued)
			}
		})
	}
}

// TestPlaceholders: with placeholders nothing is missing, and what is stored stays.
func TestPlaceholders(t *testing.T) {
	config := fixture.MakeCluster("ab1cd").Masters(3).Obj()
	secrets := stored(t, config)
	kept := secrets[0]
	for _, have := range [][]corev1.Secret{nil, {kept}, secrets} {
		s := NewPlanner().Plan(Observed{Config: config, Hold: state.HoldOwn, Rendering: true, Secrets: have}, now)
		if len(s.Issuing())+len(s.MissingKeys) > 0 || len(s.Certificates) != len(secrets) || !s.Tokens.Known() {
			t.Errorf("of %d Secrets: missing %v and %v, tokens: %t", len(have), s.Issuing(), s.MissingKeys, s.Tokens.Known())
		}
		for _, secret := range have {
			if !slices.ContainsFunc(slices.Collect(maps.Values(s.Certificates)), func(p pki.KeyPair) bool {
				return string(p.Certificate) == string(secret.Data[state.SecretKeyCertificate])
			}) {
				t.Errorf("Secret %s is not used", secret.Name)
			}
		}
	}
}

// TestWhoseKubeconfig: the Secret in the cluster's namespace counts, and one without a group is that of an earlier operator.
func TestWhoseKubeconfig(t *testing.T) {
	made := func(namespace, name, group string) corev1.Secret {
		return corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{key.AnnotationAdministrators: group}}}
	}
	name := key.KubeconfigName("ab1cd")
	for sentence, test := range map[string]struct {
		secret corev1.Secret
		want   *string
	}{
		"there is none":              {corev1.Secret{}, nil},
		"one of a group":             {made("ab1cd", name, "admins"), new("admins")},
		"one of an earlier operator": {made("ab1cd", name, ""), new("")},
		"one in another namespace":   {made("default", name, "admins"), nil},
		"a Secret of another name":   {made("ab1cd", "kubeconfig", "admins"), nil},
	} {
		got := kubeconfigOf(&state.Cluster{Config: fixture.MakeCluster("ab1cd").Obj()}, []corev1.Secret{test.secret})
		if (got == nil) != (test.want == nil) || got != nil && *got != *test.want {
			t.Errorf("%s: %v", sentence, got)
		}
	}
}
