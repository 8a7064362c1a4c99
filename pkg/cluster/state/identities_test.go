package state_test

import (
	"bytes"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/addons"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki/pkitest"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// pairs returns the key pairs of a cluster, and the pair "api" of earlier versions and of the original, which is a
// client's pair too.
func pairs(t *testing.T) (set pki.Set, both pki.KeyPair) {
	t.Helper()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	issuer := pki.Embedded{Clock: clocktesting.NewFakePassiveClock(now)}
	requests := state.CertificateRequests(fixture.MakeCluster("ab1cd").Obj(), state.Settings{})
	complete, err := pkitest.Complete(nil, requests, issuer, now, nil)
	if err != nil {
		t.Fatal(err)
	}
	both, err = issuer.Issue(pki.Request{
		Name: pki.API, Authority: pki.CA, CommonName: "api.x", Organizations: []string{"api", pki.Masters}, Usage: pki.UsageBoth,
	}, complete.Set[pki.CA])
	if err != nil {
		t.Fatal(err)
	}
	return complete.Set, both
}

// TestHowTheOperatorIntroducesItself: an upgrade does not lock the operator out, because the existing pair stays in use
// until the operator's own is stored, and one that the original's masters trust stays in use as long as it exists.
func TestHowTheOperatorIntroducesItself(t *testing.T) {
	set, both := pairs(t)
	for name, test := range map[string]struct {
		api, operator *pki.KeyPair
		adopted       bool
		want          []byte
	}{
		"nothing is stored":                      {},
		"its own is not stored yet, api is new":  {api: ptr(set[pki.API])},
		"its own is stored, api is not":          {operator: ptr(set[pki.Operator])},
		"both are stored":                        {api: ptr(set[pki.API]), operator: ptr(set[pki.Operator]), want: set[pki.Operator].Certificate},
		"an upgrade begins":                      {api: &both, want: both.Certificate},
		"an upgrade, before api is another one":  {api: &both, operator: ptr(set[pki.Operator]), want: set[pki.Operator].Certificate},
		"the original's":                         {api: &both, adopted: true, want: both.Certificate},
		"the original's, and its own is stored":  {api: &both, operator: ptr(set[pki.Operator]), adopted: true, want: both.Certificate},
		"the user's that serves, and its own":    {api: ptr(set[pki.API]), operator: ptr(set[pki.Operator]), adopted: true, want: set[pki.Operator].Certificate},
		"the user's that serves, its own is not": {api: ptr(set[pki.API]), adopted: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &state.Cluster{Certificates: pki.Set{}, Adopted: map[string]bool{pki.API: test.adopted}}
			for name, pair := range map[string]*pki.KeyPair{pki.API: test.api, pki.Operator: test.operator} {
				if pair != nil {
					s.Certificates[name] = *pair
				}
			}
			pair, ok := s.OperatorPair()
			if ok != (test.want != nil) || !bytes.Equal(pair.Certificate, test.want) {
				t.Errorf("found %t, another pair:\n%s", ok, pair.Certificate)
			}
			if ok && !pki.Administers(pair) {
				t.Error("it is no administrator's")
			}
		})
	}
}

func ptr(pair pki.KeyPair) *pki.KeyPair { return &pair }

// TestNoKeyOfAMachineIsAnAdministrators: no key in boot data gives all rights.
func TestNoKeyOfAMachineIsAnAdministrators(t *testing.T) {
	set, both := pairs(t)
	if !pki.Administers(both) || !pki.Administers(set[pki.Operator]) {
		t.Fatal("the test does not know an administrator")
	}
	for name, pair := range set {
		if name != pki.Operator && pki.Administers(pair) {
			t.Errorf("%s is of the group %s", name, pki.Masters)
		}
	}
}

// TestGroupOfAdministrators: another generation is another group, whatever its text, and if the operator creates no
// bindings it is a group that needs none.
func TestGroupOfAdministrators(t *testing.T) {
	config := fixture.MakeCluster("ab1cd").Obj()
	group := func(generation string) string {
		config.Annotations = map[string]string{key.AnnotationAdministratorsGeneration: generation}
		return state.Administrators(config, state.Settings{})
	}
	one, other, long := group("1"), group("2"), group(string(bytes.Repeat([]byte("x\n"), 1000)))
	if group("") != addons.Administrators || one == other || one == addons.Administrators || len(long) > 64 || len(long) != len(one) {
		t.Errorf("the groups are %q, %q and %q", one, other, long)
	}
	if got := state.Administrators(config, state.Settings{MachinesOnly: true}); got != pki.Masters {
		t.Errorf("without connections the group is %q", got)
	}
}
