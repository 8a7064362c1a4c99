package issuer

import (
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/fixture"
	"github.com/kvm-operator/kvm-operator/integration/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster"
	"github.com/kvm-operator/kvm-operator/pkg/key"
	"github.com/kvm-operator/kvm-operator/pkg/pki"
)

// signatures is how many certificates of a cluster Vault signs before it meets trouble.
const signatures = 4

// tooLong is longer than the operator waits for an answer.
const tooLong = 12 * time.Second

// troubles are what Vault, or who asks it, meets in the middle of the certificates of a cluster, and how that ends.
var troubles = map[string]struct {
	begin, end func(t *testing.T, s *Server)
	// meet is what each request meets on its way, if anything.
	meet   func()
	reason string
}{
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

// TestVaultThatFailsInTheMiddle: a cluster whose certificates are there in part says why the others are not, each of those that are is
// whole, and none of its machines begins. Once Vault is well again the others come, and those that were there stay what they are.
func TestVaultThatFailsInTheMiddle(t *testing.T) {
	t.Parallel()
	for name, trouble := range troubles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := Start(t)
			way := count(t, s.Address)
			var signed atomic.Int32
			way.meets(func(r *http.Request) {
				if !strings.Contains(r.URL.Path, "/sign-verbatim/") {
					return
				}
				n := signed.Add(1)
				if n <= signatures {
					return
				}
				if trouble.begin != nil && n == signatures+1 {
					trouble.begin(t, s)
				}
				if trouble.meet != nil {
					trouble.meet()
				}
			})
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
			way.meets(nil)
			if trouble.end != nil {
				trouble.end(t, s)
			}
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

// isWhole says what is missing of a pair. Keys of authorities stay in Vault, but the one that the API server signs with.
func isWhole(pair map[string][]byte) error {
	cert, err := pki.ParseCertificate(pair[cluster.SecretKeyCertificate])
	if err != nil {
		return err
	}
	if _, err := pki.ParseCertificate(pair[cluster.SecretKeyCA]); err != nil {
		return fmt.Errorf("the authority: %w", err)
	}
	if private := pair[cluster.SecretKeyKey]; len(private) > 0 || !cert.IsCA {
		_, err = tls.X509KeyPair(pair[cluster.SecretKeyCertificate], private)
	}
	return err
}

// pairs are the certificates of a cluster by the names of their Secrets.
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
