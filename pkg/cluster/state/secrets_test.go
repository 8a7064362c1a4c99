package state_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
)

const (
	certificateOwner = "KVMConfig.provider.giantswarm.io/default/ab1cd/certificates"
	keyOwner         = "KVMConfig.provider.giantswarm.io/default/ab1cd/randomkey"
	encryptionKey    = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
)

// asked are the requested pairs of the cluster.
var asked = []pki.Request{{Name: "ca"}, {Name: "api"}, {Name: "worker"}, {Name: "etcd"}}

// kvmConfig is the cluster ab1cd in namespace default.
func kvmConfig() *v1alpha1.KVMConfig { return fixture.MakeCluster("ab1cd").Obj() }

// certificateSecret returns a Secret with a pair for the cluster ab1cd under the name; owner "" means another party's.
func certificateSecret(t *testing.T, namespace, name, owner string, changes ...func(*corev1.Secret)) corev1.Secret {
	t.Helper()
	issuer := pki.Embedded{Clock: clocktesting.NewFakePassiveClock(now.Time)}
	pair, err := issuer.Issue(pki.Request{Name: name, CommonName: name, Usage: pki.UsageAuthority}, pki.KeyPair{})
	if err != nil {
		t.Fatal(err)
	}
	return labeled(namespace, key.LabelCertificate, name, owner, map[string][]byte{"ca": pair.CA, "crt": pair.Certificate, "key": pair.Key}, changes)
}

func keySecret(namespace, name, value, owner string, changes ...func(*corev1.Secret)) corev1.Secret {
	return labeled(namespace, key.LabelRandomKey, name, owner, map[string][]byte{name: []byte(value)}, changes)
}

func labeled(namespace, label, name, owner string, data map[string][]byte, changes []func(*corev1.Secret)) corev1.Secret {
	secret := corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "ab1cd-" + name, Labels: map[string]string{label: name, key.LabelGSCluster: "ab1cd"}},
		Data:       data,
	}
	if owner != "" {
		secret.Annotations = map[string]string{ownership.Annotation: owner}
	}
	for _, change := range changes {
		change(&secret)
	}
	return secret
}

func label(name, value string) func(*corev1.Secret) {
	return func(s *corev1.Secret) { s.Labels[name] = value }
}

func uid(value string) func(*corev1.Secret) {
	return func(s *corev1.Secret) { s.Annotations[ownership.AnnotationUID] = value }
}

func called(name string) func(*corev1.Secret) {
	return func(s *corev1.Secret) { s.Name = name }
}

func data(name, value string) func(*corev1.Secret) {
	return func(s *corev1.Secret) { s.Data[name] = []byte(value) }
}

// unlabeled is the message about a Secret that has the name of one of the cluster's own.
const unlabeled = "Secret default/ab1cd-api lacks the labels giantswarm.io/cluster=ab1cd and giantswarm.io/certificate=api; set them, or delete the Secret if it is not needed"

// TestSecretsAreFoundByLabels: Secrets of another cluster, of another KVMConfig or with another label are not used;
// those of another party for this cluster are adopted from the KVMConfig's namespace and from those that a setting
// lists. In any other namespace a Secret is ignored, regardless of its metadata.
func TestSecretsAreFoundByLabels(t *testing.T) {
	for name, test := range map[string]struct {
		secrets []corev1.Secret
		// found are the names of what was found; adopted ones have an asterisk.
		found string
		err   string
	}{
		"none":                  {nil, "", ""},
		"the cluster's own":     {[]corev1.Secret{certificateSecret(t, "default", "api", certificateOwner), keySecret("default", "encryption", encryptionKey, keyOwner)}, "api encryption", ""},
		"of cert-operator":      {[]corev1.Secret{certificateSecret(t, "default", "api", "")}, "api*", ""},
		"in a listed namespace": {[]corev1.Secret{certificateSecret(t, "listed", "api", ""), keySecret("listed", "encryption", encryptionKey, "")}, "api* encryption*", ""},
		"in another namespace":  {[]corev1.Secret{certificateSecret(t, "certs", "api", ""), keySecret("keys", "encryption", encryptionKey, "")}, "", ""},
		"with a forged owner, in a namespace that sorts first": {
			[]corev1.Secret{certificateSecret(t, "acme", "api", certificateOwner), keySecret("acme", "encryption", encryptionKey, keyOwner)}, "", "",
		},
		"with a forged owner, in a listed namespace": {[]corev1.Secret{certificateSecret(t, "listed", "api", certificateOwner)}, "", ""},
		"with a forged owner in the earlier form":    {[]corev1.Secret{certificateSecret(t, "acme", "api", "default/ab1cd/certificates")}, "", ""},
		"malformed, with a forged owner":             {[]corev1.Secret{certificateSecret(t, "acme", "api", certificateOwner, data("crt", "x")), keySecret("acme", "encryption", "x", keyOwner)}, "", ""},
		"with the owner of another kind":             {[]corev1.Secret{certificateSecret(t, "default", "api", "VirtualMachine.provider.giantswarm.io/default/ab1cd/certificates")}, "", ""},
		"of an earlier operator":                     {[]corev1.Secret{certificateSecret(t, "default", "api", "default/ab1cd/certificates")}, "api", ""},
		"of a former KVMConfig of the same name":     {[]corev1.Secret{certificateSecret(t, "default", "api", certificateOwner, uid("a-former-one"))}, "api", ""},
		"its own under another name":                 {[]corev1.Secret{certificateSecret(t, "default", "api", certificateOwner, called("other")), certificateSecret(t, "default", "worker", certificateOwner, called("ab1cd-prometheus"))}, "", ""},
		"another cluster's":                          {[]corev1.Secret{certificateSecret(t, "default", "api", "", label(key.LabelGSCluster, "other"))}, "", ""},
		"without cluster":                            {[]corev1.Secret{certificateSecret(t, "default", "api", "", func(s *corev1.Secret) { delete(s.Labels, key.LabelGSCluster) })}, "", ""},
		"another label":                              {[]corev1.Secret{certificateSecret(t, "default", "api", "", label(key.LabelCertificate, ""), label("giantswarm.io/cert", "api"))}, "", unlabeled},
		"another name":                               {[]corev1.Secret{certificateSecret(t, "default", "api", "", label(key.LabelCertificate, "etcd"))}, "etcd*", unlabeled},
		"elsewhere":                                  {[]corev1.Secret{certificateSecret(t, "certs", "api", "", label(key.LabelGSCluster, "other"))}, "", ""},
		"a key without its label": {
			[]corev1.Secret{keySecret("default", "encryption", encryptionKey, keyOwner, label(key.LabelRandomKey, ""))},
			"", "Secret default/ab1cd-encryption lacks the labels giantswarm.io/cluster=ab1cd and giantswarm.io/randomkey=encryption; set them, or delete the Secret if it is not needed",
		},
		"in the way, and one that is adopted": {
			[]corev1.Secret{certificateSecret(t, "default", "api", "", label(key.LabelCertificate, "")), certificateSecret(t, "listed", "api", "")}, "api*", "",
		},
		"of another KVMConfig": {[]corev1.Secret{certificateSecret(t, "default", "api", "default/other/certificates"), keySecret("default", "encryption", encryptionKey, "default/other/randomkey")}, "", ""},
		"a boot data Secret":   {[]corev1.Secret{labeled("ab1cd", "x", "y", "default/ab1cd/configmap", nil, nil)}, "", ""},
		"a broken certificate": {
			[]corev1.Secret{certificateSecret(t, "default", "api", "", data("crt", "x")), certificateSecret(t, "default", "worker", "")},
			"worker*", `Secret default/ab1cd-api: key "crt": it is not a PEM certificate; correct it, or delete the Secret to get new certificates`,
		},
		"a missing authority": {
			[]corev1.Secret{certificateSecret(t, "default", "api", "", data("ca", ""))},
			"", `Secret default/ab1cd-api: key "ca": it is not a PEM certificate; correct it, or delete the Secret to get new certificates`,
		},
		"a missing private key": {
			[]corev1.Secret{certificateSecret(t, "default", "api", "", data("key", ""))},
			"", `Secret default/ab1cd-api: key "key" is empty; correct it, or delete the Secret to get new certificates`,
		},
		"half a successor": {
			[]corev1.Secret{certificateSecret(t, "default", "ca", certificateOwner, data("next.key", "x"))},
			"", `Secret default/ab1cd-ca: keys "next.crt" and "next.key" are not a valid next CA; remove both to get a new one`,
		},
		"a pair of another owner that is not requested": {[]corev1.Secret{certificateSecret(t, "tenant", "prometheus", "", data("crt", "x"))}, "", ""},
		"a key that is too short": {
			[]corev1.Secret{keySecret("default", "encryption", "AAAA", "")},
			"", `Secret default/ab1cd-encryption: key "encryption" does not hold a valid encryption; restore the right one`,
		},
		"a key with a line break":  {[]corev1.Secret{keySecret("default", "encryption", encryptionKey+"\n", "")}, "encryption*", ""},
		"a bootstrap token":        {[]corev1.Secret{keySecret("default", "bootstrap-token", "abcdef.0123456789abcdef", keyOwner)}, "bootstrap-token", ""},
		"a broken bootstrap token": {[]corev1.Secret{keySecret("default", "bootstrap-token", "abcdef", keyOwner)}, "", `Secret default/ab1cd-bootstrap-token: key "bootstrap-token" does not hold a valid bootstrap-token; restore the right one`},
	} {
		t.Run(name, func(t *testing.T) {
			read := state.ReadSecrets(test.secrets, kvmConfig(), []string{"listed"}, asked)
			var found []string
			for _, name := range append(slices.Collect(maps.Keys(read.Pairs)), slices.Collect(maps.Keys(read.Keys))...) {
				if read.Adopted[name] {
					name += "*"
				}
				found = append(found, name)
			}
			slices.Sort(found)
			got := []string{strings.Join(found, " "), errorText(read.PairsErr) + errorText(read.KeysErr)}
			if diff := cmp.Diff([]string{test.found, test.err}, got); diff != "" {
				t.Errorf("found and wrong (-want +got):\n%s", diff)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestOwnSecretsGoFirst: an adopted Secret that appears later replaces nothing that is in use, and one in another place
// is not the cluster's own because its metadata says so.
func TestOwnSecretsGoFirst(t *testing.T) {
	own, foreign := certificateSecret(t, "default", "api", certificateOwner), certificateSecret(t, "aaa", "api", "")
	forged := certificateSecret(t, "aaa", "api", certificateOwner)
	first, second := certificateSecret(t, "aaa", "worker", ""), certificateSecret(t, "bbb", "worker", "")
	for _, order := range [][]corev1.Secret{{foreign, forged, second, own, first}, {own, first, foreign, second, forged}} {
		read := state.ReadSecrets(order, kvmConfig(), []string{"aaa", "bbb"}, asked)
		got := map[string]string{"api": string(read.Pairs["api"].Certificate), "worker": string(read.Pairs["worker"].Certificate)}
		want := map[string]string{"api": string(own.Data["crt"]), "worker": string(first.Data["crt"])}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("other pairs are used (-want +got):\n%s", diff)
		}
	}
}

// TestWhatIsMalformedIsNotGeneratedAgain: malformed Secrets are not generated again, because users may still need what
// can be recovered from them.
func TestWhatIsMalformedIsNotGeneratedAgain(t *testing.T) {
	read := state.ReadSecrets([]corev1.Secret{
		certificateSecret(t, "default", "ca", certificateOwner, data("crt", "x")), keySecret("default", "encryption", "x", keyOwner),
	}, kvmConfig(), nil, asked)
	var missing []string
	for _, request := range read.Requests([]pki.Request{{Name: "ca"}, {Name: "api"}}) {
		missing = append(missing, request.Name)
	}
	got := []any{missing, read.NeedsKey("encryption"), read.NeedsKey("bootstrap-token")}
	if diff := cmp.Diff([]any{[]string{"api"}, false, true}, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestWhatMachinesCannotDoWithoutIsNotGeneratedAgain: one Secret was deleted, or all.
func TestWhatMachinesCannotDoWithoutIsNotGeneratedAgain(t *testing.T) {
	all := []corev1.Secret{
		certificateSecret(t, "default", "ca", certificateOwner), certificateSecret(t, "default", "service-account", certificateOwner),
		keySecret("default", "encryption", encryptionKey, keyOwner),
	}
	asked := []pki.Request{{Name: "ca"}, {Name: "api"}, {Name: "service-account"}}
	for name, test := range map[string]struct {
		left []corev1.Secret
		// made are the pairs and keys that are generated.
		made, told string
	}{
		"nothing is gone":          {all, "ca api service-account", ""},
		"an authority":             {all[1:], "ca api service-account", ""},
		"the encryption key":       {all[:2], "ca api service-account", "default/ab1cd-encryption was deleted"},
		"the key of tokens":        {[]corev1.Secret{all[0], all[2]}, "ca", "default/ab1cd-service-account was deleted"},
		"everything but the token": {nil, "", "default/ab1cd-service-account was deleted"},
	} {
		read := state.ReadSecrets(test.left, kvmConfig(), nil, asked)
		read.Lose("ab1cd", "default", asked)
		var made []string
		for _, request := range read.Requests(asked) {
			made = append(made, request.Name)
		}
		if diff := cmp.Diff(test.made, strings.Join(made, " ")); diff != "" || read.NeedsKey("encryption") || !read.NeedsKey("bootstrap-token") {
			t.Errorf("%s: encryption key needed: %t; pairs (-want +got):\n%s", name, read.NeedsKey("encryption"), diff)
		}
		if told := errorText(read.PairsErr) + errorText(read.KeysErr); !strings.Contains(told, test.told) || (told == "") != (test.told == "") {
			t.Errorf("%s: got the error %q, want %q", name, told, test.told)
		}
	}
}
