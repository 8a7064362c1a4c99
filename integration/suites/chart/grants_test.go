package chart_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// grant is the smallest part of a role: one verb on one resource, for objects of one name if it is set.
type grant struct{ verb, group, resource, name string }

func (g grant) String() string {
	return fmt.Sprintf("%s %s.%s %s", g.verb, g.resource, g.group, g.name)
}

// grants returns what the installed roles allow the operator.
func (i installation) grants(t *testing.T) []grant {
	t.Helper()
	everywhere := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: release}}
	here := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: operators, Name: release + "-leader-election"}}
	i.Get(t, everywhere)
	i.Get(t, here)
	grants := grantsOf(append(everywhere.Rules, here.Rules...))
	if len(grants) < 50 {
		t.Fatalf("the test sees the grants %v only", grants)
	}
	return grants
}

// grantsOf splits rules into their smallest parts.
func grantsOf(rules []rbacv1.PolicyRule) []grant {
	var grants []grant
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					for _, name := range namesOf(rule) {
						grants = append(grants, grant{verb, group, resource, name})
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

// ofMachines are the grants that are only used when machines run: integration/suites/living and integration/suites/e2e use them. The
// patch of a status is for objects that cannot be decoded: integration/suites/poison uses it.
var ofMachines = map[grant]bool{
	{"patch", "", "pods/status", ""}: true, {"get", "", "pods/log", ""}: true, {"patch", "events.k8s.io", "events", ""}: true,
	{"get", "", "pods/exec", ""}: true, {"create", "", "pods/exec", ""}: true, {"get", "", "pods", ""}: true, {"delete", "", "pods", ""}: true,
	{"get", "provider.giantswarm.io", "kvmconfigs", ""}: true, {"patch", "provider.giantswarm.io", "kvmconfigs/status", ""}: true,
}

// everyGrantIsUsed checks that a user used every grant but those that other tests use, and no request of it was rejected. A
// permission to bind is checked in the
// request that creates the binding and in no request of its own.
func (i installation) everyGrantIsUsed(t *testing.T, user string, grants []grant, elsewhere map[grant]bool) {
	t.Helper()
	requests, err := i.Requests(func(r managementcluster.Request) bool { return r.User == user })
	if err != nil {
		t.Fatal(err)
	}
	used := map[grant]bool{}
	for _, r := range requests {
		if r.Code == http.StatusForbidden || r.Code == http.StatusUnauthorized {
			t.Errorf("refused: %s", r)
			continue
		}
		resource := strings.TrimSuffix(r.Resource+"/"+r.Subresource, "/")
		used[grant{r.Verb, r.Group, resource, ""}] = true
		used[grant{r.Verb, r.Group, resource, r.Name}] = true
	}
	for _, g := range grants {
		if g.verb != "bind" && !used[g] && !elsewhere[g] {
			t.Errorf("not used: %s", g)
		}
	}
	t.Logf("%d requests use %d grants", len(requests), len(grants))
}

// hold checks that the operator has all of the permissions, or none of them.
func (i installation) hold(t *testing.T, grants []grant, all bool) {
	t.Helper()
	i.holdIn(t, operators, release, grants, all)
}

// holdIn checks the same of another service account.
func (i installation) holdIn(t *testing.T, namespace, account string, grants []grant, all bool) {
	t.Helper()
	for _, g := range grants {
		lab.Eventually(t, lab.Timeout, func() error {
			allowed, err := i.allowed(namespace, account, g)
			if err == nil && allowed != all {
				err = fmt.Errorf("%s is allowed: %t, want %t", g, allowed, all)
			}
			return err
		})
	}
}

// machinesMayDoNothing: the service account of node pods has none of the operator's permissions, and none that reveal
// other clusters.
func (i installation) machinesMayDoNothing(t *testing.T, id string) {
	t.Helper()
	for _, g := range append(i.grants(t), grant{"*", "*", "*", ""}, grant{"get", "", "secrets", ""}, grant{"list", "", "nodes", ""}) {
		allowed, err := i.allowed(key.Namespace(id), id, g)
		if err != nil || allowed {
			t.Errorf("node pods may %s: %t (%v)", g, allowed, err)
		}
	}
}

// allowed reports whether a service account has a permission in its own namespace.
func (i installation) allowed(namespace, account string, g grant) (bool, error) {
	resource, subresource, _ := strings.Cut(g.resource, "/")
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:   "system:serviceaccount:" + namespace + ":" + account,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: g.verb, Group: g.group, Resource: resource, Subresource: subresource, Name: g.name,
		},
	}}
	err := i.Client.Create(context.Background(), review)
	return review.Status.Allowed, err
}
