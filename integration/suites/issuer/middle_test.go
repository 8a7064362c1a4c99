package issuer

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// signatures is the number of a cluster's certificates that Vault signs before the fault.
const signatures = 4

// tooLong is longer than the operator waits for an answer.
const tooLong = 12 * time.Second

// trouble is a fault of Vault, or of requests to it, in the middle of the certificates of a cluster, and its end.
type trouble struct {
	begin, end func(t *testing.T, s *Server)
	// meet is called for each request, if it is set.
	meet   func()
	reason string
}

var troubles = map[string]trouble{
	"sealed": {begin: func(t *testing.T, s *Server) { s.Seal(t) }, end: func(t *testing.T, s *Server) { s.Unseal(t) }, reason: "VaultSealed"},
	"denied": {
		begin: func(t *testing.T, s *Server) {
			must(t, s.Client.Sys().PutPolicy("kvm-operator", `path "sys/mounts/pki-*" { capabilities = ["read"] }`))
		},
		end:    func(t *testing.T, s *Server) { must(t, s.Client.Sys().PutPolicy("kvm-operator", policy)) },
		reason: "VaultDenied",
	},
	"slow": {meet: func() { time.Sleep(tooLong) }, reason: "VaultSlow"},
	"gone": {meet: func() { panic(http.ErrAbortHandler) }, reason: "VaultUnreachable"},
}

// TestVaultThatFailsInTheMiddle: a cluster with only some of its certificates reports why the others are missing, each
// existing pair is complete, and none of its machines starts. Once Vault works again the others are issued, and the
// existing ones stay unchanged.
func TestVaultThatFailsInTheMiddle(t *testing.T) {
	t.Parallel()
	for name, trouble := range troubles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := Start(t)
			way := count(t, s.Address)
			trouble.approaches(t, s, way)
			s.serve(t, name, way)
			config := fixture.MakeCluster(name).Label(shard, name).Obj()
			theLab.Create(t, config)
			theLab.AwaitCondition(t, config, lab.Condition{Type: "CertificatesReady", Status: metav1.ConditionFalse, Reason: trouble.reason})
			before := pairs(t, config)
			for name, pair := range before {
				if err := isWhole(pair); err != nil {
					t.Errorf("Secret %s: %v", name, err)
				}
			}
			var machines appsv1.DeploymentList
			must(t, theLab.Client.List(t.Context(), &machines, client.InNamespace(key.Namespace(config.Spec.Cluster.ID))))
			if len(machines.Items) > 0 {
				t.Errorf("there are %d machines, and not all certificates", len(machines.Items))
			}
			trouble.passes(t, s, way)
			theLab.AwaitReady(t, config)
			after := pairs(t, config)
			for name := range before {
				if diff := cmp.Diff(before[name], after[name]); diff != "" {
					t.Errorf("Secret %s has changed (-before +after):\n%s", name, diff)
				}
			}
			if len(before) == 0 || len(before) >= len(after) {
				t.Errorf("%d certificates were there in the middle and %d at last", len(before), len(after))
			}
		})
	}
}

// TestVaultThatFailsInTheMiddleOfARotation: during a CA rotation, when the new CAs have signed only some of the
// certificates, the cluster reports the reason and the phase. Each pair is complete and trusted. Once Vault works again
// the rotation is completed.
func TestVaultThatFailsInTheMiddleOfARotation(t *testing.T) {
	t.Parallel()
	for name, trouble := range troubles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			id := "next" + name
			s := Start(t)
			way := count(t, s.Address)
			s.serve(t, id, way)
			config := fixture.MakeCluster(id).Label(shard, id).Obj()
			theLab.Create(t, config)
			theLab.AwaitReady(t, config)
			before := pairs(t, config)
			trouble.approaches(t, s, way)
			lab.Change(t, theLab, config, func(c *v1alpha1.KVMConfig) { c.Spec.Certificates = &v1alpha1.Certificates{AuthorityGeneration: 1} })
			lab.Eventually(t, lab.Timeout, func() error {
				have := meta.FindStatusCondition(theLab.Current(t, config).Status.Conditions, "CertificatesReady")
				if have == nil || have.Status != metav1.ConditionFalse || have.Reason != trouble.reason ||
					!strings.Contains(have.Message, "step 2 of 3") || !strings.Contains(have.Message, "Vault at "+way.URL) {
					return fmt.Errorf("the condition CertificatesReady is %+v", have)
				}
				return nil
			})
			middle := pairs(t, config)
			renewed := trusted(t, config, middle, before)
			if renewed == 0 || renewed == len(middle) {
				t.Errorf("%d of %d pairs are other ones in the middle", renewed, len(middle))
			}
			trouble.passes(t, s, way)
			lab.Eventually(t, 2*lab.Timeout, func() error {
				return theLab.Rotated(t.Context(), theLab.Current(t, config), pki.Authorities...)
			})
			theLab.AwaitReady(t, config)
			trusted(t, config, pairs(t, config), before)
		})
	}
}

// trusted checks that each pair is complete, matches its request and is signed by a trusted CA. It returns how many
// pairs have changed.
func trusted(t *testing.T, config *v1alpha1.KVMConfig, now, before map[string]map[string][]byte) (others int) {
	t.Helper()
	requests := pki.Requests(config.Spec.Cluster, lab.Settings().ClusterDomain)
	set := pki.Set{}
	for _, request := range requests {
		data := now[key.SecretName(config.Spec.Cluster.ID, request.Name)]
		set[request.Name] = pki.KeyPair{CA: data[state.SecretKeyCA], Certificate: data[state.SecretKeyCertificate], Key: data[state.SecretKeyKey]}
	}
	for _, request := range requests {
		name := key.SecretName(config.Spec.Cluster.ID, request.Name)
		if err := isWhole(now[name]); err != nil {
			t.Errorf("Secret %s: %v", name, err)
		}
		if !bytes.Equal(now[name][state.SecretKeyCertificate], before[name][state.SecretKeyCertificate]) {
			others++
		}
		if request.Usage == pki.UsageAuthority || request.Keep {
			continue
		}
		if err := verify(request, set); err != nil {
			t.Errorf("certificate %s: %v", request.Name, err)
		}
	}
	return others
}

// approaches starts the fault once Vault has signed some more certificates.
func (k trouble) approaches(t *testing.T, s *Server, way *counted) {
	var signed atomic.Int32
	way.meets(func(r *http.Request) {
		if !strings.Contains(r.URL.Path, "/sign-verbatim/") {
			return
		}
		n := signed.Add(1)
		if n <= signatures {
			return
		}
		if k.begin != nil && n == signatures+1 {
			k.begin(t, s)
		}
		if k.meet != nil {
			k.meet()
		}
	})
}

// passes ends the fault.
func (k trouble) passes(t *testing.T, s *Server, way *counted) {
	way.meets(nil)
	if k.end != nil {
		k.end(t, s)
	}
}

// isWhole returns what is missing in a pair. Keys of CAs stay in Vault, except the one that the API server signs with.
func isWhole(pair map[string][]byte) error {
	cert, err := pki.ParseCertificate(pair[state.SecretKeyCertificate])
	if err != nil {
		return err
	}
	if _, err := pki.ParseCertificate(pair[state.SecretKeyCA]); err != nil {
		return fmt.Errorf("the CA: %w", err)
	}
	if private := pair[state.SecretKeyKey]; len(private) > 0 || !cert.IsCA {
		_, err = tls.X509KeyPair(pair[state.SecretKeyCertificate], private)
	}
	return err
}

// pairs returns the certificates of a cluster by the names of their Secrets.
func pairs(t *testing.T, config *v1alpha1.KVMConfig) map[string]map[string][]byte {
	t.Helper()
	all := map[string]map[string][]byte{}
	for _, name := range certificates(t, config) {
		secret := &corev1.Secret{}
		must(t, theLab.Client.Get(t.Context(), client.ObjectKey{Namespace: config.Namespace, Name: name}, secret))
		all[name] = secret.Data
	}
	return all
}
