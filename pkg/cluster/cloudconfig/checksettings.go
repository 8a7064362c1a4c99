package cloudconfig

import (
	"encoding/base64"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
)

// Validate checks the operator's own settings. Render does so too, but a caller that validates at start finds errors
// before a cluster does.
func (s Settings) Validate() error {
	var found problems
	s.check(&found)
	return found.err()
}

func checkSettings(found *problems, p Params) {
	p.Settings.check(found)
	if own := p.Cluster.Kubernetes.API.OIDC; own != nil {
		checkOIDC(found, "kubernetes.api.oidc", *own)
	}
	checkOwnIssuer(found, p)
}

// hostPattern matches a host with an optional port.
var hostPattern = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])(:[0-9]{1,5})?$`)

// pathPattern matches a path below a registry's host.
var pathPattern = regexp.MustCompile(`^[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$`)

func (s Settings) check(found *problems) {
	s.checkRegistry(found)
	if s.BinaryBaseURL != "" && !isURL(s.BinaryBaseURL, "http", "https") {
		found.addf("base URL of binaries %q is not an http or https URL", s.BinaryBaseURL)
	}
	if s.CNIPluginsBaseURL != "" && !isURL(s.CNIPluginsBaseURL, "http", "https") {
		found.addf("base URL of CNI plugins %q is not an http or https URL", s.CNIPluginsBaseURL)
	}
	for _, server := range s.NTPServers {
		if !isHost(server) {
			found.addf("NTP server %q is neither a host name nor an address", server)
		}
	}
	if s.SSOPublicKey != "" && !isPublicKey(s.SSOPublicKey) {
		found.addf("public key for SSH sign-on is not one line like \"ssh-ed25519 AAAA…\"")
	}
	s.Proxy.check(found)
	checkOIDC(found, "OIDC settings", s.OIDC)
}

// needPath are registries whose images all have an organization in their names. docker.io is the default of the
// original's chart, which added the organization itself.
var needPath = map[string]bool{
	"docker.io": true, "index.docker.io": true, "registry-1.docker.io": true, "registry.hub.docker.com": true, "quay.io": true, "ghcr.io": true,
}

func (s Settings) checkRegistry(found *problems) {
	host, path, hasPath := strings.Cut(s.registry(), "/")
	if !hostPattern.MatchString(host) || hasPath && !pathPattern.MatchString(path) {
		found.addf("registry domain %q is not a host, with an optional port and path", s.RegistryDomain)
	}
	if !hasPath && needPath[host] {
		found.addf("registry domain %q has no images without a path, such as %s/kube-apiserver: name the path of a mirror of registry.k8s.io, "+
			"for example %s/<organization>, or leave the setting out; the original operator appended /giantswarm by itself", s.RegistryDomain, host, host)
	}
	for _, mirror := range s.RegistryMirrors {
		if !hostPattern.MatchString(mirror) {
			found.addf("registry mirror %q is not a host without scheme, with an optional port", mirror)
		}
	}
	if s.DockerhubToken != "" {
		decoded, err := base64.StdEncoding.DecodeString(s.DockerhubToken)
		if err != nil || !strings.Contains(string(decoded), ":") {
			found.addf("registry token is not base64 of user:password")
		}
	}
}

// check reports no URL, because it may contain a password.
func (p Proxy) check(found *problems) {
	if p.HTTP != "" && !isURL(p.HTTP, "http", "https") {
		found.addf("URL of the HTTP proxy is not like http://proxy.example.com:3128")
	}
	if p.HTTPS != "" && !isURL(p.HTTPS, "http", "https") {
		found.addf("URL of the HTTPS proxy is not like http://proxy.example.com:3128")
	}
	for _, entry := range p.NoProxy {
		if strings.ContainsAny(entry, unquotable+",") {
			found.addf("no-proxy entry %q is not a host, domain or network", entry)
		}
	}
}

// checkOIDC checks what the API server checks of its configuration at its start
// (https://pkg.go.dev/k8s.io/apiserver/pkg/apis/apiserver/validation), because otherwise the API server would not
// start. The message contains no issuer that may contain a password.
func checkOIDC(found *problems, where string, oidc v1alpha1.OIDC) {
	if incomplete(oidc) {
		found.addf("%s: issuer and client id have to be given together", where)
	}
	if oidc.IssuerURL != "" {
		checkIssuer(found, where, oidc.IssuerURL)
	}
	for name, text := range map[string]string{
		"client id": oidc.ClientID, "username claim": oidc.UsernameClaim, "username prefix": oidc.UsernamePrefix,
		"groups claim": oidc.GroupsClaim, "groups prefix": oidc.GroupsPrefix,
	} {
		if !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
			found.addf("%s: %s holds a control character", where, name)
		}
	}
}

func checkIssuer(found *problems, where, issuer string) {
	u, err := url.Parse(issuer)
	switch {
	case err == nil && u.User != nil:
		found.addf("%s: the URL of the issuer holds a user name or password, which the API server does not accept", where)
	case !isHTTPS(issuer) || strings.ContainsAny(issuer, "?#") || strings.ContainsFunc(issuer, unicode.IsControl):
		found.addf("%s: issuer %q is not an https URL without query, fragment and quotes, such as https://dex.example.org", where, issuer)
	}
}

// checkOwnIssuer rejects the cluster's own issuer: the API server accepts tokens of its own service accounts anyway,
// and does not start if OIDC names the same issuer.
func checkOwnIssuer(found *problems, p Params) {
	if own := serviceAccountIssuer(p.Cluster.Kubernetes.API); p.oidc().IssuerURL == own {
		found.addf("OIDC issuer %q is the issuer of the cluster's own service accounts; name the provider of sign-on", own)
	}
}

func isHost(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil || len(validation.IsDNS1123Subdomain(s)) == 0
}
