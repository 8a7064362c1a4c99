package pki_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/pem"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki/pkitest"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// requests are the requests of a cluster "ab1cd" with two masters on a management cluster with the DNS domain
// "mc.local".
func requests() []pki.Request {
	return pki.Requests(fixture.MakeCluster("ab1cd").Masters(2).Obj().Spec.Cluster, "mc.local")
}

func issuer() pki.Embedded { return issuerAt(now) }

func issuerAt(at time.Time) pki.Embedded {
	return pki.Embedded{Clock: clocktesting.NewFakePassiveClock(at)}
}

// issued returns all pairs of the cluster, newly issued.
func issued(t *testing.T) pki.Set {
	t.Helper()
	got, err := complete(nil, now)
	if err != nil {
		t.Fatal(err)
	}
	return got.Set
}

// complete completes pairs at the given time.
func complete(existing pki.Set, at time.Time) (pkitest.Completed, error) {
	return pkitest.Complete(existing, requests(), issuerAt(at), at, nil)
}

func parse(t *testing.T, text []byte) *x509.Certificate {
	t.Helper()
	cert, err := pki.ParseCertificate(text)
	if err != nil {
		t.Fatalf("%s\n%s", err, text)
	}
	return cert
}

// contract is what a certificate states about its holder.
type contract struct {
	CommonName    string
	Organizations []string
	DNSNames      []string
	IPs           []string
	Usages        []x509.ExtKeyUsage
	Authority     bool
}

func contractOf(cert *x509.Certificate) contract {
	c := contract{
		CommonName: cert.Subject.CommonName, Organizations: cert.Subject.Organization, DNSNames: cert.DNSNames,
		Usages: cert.ExtKeyUsage, Authority: cert.IsCA,
	}
	for _, ip := range cert.IPAddresses {
		c.IPs = append(c.IPs, ip.String())
	}
	return c
}

// TestContract checks names, common names, organizations and alternative names against those of the original's
// cert-operator, and those that today's control plane needs in addition.
func TestContract(t *testing.T) {
	const base = "ab1cd.k8s.example.org"
	client, both := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	local := []string{"127.0.0.1", "::1"}
	member := func(id string) contract {
		return contract{
			CommonName: "etcd-" + id, IPs: local, Usages: both,
			DNSNames: []string{
				"master-" + id + ".ab1cd.svc.mc.local", "master-" + id + ".ab1cd.svc", "master.ab1cd.svc.mc.local", "master.ab1cd.svc",
				"etcd." + base, "localhost",
			},
		}
	}
	want := map[string]contract{
		"ca":             {CommonName: "kubernetes-ab1cd", Authority: true},
		"etcd-ca":        {CommonName: "etcd-ab1cd", Authority: true},
		"front-proxy-ca": {CommonName: "front-proxy-ab1cd", Authority: true},
		"api": {
			CommonName: "api." + base, Organizations: []string{"api"}, Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, IPs: append([]string{"172.31.0.1"}, local...),
			DNSNames: []string{
				"api." + base, "internal-api." + base,
				"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
				"master.ab1cd", "master.ab1cd.svc", "master.ab1cd.svc.mc.local", "localhost",
			},
		},
		"etcd": {
			CommonName: "etcd." + base, Organizations: []string{"etcd"}, Usages: both, IPs: local,
			DNSNames: []string{"etcd." + base, "localhost"},
		},
		"worker":                   {CommonName: "worker." + base, Organizations: []string{"worker"}, Usages: client},
		"service-account":          {CommonName: "service-account." + base, Organizations: []string{"service-account"}, Usages: client},
		"apiserver-kubelet-client": {CommonName: "kube-apiserver-kubelet-client", Usages: client},
		"apiserver-etcd-client":    {CommonName: "kube-apiserver-etcd-client", Usages: client},
		"controller-manager":       {CommonName: "system:kube-controller-manager", Usages: client},
		"scheduler":                {CommonName: "system:kube-scheduler", Usages: client},
		"operator":                 {CommonName: "kvm-operator", Organizations: []string{"system:masters"}, Usages: client},
		"front-proxy-client":       {CommonName: "front-proxy-client", Usages: client},
		"etcd-m0aaa":               member("m0aaa"),
		"etcd-m1aaa":               member("m1aaa"),
	}
	got := map[string]contract{}
	for name, pair := range issued(t) {
		got[name] = contractOf(parse(t, pair.Certificate))
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("other certificates (-want +got):\n%s", diff)
	}
}

// TestKeysAndTerms: every key is ECDSA P-256 and matches its certificate; validity begins a little in the past.
func TestKeysAndTerms(t *testing.T) {
	serials := map[string]bool{}
	for name, pair := range issued(t) {
		cert := parse(t, pair.Certificate)
		block, _ := pem.Decode(pair.Key)
		key, err := x509.ParseECPrivateKey(block.Bytes)
		if err != nil || key.Curve != elliptic.P256() || !key.PublicKey.Equal(cert.PublicKey.(*ecdsa.PublicKey)) {
			t.Errorf("%s: err = %v; the key is not the ECDSA P-256 key of the certificate", name, err)
		}
		until := now.Add(365 * 24 * time.Hour)
		if name == pki.Operator {
			until = now.Add(30 * 24 * time.Hour)
		}
		if cert.IsCA {
			until = now.Add(87600 * time.Hour)
		}
		if diff := cmp.Diff([]time.Time{now.Add(-time.Hour), until}, []time.Time{cert.NotBefore, cert.NotAfter}); diff != "" {
			t.Errorf("%s: another term (-want +got):\n%s", name, diff)
		}
		if serials[cert.SerialNumber.String()] {
			t.Errorf("%s: its serial number stands twice", name)
		}
		serials[cert.SerialNumber.String()] = true
	}
}

// accepted reports whether a peer that trusts the bundle accepts the certificate for the usage.
func accepted(t *testing.T, bundle, certificate []byte, usage x509.ExtKeyUsage, name string) bool {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		t.Fatalf("no certificate in the bundle:\n%s", bundle)
	}
	_, err := parse(t, certificate).Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage}, DNSName: name})
	return err == nil
}

// TestCAsAreSeparate: each certificate is accepted for its purpose by peers that trust its own CA, and by no others.
func TestCAsAreSeparate(t *testing.T) {
	set := issued(t)
	for _, request := range requests() {
		if request.Usage == pki.UsageAuthority {
			continue
		}
		for _, authority := range []string{pki.CA, pki.EtcdCA, pki.FrontProxyCA} {
			own, server := authority == request.Authority, request.Usage == pki.UsageBoth || request.Usage == pki.UsageServer
			want := map[string]bool{"client": own && request.Usage != pki.UsageServer, "server": own && server}
			got := map[string]bool{
				"client": accepted(t, set[authority].CA, set[request.Name].Certificate, x509.ExtKeyUsageClientAuth, ""),
				"server": accepted(t, set[authority].CA, set[request.Name].Certificate, x509.ExtKeyUsageServerAuth, ""),
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("who trusts %s accepts %s as (-want +got):\n%s", authority, request.Name, diff)
			}
		}
		if diff := cmp.Diff(string(set[request.Authority].Certificate), string(set[request.Name].CA)); diff != "" {
			t.Errorf("%s has another CA (-want +got):\n%s", request.Name, diff)
		}
	}
}

// TestAPIServerIsReachedByItsNames: the API server is reached through the Service "master" from the management cluster,
// and by the domain of the spec.
func TestAPIServerIsReachedByItsNames(t *testing.T) {
	set := issued(t)
	for _, name := range []string{"api.ab1cd.k8s.example.org", "master.ab1cd.svc.mc.local", "master.ab1cd", "kubernetes.default.svc.cluster.local", "172.31.0.1", "127.0.0.1"} {
		if !accepted(t, set[pki.CA].CA, set[pki.API].Certificate, x509.ExtKeyUsageServerAuth, name) {
			t.Errorf("the API server's certificate does not hold for %s", name)
		}
	}
}
