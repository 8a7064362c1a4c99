package cloudconfig

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
)

const (
	testToken      = "abcdef.0123456789abcdef"
	testDockerhub  = "cm9ib3Q6aHVudGVyMg==" // robot:hunter2
	testProxy      = "http://guest:pr0xypass@proxy.example.com:3128"
	testPublicKey  = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBbHQqyk0XvTbOe5e1eUVTsW ada"
	testKubernetes = "1.35.4"
)

var testEncryptionKey = base64.StdEncoding.EncodeToString([]byte("0123456789abcdef0123456789abcdef"))

// masterParams is a valid input for the master m0aaa of a cluster with one master and one worker.
func masterParams() Params {
	return Params{
		Cluster:           testCluster(),
		Node:              Node{ID: "m0aaa", Role: key.RoleMaster, Index: 1, Labels: "giantswarm.io/provider=kvm,kvm-operator.giantswarm.io/version=3.18.6"},
		Versions:          v1alpha1.Versions{Kubernetes: testKubernetes, Etcd: "3.6.5"},
		Certificates:      testCertificates(),
		EncryptionKey:     testEncryptionKey,
		BootstrapToken:    testToken,
		APIServerURL:      "https://master.ab1cd.svc.cluster.local:443",
		EtcdMembers:       testMembers("m0aaa"),
		EtcdState:         EtcdNew,
		EtcdFoundingToken: EtcdFounding,
	}
}

// workerParams is a valid input for the worker w0aaa of the same cluster.
func workerParams() Params {
	p := masterParams()
	p.Node = Node{ID: "w0aaa", Role: key.RoleWorker, Index: 2, Labels: p.Node.Labels}
	p.EncryptionKey, p.EtcdMembers, p.EtcdState, p.EtcdFoundingToken = "", nil, "", ""
	return p
}

// fullParams is a master of three with every setting set.
func fullParams() Params {
	p := masterParams()
	p.Cluster.Masters = []v1alpha1.Node{{ID: "m0aaa"}, {ID: "m1bbb"}, {ID: "m2ccc"}}
	p.Node.ID, p.Node.Index = "m1bbb", 3
	p.EtcdMembers = testMembers("m2ccc", "m0aaa", "m1bbb")
	p.Cluster.Kubernetes.SSH.UserList = []v1alpha1.SSHUser{{Name: "ada", PublicKey: testPublicKey}, {Name: "grace"}}
	p.Settings = Settings{
		RegistryDomain:  "docker.io/giantswarm",
		RegistryMirrors: []string{"mirror-a.example.com", "mirror-b.example.com:5000"},
		DockerhubToken:  testDockerhub,
		Proxy:           Proxy{HTTP: testProxy, HTTPS: testProxy, NoProxy: []string{"10.0.0.0/8", "example.internal"}},
		NTPServers:      []string{"ntp1.example.com", "192.0.2.7"},
		SSOPublicKey:    testPublicKey,
		BinaryBaseURL:   "https://binaries.example.com/kubernetes/",
		OIDC: v1alpha1.OIDC{
			ClientID: "kubernetes", IssuerURL: "https://dex.example.com", UsernameClaim: "email", UsernamePrefix: "oidc:",
			GroupsClaim: "groups", GroupsPrefix: "oidc:",
		},
	}
	return p
}

// volumesParams is a worker with host volumes.
func volumesParams() Params {
	p := workerParams()
	p.Node.MountTags = []string{"data1", "fast-ssd", "a_b.c"}
	return p
}

func testCluster() v1alpha1.Cluster {
	return v1alpha1.Cluster{
		ID: "ab1cd", Masters: []v1alpha1.Node{{ID: "m0aaa"}}, Workers: []v1alpha1.Node{{ID: "w0aaa"}},
		Calico: v1alpha1.Calico{Subnet: "192.168.0.0", CIDR: 16, MTU: 1430},
		Etcd:   v1alpha1.Etcd{Domain: "etcd.ab1cd.k8s.example.org", Prefix: "giantswarm.io"},
		Kubernetes: v1alpha1.Kubernetes{
			API:     v1alpha1.KubernetesAPI{ClusterIPRange: "172.31.0.0/16", Domain: "api.ab1cd.k8s.example.org", SecurePort: 443},
			DNS:     v1alpha1.KubernetesDNS{IP: "172.31.0.10"},
			Domain:  "cluster.local",
			Kubelet: v1alpha1.Kubelet{Domain: "worker.ab1cd.k8s.example.org"},
		},
	}
}

func testMembers(ids ...string) []Member {
	var members []Member
	for _, id := range ids {
		members = append(members, Member{Name: pki.EtcdMember(id), PeerURL: fmt.Sprintf("https://master-%s.ab1cd.svc.cluster.local:2380", id)})
	}
	return members
}

// testCertificates are not real certificates, but no code of this package parses them.
func testCertificates() pki.Set {
	set := pki.Set{}
	names := []string{
		pki.API, pki.Etcd, pki.ServiceAccount, pki.Worker, pki.CA, pki.EtcdCA, pki.FrontProxyCA, pki.KubeletClient, pki.EtcdClient,
		pki.ControllerManager, pki.Scheduler, pki.FrontProxyClient, "etcd-m0aaa", "etcd-m1bbb", "etcd-m2ccc",
	}
	for _, name := range names {
		set[name] = pki.KeyPair{
			CA:          pemText("CERTIFICATE", "authority of "+name),
			Certificate: pemText("CERTIFICATE", "certificate of "+name),
			Key:         pemText("EC PRIVATE KEY", "key of "+name),
		}
	}
	return set
}

func pemText(kind, content string) []byte {
	return fmt.Appendf(nil, "-----BEGIN %s-----\n%s\n-----END %s-----\n", kind, base64.StdEncoding.EncodeToString([]byte(content)), kind)
}

// secrets are all secret values of the input, in every form that could be found in a config.
func secrets(p Params) map[string][]byte {
	found := map[string][]byte{
		"encryption key": []byte(p.EncryptionKey), "bootstrap token": []byte(p.BootstrapToken),
		"bootstrap token's secret": []byte(strings.SplitN(p.BootstrapToken+".", ".", 2)[1]),
		"registry token":           []byte(p.Settings.DockerhubToken), "registry password": []byte("hunter2"), "proxy password": []byte("pr0xypass"),
	}
	for name, pair := range p.Certificates {
		found["key of "+name] = pair.Key
		found["body of key of "+name] = bytes.Split(pair.Key, []byte("\n"))[1]
	}
	for name, value := range found {
		if len(value) == 0 {
			delete(found, name)
			continue
		}
		found[name+" in base64"] = []byte(base64.StdEncoding.EncodeToString(value))
	}
	return found
}
