// Package grants compares the roles of a service account with the requests that it made.
package grants

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
)

// Grant is the smallest part of a role: one verb on one resource, for objects of one name if it is set.
type Grant struct{ Verb, Group, Resource, Name string }

func (g Grant) String() string {
	return fmt.Sprintf("%s %s.%s %s", g.Verb, g.Resource, g.Group, g.Name)
}

// Of splits rules into their smallest parts.
func Of(rules []rbacv1.PolicyRule) []Grant {
	var grants []Grant
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					for _, name := range namesOf(rule) {
						grants = append(grants, Grant{verb, group, resource, name})
					}
				}
			}
		}
	}
	return grants
}

// namesOf returns the names of objects in a rule. An empty name means all of them.
func namesOf(rule rbacv1.PolicyRule) []string {
	if len(rule.ResourceNames) == 0 {
		return []string{""}
	}
	return rule.ResourceNames
}

// ExpectUse checks that a user used every grant but those that other tests use, and no request of it was rejected. A
// permission to bind is checked in the request that creates the binding and in no request of its own.
func ExpectUse(t *testing.T, mc *managementcluster.Cluster, user string, grants []Grant, elsewhere map[Grant]bool) {
	t.Helper()
	requests, err := mc.Requests(func(r managementcluster.Request) bool { return r.User == user })
	if err != nil {
		t.Fatal(err)
	}
	used := map[Grant]bool{}
	for _, r := range requests {
		if r.Code == http.StatusForbidden || r.Code == http.StatusUnauthorized {
			t.Errorf("refused: %s", r)
			continue
		}
		resource := strings.TrimSuffix(r.Resource+"/"+r.Subresource, "/")
		used[Grant{r.Verb, r.Group, resource, ""}] = true
		used[Grant{r.Verb, r.Group, resource, r.Name}] = true
	}
	for _, g := range grants {
		if g.Verb != "bind" && !used[g] && !elsewhere[g] {
			t.Errorf("not used: %s", g)
		}
	}
	t.Logf("%d requests use %d grants", len(requests), len(grants))
}

// Allowed reports whether a service account has a permission in its own namespace. It needs a client whose scheme has
// authorization.k8s.io.
func Allowed(ctx context.Context, c client.Client, namespace, account string, g Grant) (bool, error) {
	resource, subresource, _ := strings.Cut(g.Resource, "/")
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:   User(namespace, account),
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: g.Verb, Group: g.Group, Resource: resource, Subresource: subresource, Name: g.Name,
		},
	}}
	err := c.Create(ctx, review)
	return review.Status.Allowed, err
}

// User returns the name of a service account as a user of the API server.
func User(namespace, account string) string {
	return "system:serviceaccount:" + namespace + ":" + account
}

// Kubeconfig writes a kubeconfig with a token.
func Kubeconfig(t *testing.T, mc *managementcluster.Cluster, token string) string {
	t.Helper()
	const name = "mc"
	admin := mc.RESTConfig()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: admin.Host, CertificateAuthorityData: admin.CAData}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {Token: token}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	}, path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Identity writes a kubeconfig with a token of a service account. It needs a client whose scheme has
// authentication.k8s.io.
func Identity(t *testing.T, mc *managementcluster.Cluster, c client.Client, namespace, account string) string {
	t.Helper()
	token := &authenticationv1.TokenRequest{}
	owner := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}}
	if err := c.SubResource("token").Create(t.Context(), owner, token); err != nil {
		t.Fatal(err)
	}
	return Kubeconfig(t, mc, token.Status.Token)
}
