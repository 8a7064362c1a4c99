// Package vault issues the key pairs of clusters by the PKI secrets engine of HashiCorp Vault.
//
// Each CA of a cluster is a Vault issuer in its own mount, and signs through a role there. Keys of leaf certificates
// are generated here, and Vault signs their certificate signing requests. The keys of CAs stay in Vault, except that of
// the CA that signs the certificates of kubelets, because kube-controller-manager needs it.
//
// See https://developer.hashicorp.com/vault/api-docs/secret/pki.
package vault

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/giantswarm/microerror"
	"github.com/hashicorp/vault/api"
	"k8s.io/utils/clock"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/fence"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
)

const (
	// authorityTTL is the validity of CAs.
	authorityTTL = "87600h"
	// role is the name of the role in each mount through which leaf certificates are signed.
	role = "kvm-operator"
	// description is the description of each mount. It marks the mount as this operator's.
	description = "certificates of a workload cluster, by kvm-operator"
	// backdating tolerates guests whose clock is a little behind.
	backdating = "1h"
	// margin is how much earlier than its CA a certificate expires.
	margin = time.Minute
	// LeastTTL is the shortest validity of certificates. It is long because each renewal replaces the masters.
	LeastTTL = 7 * 24 * time.Hour
)

// Config says where Vault is and how the operator authenticates.
type Config struct {
	// Address is the https URL of Vault.
	Address string
	// CAFile holds the CAs that may have signed Vault's certificate. If it is empty, the system's CAs are used.
	CAFile string
	// TokenFile holds a token. It is read again whenever Vault rejects the last token.
	TokenFile string
	// KubernetesRole is the role with which the operator logs in as its service account, at the auth method in
	// KubernetesMount, with the token in KubernetesTokenFile. It is used if there is no TokenFile.
	KubernetesRole, KubernetesMount, KubernetesTokenFile string
	// MountPrefix is the beginning of the path of each mount. Management clusters that share a Vault must have
	// different prefixes.
	MountPrefix string
	// TTL is the validity of leaf certificates.
	TTL time.Duration
}

// Issuer issues key pairs. It is safe for concurrent use.
type Issuer struct {
	config  Config
	client  *api.Client
	clock   clock.PassiveClock
	session session

	mu sync.Mutex
	// trouble is what was wrong with Vault as a whole at the last request, and rest is until when no request is sent
	// because of it.
	trouble error
	rest    time.Time
	// probing says that a request is in flight that finds out whether Vault works again.
	probing bool
}

// New creates an Issuer that sends Vault requests that change something only while the fence is open. New itself sends
// none.
func New(c Config, clock clock.PassiveClock, f *fence.Fence) (*Issuer, error) {
	if c.TTL < LeastTTL {
		return nil, problem.Newf("VaultTTLTooShort", "service.vault.ttl is %s and has to be %s at least: each renewal replaces the masters of a cluster", c.TTL, LeastTTL)
	}
	settings := api.DefaultConfig()
	if settings.Error != nil {
		return nil, microerror.Mask(settings.Error)
	}
	settings.Address, settings.MaxRetries, settings.Timeout = c.Address, 0, patience
	if c.CAFile != "" {
		if err := settings.ConfigureTLS(&api.TLSConfig{CACert: c.CAFile}); err != nil {
			return nil, microerror.Mask(err)
		}
	}
	settings.HttpClient.Transport = f.Transport(settings.HttpClient.Transport)
	client, err := api.NewClient(settings)
	if err != nil {
		return nil, microerror.Mask(err)
	}
	client.ClearToken()
	return &Issuer{config: c, client: client, clock: clock, session: session{config: c, clock: clock}}, nil
}

// Issue issues the key pair that a request describes. authority is the CA that signs it; it is ignored for requests for
// CAs.
func (i *Issuer) Issue(request pki.Request, authority pki.KeyPair) (pki.KeyPair, error) {
	if request.Usage == pki.UsageAuthority {
		return i.authority(request)
	}
	return i.leaf(request, authority)
}

// authority creates an issuer in the mount of the CA. One that is created but never stored is unused and harmless.
func (i *Issuer) authority(request pki.Request) (pki.KeyPair, error) {
	mount := i.mount(request)
	var made *api.Secret
	err := i.ask(func(ctx context.Context, client *api.Client) error {
		if err := prepare(ctx, client, mount, i.config.TTL); err != nil {
			return err
		}
		kind := "internal"
		if request.Name == pki.CA {
			kind = "exported"
		}
		var err error
		made, err = client.Logical().WriteWithContext(ctx, mount+"/issuers/generate/root/"+kind, map[string]any{
			"common_name": request.CommonName, "ttl": authorityTTL, "key_type": "ec", "key_bits": 256, "not_before_duration": backdating,
		})
		return err
	})
	if err != nil {
		return pki.KeyPair{}, err
	}
	pair := pki.KeyPair{Certificate: pemOf(made, "certificate"), Key: pemOf(made, "private_key"), Vault: mount + "/issuer/" + string(field(made, "issuer_id"))}
	pair.CA = pair.Certificate
	if err := i.checkAuthority(request, pair, mount); err != nil {
		return pki.KeyPair{}, problem.Newf("VaultRefused", "Vault did not create the requested CA at %q: %s", mount, err)
	}
	return pair, nil
}

// mount returns where the issuers of a CA are. The CA's common name identifies its cluster.
func (i *Issuer) mount(authority pki.Request) string {
	return i.mountOf(authority.CommonName)
}

func (i *Issuer) mountOf(commonName string) string { return i.config.MountPrefix + commonName }

// signer returns the path of the issuer that signs a request. The CA's Secret names the issuer, and others may have
// written that Secret. The operator's token may sign in the mounts of all clusters, so only issuers in the mount of the
// request's own cluster are accepted.
func (i *Issuer) signer(request pki.Request, authority pki.KeyPair) (string, error) {
	mount := i.mountOf(request.Signer)
	if request.Signer == "" || !pki.IssuerIn(authority.Vault, mount) {
		return "", problem.Newf("VaultForeignIssuer",
			"CA %q names the issuer %q of Vault, and the issuers of this cluster are in %q: the operator signs nothing there; delete its Secret, "+
				"or set service.vault.mountprefix back if it was changed", request.Authority, authority.Vault, mount+"/issuer/")
	}
	return authority.Vault, nil
}

// prepare creates the mount, if it does not exist, and the role in it.
func prepare(ctx context.Context, client *api.Client, mount string, ttl time.Duration) error {
	err := client.Sys().MountWithContext(ctx, mount, &api.MountInput{
		Type: "pki", Description: description, Config: api.MountConfigInput{MaxLeaseTTL: authorityTTL},
	})
	if isTaken(err) {
		err = owned(ctx, client, mount)
	}
	if err != nil {
		return err
	}
	_, err = client.Logical().WriteWithContext(ctx, mount+"/roles/"+role, map[string]any{
		"allow_any_name": true, "key_type": "any", "ttl": ttl.String(), "max_ttl": authorityTTL, "not_before_duration": backdating,
	})
	return err
}

// owned fails if a mount is not this operator's.
func owned(ctx context.Context, client *api.Client, mount string) error {
	found, err := client.Sys().GetMountWithContext(ctx, mount)
	if err != nil {
		return err
	}
	if found.Type != "pki" || found.Description != description {
		return problem.Newf("VaultMountTaken",
			"Vault has a secrets engine at %q that is not this operator's; move it away, or choose another service.vault.mountprefix", mount)
	}
	return nil
}

// usages maps usages to the extended key usages of a certificate.
var usages = map[pki.Usage][]string{
	pki.UsageClient: {"ClientAuth"}, pki.UsageServer: {"ServerAuth"}, pki.UsageBoth: {"ServerAuth", "ClientAuth"},
}

// leaf generates a key and lets the CA sign a certificate for it.
func (i *Issuer) leaf(request pki.Request, authority pki.KeyPair) (pki.KeyPair, error) {
	signer, err := i.signer(request, authority)
	if err != nil {
		return pki.KeyPair{}, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pki.KeyPair{}, microerror.Mask(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return pki.KeyPair{}, microerror.Mask(err)
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, template(request), key)
	if err != nil {
		return pki.KeyPair{}, microerror.Mask(err)
	}
	ttl := i.config.TTL
	if request.Term > 0 {
		ttl = min(ttl, request.Term)
	}
	if end, err := pki.ParseCertificate(authority.Certificate); err == nil {
		// Vault rejects certificates that would outlive their CA.
		ttl = min(ttl, end.NotAfter.Sub(i.clock.Now())-margin)
	}
	var signed *api.Secret
	err = i.ask(func(ctx context.Context, client *api.Client) error {
		var err error
		signed, err = client.Logical().WriteWithContext(ctx, signer+"/sign-verbatim/"+role, map[string]any{
			"csr": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: csr})),
			"ttl": ttl.Truncate(time.Second).String(), "key_usage": []string{"DigitalSignature"}, "ext_key_usage": usages[request.Usage],
			"exclude_cn_from_sans": true,
		})
		return err
	})
	if err != nil {
		return pki.KeyPair{}, err
	}
	pair := pki.KeyPair{
		CA: pki.Trusted(authority), Certificate: pemOf(signed, "certificate"),
		Key: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}),
	}
	if err := checkLeaf(request, pair, authority); err != nil {
		return pki.KeyPair{}, problem.Newf("VaultRefused", "Vault did not sign certificate %q as requested: %s", request.Name, err)
	}
	return pair, nil
}

func template(request pki.Request) *x509.CertificateRequest {
	t := &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: request.CommonName, Organization: request.Organizations}, DNSNames: request.DNSNames,
	}
	for _, ip := range request.IPs {
		if ip.IsValid() {
			t.IPAddresses = append(t.IPAddresses, net.IP(ip.AsSlice()))
		}
	}
	return t
}

// Revoke deletes the CAs of a cluster, and with them everything that they signed and their revocation lists. A CA that
// Vault does not have, or that is not this operator's, is skipped.
func (i *Issuer) Revoke(requests []pki.Request) error {
	for _, request := range requests {
		if request.Usage != pki.UsageAuthority {
			continue
		}
		mount := i.mount(request)
		err := i.ask(func(ctx context.Context, client *api.Client) error {
			err := owned(ctx, client, mount)
			if isMissing(err) {
				return nil
			}
			if err != nil {
				return err
			}
			return client.Sys().UnmountWithContext(ctx, mount)
		})
		if p, ok := problem.As(err); ok && p.Reason == "VaultMountTaken" {
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// pemOf returns a field of a response that holds PEM text, or nil if it is missing.
func pemOf(answer *api.Secret, name string) []byte {
	value := field(answer, name)
	if len(value) == 0 {
		return nil
	}
	return []byte(strings.TrimSpace(string(value)) + "\n")
}

func field(answer *api.Secret, name string) []byte {
	if answer == nil {
		return nil
	}
	value, _ := answer.Data[name].(string)
	return []byte(value)
}
