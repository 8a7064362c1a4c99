package cloudconfig

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// Files of the API server.
const (
	apiServerDirectory = "/etc/kubernetes/apiserver"
	authenticationFile = apiServerDirectory + "/authentication.yaml"
	auditPolicyFile    = apiServerDirectory + "/audit-policy.yaml"
	admissionFile      = apiServerDirectory + "/admission.yaml"
	encryptionFile     = apiServerDirectory + "/encryption.yaml"
	auditLogDirectory  = "/var/log/apiserver"
)

// hosts lets pods on a master's own network, which get the kubelet's copy of this file, reach their own API server by
// the name that is the same on all nodes, because not every network of a management cluster routes a connection back to
// its source. The resolver knows the host's own name.
const hosts = `127.0.0.1 localhost
::1 localhost ip6-localhost ip6-loopback
%s %s
`

// apiServer is the API server of this master with the files that it reads.
func apiServer(p Params) parts {
	if !p.master() {
		return parts{}
	}
	return parts{directories: []string{apiServerDirectory}, files: []file{
		{path: "/etc/hosts", mode: modePublic, text: fmt.Sprintf(hosts, localhost, p.apiServerHost())},
		{path: authenticationFile, mode: modeSecret, object: authentication(p.oidc())},
		{path: auditPolicyFile, mode: modeSecret, text: asset("audit-policy.yaml")},
		{path: admissionFile, mode: modeSecret, object: admission()},
		{path: encryptionFile, mode: modeSecret, private: true, object: encryption(p.EncryptionKey)},
		apiServerPod(p).file(p),
	}}
}

func (p Params) localAPIServerURL() string {
	return fmt.Sprintf("https://%s:%d", localhost, p.Cluster.Kubernetes.API.SecurePort)
}

func apiServerPod(p Params) component {
	// An API server that is killed because etcd is slow starts with more requests to etcd than it had.
	health := probe{path: "/livez?exclude=etcd", port: p.Cluster.Kubernetes.API.SecurePort, scheme: corev1.URISchemeHTTPS}
	ready := health
	ready.path = "/readyz"
	c := component{
		name:    "kube-apiserver",
		image:   image(p.Settings, "kube-apiserver", "v"+p.Versions.Kubernetes),
		command: apiServerCommand(p),
		// This is the address of the node, because the pod's own is not known yet when its first container starts.
		env: []corev1.EnvVar{{Name: "NODE_IP", ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "status.hostIP"},
		}}},
		mounts: []mount{
			directory("pki", pkiDirectory), directory("config", apiServerDirectory),
			{name: "audit-log", path: auditLogDirectory, kind: corev1.HostPathDirectoryOrCreate, writable: true},
		},
		cpu: "250m", memory: "300Mi",
		live: health, ready: ready,
	}
	// The only external address that an API server has to reach by itself is the OIDC provider.
	if p.oidc().IssuerURL != "" && p.Settings.Proxy.isSet() {
		for _, v := range proxyVariables(p) {
			c.env = append(c.env, corev1.EnvVar{Name: v.name, Value: v.value})
		}
		c.private = true
	}
	return c
}

func apiServerCommand(p Params) []string {
	api := p.Cluster.Kubernetes.API
	command := []string{
		"kube-apiserver",
		"--advertise-address=$(NODE_IP)",
		fmt.Sprintf("--secure-port=%d", api.SecurePort),
		"--allow-privileged=true",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction,EventRateLimit",
		"--admission-control-config-file=" + admissionFile,
		"--authentication-config=" + authenticationFile,
		"--enable-bootstrap-token-auth=true",
		"--client-ca-file=" + caFile,
		"--tls-cert-file=" + apiServerFile,
		"--tls-private-key-file=" + apiServerKeyFile,
		cipherSuites("tls-cipher-suites"),

		fmt.Sprintf("--etcd-servers=https://%s:%d", localhost, key.PortEtcdClient),
		"--etcd-cafile=" + etcdCAFile,
		"--etcd-certfile=" + etcdClientFile,
		"--etcd-keyfile=" + etcdClientKeyFile,
		"--encryption-provider-config=" + encryptionFile,

		// Names of nodes are names of node pods, which no DNS server knows.
		"--kubelet-preferred-address-types=InternalIP",
		"--kubelet-certificate-authority=" + caFile,
		"--kubelet-client-certificate=" + kubeletClientFile,
		"--kubelet-client-key=" + kubeletClientKeyFile,

		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-client-ca-file=" + frontProxyCAFile,
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--proxy-client-cert-file=" + frontProxyClientFile,
		"--proxy-client-key-file=" + frontProxyClientKeyFile,

		"--service-account-issuer=" + serviceAccountIssuer(api),
		"--service-account-jwks-uri=https://" + api.Domain + "/openid/v1/jwks",
		"--service-account-key-file=" + serviceAccountPublicFile,
		"--service-account-signing-key-file=" + serviceAccountKeyFile,
		// A stolen token is valid for an hour, not for a year. Clients that cannot reload a token request a longer one
		// in a projected volume.
		"--service-account-extend-token-expiration=false",
		"--service-cluster-ip-range=" + api.ClusterIPRange,
	}
	command = append(command, auditFlags...)
	command = append(command, "--profiling=false")
	if prefix := p.Cluster.Etcd.Prefix; prefix != "" {
		command = append(command, "--etcd-prefix="+prefix)
	}
	if gates := apiServerGates(p); len(gates) > 0 {
		command = append(command, "--feature-gates="+strings.Join(gates, ","))
	}
	return command
}

// auditFlags are the flags of the audit log.
var auditFlags = []string{
	"--audit-policy-file=" + auditPolicyFile,
	"--audit-log-path=" + auditLogDirectory + "/audit.log",
	"--audit-log-maxage=30",
	// This is at most 1.1 GB; the original's 3 GB do not fit on a master's disk.
	"--audit-log-maxbackup=10",
	"--audit-log-maxsize=100",
}

// apiServerGates are the features that an emulated API server does without, because they cost it too much.
func apiServerGates(p Params) []string {
	var gates []string
	if p.Emulated && keepsAnonymous(p.Versions.Kubernetes) {
		gates = append(gates, "UnauthenticatedHTTP2DOSMitigation=false")
	}
	if p.Emulated && estimatesSizes(p.Versions.Kubernetes) {
		gates = append(gates, "SizeBasedListCostEstimate=false")
	}
	return gates
}

// estimatesSizes reports whether an API server of the version can be configured not to list the keys of each resource in
// etcd every minute, which it does to estimate what lists cost it. Other versions may not know the feature gate, and
// would not start.
func estimatesSizes(kubernetes string) bool {
	v, err := version.ParseGeneric(kubernetes)
	return err == nil && v.AtLeast(version.MajorMinor(1, 35)) && v.LessThan(version.MajorMinor(1, 38))
}

// keepsAnonymous reports whether an API server of the version can be configured to keep the connections of
// unauthenticated clients. By default it closes them after each response, so that such clients cannot make it do much
// work (CVE-2023-44487). Until a kubelet has its certificate, it sends about two unauthenticated requests per second,
// with a handshake each time. Newer API servers may have removed the feature gate, and would not start.
func keepsAnonymous(kubernetes string) bool {
	v, err := version.ParseGeneric(kubernetes)
	return err == nil && v.LessThan(version.MajorMinor(1, 36))
}

// encryptionConfiguration is apiserver.config.k8s.io/v1 EncryptionConfiguration.
type encryptionConfiguration struct {
	APIVersion string               `json:"apiVersion"`
	Kind       string               `json:"kind"`
	Resources  []encryptionResource `json:"resources"`
}

type encryptionResource struct {
	Resources []string             `json:"resources"`
	Providers []encryptionProvider `json:"providers"`
}

type encryptionProvider struct {
	Secretbox *encryptionKeys `json:"secretbox,omitempty"`
	Identity  *struct{}       `json:"identity,omitempty"`
}

type encryptionKeys struct {
	Keys []encryptionKey `json:"keys"`
}

type encryptionKey struct {
	Name   string `json:"name"`
	Secret string `json:"secret"`
}

// encryption encrypts Secrets by secretbox: XSalsa20 and Poly1305 detect tampering, which the original's AES-CBC does
// not, and Kubernetes advises against the latter. Identity comes last, so that what was written before encryption stays
// readable.
func encryption(secret string) encryptionConfiguration {
	return encryptionConfiguration{
		APIVersion: "apiserver.config.k8s.io/v1", Kind: "EncryptionConfiguration",
		Resources: []encryptionResource{{
			Resources: []string{"secrets"},
			Providers: []encryptionProvider{
				{Secretbox: &encryptionKeys{Keys: []encryptionKey{{Name: "key1", Secret: secret}}}},
				{Identity: &struct{}{}},
			},
		}},
	}
}

// serviceAccountIssuer is the issuer of the tokens of the cluster's own service accounts.
func serviceAccountIssuer(api v1alpha1.KubernetesAPI) string { return "https://" + api.Domain }
