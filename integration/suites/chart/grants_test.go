package chart_test

import (
	"context"
	"fmt"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/integration/harness/grants"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// grant is the smallest part of a role.
type grant = grants.Grant

// grants returns what the installed roles allow the operator.
func (i installation) grants(t *testing.T) []grant {
	t.Helper()
	everywhere := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: release}}
	here := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: operators, Name: release + "-leader-election"}}
	i.Get(t, everywhere)
	i.Get(t, here)
	all := grantsOf(append(everywhere.Rules, here.Rules...))
	if len(all) < 50 {
		t.Fatalf("the test sees the grants %v only", all)
	}
	return all
}

// grantsOf splits rules into their smallest parts.
func grantsOf(rules []rbacv1.PolicyRule) []grant { return grants.Of(rules) }

// ofMachines are the grants that are only used when machines run: integration/suites/living and integration/suites/e2e
// use them.
var ofMachines = map[grant]bool{
	{Verb: "patch", Group: "", Resource: "pods/status"}: true, {Verb: "get", Group: "", Resource: "pods/log"}: true, {Verb: "patch", Group: "events.k8s.io", Resource: "events"}: true,
	{Verb: "get", Group: "", Resource: "pods/exec"}: true, {Verb: "create", Group: "", Resource: "pods/exec"}: true, {Verb: "get", Group: "", Resource: "pods"}: true, {Verb: "delete", Group: "", Resource: "pods"}: true,
	{Verb: "get", Group: "provider.giantswarm.io", Resource: "kvmconfigs"}: true,
}

// everyGrantIsUsed checks that a user used every grant but those that other tests use, and no request of it was rejected.
func (i installation) everyGrantIsUsed(t *testing.T, user string, all []grant, elsewhere map[grant]bool) {
	t.Helper()
	grants.ExpectUse(t, i.Cluster, user, all, elsewhere)
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
	for _, g := range append(i.grants(t), grant{Verb: "*", Group: "*", Resource: "*"}, grant{Verb: "get", Group: "", Resource: "secrets"}, grant{Verb: "list", Group: "", Resource: "nodes"}) {
		allowed, err := i.allowed(key.Namespace(id), id, g)
		if err != nil || allowed {
			t.Errorf("node pods may %s: %t (%v)", g, allowed, err)
		}
	}
}

// allowed reports whether a service account has a permission in its own namespace.
func (i installation) allowed(namespace, account string, g grant) (bool, error) {
	return grants.Allowed(context.Background(), i.Client, namespace, account, g)
}
