package pki

import (
	"crypto/x509"
	"net/netip"
	"slices"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/key"
)

// Usage is what a certificate may be used for.
type Usage int

const (
	// UsageAuthority signs other certificates.
	UsageAuthority Usage = iota
	// UsageClient introduces a client.
	UsageClient
	// UsageServer introduces a server.
	UsageServer
	// UsageBoth introduces a server and, towards its peers, a client.
	UsageBoth
)

// Request describes a key pair that a cluster needs.
type Request struct {
	// Name of the pair in the Set.
	Name string
	// Authority is the name of the pair that signs this one; empty for authorities, which sign themselves.
	Authority string
	// Signer is the common name of that authority, by which its place in Vault is known; empty for authorities.
	Signer string
	// CommonName is the user name that the pair stands for.
	CommonName string
	// Organizations are the groups that the pair stands for.
	Organizations []string
	// DNSNames and IPs are what a server may be called.
	DNSNames []string
	IPs      []netip.Addr
	// Usage is what the pair may be used for.
	Usage Usage
	// Term is how long the pair holds; zero leaves that to the issuer.
	Term time.Duration
	// Keep says that a pair that exists is not issued anew, for what was signed with its key has to stay valid, or for it is
	// somebody else's.
	Keep bool
}

// Masters is the group that may do everything whatever bindings say.
const Masters = "system:masters"

// operatorTerm is how long the operator's own certificate holds. It is on no machine, so its renewal replaces none.
const operatorTerm = 30 * 24 * time.Hour

// AdminRequest is the request of the administrator's certificate, of a group that is bound to its rights.
func AdminRequest(group string, term time.Duration) Request {
	return Request{Name: Admin, Authority: CA, CommonName: "kvm-operator:administrator", Organizations: []string{group}, Usage: UsageClient, Term: term}
}

// Administers says whether a pair introduces a client that may do everything.
func Administers(pair KeyPair) bool {
	cert, err := ParseCertificate(pair.Certificate)
	return err == nil && slices.Contains(cert.Subject.Organization, Masters) && slices.Contains(cert.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
}

var loopback = []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")}

// Requests lists the key pairs of a cluster, authorities first. clusterDomain is the DNS domain of the management
// cluster; alternatives are further names and addresses of the API server.
func Requests(c v1alpha1.Cluster, clusterDomain string, alternatives ...string) []Request {
	base := key.BaseDomain(c.Kubernetes.API.Domain)
	requests := []Request{
		{Name: CA, CommonName: "kubernetes-" + c.ID, Usage: UsageAuthority},
		{Name: EtcdCA, CommonName: "etcd-" + c.ID, Usage: UsageAuthority},
		{Name: FrontProxyCA, CommonName: "front-proxy-" + c.ID, Usage: UsageAuthority},
		{
			Name: API, Authority: CA, CommonName: "api." + base, Organizations: []string{"api"}, Usage: UsageServer,
			DNSNames: append(apiNames(c, base, clusterDomain), names(alternatives)...),
			IPs:      slices.Concat([]netip.Addr{key.NthServiceIP(c.Kubernetes.API.ClusterIPRange, 1)}, loopback, addresses(alternatives)),
		},
		{
			Name: Etcd, Authority: EtcdCA, CommonName: key.EtcdDomain(c), Organizations: []string{"etcd"}, Usage: UsageBoth,
			DNSNames: []string{key.EtcdDomain(c), "localhost"}, IPs: loopback,
		},
		{Name: Worker, Authority: CA, CommonName: key.WorkerDomain(c), Organizations: []string{"worker"}, Usage: UsageClient},
		{
			Name: ServiceAccount, Authority: CA, CommonName: "service-account." + base, Organizations: []string{"service-account"}, Usage: UsageClient,
			// Tokens of pods outlast certificates, and of this one nobody looks at anything but the key.
			Keep: true,
		},
		{Name: KubeletClient, Authority: CA, CommonName: "kube-apiserver-kubelet-client", Usage: UsageClient},
		{Name: EtcdClient, Authority: EtcdCA, CommonName: "kube-apiserver-etcd-client", Usage: UsageClient},
		{Name: ControllerManager, Authority: CA, CommonName: "system:kube-controller-manager", Usage: UsageClient},
		{Name: Scheduler, Authority: CA, CommonName: "system:kube-scheduler", Usage: UsageClient},
		{Name: Operator, Authority: CA, CommonName: "kvm-operator", Organizations: []string{Masters}, Usage: UsageClient, Term: operatorTerm},
		{Name: FrontProxyClient, Authority: FrontProxyCA, CommonName: "front-proxy-client", Usage: UsageClient},
	}
	for _, master := range c.Masters {
		requests = append(requests, memberRequest(c, master.ID, clusterDomain))
	}
	return withSigners(requests)
}

// withSigners notes in each request the common name of the authority that it asks.
func withSigners(requests []Request) []Request {
	names := map[string]string{}
	for _, request := range requests {
		if request.Usage == UsageAuthority {
			names[request.Name] = request.CommonName
		}
	}
	for i := range requests {
		requests[i].Signer = names[requests[i].Authority]
	}
	return requests
}

// names are those among the alternatives that are no IP addresses.
func names(alternatives []string) []string {
	return slices.DeleteFunc(slices.Clone(alternatives), func(s string) bool {
		_, err := netip.ParseAddr(s)
		return err == nil
	})
}

// addresses are those among the alternatives that are IP addresses.
func addresses(alternatives []string) []netip.Addr {
	var list []netip.Addr
	for _, s := range alternatives {
		if addr, err := netip.ParseAddr(s); err == nil {
			list = append(list, addr)
		}
	}
	return list
}

// apiNames are the names by which the API is reached: by pods of the workload cluster, by the management cluster through
// the Service "master", and from outside.
func apiNames(c v1alpha1.Cluster, base, clusterDomain string) []string {
	inside := "kubernetes.default.svc"
	names := []string{
		"api." + base, "internal-api." + base,
		"kubernetes", "kubernetes.default", inside, inside + "." + c.Kubernetes.Domain,
		key.RoleMaster + "." + key.Namespace(c.ID), key.RoleMaster + "." + key.Namespace(c.ID) + ".svc",
		key.ServiceHost(key.RoleMaster, c.ID, clusterDomain), "localhost",
	}
	return names
}

// memberRequest is the certificate of one etcd member, for its clients and its peers.
func memberRequest(c v1alpha1.Cluster, nodeID, clusterDomain string) Request {
	service := key.DeploymentName(key.RoleMaster, nodeID)
	return Request{
		Name: EtcdMember(nodeID), Authority: EtcdCA, CommonName: EtcdMember(nodeID), Usage: UsageBoth, IPs: loopback,
		DNSNames: []string{
			key.ServiceHost(service, c.ID, clusterDomain), service + "." + key.Namespace(c.ID) + ".svc",
			key.ServiceHost(key.RoleMaster, c.ID, clusterDomain), key.RoleMaster + "." + key.Namespace(c.ID) + ".svc",
			key.EtcdDomain(c), "localhost",
		},
	}
}
