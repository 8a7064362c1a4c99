package state

import (
	"github.com/kvm-operator/kvm-operator/pkg/cluster/cloudconfig"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
)

// BootParams returns everything that the boot data of a node depends on.
func (s *Cluster) BootParams(n Node) cloudconfig.Params {
	c := s.Cluster()
	guest := s.Settings.Guest
	memory := n.Memory()
	p := cloudconfig.Params{
		Cluster: c,
		Node: cloudconfig.Node{
			ID: n.ID, Role: n.Role, Index: s.Index(n.ID), CPUs: int64(n.Machine.CPUs), MemoryMiB: memory.Value() >> 20,
			MountTags: n.MountTags(), Labels: c.Kubernetes.Kubelet.Labels,
		},
		Versions: s.Versions,
		// Guests trust the CAs of adopted certificates too; the Secrets are not changed.
		Certificates:   pki.Trust(s.Certificates, CertificateRequests(s.Config, s.Settings)),
		EncryptionKey:  s.Keys[KeyEncryption],
		BootstrapToken: s.bootToken(n),
		APIServerURL:   s.InternalURL(),
		Emulated:       s.Emulated(),
		Settings:       guest,
	}
	if n.Role == key.RoleMaster {
		s.beginEtcd(n, &p)
	}
	return p
}

// bootToken returns the bootstrap token in the boot data of a node; empty while the cluster has none.
func (s *Cluster) bootToken(n Node) string {
	if !s.Tokens.Known() {
		return ""
	}
	return s.Tokens.Current(n.Joins()).String()
}
