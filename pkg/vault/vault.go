// Package vault issues the key pairs of clusters by the PKI secrets engine of HashiCorp Vault.
//
// Each authority of a cluster is an issuer of Vault in a mount of its own, and signs through a role there. Keys of leaves are made
// here, and Vault signs requests for their certificates. The keys of authorities stay in Vault, but for that of the one that signs the
// certificates of kubelets: kube-controller-manager has to have it.
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

	"github.com/kvm-operator/kvm-operator/pkg/fence"
	"github.com/kvm-operator/kvm-operator/pkg/pki"
	"github.com/kvm-operator/kvm-operator/pkg/problem"
)

const (
	// authorityTTL is how long authorities hold.
	authorityTTL = "87600h"
	// role is the name of the role in each mount through which leaves are signed.
	role = "kvm-operator"
	// description is that of each mount, by which it is known to be this operator's.
	description = "certificates of a workload cluster, by kvm-operator"
	// backdating forgives a guest whose clock is a little behind.
	backdating = "1h"
	// margin is how much earlier than its authority a certificate ends.
	margin = time.Minute
	// LeastTTL is the shortest term of certificates: each renewal replaces the masters.
	LeastTTL = 7 * 24 * time.Hour
)

// Config says where Vault is and how the operator introduces itself.
type Config struct {
	// Address is the https URL of Vault.
	Address string
	// CAFile holds the authorities that may have signed Vault's certificate; empty for those of the system.
	CAFile string
	// TokenFile holds a token. It is read again whenever Vault does not accept the last one.
	TokenFile string
	// KubernetesRole is the role under which the operator logs in with its service account, at the auth method in KubernetesMount, with
	// the token in KubernetesTokenFile. It is tried where there is no TokenFile.
	KubernetesRole, KubernetesMount, KubernetesTokenFile string
	// MountPrefix begins the path of each mount. No two management clusters that share a Vault may have the same.
	MountPrefix string
	// TTL is how long leaves hold.
	TTL time.Duration
}

// Issuer issues key pairs. It is safe for concurrent use.
type Issuer struct {
	config  Config
	client  *api.Client
	clock   clock.PassiveClock
	session session

	mu sync.Mutex
	// trouble is what was wrong with Vault as a whole when it was last asked, and rest until when it is left alone because of that.
	trouble error
	rest    time.Time
	// probing says that a request is under way that tells whether the trouble is over.
	probing bool
}

// New makes an Issuer that has Vault change something only while the fence is open. Vault is asked nothing yet.
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

// Issue makes the key pair that a request describes. authority is the pair that signs it; it is ignored for requests of authorities.
func (i *Issuer) Issue(request pki.Request, authority pki.KeyPair) (pki.KeyPair, error) {
	if request.Usage == pki.UsageAuthority {
		return i.authority(request)
	}
	return i.leaf(request, authority)
}

// authority makes an issuer in the mount of the authority. One that is made and never stored is of no use, and harms nobody.
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
	pair := pki.KeyPair{Certificate: text(made, "certificate"), Key: text(made, "private_key"), Vault: mount + "/issuer/" + string(field(made, "issuer_id"))}
	pair.CA = pair.Certificate
	if err := i.checkAuthority(request, pair, mount); err != nil {
		return pki.KeyPair{}, problem.Newf("VaultRefused", "Vault does not answer with the authority that it was to make at %q: %s", mount, err)
	}
	return pair, nil
}

// mount is where the issuers of an authority are: its common name says of which cluster it is.
func (i *Issuer) mount(authority pki.Request) string {
	return i.mountOf(authority.CommonName)
}

func (i *Issuer) mountOf(commonName string) string { return i.config.MountPrefix + commonName }

// signer is the path of the issuer that signs a request. The authority names it in its Secret, which others may have written; the operator's
// token signs at the mounts of all clusters, so only an issuer in the mount of the request's own cluster is ever asked.
func (i *Issuer) signer(request pki.Request, authority pki.KeyPair) (string, error) {
	mount := i.mountOf(request.Signer)
	if request.Signer == "" || !pki.IssuerIn(authority.Vault, mount) {
		return "", problem.Newf("VaultForeignIssuer",
			"authority %q names the issuer %q of Vault, and this cluster's are in %q: nothing is signed there; delete its Secret, "+
				"or set service.vault.mountprefix back if that was changed", request.Authority, authority.Vault, mount+"/issuer/")
	}
	return authority.Vault, nil
}

// prepare makes the mount, if there is none, and the role in it.
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

// owned fails when a mount is not this operator's.
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

// usages are the extended key usages of a certificate.
var usages = map[pki.Usage][]string{
	pki.UsageClient: {"ClientAuth"}, pki.UsageServer: {"ServerAuth"}, pki.UsageBoth: {"ServerAuth", "ClientAuth"},
}

// leaf has the authority sign a new key.
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
		// Vault refuses what would outlast its authority.
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
		CA: pki.Trusted(authority), Certificate: text(signed, "certificate"),
		Key: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}),
	}
	if err := checkLeaf(request, pair, authority); err != nil {
		return pki.KeyPair{}, problem.Newf("VaultRefused", "Vault does not answer with the certificate %q that it was to sign: %s", request.Name, err)
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

// Revoke takes the authorities of a cluster away, and with them everything that they have signed and the lists of what was revoked. An
// authority that Vault does not have, or that is not this operator's, is left alone.
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

// text is a field of an answer that is PEM text; empty when it is missing.
func text(answer *api.Secret, name string) []byte {
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
