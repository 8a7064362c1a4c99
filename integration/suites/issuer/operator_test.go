package issuer

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"net/http/httptest"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/vault"
	"github.com/kvm-operator/kvm-operator/service"
)

var theLab *lab.Lab

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	theLab, err = lab.Start(context.Background(), managementcluster.Options{ControllerManager: true, Scheduler: true, Kwok: true})
	if err == nil {
		_, err = theLab.AddNodes(context.Background(), 2, map[string]string{key.LabelManagementNodesRole: key.RoleMaster})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "starting the management cluster:", err)
		return 1
	}
	code := m.Run()
	if err := theLab.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stopping the management cluster:", err)
		return 1
	}
	return code
}

// counted is a proxy to Vault that counts requests.
type counted struct {
	*httptest.Server

	mu   sync.Mutex
	list []string
	// meet is called before a request is passed on. nil does nothing.
	meet func(*http.Request)
}

func count(t *testing.T, address string) *counted {
	t.Helper()
	target, err := url.Parse(address)
	must(t, err)
	c := &counted{}
	proxy := httputil.NewSingleHostReverseProxy(target)
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		c.list = append(c.list, r.Method+" "+r.URL.Path)
		meet := c.meet
		c.mu.Unlock()
		if meet != nil {
			meet(r)
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(c.Close)
	return c
}

// meets calls a function for every request from now on.
func (c *counted) meets(meet func(*http.Request)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.meet = meet
}

func (c *counted) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := c.list
	c.list = nil
	return list
}

// TestLifeOfAClusterWithVault: the operator logs in with its service account. A cluster that is created while Vault is
// sealed reports this and gets neither certificates nor machines. At rest the operator sends no requests to Vault. A
// cluster that is deleted leaves nothing there, and reports when it cannot clean up.
func TestLifeOfAClusterWithVault(t *testing.T) {
	t.Parallel()
	s := Start(t)
	way := count(t, s.Address)
	config := fixture.MakeCluster("vault").Label(shard, "vault").Obj()
	s.serve(t, "vault", way)
	s.Seal(t)
	theLab.Create(t, config)
	theLab.AwaitCondition(t, config, lab.Condition{
		Type: "CertificatesReady", Status: metav1.ConditionFalse, Reason: "VaultSealed",
		Message: "ca, etcd-ca, front-proxy-ca cannot be issued: Vault at " + way.URL + " is sealed or has no active server; unseal it",
	})
	if names := certificates(t, config); len(names) > 0 {
		t.Errorf("Secrets are there while Vault is sealed: %v", names)
	}
	s.Unseal(t)
	theLab.AwaitReady(t, config)
	way.take()
	for i := range 5 {
		lab.Change(t, theLab, config, func(c *v1alpha1.KVMConfig) { c.Spec.Rollout = &v1alpha1.Rollout{MaxUnavailable: int32(i + 2)} })
		theLab.AwaitReady(t, config)
	}
	if asked := way.take(); len(asked) > 0 {
		t.Errorf("Vault is asked for a cluster at rest: %v", asked)
	}

	s.Seal(t)
	theLab.Delete(t, config)
	theLab.AwaitCondition(t, config, lab.Condition{Type: "CertificatesReady", Status: metav1.ConditionFalse, Reason: "VaultSealed"})
	s.Unseal(t)
	theLab.AwaitGone(t, config)
	if left := s.Mounts(t); len(left) > 0 {
		t.Errorf("secrets engines are left: %v", left)
	}
}

func certificates(t *testing.T, config *v1alpha1.KVMConfig) []string {
	t.Helper()
	var list corev1.SecretList
	must(t, theLab.Client.List(t.Context(), &list, client.InNamespace(config.Namespace), client.MatchingLabels{key.LabelGSCluster: config.Spec.Cluster.ID},
		client.HasLabels{key.LabelCertificate}))
	var names []string
	for _, secret := range list.Items {
		names = append(names, secret.Name)
	}
	return names
}

// policy is the policy of docs/certificates.md.
const policy = `
path "sys/mounts/pki-*" { capabilities = ["create", "read", "update", "delete"] }
path "pki-*"            { capabilities = ["create", "read", "update"] }
`

// shard is the label by which each test has its own operator.
const shard = "shard"

// serve runs an operator that uses this proxy to Vault, for the clusters of a shard. It logs in with its service
// account.
func (s *Server) serve(t *testing.T, of string, way *counted) {
	t.Helper()
	token := s.trustServiceAccount(t, "kvm-operator-"+of)
	theLab.Run(t, func(c *service.Config) {
		c.Selector = labels.SelectorFromSet(labels.Set{shard: of})
		c.Vault = &vault.Config{
			Address: way.URL, MountPrefix: "pki-", TTL: term,
			KubernetesRole: "kvm-operator", KubernetesMount: "kubernetes", KubernetesTokenFile: token,
		}
	})
}

// trustServiceAccount makes Vault accept a service account and returns the file with its token.
func (s *Server) trustServiceAccount(t *testing.T, name string) string {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}}
	theLab.Create(t, account)
	theLab.Create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reviews-tokens-" + name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:auth-delegator"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: account.Name}},
	})
	token := &authenticationv1.TokenRequest{}
	must(t, theLab.Client.SubResource("token").Create(t.Context(), account, token))
	rest := theLab.RESTConfig()
	logical := s.Client.Logical()
	must(t, s.Client.Sys().PutPolicy("kvm-operator", policy))
	must(t, s.Client.Sys().EnableAuth("kubernetes", "kubernetes", ""))
	for path, data := range map[string]map[string]any{
		"auth/kubernetes/config": {
			"kubernetes_host": rest.Host, "kubernetes_ca_cert": string(rest.CAData), "token_reviewer_jwt": token.Status.Token,
			"disable_local_ca_jwt": true,
		},
		"auth/kubernetes/role/kvm-operator": {
			"bound_service_account_names": account.Name, "bound_service_account_namespaces": account.Namespace,
			"policies": "kvm-operator", "ttl": time.Hour.String(),
		},
	} {
		_, err := logical.Write(path, data)
		must(t, err)
	}
	return file(t, token.Status.Token)
}
