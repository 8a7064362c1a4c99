package cloudconfig

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
)

// problems collects all errors, so that a user can fix them at once. They never contain secret values.
type problems []string

func (p *problems) addf(format string, args ...any) { *p = append(*p, fmt.Sprintf(format, args...)) }

func (p problems) err() error {
	if len(p) == 0 {
		return nil
	}
	// The text is used in a condition and has to be the same each time.
	return errors.New(strings.Join(slices.Sorted(slices.Values(p)), "; "))
}

// checks are all checks of Params. The API server has checked much of it before; but what a builder inserts into a
// unit, a command line or a file of another syntax is checked here, next to its use.
var checks = []func(*problems, Params){checkNode, checkNetwork, checkCertificates, checkJoining, checkEtcd, checkUsers, checkSettings}

func check(p Params) error {
	var found problems
	for _, c := range checks {
		c(&found, p)
	}
	return found.err()
}

// versionPattern has no build metadata, because a version is the tag of images, in which "+" is not allowed.
var versionPattern = regexp.MustCompile(`^\d+\.\d+\.\d+([-.][0-9A-Za-z.-]*)?$`)

func checkNode(found *problems, p Params) {
	if p.Node.Role != key.RoleMaster && p.Node.Role != key.RoleWorker {
		found.addf("role %q of node %s is neither master nor worker", p.Node.Role, p.Node.ID)
	}
	for what, id := range map[string]string{"cluster": p.Cluster.ID, "node": p.Node.ID} {
		if len(validation.IsDNS1123Label(id)) > 0 {
			found.addf("%s id %q is not a DNS label", what, id)
		}
	}
	if !versionPattern.MatchString(p.Versions.Kubernetes) {
		found.addf("version of kubernetes %q is not like 1.35.4", p.Versions.Kubernetes)
	}
	checkLabels(found, p.Node)
	checkMountTags(found, p.Node.MountTags)
}

func checkLabels(found *problems, n Node) {
	for name, value := range parseLabels(n.Labels) {
		problem := labelProblem(name, value)
		if own, reserved := ownLabels(n.Role)[name]; reserved && own != value {
			problem = fmt.Sprintf("label %s is the operator's to set", name)
		}
		if problem != "" {
			found.addf("kubernetes.kubelet.labels: %s", problem)
		}
	}
}

func checkMountTags(found *problems, tags []string) {
	for i, tag := range tags {
		// The runner labels volumes with it; a valid label value is also safe in a unit.
		if tag == "" || len(tag) > 31 || len(validation.IsValidLabelValue(tag)) > 0 {
			found.addf("mount tag %q is not 1 to 31 letters, digits, '-', '_' or '.'", tag)
		}
		if slices.Contains(tags[:i], tag) || tag == EtcdMountTag {
			found.addf("mount tag %q is used twice", tag)
		}
	}
}

func checkNetwork(found *problems, p Params) {
	k := p.Cluster.Kubernetes
	if _, err := netip.ParsePrefix(k.API.ClusterIPRange); err != nil {
		found.addf("kubernetes.api.clusterIPRange %q is not a network", k.API.ClusterIPRange)
	}
	if _, err := netip.ParsePrefix(key.PodNetwork(p.Cluster)); err != nil || p.Cluster.Calico.CIDR < 8 || p.Cluster.Calico.CIDR > 30 {
		found.addf("calico.subnet and calico.cidr %q are not an IPv4 network of 8 to 30 bits", key.PodNetwork(p.Cluster))
	}
	if _, err := netip.ParseAddr(k.DNS.IP); err != nil {
		found.addf("kubernetes.dns.ip %q is not an address", k.DNS.IP)
	}
	for what, name := range map[string]string{"kubernetes.api.domain": k.API.Domain, "kubernetes.domain": k.Domain} {
		if len(validation.IsDNS1123Subdomain(name)) > 0 {
			found.addf("%s %q is not a domain", what, name)
		}
	}
	if k.API.SecurePort < 1 || k.API.SecurePort > 65535 {
		found.addf("kubernetes.api.securePort %d is not a port", k.API.SecurePort)
	}
	if !isHTTPS(p.APIServerURL) {
		found.addf("URL of the API server %q is not an https URL", p.APIServerURL)
	}
}

func checkCertificates(found *problems, p Params) {
	missing := map[string]bool{}
	need := func(pair string, part part) {
		if len(part.of(p.Certificates[pair])) == 0 && !missing[pair] {
			missing[pair] = true
			found.addf("key pair %q has no %s", pair, part)
		}
	}
	for _, pem := range pemFiles(p) {
		need(pem.pair, pem.part)
	}
	if p.master() {
		for _, pair := range identities {
			need(pair, certificate)
			need(pair, privateKey)
		}
	}
}

var tokenPattern = regexp.MustCompile(`^[a-z0-9]{6}\.[a-z0-9]{16}$`)

func checkJoining(found *problems, p Params) {
	if !tokenPattern.MatchString(p.BootstrapToken) {
		found.addf("bootstrap token is missing or not 6 letters or digits, a dot and 16 more")
	}
	if !p.master() {
		return
	}
	if secret, err := base64.StdEncoding.DecodeString(p.EncryptionKey); err != nil || len(secret) != 32 {
		found.addf("encryption key is missing or not base64 of 32 bytes")
	}
}

var etcdTokenPattern = regexp.MustCompile(`^[a-z0-9]*$`)

func checkEtcd(found *problems, p Params) {
	if !p.master() {
		return
	}
	if !versionPattern.MatchString(p.Versions.Etcd) {
		found.addf("version of etcd %q is not like 3.6.5", p.Versions.Etcd)
	}
	if strings.ContainsAny(p.Cluster.Etcd.Prefix, " \t\n$") {
		found.addf("etcd.prefix %q has a space or dollar sign in it", p.Cluster.Etcd.Prefix)
	}
	if p.EtcdState != EtcdNew && p.EtcdState != EtcdExisting {
		found.addf("state of etcd %q is neither new nor existing", p.EtcdState)
	}
	if !etcdTokenPattern.MatchString(p.EtcdFoundingToken) {
		found.addf("founding token of etcd %q is not letters and digits", p.EtcdFoundingToken)
	}
	if !etcdTokenPattern.MatchString(p.EtcdFrom) {
		found.addf("id of the restore of etcd %q is not letters and digits", p.EtcdFrom)
	}
	own := pki.EtcdMember(p.Node.ID)
	names := map[string]bool{}
	for _, m := range p.EtcdMembers {
		if names[m.Name] {
			found.addf("etcd member %s is listed twice", m.Name)
		}
		names[m.Name] = true
		if !isHTTPS(m.PeerURL) || strings.ContainsAny(m.PeerURL, ",=") {
			found.addf("peer URL %q of etcd member %s is not an https URL", m.PeerURL, m.Name)
		}
	}
	if !names[own] {
		found.addf("etcd member %s of this master is not among the members", own)
	}
}

// userPattern is that of the CRD, and of useradd (shadow, lib/chkname.c).
var userPattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9._-]{0,31}$`)

// builtInUsers are users of the images or of this package.
var builtInUsers = []string{
	ssoUser, "root", "core", "daemon", "bin", "sys", "sync", "games", "man", "lp", "mail", "news", "uucp", "proxy", "www-data",
	"backup", "list", "irc", "gnats", "nobody", "sshd", "messagebus", "polkitd", "etcd", "operator", "adm", "shutdown", "halt",
}

func checkUsers(found *problems, p Params) {
	seen := map[string]bool{}
	for _, u := range p.Cluster.Kubernetes.SSH.UserList {
		switch {
		case !userPattern.MatchString(u.Name):
			found.addf("ssh user %q is not a name of 1 to 32 letters, digits, '.', '-' or '_' with a letter or '_' first", u.Name)
		case slices.Contains(builtInUsers, u.Name) || strings.HasPrefix(u.Name, "systemd-"):
			found.addf("ssh user %q has the name of a user of the operating system or the operator; choose another", u.Name)
		case seen[u.Name]:
			found.addf("ssh user %q is listed twice", u.Name)
		}
		seen[u.Name] = true
		if u.PublicKey != "" && !isPublicKey(pasted(u.PublicKey)) {
			found.addf("public key of ssh user %q is not one line like \"ssh-ed25519 AAAA…\"", u.Name)
		}
	}
}

// publicKeyPattern matches type, key and comment on one line, as ssh-keygen writes them.
var publicKeyPattern = regexp.MustCompile(`^(ssh-(ed25519|rsa)|ecdsa-sha2-nistp(256|384|521)` +
	`|sk-ssh-ed25519@openssh\.com|sk-ecdsa-sha2-nistp256@openssh\.com) [A-Za-z0-9+/]+={0,3}( [^\n\r]*)?$`)

// pasted returns a key without the line break at the end of the file that it was copied from.
func pasted(s string) string { return strings.TrimSuffix(s, "\n") }

func isPublicKey(s string) bool { return publicKeyPattern.MatchString(s) }

// isHTTPS reports whether s is an https URL with a host. Such a URL needs no quoting in a unit or manifest.
func isHTTPS(s string) bool { return isURL(s, "https") }

// unquotable are characters that have a meaning for a shell, for systemd or for YAML.
const unquotable = "\"'`\\$<>{}|^ \t\r\n"

func isURL(s string, schemes ...string) bool {
	u, err := url.Parse(s)
	return err == nil && slices.Contains(schemes, u.Scheme) && u.Hostname() != "" && !strings.ContainsAny(s, unquotable)
}

// incomplete reports whether OIDC is only partly configured.
func incomplete(oidc v1alpha1.OIDC) bool {
	return oidc != v1alpha1.OIDC{} && (oidc.ClientID == "" || oidc.IssuerURL == "")
}
