package cluster

import (
	"fmt"

	"github.com/kvm-operator/kvm-operator/pkg/cloudconfig"
	"github.com/kvm-operator/kvm-operator/pkg/key"
	"github.com/kvm-operator/kvm-operator/pkg/pki"
)

// BootParams is everything that the boot data of a node depends on.
func (s *Snapshot) BootParams(n Node) cloudconfig.Params {
	c := s.Cluster()
	guest := s.Settings.Guest
	memory := n.Memory()
	return cloudconfig.Params{
		Cluster: c,
		Node: cloudconfig.Node{
			ID: n.ID, Role: n.Role, Index: s.Index(n.ID), MemoryMiB: memory.Value() >> 20,
			MountTags: n.MountTags(), Labels: c.Kubernetes.Kubelet.Labels,
		},
		Versions: s.Versions,
		// Guests believe the authorities of adopted certificates too; the Secrets stay as they are.
		Certificates:   pki.Trust(s.Certificates, CertificateRequests(s.Config, s.Settings)),
		EncryptionKey:  s.Keys[KeyEncryption],
		BootstrapToken: s.Tokens.Current,
		APIServerURL:   s.InternalURL(),
		EtcdMembers:    s.etcdMembers(),
		EtcdState:      "new",
		Emulated:       s.emulated(),
		Settings:       guest,
	}
}

// etcdMembers are the members that found the cluster's etcd.
func (s *Snapshot) etcdMembers() []cloudconfig.Member {
	var members []cloudconfig.Member
	for _, n := range s.Masters() {
		members = append(members, cloudconfig.Member{
			Name: "etcd-" + n.ID,
			PeerURL: fmt.Sprintf("https://%s:%d",
				key.ServiceHost(key.DeploymentName(n.Role, n.ID), s.ID(), s.Settings.ClusterDomain), key.PortEtcdPeer),
		})
	}
	return members
}
