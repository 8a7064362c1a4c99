package cloudconfig

import (
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
)

// pkiDirectory contains certificates and keys.
const pkiDirectory = "/etc/kubernetes/pki"

// Files with certificates and keys.
const (
	// caFile contains every CA that may have signed clients and servers of this cluster.
	caFile = pkiDirectory + "/ca.crt"
	// signerFile contains the CA with which kube-controller-manager signs.
	signerFile               = pkiDirectory + "/signer.crt"
	signerKeyFile            = pkiDirectory + "/signer.key"
	apiServerFile            = pkiDirectory + "/apiserver.crt"
	apiServerKeyFile         = pkiDirectory + "/apiserver.key"
	kubeletClientFile        = pkiDirectory + "/apiserver-kubelet-client.crt"
	kubeletClientKeyFile     = pkiDirectory + "/apiserver-kubelet-client.key"
	etcdClientFile           = pkiDirectory + "/apiserver-etcd-client.crt"
	etcdClientKeyFile        = pkiDirectory + "/apiserver-etcd-client.key"
	frontProxyCAFile         = pkiDirectory + "/front-proxy-ca.crt"
	frontProxyClientFile     = pkiDirectory + "/front-proxy-client.crt"
	frontProxyClientKeyFile  = pkiDirectory + "/front-proxy-client.key"
	serviceAccountPublicFile = pkiDirectory + "/service-account.crt"
	serviceAccountKeyFile    = pkiDirectory + "/service-account.key"

	etcdPKIDirectory = pkiDirectory + "/etcd"
	etcdCAFile       = etcdPKIDirectory + "/ca.crt"
	etcdMemberFile   = etcdPKIDirectory + "/member.crt"
	etcdMemberKey    = etcdPKIDirectory + "/member.key"
)

// part is a part of a key pair.
type part int

const (
	authority part = iota
	certificate
	privateKey
)

func (p part) of(pair pki.KeyPair) []byte {
	return map[part][]byte{authority: pair.CA, certificate: pair.Certificate, privateKey: pair.Key}[p]
}

func (p part) String() string {
	return map[part]string{authority: "certificate of its authority", certificate: "certificate", privateKey: "private key"}[p]
}

// pemFile is a file with a part of a key pair.
type pemFile struct {
	path string
	pair string
	part part
}

// pemFiles lists what a node needs of the cluster's key pairs. A worker gets no key: its kubelet generates its own and
// requests a certificate.
func pemFiles(p Params) []pemFile {
	if !p.master() {
		return []pemFile{{caFile, pki.CA, authority}}
	}
	member := pki.EtcdMember(p.Node.ID)
	return []pemFile{
		{caFile, pki.CA, authority},
		{signerFile, pki.CA, certificate}, {signerKeyFile, pki.CA, privateKey},
		{apiServerFile, pki.API, certificate}, {apiServerKeyFile, pki.API, privateKey},
		{kubeletClientFile, pki.KubeletClient, certificate}, {kubeletClientKeyFile, pki.KubeletClient, privateKey},
		{etcdClientFile, pki.EtcdClient, certificate}, {etcdClientKeyFile, pki.EtcdClient, privateKey},
		{frontProxyCAFile, pki.FrontProxyCA, authority},
		{frontProxyClientFile, pki.FrontProxyClient, certificate}, {frontProxyClientKeyFile, pki.FrontProxyClient, privateKey},
		{serviceAccountPublicFile, pki.ServiceAccount, certificate}, {serviceAccountKeyFile, pki.ServiceAccount, privateKey},
		{etcdCAFile, pki.EtcdCA, authority},
		{etcdMemberFile, member, certificate}, {etcdMemberKey, member, privateKey},
	}
}

func certificates(p Params) parts {
	all := parts{directories: []string{pkiDirectory}}
	if p.master() {
		all.directories = append(all.directories, etcdPKIDirectory)
	}
	for _, pem := range pemFiles(p) {
		f := file{path: pem.path, mode: modePublic, text: string(pem.part.of(p.Certificates[pem.pair]))}
		if pem.part == privateKey {
			f.mode, f.private = modeSecret, true
		}
		all.files = append(all.files, f)
	}
	return all
}
