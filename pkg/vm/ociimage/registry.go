package ociimage

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/docker/cli/cli/config"
	"github.com/docker/cli/cli/config/types"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/kvm-operator/kvm-operator/pkg/vm/retry"
)

// Registries says how a node asks registries. The administrator of the node writes it.
type Registries struct {
	// Mirrors has, for the host of a registry, such as docker.io, those that are asked first, in this order. Each is a
	// host, with a port if need be, and may have a path before the names of images, such as harbor.example.org/hub.
	Mirrors map[string][]string
	// Insecure are hosts, with a port if they have one, that are asked with TLS whose certificate is not verified, or,
	// if they do not speak TLS, without it. All others need TLS, also those of private networks.
	Insecure []string
	// CA are the authorities that sign certificates of registries; nil for those of the system.
	CA *x509.CertPool
	// Keychain has credentials; nil for authn.DefaultKeychain, which reads the configuration of docker or podman. A
	// mirror gets those that it has for the mirror itself.
	Keychain authn.Keychain
}

// Keychain returns the credentials of config.json in a directory, as docker login writes it. The file is read for each
// pull, and need not exist. An entry of a host and a path is for images below that path; the longest one counts.
func Keychain(directory string) authn.Keychain { return keychain(directory) }

type keychain string

// Resolve implements authn.Keychain.
func (k keychain) Resolve(target authn.Resource) (authn.Authenticator, error) {
	file, err := config.Load(string(k))
	if err != nil {
		return nil, err
	}
	// The library would take an entry with a path for all images of its host.
	maps.DeleteFunc(file.AuthConfigs, func(key string, _ types.AuthConfig) bool { return isOfOthers(key, target.String()) })
	for of, more := target.String(), true; more; of, more = parent(of) {
		key := of
		if key == name.DefaultRegistry {
			key = authn.DefaultAuthKey
		}
		found, err := file.GetAuthConfig(key)
		if err != nil {
			return nil, err
		}
		found.ServerAddress = "" // which is the key
		if found != (types.AuthConfig{}) {
			return authn.FromConfig(authn.AuthConfig{
				Username: found.Username, Password: found.Password, Auth: found.Auth,
				IdentityToken: found.IdentityToken, RegistryToken: found.RegistryToken,
			}), nil
		}
	}
	return authn.Anonymous, nil
}

// parent returns a name without its last part; false if it has only one.
func parent(of string) (string, bool) {
	end := strings.LastIndex(of, "/")
	return of[:max(0, end)], end > 0
}

// isOfOthers returns whether an entry of a configuration is for a path, in which a repository is not.
func isOfOthers(key, repository string) bool {
	key = strings.TrimPrefix(strings.TrimPrefix(key, "https://"), "http://")
	host, path, _ := strings.Cut(strings.TrimRight(key, "/"), "/")
	if path == "" || path == "v1" || path == "v2" {
		return false
	}
	return !strings.HasPrefix(repository+"/", host+"/"+path+"/")
}

// source is a registry that is asked for a repository.
type source struct {
	repository name.Repository
	// auth is nil if the keychain has to tell.
	auth authn.Authenticator
	// hidden are texts of the credentials that errors do not repeat. The handshake sets them.
	hidden   []string
	keychain authn.Keychain
	guard    *guard
	attempts retry.Policy
	stall    time.Duration

	mu sync.Mutex
	// client is nil before the handshake.
	client *http.Client
	// gone says that it did not answer, and is not asked again.
	gone bool
}

func (s *source) host() string { return s.repository.RegistryStr() }

// sources returns the registries that are asked for an image: mirrors in their order, and then its own. Credentials of
// one pull are for the image's own registry only.
func (c *Cache) sources(ref reference, auth *authn.AuthConfig, guard *guard) ([]*source, error) {
	origin := ref.name.Context()
	var all []*source
	for _, registry := range slices.Sorted(maps.Keys(c.Registries.Mirrors)) {
		if known, err := name.NewRegistry(registry); err != nil || known.RegistryStr() != origin.RegistryStr() {
			continue
		}
		for _, mirror := range c.Registries.Mirrors[registry] {
			host, path, _ := strings.Cut(mirror, "/")
			registry, err := c.registry(host)
			if err != nil || host == "" {
				return nil, fmt.Errorf("the mirror %q is no host of a registry", mirror)
			}
			all = append(all, &source{repository: registry.Repo(path, origin.RepositoryStr()), attempts: c.patience().mirror()})
		}
	}
	registry, err := c.registry(origin.RegistryStr())
	if err != nil {
		return nil, err
	}
	own := &source{repository: registry.Repo(origin.RepositoryStr()), attempts: c.patience().policy()}
	if auth != nil {
		own.auth = authn.FromConfig(*auth)
	}
	all = append(all, own)
	for _, s := range all {
		s.guard, s.stall, s.keychain = guard, c.patience().stall, c.Registries.Keychain
		if s.keychain == nil {
			s.keychain = authn.DefaultKeychain
		}
	}
	return all, nil
}

func (c *Cache) registry(host string) (name.Registry, error) {
	if slices.Contains(c.Registries.Insecure, host) {
		return name.NewRegistry(host, name.Insecure)
	}
	return name.NewRegistry(host)
}

// handshake returns a client with credentials for the repository. It finds out how the registry wants them.
func (s *source) handshake(ctx context.Context) (*http.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil {
		return s.client, nil
	}
	auth := s.auth
	if auth == nil {
		var err error
		if auth, err = authn.Resolve(ctx, s.keychain, s.repository); err != nil {
			return nil, retry.Final(fmt.Errorf("reading the credentials of %s: %w", s.host(), err))
		}
	}
	shown, err := authn.Authorization(ctx, auth)
	if err != nil {
		return nil, retry.Final(fmt.Errorf("reading the credentials of %s: %w", s.host(), err))
	}
	s.hidden = forms(shown)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer time.AfterFunc(s.stall, func() { cancel(retry.ErrStalled) }).Stop()
	trip, err := transport.NewWithContext(ctx, s.repository.Registry, auth, s.guard, []string{s.repository.Scope(transport.PullScope)})
	if err != nil {
		return nil, s.broken(ctx, err)
	}
	s.client = &http.Client{Transport: trip}
	return s.client, nil
}

// ask sends a request for a manifest or a blob. The response may have any status.
func (s *source) ask(ctx context.Context, method, kind, identifier string, header http.Header) (*http.Response, error) {
	client, err := s.handshake(ctx)
	if err != nil {
		return nil, err
	}
	// The transport knows whether it is http.
	location := url.URL{Scheme: "https", Host: s.host(), Path: "/v2/" + s.repository.RepositoryStr() + "/" + kind + "/" + identifier}
	request, err := http.NewRequestWithContext(ctx, method, location.String(), nil)
	if err != nil {
		return nil, retry.Final(err)
	}
	request.Header = header
	response, err := client.Do(request)
	if err != nil {
		return nil, s.broken(ctx, err)
	}
	return response, nil
}

// guard keeps requests where they may go, whatever a registry redirects to.
type guard struct {
	insecure      []string
	strict, loose *http.Transport
}

// connectTime is how long a connection, or a TLS handshake, may take.
const connectTime = 10 * time.Second

func newGuard(registries Registries, stall time.Duration) *guard {
	dialer := &net.Dialer{Timeout: connectTime}
	strict := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, ForceAttemptHTTP2: true, TLSHandshakeTimeout: connectTime,
		ResponseHeaderTimeout: stall, MaxResponseHeaderBytes: maxAnswer, MaxIdleConnsPerHost: parallel,
		// What is stored has to be what the digest is of.
		DisableCompression: true,
		TLSClientConfig:    &tls.Config{RootCAs: registries.CA, MinVersion: tls.VersionTLS12},
	}
	loose := strict.Clone()
	loose.TLSClientConfig.InsecureSkipVerify = true
	return &guard{insecure: registries.Insecure, strict: strict, loose: loose}
}

func (g *guard) close() {
	g.strict.CloseIdleConnections()
	g.loose.CloseIdleConnections()
}

// RoundTrip implements http.RoundTripper.
func (g *guard) RoundTrip(request *http.Request) (*http.Response, error) {
	passed, err := g.check(request)
	if err != nil {
		if request.Body != nil {
			err = errors.Join(err, request.Body.Close())
		}
		return nil, err
	}
	if g.isInsecure(request) {
		return g.loose.RoundTrip(passed)
	}
	return g.strict.RoundTrip(passed)
}

func (g *guard) isInsecure(request *http.Request) bool {
	return slices.Contains(g.insecure, request.URL.Host)
}

// check returns a request as it may be sent.
func (g *guard) check(request *http.Request) (*http.Request, error) {
	err := error(nil)
	if request.URL.Scheme != "https" && !g.isInsecure(request) {
		err = errPlain
	}
	if request.Response != nil && request.Response.Request != nil {
		return g.redirected(request, err)
	}
	return request, err
}

// redirected checks a request that a server asked for. The answer of the client to a challenge, and tokens that it sends
// as a form, stay with the server that they are for.
func (g *guard) redirected(request *http.Request, wrong error) (*http.Request, error) {
	from := request.Response.Request.URL
	if wrong != nil {
		return request, fmt.Errorf("%w: %s: %w", errRedirect, request.URL.Host, wrong)
	}
	if from.Host == request.URL.Host {
		return request, nil
	}
	if request.Method != http.MethodGet && request.Method != http.MethodHead {
		return request, fmt.Errorf("%w: credentials would go to %s", errRedirect, request.URL.Host)
	}
	if from.Hostname() != request.URL.Hostname() && !g.isInsecure(request) && inner(request.URL.Hostname()) {
		return request, fmt.Errorf("%w: %s is an address of a private network", errRedirect, request.URL.Host)
	}
	request = request.Clone(request.Context())
	request.Header.Del("Authorization")
	return request, nil
}

// inner reports whether a host is an address of the node or its network, which a registry must not make it ask.
func inner(host string) bool {
	address, err := netip.ParseAddr(host)
	if err != nil {
		return host == "localhost" || strings.HasSuffix(host, ".localhost")
	}
	address = address.Unmap()
	return address.IsPrivate() || address.IsLoopback() || address.IsLinkLocalUnicast() || address.IsUnspecified()
}
