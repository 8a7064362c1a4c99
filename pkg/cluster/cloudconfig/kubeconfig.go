package cloudconfig

import (
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
)

// kubeconfigDirectory contains the kubeconfigs of the node's components. None of them is an administrator's.
const kubeconfigDirectory = "/etc/kubernetes/kubeconfig"

// kubeconfig is the part of a client configuration that is used here; client-go has the full type.
type kubeconfig struct {
	APIVersion     string              `json:"apiVersion"`
	Kind           string              `json:"kind"`
	CurrentContext string              `json:"current-context"`
	Clusters       []kubeconfigCluster `json:"clusters"`
	Contexts       []kubeconfigContext `json:"contexts"`
	Users          []kubeconfigUser    `json:"users"`
}

type kubeconfigCluster struct {
	Name    string `json:"name"`
	Cluster struct {
		CertificateAuthority string `json:"certificate-authority"`
		Server               string `json:"server"`
	} `json:"cluster"`
}

type kubeconfigContext struct {
	Name    string `json:"name"`
	Context struct {
		Cluster string `json:"cluster"`
		User    string `json:"user"`
	} `json:"context"`
}

type kubeconfigUser struct {
	Name string       `json:"name"`
	User kubeconfigID `json:"user"`
}

// kubeconfigID is how a client authenticates: by certificate or by token.
type kubeconfigID struct {
	ClientCertificateData []byte `json:"client-certificate-data,omitempty"`
	ClientKeyData         []byte `json:"client-key-data,omitempty"`
	Token                 string `json:"token,omitempty"`
}

// newKubeconfig returns the kubeconfig of user name. The CA is read from its file, so that there is one copy of it.
func newKubeconfig(p Params, name string, id kubeconfigID) kubeconfig {
	cluster := kubeconfigCluster{Name: p.Cluster.ID}
	cluster.Cluster.CertificateAuthority, cluster.Cluster.Server = caFile, p.apiServerURL()
	context := kubeconfigContext{Name: name}
	context.Context.Cluster, context.Context.User = p.Cluster.ID, name
	return kubeconfig{
		APIVersion: "v1", Kind: "Config", CurrentContext: name,
		Clusters: []kubeconfigCluster{cluster}, Contexts: []kubeconfigContext{context},
		Users: []kubeconfigUser{{Name: name, User: id}},
	}
}

// componentKubeconfig returns the kubeconfig file of a component that authenticates by a key pair.
func componentKubeconfig(p Params, path, name, pair string) file {
	identity := p.Certificates[pair]
	return file{
		path: path, mode: modeSecret, private: true,
		object: newKubeconfig(p, name, kubeconfigID{ClientCertificateData: identity.Certificate, ClientKeyData: identity.Key}),
	}
}

// identities are the key pairs in kubeconfigs.
var identities = []string{pki.ControllerManager, pki.Scheduler}
