package pki

import (
	"crypto/x509"
	"net/netip"
	"slices"
	"time"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// Usage is what a certificate may be used for.
type Usage int

const (
	// UsageAuthority is for a CA, which signs other certificates.
	UsageAuthority Usage = iota
	// UsageClient authenticates a client.
	UsageClient
	// UsageServer authenticates a server.
	UsageServer
	// UsageBoth authenticates a server and, towards its peers, a client.
	UsageBoth
)

// Request describes a key pair that a cluster needs.
type Request struct {
	// Name is the name of the pair in the Set.
	Name string
	// Authority is the name of the CA that signs this pair. It is empty for CAs, which sign themselves.
	Authority string
	// Signer is the common name of that CA, which determines its place in Vault. It is empty for CAs.
	Signer string
	// CommonName is the user name that the pair authenticates.
	CommonName string
	// Organizations are the groups that the pair authenticates.
	Organizations []string
	// DNSNames and IPs are the subject alternative names of a server.
	DNSNames []string
	IPs      []netip.Addr
	// Usage is what the pair may be used for.
	Usage Usage
	// Term is the validity of the pair. Zero leaves it to the issuer.
	Term time.Duration
	// Keep says that an existing pair is not renewed, because what its key signed has to stay valid, or because the
	// pair belongs to another issuer.
	Keep bool
}

// Masters is the group that may do everything, regardless of RBAC bindings.
const Masters = "system:masters"

// operatorTerm is the validity of the operator's own certificate. No machine has this certificate, so that its renewal
// replaces no machine.
const operatorTerm = 30 * 24 * time.Hour

// AdminRequest is the request for the administrator's certificate, in a group that gets its rights from a binding.
func AdminRequest(clusterID, group string, term time.Duration) Request {
	return Request{
		Name: Admin, Authority: CA, Signer: authorityName(CA, clusterID), CommonName: "kvm-operator:administrator",
		Organizations: []string{group}, Usage: UsageClient, Term: term,
	}
}

// authorityName returns the common name of a cluster's CA.
func authorityName(authority, clusterID string) string {
	return map[string]string{CA: "kubernetes-", EtcdCA: "etcd-", FrontProxyCA: "front-proxy-"}[authority] + clusterID
}

// Administers reports whether a pair authenticates a client that may do everything.
func Administers(pair KeyPair) bool {
	cert, err := ParseCertificate(pair.Certificate)
	return err == nil && slices.Contains(cert.Subject.Organization, Masters) && slices.Contains(cert.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
}

var loopback = []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")}

// Requests lists the key pairs of a cluster, CAs first. clusterDomain is the DNS domain of the management cluster;
// alternatives are additional names and addresses of the API server.
func Requests(c v1alpha1.Cluster, clusterDomain string, alternatives ...string) []Request {
	base := key.BaseDomain(c.Kubernetes.API.Domain)
	requests := []Request{
		{Name: CA, CommonName: authorityName(CA, c.ID), Usage: UsageAuthority},
		{Name: EtcdCA, CommonName: authorityName(EtcdCA, c.ID), Usage: UsageAuthority},
		{Name: FrontProxyCA, CommonName: authorityName(FrontProxyCA, c.ID), Usage: UsageAuthority},
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
			// Tokens of pods outlive certificates, and only the key of this certificate is ever used.
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
	for i := range requests {
		if authority := requests[i].Authority; authority != "" {
			requests[i].Signer = authorityName(authority, c.ID)
		}
	}
	return requests
}

// names returns the alternatives that are not IP addresses.
func names(alternatives []string) []string {
	return slices.DeleteFunc(slices.Clone(alternatives), func(s string) bool {
		_, err := netip.ParseAddr(s)
		return err == nil
	})
}

// addresses returns the alternatives that are IP addresses.
func addresses(alternatives []string) []netip.Addr {
	var list []netip.Addr
	for _, s := range alternatives {
		if addr, err := netip.ParseAddr(s); err == nil {
			list = append(list, addr)
		}
	}
	return list
}

// apiNames returns the names by which the API server is reached: by pods of the workload cluster, by the management
// cluster through the Service "master", and from outside.
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

// memberRequest is the request for the certificate of one etcd member, which it presents to its clients and its peers.
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
