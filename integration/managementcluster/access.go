package managementcluster

import (
	"fmt"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// administrators is the group that the API server lets do everything.
const administrators = "system:masters"

// RESTConfig returns the configuration of a client with the rights of a cluster administrator (user "admin").
func (c *Cluster) RESTConfig() *rest.Config { return rest.CopyConfig(c.admin) }

// RESTConfigFor returns the configuration of a client that the API server knows as the given user, member of the given
// groups, with the rights that RBAC gives to these. Client-side rate limits are too high to matter.
func (c *Cluster) RESTConfigFor(user string, groups ...string) (*rest.Config, error) {
	pair, err := c.authority.issue(clientCertificate(user, groups...))
	if err != nil {
		return nil, fmt.Errorf("issuing a certificate to user %s: %w", user, err)
	}
	return &rest.Config{
		Host:            c.serverURL(),
		TLSClientConfig: rest.TLSClientConfig{CAData: c.authority.certificate, CertData: pair.certificate, KeyData: pair.key},
		QPS:             1000,
		Burst:           2000,
	}, nil
}

// WriteKubeconfig writes a kubeconfig for the given user, member of the given groups.
func (c *Cluster) WriteKubeconfig(path, user string, groups ...string) error {
	config, err := c.RESTConfigFor(user, groups...)
	if err != nil {
		return err
	}
	const name = "management"
	err = clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{
			name: {Server: config.Host, CertificateAuthorityData: config.CAData},
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

func (c *Cluster) serverURL() string { return c.ports.url(APIServer) }
