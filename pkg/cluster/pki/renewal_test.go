package pki_test

import (
	"bytes"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki/pkitest"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
)

const (
	year = 365 * 24 * time.Hour
	// dueAfter is when the last third of a year and an hour begins.
	dueAfter = year - (year+time.Hour)/3
	// operatorDueAfter is when the last third of 30 days and an hour begins.
	operatorDueAfter = 30*24*time.Hour - (30*24*time.Hour+time.Hour)/3
)

// leaves lists all pairs that are renewed at some point.
func leaves(set pki.Set) []string {
	names := slices.Sorted(maps.Keys(set))
	return slices.DeleteFunc(names, func(n string) bool { return n == pki.ServiceAccount || slices.Contains(pki.Authorities, n) })
}

// TestRenewal: pairs that the cluster's own CA signed are renewed when a third of their validity is left, or when they
// do not match their request. CAs, the key that signs tokens and pairs of other issuers are kept.
func TestRenewal(t *testing.T) {
	whole := issued(t)
	for name, test := range map[string]struct {
		after  time.Duration
		change func([]pki.Request)
		// renewed are the names, why is a part of the reason, and failed is a part of the message about pairs that
		// cannot be renewed.
		renewed     []string
		why, failed string
	}{
		"at once":             {after: 0},
		"just before":         {after: operatorDueAfter - time.Second},
		"the operator's":      {after: operatorDueAfter, renewed: []string{pki.Operator}, why: "a third of its term"},
		"the others after it": {after: dueAfter - time.Second, renewed: []string{pki.Operator}, why: "a third of its term"},
		"in the last third":   {after: dueAfter, renewed: leaves(whole), why: "a third of its term"},
		"after its end":       {after: 2 * year, renewed: leaves(whole), why: "a third of its term"},
		"a clock that is off": {after: -12 * time.Hour, failed: "the management cluster's clock is behind"},
		"another name": {
			change:  func(r []pki.Request) { of(r, pki.API).DNSNames = append(of(r, pki.API).DNSNames, "api.new") },
			renewed: []string{pki.API}, why: "the name api.new",
		},
		"another group": {
			change:  func(r []pki.Request) { of(r, pki.Worker).Organizations = []string{"new"} },
			renewed: []string{pki.Worker}, why: "the group new",
		},
		"another user": {
			change:  func(r []pki.Request) { of(r, pki.Scheduler).CommonName = "new" },
			renewed: []string{pki.Scheduler}, why: "the user new",
		},
		"another address": {
			change:  func(r []pki.Request) { of(r, pki.API).IPs = append(of(r, pki.API).IPs, of(r, pki.API).IPs[0].Next()) },
			renewed: []string{pki.API}, why: "the address",
		},
		"a group less": {
			change:  func(r []pki.Request) { of(r, pki.Operator).Organizations = nil },
			renewed: []string{pki.Operator}, why: "it has the group system:masters",
		},
		"a use less": {
			change:  func(r []pki.Request) { of(r, pki.EtcdMember("m0aaa")).Usage = pki.UsageServer },
			renewed: []string{pki.EtcdMember("m0aaa")}, why: "it is valid for clients",
		},
		"a shorter term": {
			change:  func(r []pki.Request) { of(r, pki.Operator).Term = 24 * time.Hour },
			renewed: []string{pki.Operator}, why: "its validity is too long",
		},
		"a name less":           {change: func(r []pki.Request) { of(r, pki.API).DNSNames = nil }},
		"what is others' stays": {after: 2 * year, change: keepAll},
	} {
		t.Run(name, func(t *testing.T) {
			asked := requests()
			if test.change != nil {
				test.change(asked)
			}
			at := now.Add(test.after)
			got, err := pkitest.Complete(whole, asked, issuerAt(at), at, nil)
			failed := ""
			if p, ok := problem.As(got.Failed); ok {
				failed = p.Error()
			}
			if err != nil || !strings.Contains(failed, test.failed) || (got.Failed != nil) != (test.failed != "") {
				t.Fatal(err, got.Failed)
			}
			if diff := cmp.Diff(test.renewed, slices.Sorted(maps.Keys(got.Renewed)), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("other pairs were renewed (-want +got):\n%s", diff)
			}
			for name, pair := range got.Set {
				why, renewed := got.Renewed[name]
				if renewed == cmp.Equal(pair, whole[name]) {
					t.Errorf("%s: renewed %t, and the pair is as before: %t", name, renewed, !renewed)
				}
				if !strings.Contains(why, test.why) && renewed {
					t.Errorf("%s is renewed for %q, want %q", name, why, test.why)
				}
			}
			if again, err := pkitest.Complete(got.Set, asked, issuerAt(at), at, nil); err != nil || len(again.Renewed) > 0 {
				t.Errorf("renewed a second time: %v, %v", again.Renewed, err)
			}
		})
	}
}

func of(requests []pki.Request, name string) *pki.Request {
	return &requests[slices.IndexFunc(requests, func(r pki.Request) bool { return r.Name == name })]
}

func keepAll(requests []pki.Request) {
	for i := range requests {
		requests[i].Keep = true
	}
}

// TestIssuerThatIsAhead: a pair that is not valid yet never replaces another.
func TestIssuerThatIsAhead(t *testing.T) {
	whole, ahead := issued(t), issuerAt(now.Add(dueAfter+2*time.Hour))
	for name, existing := range map[string]pki.Set{"of a new cluster": {}, "of one that has to be renewed": whole} {
		at := now
		if len(existing) > 0 {
			at = now.Add(dueAfter)
		}
		got, err := pkitest.Complete(existing, requests(), ahead, at, nil)
		p, told := problem.As(errors.Join(err, got.Failed))
		if !told || p.Reason != "ClockSkew" || !strings.Contains(p.Message, "the issuer's clock") || len(got.Renewed) > 0 {
			t.Errorf("%s: %v, %v; renewed: %v", name, err, got.Failed, got.Renewed)
		}
	}
}

// TestNextRenewal: there is something to renew at the announced time, and nothing before it.
func TestNextRenewal(t *testing.T) {
	got, err := complete(nil, now)
	if err != nil {
		t.Fatal(err)
	}
	if want := now.Add(operatorDueAfter); got.Next.Sub(want).Abs() > time.Second {
		t.Errorf("the next is due at %s, want %s", got.Next, want)
	}
	before, err1 := complete(got.Set, got.Next.Add(-time.Second))
	then, err2 := complete(got.Set, got.Next)
	if len(before.Renewed) > 0 || len(then.Renewed) == 0 || err1 != nil || err2 != nil {
		t.Errorf("before: %v, then: %v; errors %v %v", before.Renewed, then.Renewed, err1, err2)
	}
}

// TestRenewalThatWouldNotHelp: a CA that is about to expire cannot issue certificates that last longer, so none is
// reissued over and over.
func TestRenewalThatWouldNotHelp(t *testing.T) {
	whole := issued(t)
	end := parse(t, whole[pki.CA].Certificate).NotAfter
	for name, at := range map[string]time.Time{"near the end": end.Add(-year / 2), "at the end": end.Add(-time.Hour), "after it": end.Add(year)} {
		t.Run(name, func(t *testing.T) {
			first, err1 := complete(whole, at)
			second, err2 := complete(first.Set, at.Add(time.Minute))
			if len(second.Renewed) > 0 || err1 != nil || err2 != nil {
				t.Errorf("renewed over and over: %v; errors %v %v", second.Renewed, err1, err2)
			}
		})
	}
}

// refuses fails every request.
type refuses struct{}

var errRefused = errors.New("refused")

func (refuses) Issue(pki.Request, pki.KeyPair) (pki.KeyPair, error) { return pki.KeyPair{}, errRefused }

// TestNoRenewalWhileTheTimeIsInDoubt: pairs that do not match their request and missing pairs are still issued.
func TestNoRenewalWhileTheTimeIsInDoubt(t *testing.T) {
	whole, at := issued(t), now.Add(2*year)
	errDoubt := errors.New("it is not known what time it is")
	got, err := pkitest.Complete(whole, requests(), issuerAt(at), at, errDoubt)
	if diff := cmp.Diff(whole, got.Set); diff != "" || err != nil || len(got.Renewed) > 0 || !errors.Is(got.Failed, errDoubt) {
		t.Errorf("err = %v, failed %v, renewed %v, pairs (-before +after):\n%s", err, got.Failed, got.Renewed, diff)
	}
	asked := requests()
	of(asked, pki.API).DNSNames = append(of(asked, pki.API).DNSNames, "api.new")
	got, err = pkitest.Complete(without(whole, pki.Worker), asked, issuerAt(at), at, errDoubt)
	if len(got.Renewed) != 1 || got.Renewed[pki.API] == "" || len(got.Set[pki.Worker].Certificate) == 0 || err != nil {
		t.Errorf("err = %v, renewed %v, want %s alone and a new pair %s", err, got.Renewed, pki.API, pki.Worker)
	}
}

// TestRenewalThatFails leaves every pair as it is and names it, while pairs that do not exist are a separate error.
func TestRenewalThatFails(t *testing.T) {
	whole := issued(t)
	got, err := pkitest.Complete(whole, requests(), refuses{}, now.Add(dueAfter), nil)
	if diff := cmp.Diff(whole, got.Set); diff != "" || err != nil || len(got.Renewed) > 0 {
		t.Errorf("err = %v, renewed %v, pairs (-before +after):\n%s", err, got.Renewed, diff)
	}
	if !errors.Is(got.Failed, errRefused) || !strings.HasPrefix(got.Failed.Error(), "api, ") || !strings.HasSuffix(got.Failed.Error(), " cannot be renewed and stays in use: refused") {
		t.Errorf("it failed with: %v", got.Failed)
	}
	_, err = pkitest.Complete(without(whole, pki.API), requests(), refuses{}, now, nil)
	if !errors.Is(err, errRefused) {
		t.Errorf("err = %v, want that the missing pair could not be issued", err)
	}
}

// machine is the certificates that one machine was started with.
type machine struct {
	trusts []byte
	shows  []byte
}

func machineOf(set pki.Set) machine {
	return machine{trusts: pki.Trust(set, requests())[pki.CA].CA, shows: set[pki.API].Certificate}
}

func (m machine) accepts(t *testing.T, other machine) bool {
	t.Helper()
	return accepted(t, m.trusts, other.shows, x509.ExtKeyUsageServerAuth, "")
}

// TestMachinesTrustEachOtherDuringARotation: in every phase, a machine that was started in it and one that was started
// in the phase before trust each other. In the end, no machine trusts the old CA.
func TestMachinesTrustEachOtherDuringARotation(t *testing.T) {
	set := issued(t)
	old := set[pki.CA].Certificate
	before := machineOf(set)
	for _, want := range []pki.Phase{pki.Prepared, pki.Switched, pki.Stable} {
		next := maps.Clone(set)
		pair, err := pki.Advance(set[pki.CA], func() (pki.KeyPair, error) { return pki.Successor(pki.CA, requests(), issuer()) })
		if err != nil {
			t.Fatal(err)
		}
		next[pki.CA] = pair
		got, err := complete(next, now)
		if err != nil || pki.PhaseOf(pair) != want {
			t.Fatalf("phase %d, want %d; err %v", pki.PhaseOf(pair), want, err)
		}
		after := machineOf(got.Set)
		if !before.accepts(t, after) || !after.accepts(t, before) {
			t.Errorf("in phase %d a machine does not trust one of the phase before, or the other way round", want)
		}
		if again, err := complete(got.Set, now); err != nil || len(again.Renewed) > 0 {
			t.Errorf("in phase %d pairs are renewed over and over: %v, %v", want, again.Renewed, err)
		}
		set, before = got.Set, after
	}
	if bytes.Contains(before.trusts, bytes.TrimSpace(old)) {
		t.Error("the predecessor is trusted after the end")
	}
	for _, name := range leaves(set) {
		if bytes.Contains(set[name].CA, bytes.TrimSpace(old)) {
			t.Errorf("the trust bundle of %s still has the predecessor", name)
		}
	}
}

// TestIntermediateCA: peers that trust only the root accept what an intermediate CA signs, because a leaf brings both
// certificates. Nothing is rewritten over and over.
func TestIntermediateCA(t *testing.T) {
	top, err := issuer().Issue(pki.Request{Name: "top", CommonName: "top", Usage: pki.UsageAuthority}, pki.KeyPair{})
	if err != nil {
		t.Fatal(err)
	}
	intermediate := intermediateOf(t, top)
	got, err := complete(pki.Set{pki.CA: intermediate}, now)
	if err != nil {
		t.Fatal(err)
	}
	trusting := pki.Trust(got.Set, requests())
	if !accepted(t, trusting[pki.CA].CA, got.Set[pki.API].Certificate, x509.ExtKeyUsageServerAuth, "") {
		t.Error("guests do not trust what the intermediate CA has signed")
	}
	if n := bytes.Count(trusting[pki.CA].CA, []byte("BEGIN CERTIFICATE")); n != 2 {
		t.Errorf("the bundle has %d CAs, want each of 2 once", n)
	}
	if again, err := complete(got.Set, now); err != nil || len(again.Renewed) > 0 {
		t.Errorf("written again: %v, err %v", again.Renewed, err)
	}
}

// intermediateOf returns an intermediate CA that another CA signed and whose CA field names only that one.
func intermediateOf(t *testing.T, top pki.KeyPair) pki.KeyPair {
	t.Helper()
	pair, err := issuer().Issue(*of(requests(), pki.CA), pki.KeyPair{})
	if err != nil {
		t.Fatal(err)
	}
	signer, template := parse(t, top.Certificate), parse(t, pair.Certificate)
	block, _ := pem.Decode(top.Key)
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer, template.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	pair.CA, pair.Certificate = top.Certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return pair
}

// TestChangedTrustBundlesKeepTheirKeys: while a CA has a successor that does not sign yet, and after its predecessor
// was dropped, pairs keep their certificate and key: nothing has to be signed.
func TestChangedTrustBundlesKeepTheirKeys(t *testing.T) {
	set := issued(t)
	for range 3 {
		pair, err := pki.Advance(set[pki.CA], func() (pki.KeyPair, error) { return pki.Successor(pki.CA, requests(), issuer()) })
		if err != nil {
			t.Fatal(err)
		}
		next := maps.Clone(set)
		next[pki.CA] = pair
		signs := pki.PhaseOf(pair) == pki.Switched
		var by pki.Issuer = refuses{}
		if signs {
			by = issuer()
		}
		got, err := pkitest.Complete(next, requests(), by, now, nil)
		if err != nil || got.Failed != nil || len(got.Renewed) == 0 {
			t.Fatalf("phase %d: renewed %v, failed %v, err %v", pki.PhaseOf(pair), got.Renewed, got.Failed, err)
		}
		if kept := bytes.Equal(set[pki.API].Key, got.Set[pki.API].Key); kept == signs {
			t.Errorf("phase %d: the key is the one of before: %t", pki.PhaseOf(pair), kept)
		}
		set = got.Set
	}
}

// TestCAThatWasLost: if the CA was lost and issued again, nothing that the old one signed is renewed at once, because
// running machines do not trust the new one yet.
func TestCAThatWasLost(t *testing.T) {
	whole := issued(t)
	got, err := complete(without(whole, pki.CA), now)
	if err != nil || len(got.Renewed) > 0 {
		t.Fatalf("renewed: %v, err %v", got.Renewed, err)
	}
	before, after := machineOf(whole), machineOf(got.Set)
	if !before.accepts(t, after) || !after.accepts(t, before) {
		t.Error("machines do not trust each other")
	}
}
