package certificaterenewal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki/pkitest"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/chain"
)

var (
	now       = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	errSealed = errors.New("the issuer is sealed")
)

// written records the Secrets that are written, as "name@version".
type written []string

func (w *written) Apply(_ context.Context, set apply.Set) error {
	for _, object := range set.Objects {
		*w = append(*w, fmt.Sprintf("%s@%s", object.GetName(), object.GetResourceVersion()))
	}
	return nil
}

// sealed is an issuer that issues nothing but certificates of one name.
type sealed struct {
	pki.Issuer
	but string
}

func (s sealed) Issue(request pki.Request, authority pki.KeyPair) (pki.KeyPair, error) {
	if request.Name != s.but {
		return pki.KeyPair{}, errSealed
	}
	return s.Issuer.Issue(request, authority)
}

// TestRenewal: what is due is replaced unless it has changed since it was read, and the pass is repeated before boot
// data is made of it. What cannot be renewed is reported once nothing else is due, because an error would leave the
// others with old pairs.
func TestRenewal(t *testing.T) {
	issuer := pki.Embedded{Clock: clocktesting.NewFakePassiveClock(now)}
	for name, test := range map[string]struct {
		lacking []string
		issuer  pki.Issuer
		want    []string
		outcome chain.State
		message string
	}{
		"nothing is due":            {issuer: sealed{}, outcome: chain.StateDone},
		"two are due":               {lacking: []string{pki.API, pki.Etcd}, issuer: issuer, want: []string{"ab1cd-api@7", "ab1cd-etcd@7"}, outcome: chain.StateAgain},
		"one of two can be renewed": {lacking: []string{pki.API, pki.Etcd}, issuer: sealed{issuer, pki.Etcd}, want: []string{"ab1cd-etcd@7"}, outcome: chain.StateAgain},
		"none can be renewed":       {lacking: []string{pki.API}, issuer: sealed{}, message: "api cannot be renewed and stays in use: the issuer is sealed"},
	} {
		t.Run(name, func(t *testing.T) {
			config := fixture.MakeCluster("ab1cd").Obj()
			requests := state.CertificateRequests(config, state.Settings{ClusterDomain: "mc.local"})
			complete, err := pkitest.Complete(nil, requests, issuer, now, nil)
			if err != nil {
				t.Fatal(err)
			}
			versions := map[string]string{}
			for i, r := range requests {
				versions[r.Name] = "7"
				if slices.Contains(test.lacking, r.Name) {
					requests[i].DNSNames = append(slices.Clone(r.DNSNames), "new.example.org")
				}
			}
			s := &state.Cluster{Config: config, Certificates: complete.Set, Now: now}
			s.Validity = state.Validity{Requests: requests, Versions: versions, Renewals: pki.RenewalsOf(complete.Set, requests, now)}
			var w written
			outcome, err := New(&w, test.issuer).EnsureCreated(t.Context(), s)
			if diff := cmp.Diff(test.want, []string(w)); diff != "" {
				t.Errorf("other Secrets are written (-want +got):\n%s", diff)
			}
			if outcome.State != test.outcome || (err != nil) != (test.message != "") || err != nil && !strings.Contains(err.Error(), test.message) {
				t.Errorf("the outcome is %+v, %v; want state %d, %q", outcome, err, test.outcome, test.message)
			}
		})
	}
}
