package pki_test

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki/pkitest"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
)

// problemOf returns err as a problem, or the zero problem if err is nil.
func problemOf(t *testing.T, err error) problem.Problem {
	t.Helper()
	if err == nil {
		return problem.Problem{}
	}
	problem, ok := problem.As(err)
	if !ok {
		t.Fatalf("err = %v, want a problem", err)
	}
	return *problem
}

// common lists the names of the pairs that are identical in a and b.
func common(a, b pki.Set) []string {
	var same []string
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if cmp.Equal(a[name], b[name]) {
			same = append(same, name)
		}
	}
	return same
}

// TestCompleteMakesWhatIsMissingAndKeepsWhatExists checks this for CAs in particular.
func TestCompleteMakesWhatIsMissingAndKeepsWhatExists(t *testing.T) {
	whole := issued(t)
	all := slices.Sorted(maps.Keys(whole))
	for name, test := range map[string]struct {
		existing pki.Set
		kept     []string
	}{
		"nothing exists":               {nil, nil},
		"everything exists":            {whole, all},
		"the CAs exist":                {pki.Set{pki.CA: whole[pki.CA], pki.EtcdCA: whole[pki.EtcdCA]}, []string{pki.CA, pki.EtcdCA}},
		"a leaf is missing":            {without(whole, pki.API), slices.DeleteFunc(slices.Clone(all), func(n string) bool { return n == pki.API })},
		"a pair that is not requested": {pki.Set{"prometheus": whole[pki.API]}, nil},
		"a CA is missing":              {without(whole, pki.CA), slices.DeleteFunc(slices.Clone(all), func(n string) bool { return n == pki.CA })},
		"a leaf without its CA":        {pki.Set{pki.API: whole[pki.API]}, []string{pki.API}},
		"a CA that has expired":        {pki.Set{pki.CA: expiredCA(t)}, []string{pki.CA}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := complete(test.existing, now)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([][]string{all, test.kept}, [][]string{slices.Sorted(maps.Keys(got.Set)), common(got.Set, test.existing)}, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("what there is and what of it was kept (-want +got):\n%s", diff)
			}
		})
	}
}

func without(set pki.Set, name string) pki.Set {
	rest := maps.Clone(set)
	delete(rest, name)
	return rest
}

// expiredCA returns an expired CA.
func expiredCA(t *testing.T) pki.KeyPair {
	t.Helper()
	past := pki.Embedded{Clock: clocktesting.NewFakePassiveClock(now.AddDate(-20, 0, 0))}
	pair, err := past.Issue(requests()[0], pki.KeyPair{})
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// TestCertificatesEndWithTheirCA: a certificate that outlives its CA is useless and hides when renewal is due.
func TestCertificatesEndWithTheirCA(t *testing.T) {
	old := pki.Embedded{Clock: clocktesting.NewFakePassiveClock(now.Add(-87600*time.Hour + 48*time.Hour))}
	authority, err := old.Issue(requests()[0], pki.KeyPair{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := complete(pki.Set{pki.CA: authority}, now)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(now.Add(48*time.Hour), parse(t, got.Set[pki.API].Certificate).NotAfter); diff != "" {
		t.Errorf("another end (-want +got):\n%s", diff)
	}
}

// TestCAsThatCannotSign: adopted CAs come without their key. The pairs that they would have to sign are reported; all
// others are issued.
func TestCAsThatCannotSign(t *testing.T) {
	whole := issued(t)
	for name, test := range map[string]struct {
		corrupt func(*pki.KeyPair)
		want    problem.Problem
	}{
		"without key": {
			func(p *pki.KeyPair) { p.Key = nil },
			problem.Problem{Reason: "CAMalformed", Message: `front-proxy-client cannot be issued: CA "front-proxy-ca" has no private key, so it cannot sign certificates`},
		},
		"with a key of another kind": {
			func(p *pki.KeyPair) {
				p.Key = []byte("-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n")
			},
			problem.Problem{Reason: "CAMalformed", Message: `front-proxy-client cannot be issued: the private key of CA "front-proxy-ca" is not an EC key`},
		},
		"with another thing than a certificate": {
			func(p *pki.KeyPair) { p.Certificate = p.Key },
			problem.Problem{Reason: "CAMalformed", Message: `front-proxy-client cannot be issued: the certificate of CA "front-proxy-ca": it is not a PEM certificate`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pair := whole[pki.FrontProxyCA]
			test.corrupt(&pair)
			got, err := complete(pki.Set{pki.FrontProxyCA: pair}, now)
			if diff := cmp.Diff(test.want, problemOf(t, err)); diff != "" {
				t.Errorf("another problem (-want +got):\n%s", diff)
			}
			want := slices.Sorted(maps.Keys(without(whole, pki.FrontProxyClient)))
			if diff := cmp.Diff(want, slices.Sorted(maps.Keys(got.Set))); diff != "" {
				t.Errorf("other pairs were made (-want +got):\n%s", diff)
			}
		})
	}
}

// fails is an issuer that fails once it has issued the given number of pairs.
type fails struct {
	pki.Issuer
	after int
}

func (f *fails) Issue(request pki.Request, authority pki.KeyPair) (pki.KeyPair, error) {
	if f.after--; f.after < 0 {
		return pki.KeyPair{}, errRefused
	}
	return f.Issuer.Issue(request, authority)
}

// TestIssuerThatFailsInTheMiddle fails the issuer after each possible number of pairs: the pairs issued so far belong
// to their CAs, and the others are reported. Once the issuer works again, the missing pairs are issued and the first
// ones are kept.
func TestIssuerThatFailsInTheMiddle(t *testing.T) {
	issuer := pki.Embedded{Clock: clocktesting.NewFakePassiveClock(now)}
	for made := range requests() {
		first, err := pkitest.Complete(nil, requests(), &fails{issuer, made}, now, nil)
		if !errors.Is(err, errRefused) || len(first.Set) != made {
			t.Fatalf("after %d pairs there are %d, err = %v", made, len(first.Set), err)
		}
		for _, request := range requests() {
			if _, there := first.Set[request.Name]; there && request.Authority != "" {
				if _, there := first.Set[request.Authority]; !there {
					t.Errorf("after %d pairs there is %s and not its CA %s", made, request.Name, request.Authority)
				}
			}
		}
		second, err := pkitest.Complete(first.Set, requests(), issuer, now, nil)
		if err != nil || len(second.Set) != len(requests()) {
			t.Fatalf("%d of %d pairs, err = %v", len(second.Set), len(requests()), err)
		}
		if diff := cmp.Diff(slices.Sorted(maps.Keys(first.Set)), common(first.Set, second.Set)); diff != "" {
			t.Errorf("after %d pairs, these did not stay (-want +got):\n%s", made, diff)
		}
	}
}

// TestAdoptedCertificatesAreTrusted: a peer that trusts the cluster's trust bundle afterwards accepts the adopted pairs
// that bring their own CA, and otherwise trusts only what it did before.
func TestAdoptedCertificatesAreTrusted(t *testing.T) {
	foreign := issued(t)
	completed, err := complete(pki.Set{pki.API: foreign[pki.API], pki.Worker: foreign[pki.Worker]}, now)
	if err != nil {
		t.Fatal(err)
	}
	set := completed.Set
	before := maps.Clone(set)
	trusting := pki.Trust(set, requests())
	for name, test := range map[string]struct {
		bundle, certificate []byte
		want                bool
	}{
		"untrusted before":            {set[pki.CA].CA, foreign[pki.API].Certificate, false},
		"the adopted pair":            {trusting[pki.CA].CA, foreign[pki.API].Certificate, true},
		"the cluster's own":           {trusting[pki.CA].CA, set[pki.Scheduler].Certificate, true},
		"etcd still trusts its own":   {trusting[pki.EtcdCA].CA, set[pki.EtcdClient].Certificate, true},
		"etcd does not trust the API": {trusting[pki.EtcdCA].CA, foreign[pki.API].Certificate, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := accepted(t, test.bundle, test.certificate, x509.ExtKeyUsageAny, ""); got != test.want {
				t.Errorf("accepted: %t, want %t", got, test.want)
			}
		})
	}
	if n := bytes.Count(trusting[pki.CA].CA, []byte("BEGIN CERTIFICATE")); n != 2 {
		t.Errorf("the bundle has %d CAs, want each of 2 once", n)
	}
	if diff := cmp.Diff(before, set); diff != "" {
		t.Errorf("the set passed in was changed (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(issuedTrust(t)); diff != "" {
		t.Errorf("a set without adopted pairs changes (-set +trusting):\n%s", diff)
	}
}

func issuedTrust(t *testing.T) (before, after pki.Set) {
	t.Helper()
	set := issued(t)
	return set, pki.Trust(set, requests())
}

func TestRandomKeys(t *testing.T) {
	token := regexp.MustCompile(`^[a-z2-7]{6}\.[a-z2-7]{16}$`)
	seen := map[string]bool{}
	for range 50 {
		encryption, err1 := pki.NewRandomKey("encryption")
		bootstrap, err2 := pki.NewRandomKey("bootstrap-token")
		raw, err3 := base64.StdEncoding.DecodeString(encryption)
		if err1 != nil || err2 != nil || err3 != nil || len(raw) != 32 || !token.MatchString(bootstrap) {
			t.Fatalf("encryption %q (%d bytes), bootstrap token %q, errors %v %v %v", encryption, len(raw), bootstrap, err1, err2, err3)
		}
		if seen[encryption] || seen[bootstrap] {
			t.Fatal("a key came twice")
		}
		seen[encryption], seen[bootstrap] = true, true
	}
}

// TestPlaceholdersSayWhatWouldStandThere checks that placeholders are deterministic, so that rendered output can be
// compared.
func TestPlaceholdersSayWhatWouldStandThere(t *testing.T) {
	completed, err := pkitest.Complete(nil, requests(), pki.Placeholder{}, time.Time{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	set := completed.Set
	text := func(pair pki.KeyPair) [3]string {
		return [3]string{string(pair.CA), string(pair.Certificate), string(pair.Key)}
	}
	encryption, token := pki.PlaceholderKey("encryption"), pki.PlaceholderKey("bootstrap-token")
	want := [3][3]string{
		{"<certificate ca>\n", "<certificate ca>\n", "<private key ca>\n"},
		{"<certificate ca>\n", "<certificate api>\n", "<private key api>\n"},
		{"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", "000000.0000000000000000", ""},
	}
	if diff := cmp.Diff(want, [3][3]string{text(set[pki.CA]), text(set[pki.API]), {encryption, token, ""}}); diff != "" {
		t.Errorf("other placeholders (-want +got):\n%s", diff)
	}
}

// TestNoCertificateReplacesACA covers a master with the id "ca" that no API server has rejected.
func TestNoCertificateReplacesACA(t *testing.T) {
	requests := []pki.Request{
		{Name: pki.EtcdCA, CommonName: "etcd", Usage: pki.UsageAuthority},
		{Name: pki.EtcdMember("ca"), Authority: pki.EtcdCA, CommonName: pki.EtcdMember("ca"), Usage: pki.UsageBoth},
	}
	now := time.Now()
	issuer := pki.Embedded{Clock: clocktesting.NewFakePassiveClock(now)}
	first, err := pkitest.Complete(nil, requests, issuer, now, nil)
	if err == nil || !strings.Contains(err.Error(), "a CA has this name") {
		t.Errorf("err = %v", err)
	}
	second, err := pkitest.Complete(first.Set, requests, issuer, now, nil)
	if diff := cmp.Diff(first.Set, second.Set); diff != "" || err == nil || len(second.Renewed) > 0 {
		t.Errorf("err = %v, renewed %v, other pairs (-first +second):\n%s", err, second.Renewed, diff)
	}
}
