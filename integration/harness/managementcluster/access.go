package managementcluster

import (
	"fmt"
	"net"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// administrators is the group with all permissions on the API server.
const administrators = "system:masters"

// RESTConfig returns the configuration of a client with the permissions of a cluster administrator (user "admin").
func (c *Cluster) RESTConfig() *rest.Config { return rest.CopyConfig(c.admin) }

// RESTConfigFor returns the configuration of a client that is the given user, member of the given groups, with their
// RBAC permissions. Client-side rate limits are too high to matter.
func (c *Cluster) RESTConfigFor(user string, groups ...string) (*rest.Config, error) {
	pair, err := c.authority.issue(clientCertificate(user, groups...))
	if err != nil {
		return nil, fmt.Errorf("issuing a certificate to user %s: %w", user, err)
	}
	return &rest.Config{
		Host:            c.serverURL(),
		TLSClientConfig: rest.TLSClientConfig{CAData: c.authority.certificate, CertData: pair.certificate, KeyData: pair.key},
		Dial:            c.options.dial(),
		QPS:             1000,
		Burst:           2000,
	}, nil
}

// ServingCertificate issues a certificate with its key, both PEM, to a server that the API server connects to, such as
// a kubelet.
func (c *Cluster) ServingCertificate(name string, address net.IP) (certificate, key []byte, err error) {
	template := servingCertificate(name, name)
	template.IPAddresses = []net.IP{address}
	pair, err := c.authority.issue(template)
	if err != nil {
		return nil, nil, fmt.Errorf("issuing a certificate to server %s: %w", name, err)
	}
	return pair.certificate, pair.key, nil
}

// Authority is the certificate of the CA, in PEM, that signs all certificates of the cluster.
func (c *Cluster) Authority() []byte { return c.authority.certificate }

// WriteKubeconfig writes a kubeconfig for the given user, member of the given groups.
func (c *Cluster) WriteKubeconfig(path, user string, groups ...string) error {
	return c.WriteKubeconfigFor(path, c.serverURL(), user, groups...)
}

// WriteKubeconfigFor is WriteKubeconfig for a client that reaches the API server at another URL, such as a forwarded
// port. The server's certificate is valid for 127.0.0.1.
func (c *Cluster) WriteKubeconfigFor(path, server, user string, groups ...string) error {
	config, err := c.RESTConfigFor(user, groups...)
	if err != nil {
		return err
	}
	const name = "management"
	err = clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{
			name: {Server: server, CertificateAuthorityData: config.CAData},
		},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{
			user: {ClientCertificateData: config.CertData, ClientKeyData: config.KeyData},
		},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: user}},
		CurrentContext: name,
	}, path)
	if err != nil {
		return fmt.Errorf("writing the kubeconfig of user %s: %w", user, err)
	}
	return nil
}

func kubeconfigName(user string) string { return strings.TrimPrefix(user, "system:") + ".kubeconfig" }

// Address returns the host and port of the API server. The host is that of Options.Network.
func (c *Cluster) Address() string { return c.ports.address(APIServer) }

func (c *Cluster) serverURL() string { return c.ports.url(APIServer) }
