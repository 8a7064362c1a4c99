package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/joining"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
)

// secret returns a Secret for the cluster ab1cd that another party created.
func secret(name, label string, data map[string]string) corev1.Secret {
	s := corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "ab1cd-" + name, Labels: map[string]string{label: name, key.LabelGSCluster: "ab1cd"}},
		Data:       map[string][]byte{},
	}
	for k, v := range data {
		s.Data[k] = []byte(v)
	}
	return s
}

// foreignPair returns a pair of a CA whose key is not available, as the original's Vault issued them.
func foreignPair(t *testing.T, name string) corev1.Secret {
	t.Helper()
	issuer := pki.Embedded{Clock: clocktesting.NewFakePassiveClock(now)}
	authority, err := issuer.Issue(pki.Request{Name: "vault", CommonName: "vault", Usage: pki.UsageAuthority}, pki.KeyPair{})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := issuer.Issue(pki.Request{Name: name, Authority: "vault", CommonName: name, Usage: pki.UsageClient}, authority)
	if err != nil {
		t.Fatal(err)
	}
	return secret(name, key.LabelCertificate, map[string]string{"ca": string(pair.CA), "crt": string(pair.Certificate), "key": string(pair.Key)})
}

// TestBrokenSecretsHoldUpOnlyWhatNeedsThem: the condition names the Secret, all objects that do not need it are as they
// would be otherwise, and no machine is replaced.
func TestBrokenSecretsHoldUpOnlyWhatNeedsThem(t *testing.T) {
	for name, test := range map[string]struct {
		secret  corev1.Secret
		handler string
		want    string
	}{
		"a certificate": {
			secret("api", key.LabelCertificate, map[string]string{"ca": "x", "crt": "x", "key": "x"}), "certificates",
			`False SecretMalformed: Secret default/ab1cd-api: key "ca": it is not a PEM certificate; correct it, or delete the Secret to get new certificates`,
		},
		"the encryption key": {
			secret("encryption", key.LabelRandomKey, nil), "randomkey",
			`False SecretMalformed: Secret default/ab1cd-encryption: key "encryption" does not hold a valid encryption; restore the right one`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := simple()
			w := s.running(t)
			s.inputs.Secrets = []corev1.Secret{test.secret}
			broken := s.snapshot(t, w)
			_, err := build(t, broken, test.handler)
			if diff := cmp.Diff(test.want, condition(test.handler, err)); diff != "" {
				t.Errorf("another condition (-want +got):\n%s", diff)
			}
			whole := simple().snapshot(t, w)
			for _, handler := range []string{"namespace", "serviceaccount", "clusterrolebinding", "networkpolicy", "service", "ingress", "endpoints", "pvc"} {
				want, err1 := build(t, whole, handler)
				got, err2 := build(t, broken, handler)
				if diff := cmp.Diff(want, got); diff != "" || err1 != nil || err2 != nil {
					t.Errorf("errors %v %v, objects of %s differ (-otherwise +now):\n%s", err1, err2, handler, diff)
				}
			}
			machines, err := build(t, broken, "deployment")
			if len(machines.Objects) > 0 || len(machines.Keep) != 2 || err != nil {
				t.Errorf("err = %v; machines are touched: %v", err, names(machines.Objects))
			}
		})
	}
}

// TestAdoptedCertificates: Secrets of cert-operator are used and not changed, and guests trust their CA.
func TestAdoptedCertificates(t *testing.T) {
	s := simple()
	s.inputs.Secrets = []corev1.Secret{foreignPair(t, "api")}
	rendered := s.render(t)
	for _, object := range objects(t, rendered, "certificates") {
		if object.GetName() == "ab1cd-api" {
			t.Error("an adopted Secret is written")
		}
	}
	kubeconfig := one[*corev1.Secret](t, rendered, "kubeconfig", "ab1cd-kubeconfig")
	if strings.Contains(string(kubeconfig.Data["kubeConfig"]), "<certificate api>") {
		t.Error("the kubeconfig holds another certificate than the adopted one")
	}
	trusted := s.snapshot(t, world{}).BootParams(s.snapshot(t, world{}).Nodes[1]).Certificates[pki.CA].CA
	if foreign := s.inputs.Secrets[0].Data["ca"]; !strings.Contains(string(trusted), strings.TrimSpace(string(foreign))) {
		t.Errorf("guests do not trust the CA of the adopted certificate:\n%s", trusted)
	}
}

// TestKeysStandInSecretsOnly: no private key, token or encryption key is in any other kind of object, including decoded
// boot data.
func TestKeysStandInSecretsOnly(t *testing.T) {
	seed := pki.PlaceholderKey("bootstrap-token")
	token := joining.TokensAt(seed, time.Time{}).Current(joining.Node{Role: key.RoleMaster, ID: "m0aaa"}).String()
	encryption := pki.PlaceholderKey("encryption")
	inBootData := map[string]bool{}
	for path, text := range files(t, must(t, renderedFull)) {
		for _, private := range []string{"private key", token, seed, encryption, "PRIVATE KEY"} {
			if !strings.Contains(decodedURLs(text), private) {
				continue
			}
			if !strings.Contains(path, "/Secret-") {
				t.Errorf("%s holds %q", path, private)
			} else if strings.HasSuffix(path, ".json") {
				inBootData[private] = true
			}
		}
	}
	if !inBootData["private key"] || !inBootData[token] || !inBootData[encryption] {
		t.Errorf("the test searches the wrong place: it finds only %v in the private halves of boot data", inBootData)
	}
}

// TestNothingOfTwoClustersCollides: two clusters share no port and no directory of a host except the image cache, and
// no two objects have the same name.
func TestNothingOfTwoClustersCollides(t *testing.T) {
	first, second := full(), full()
	second.config.Name, second.config.Spec.Cluster.ID = "full2", "full2"
	second.inputs.Volumes = first.inputs.Volumes
	seen, hostPaths := map[string]bool{}, map[string]int{}
	for _, s := range []scenario{first, second} {
		rendered := s.render(t)
		for _, r := range rendered {
			for _, object := range r.Objects {
				name := r.Handler + " " + object.GetNamespace() + "/" + object.GetName()
				if _, isSecret := object.(*corev1.Secret); isSecret {
					name += " (Secret)"
				}
				if kind := kindsOf([]client.Object{object})[0]; seen[kind+name] {
					t.Errorf("both clusters have %s %s", kind, name)
				} else {
					seen[kind+name] = true
				}
			}
		}
		for _, object := range objects(t, rendered, "deployment") {
			pod := deploymentOf(t, rendered, object.GetName()).Spec.Template.Spec
			if pod.HostNetwork || pod.HostPID || pod.HostIPC || len(pod.Containers[0].Ports) > 0 {
				t.Errorf("%s/%s takes something of its host", object.GetNamespace(), object.GetName())
			}
		}
		for path := range hostPathsOf(t, rendered) {
			hostPaths[path]++
		}
	}
	for path, n := range hostPaths {
		if n > 1 && path != "/var/lib/flatcar-kvm-images" {
			t.Errorf("both clusters use the directory %s of their hosts", path)
		}
	}
}

func hostPathsOf(t *testing.T, rendered []Rendered) map[string]bool {
	t.Helper()
	paths := map[string]bool{}
	for _, object := range objects(t, rendered, "deployment") {
		for _, v := range deploymentOf(t, rendered, object.GetName()).Spec.Template.Spec.Volumes {
			if v.HostPath != nil {
				paths[v.HostPath.Path] = true
			}
		}
	}
	return paths
}
