package issuer

import (
	"bytes"
	"crypto/x509"
	"errors"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/vault/api"
	"k8s.io/utils/clock"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki/pkitest"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/vault"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
)

const (
	id = "ab1cd"
	// term is the validity of certificates here.
	term = 90 * 24 * time.Hour
)

// requests returns the requests of a cluster with two masters.
func requests() []pki.Request {
	return state.CertificateRequests(fixture.MakeCluster(id).Masters(2).Obj(), lab.Settings())
}

// use connects the operator to a Vault.
func (s *Server) use(t *testing.T, change func(*vault.Config)) *vault.Issuer {
	t.Helper()
	config := vault.Config{Address: s.Address, TokenFile: s.TokenFile, MountPrefix: "pki-", TTL: term}
	if change != nil {
		change(&config)
	}
	v, err := vault.New(config, clock.RealClock{}, nil)
	must(t, err)
	return v
}

func issuers(v pki.Issuer) pki.Issuers {
	return pki.Issuers{Embedded: pki.Embedded{Clock: clock.RealClock{}}, Vault: v}
}

func whole(t *testing.T, v pki.Issuer) pki.Set {
	t.Helper()
	completed, err := pkitest.Complete(nil, requests(), issuers(v), time.Now(), nil)
	must(t, err)
	return completed.Set
}

// verify returns an error unless a pair matches its request: trusted, for its names and usages, and with its own key.
func verify(request pki.Request, set pki.Set) error {
	pair := set[request.Name]
	cert, err := pki.ParseCertificate(pair.Certificate)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(set[request.Authority].CA)
	uses := map[pki.Usage][]x509.ExtKeyUsage{
		pki.UsageClient: {x509.ExtKeyUsageClientAuth}, pki.UsageServer: {x509.ExtKeyUsageServerAuth}, pki.UsageBoth: {x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}[request.Usage]
	if !slices.Equal(slices.Sorted(slices.Values(cert.ExtKeyUsage)), slices.Sorted(slices.Values(uses))) {
		return errors.New("it is for other uses")
	}
	for _, use := range uses {
		if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{use}}); err != nil {
			return err
		}
	}
	for _, name := range request.DNSNames {
		if err := cert.VerifyHostname(name); err != nil {
			return err
		}
	}
	for _, ip := range request.IPs {
		if err := cert.VerifyHostname(ip.String()); err != nil {
			return err
		}
	}
	if cert.Subject.CommonName != request.CommonName || !slices.Equal(cert.Subject.Organization, request.Organizations) {
		return errors.New("its subject is not the requested one")
	}
	want := term
	if request.Term > 0 {
		want = request.Term
	}
	if end := time.Until(cert.NotAfter); end > want+time.Minute || end < want-time.Hour {
		return errors.New("it holds for " + end.String())
	}
	return nil
}

// TestVaultIssuesRenewsRotatesAndRevokes covers the life of a cluster's certificates.
func TestVaultIssuesRenewsRotatesAndRevokes(t *testing.T) {
	t.Parallel()
	s := Start(t)
	v := s.use(t, nil)
	set := whole(t, v)
	mounts := []string{"pki-etcd-" + id + "/", "pki-front-proxy-" + id + "/", "pki-kubernetes-" + id + "/"}
	t.Run("issue", func(t *testing.T) {
		for _, request := range requests() {
			if request.Usage == pki.UsageAuthority {
				continue
			}
			if err := verify(request, set); err != nil {
				t.Errorf("certificate %s: %v", request.Name, err)
			}
		}
		if diff := cmp.Diff(mounts, slices.Sorted(slices.Values(s.Mounts(t)))); diff != "" {
			t.Errorf("other secrets engines (-want +got):\n%s", diff)
		}
		for name, want := range map[string]bool{pki.CA: true, pki.EtcdCA: false, pki.FrontProxyCA: false} {
			if has := len(set[name].Key) > 0; has != want {
				t.Errorf("the key of %s is here: %t, want %t", name, has, want)
			}
		}
	})
	t.Run("renew", func(t *testing.T) {
		for at, want := range map[time.Duration]bool{term / 2: false, term - time.Hour: true} {
			completed, err := pkitest.Complete(set, requests(), issuers(v), time.Now().Add(at), nil)
			must(t, errors.Join(err, completed.Failed))
			if renewed := !bytes.Equal(completed.Set[pki.API].Certificate, set[pki.API].Certificate); renewed != want {
				t.Errorf("certificate api was renewed after %s: %t, want %t", at, renewed, want)
			}
			for _, request := range requests() {
				if request.Usage != pki.UsageAuthority {
					must(t, verify(request, completed.Set))
				}
			}
		}
	})
	t.Run("rotate", func(t *testing.T) {
		old := set[pki.EtcdCA].Certificate
		now := maps.Clone(set)
		for range 3 {
			for _, name := range pki.Authorities {
				pair, err := pki.Advance(now[name], func() (pki.KeyPair, error) { return pki.Successor(name, requests(), issuers(v)) })
				must(t, err)
				now[name] = pair
			}
			completed, err := pkitest.Complete(now, requests(), issuers(v), time.Now(), nil)
			must(t, errors.Join(err, completed.Failed))
			now = completed.Set
		}
		for _, request := range requests() {
			if request.Usage == pki.UsageAuthority || request.Keep {
				continue
			}
			if err := verify(request, now); err != nil {
				t.Errorf("certificate %s: %v", request.Name, err)
			}
		}
		if bytes.Equal(now[pki.EtcdCA].CA, old) || now[pki.EtcdCA].Vault == set[pki.EtcdCA].Vault {
			t.Errorf("the CA is the same")
		}
	})
	t.Run("revoke", func(t *testing.T) {
		must(t, v.Revoke(requests()))
		if left := s.Mounts(t); len(left) > 0 {
			t.Errorf("secrets engines are left: %v", left)
		}
		must(t, v.Revoke(requests())) // revoking again is not an error
	})
}

// TestVaultsOfOthersAreLeftAlone: a secrets engine of another owner is neither used nor removed.
func TestVaultsOfOthersAreLeftAlone(t *testing.T) {
	t.Parallel()
	s := Start(t)
	v := s.use(t, nil)
	taken := "pki-etcd-" + id
	must(t, s.Client.Sys().Mount(taken, &api.MountInput{Type: "pki", Description: "of another owner"}))
	completed, err := pkitest.Complete(nil, requests(), issuers(v), time.Now(), nil)
	if p, ok := problem.As(err); !ok || !strings.HasPrefix(p.Reason, "VaultMountTaken") || !strings.Contains(p.Message, taken) {
		t.Errorf("err = %v, want one about %s", err, taken)
	}
	if _, issued := completed.Set[pki.EtcdMember("m0aaa")]; issued {
		t.Error("a certificate was issued by the CA of another owner")
	}
	must(t, v.Revoke(requests()))
	if diff := cmp.Diff([]string{taken + "/"}, s.Mounts(t)); diff != "" {
		t.Errorf("other secrets engines are left (-want +got):\n%s", diff)
	}
}

// TestTroublesWithVault: each fault is reported with its reason, existing pairs stay in use, and no request is repeated
// to a Vault that does not answer.
func TestTroublesWithVault(t *testing.T) {
	t.Parallel()
	s := Start(t)
	set := whole(t, s.use(t, nil))
	for _, trouble := range []struct {
		name   string
		make   func(t *testing.T) *vault.Issuer
		reason string
		after  func(t *testing.T)
	}{
		{name: "denied", make: func(t *testing.T) *vault.Issuer {
			answer, err := s.Client.Auth().Token().Create(&api.TokenCreateRequest{Policies: []string{"default"}})
			must(t, err)
			return s.use(t, func(c *vault.Config) { c.TokenFile = file(t, answer.Auth.ClientToken) })
		}, reason: "VaultDenied"},
		{name: "a token that is over", make: func(t *testing.T) *vault.Issuer {
			return s.use(t, func(c *vault.Config) { c.TokenFile = file(t, "hvs.none") })
		}, reason: "VaultDenied"},
		{name: "no token", make: func(t *testing.T) *vault.Issuer {
			return s.use(t, func(c *vault.Config) { c.TokenFile = "/none" })
		}, reason: "VaultDenied"},
		{name: "slow", make: func(t *testing.T) *vault.Issuer {
			silent, err := net.Listen("tcp", "127.0.0.1:0")
			must(t, err)
			t.Cleanup(func() { _ = silent.Close() })
			return s.use(t, func(c *vault.Config) { c.Address = "http://" + silent.Addr().String() })
		}, reason: "VaultSlow"},
		{name: "sealed", make: func(t *testing.T) *vault.Issuer { s.Seal(t); return s.use(t, nil) }, reason: "VaultSealed", after: func(t *testing.T) { s.Unseal(t) }},
		{name: "gone", make: func(t *testing.T) *vault.Issuer { s.Stop(t); return s.use(t, nil) }, reason: "VaultUnreachable"},
	} {
		t.Run(trouble.name, func(t *testing.T) {
			v := trouble.make(t)
			began := time.Now()
			completed, err := pkitest.Complete(set, requests(), issuers(v), time.Now().Add(term-time.Hour), nil)
			p, ok := problem.As(completed.Failed)
			if !ok || !strings.HasPrefix(p.Reason, trouble.reason) {
				t.Errorf("renewal fails with %v, want %s", completed.Failed, trouble.reason)
			}
			if diff := cmp.Diff(set, completed.Set); diff != "" || err != nil {
				t.Errorf("err = %v; pairs changed (-before +after):\n%s", err, diff)
			}
			if took := time.Since(began); took > 15*time.Second {
				t.Errorf("it took %s to find out", took)
			}
			if _, err := pkitest.Complete(nil, requests(), issuers(v), time.Now(), nil); err == nil {
				t.Error("pairs are issued nevertheless")
			}
			if trouble.after != nil {
				trouble.after(t)
				must(t, s.use(t, nil).Revoke(nil))
			}
		})
	}
}

func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}
