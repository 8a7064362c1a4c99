package cluster

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cloudconfig"
	"github.com/kvm-operator/kvm-operator/pkg/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/key"
	"github.com/kvm-operator/kvm-operator/pkg/pki"
)

// MemberHost is the name by which the member of etcd on a master is reached.
func (s *Snapshot) MemberHost(nodeID string) string {
	return key.ServiceHost(key.DeploymentName(key.RoleMaster, nodeID), s.ID(), s.Settings.ClusterDomain)
}

// EtcdMaster is a master as package etcd knows it.
func (s *Snapshot) EtcdMaster(nodeID string) etcd.Master {
	return etcd.Master{Name: pki.EtcdMember(nodeID), PeerURL: fmt.Sprintf("https://%s:%d", s.MemberHost(nodeID), key.PortEtcdPeer)}
}

// EtcdMasters are the masters of the spec: each is to have a member.
func (s *Snapshot) EtcdMasters() []etcd.Master {
	var all []etcd.Master
	for _, n := range s.Masters() {
		all = append(all, s.EtcdMaster(n.ID))
	}
	return all
}

// EtcdMachines are all masters whose machines may run a member: those of the spec and the retiring ones.
func (s *Snapshot) EtcdMachines() []Node { return append(s.Masters(), s.Retiring...) }

// EtcdMember is the member on a master; nil when it is not known to have one.
func (s *Snapshot) EtcdMember(nodeID string) *etcd.Member {
	name := pki.EtcdMember(nodeID)
	at := slices.IndexFunc(s.Etcd.Members, func(m etcd.Member) bool {
		return m.Name == name || !m.Started() && m.PeerURL == s.EtcdMaster(nodeID).PeerURL
	})
	if at < 0 {
		return nil
	}
	return &s.Etcd.Members[at]
}

// Retires says whether the machine of a master that is not in the spec any more has to stay: for as long as its member is in
// the list, and as it is not known whether it is.
func (s *Snapshot) Retires(nodeID string) bool { return !s.Etcd.Known() || s.EtcdMember(nodeID) != nil }

// HasRun says whether the member on a master has ever been known to run.
func (s *Snapshot) HasRun(n Node) bool {
	if n.Deployment != nil && n.Deployment.Annotations[key.AnnotationEtcdMember] != "" {
		return true
	}
	m := s.EtcdMember(n.ID)
	return m != nil && m.Started()
}

func (s *Snapshot) beginning(n Node) (etcd.Beginning, []etcd.Master) {
	var founders []etcd.Master
	for _, id := range s.Founders {
		founders = append(founders, s.EtcdMaster(id))
	}
	return etcd.Begin(s.EtcdMaster(n.ID), founders, s.HasRun(n), s.Etcd)
}

// AwaitsMember says that a master must not begin before its member is added to etcd.
func (s *Snapshot) AwaitsMember(n Node) bool {
	if n.Role != key.RoleMaster || n.Deployment != nil {
		return false
	}
	beginning, _ := s.beginning(n)
	return beginning == etcd.Later
}

// beginEtcd says in the boot data how the master's member begins. A master that must not begin yet gets the data of one that
// has run, with which it would not begin either.
func (s *Snapshot) beginEtcd(n Node, p *cloudconfig.Params) {
	p.EtcdState = cloudconfig.EtcdExisting
	beginning, members := s.beginning(n)
	switch beginning {
	case etcd.Found:
		p.EtcdState, p.EtcdTicket = cloudconfig.EtcdNew, cloudconfig.EtcdFounding
	case etcd.Join:
		p.EtcdTicket = strconv.FormatUint(s.EtcdMember(n.ID).ID, 16)
	case etcd.Return, etcd.Later:
		members = []etcd.Master{s.EtcdMaster(n.ID)}
	}
	for _, m := range members {
		p.EtcdMembers = append(p.EtcdMembers, cloudconfig.Member{Name: m.Name, PeerURL: m.PeerURL})
	}
}

// FoundersOf reads who founded the cluster's etcd from its namespace. Where nobody has written that down yet, it is the
// masters that have machines, or all of the spec when none has: masters were not changed in the time before it was.
func FoundersOf(namespace *corev1.Namespace, nodes []Node) []string {
	if text := namespace.Annotations[key.AnnotationEtcdFounders]; text != "" {
		return strings.Split(text, ",")
	}
	var all, made []string
	for _, n := range nodes {
		if n.Role != key.RoleMaster {
			continue
		}
		all = append(all, n.ID)
		if n.Deployment != nil {
			made = append(made, n.ID)
		}
	}
	if len(made) > 0 {
		return made
	}
	return all
}
