package cluster

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

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
	at := slices.IndexFunc(s.Etcd.Members, s.EtcdMaster(nodeID).Has)
	if at < 0 {
		return nil
	}
	return &s.Etcd.Members[at]
}

// Retires says whether the machine of a master that is not in the spec any more has to stay: for as long as its member is in
// the list, and as it is not known whether it is. One of before a restore never has to.
func (s *Snapshot) Retires(n Node) bool {
	return s.Restore.Committed == "" && !s.Former(n) && (!s.Etcd.Known() || s.EtcdMember(n.ID) != nil)
}

// Former says that a machine that is not in the spec any more ran a member of before the restore that the cluster began with: it may be part of
// the majority of an etcd that is none of the cluster's any more. One that the list of now names did not, nor did one that founded the etcd of
// now, whether or not it has been seen.
func (s *Snapshot) Former(n Node) bool {
	return s.FoundingTicket() != "" && s.RanAs(n) == "" && s.EtcdMember(n.ID) == nil && !slices.Contains(s.Founders, n.ID)
}

// EtcdMemberMark is how the member of a master is written down at its Deployment: with what etcd began with, for a snapshot that was
// restored knows none of the members that there were.
func (s *Snapshot) EtcdMemberMark(id uint64) string {
	mark := strconv.FormatUint(id, 16)
	if ticket := s.FoundingTicket(); ticket != "" {
		mark += "@" + ticket
	}
	return mark
}

// WrittenMark is what is written down of the member that a master has run: at its Deployment, and in the status, for somebody may delete
// that.
func (n Node) WrittenMark() string {
	if n.Deployment != nil && n.Deployment.Annotations[key.AnnotationEtcdMember] != "" {
		return n.Deployment.Annotations[key.AnnotationEtcdMember]
	}
	return n.EtcdMember
}

// MarkToKeep is what is to be written down of the member of a master from now on.
func (s *Snapshot) MarkToKeep(n Node) string {
	m := s.EtcdMember(n.ID)
	switch {
	case n.Role != key.RoleMaster || s.LostMember(n):
		return ""
	case m != nil && m.Started:
		return s.EtcdMemberMark(m.ID)
	}
	return n.WrittenMark()
}

// RanAs is the member that a master has been known to run, as it is written down; empty when there was none.
func (s *Snapshot) RanAs(n Node) string {
	mark := n.WrittenMark()
	if _, ticket, _ := strings.Cut(mark, "@"); ticket != s.FoundingTicket() {
		return ""
	}
	return mark
}

// LostMember says that the member whose data a master's machine has was taken out of the list: the machine is of no use any more,
// and another one has to begin.
func (s *Snapshot) LostMember(n Node) bool {
	if n.Role != key.RoleMaster || !s.Etcd.Known() || s.RanAs(n) == "" {
		return false
	}
	m := s.EtcdMember(n.ID)
	return m == nil || s.EtcdMemberMark(m.ID) != s.RanAs(n)
}

func (s *Snapshot) beginning(n Node) (etcd.Beginning, []etcd.Master) {
	var founders []etcd.Master
	for _, id := range s.Founders {
		founders = append(founders, s.EtcdMaster(id))
	}
	return etcd.Begin(s.EtcdMaster(n.ID), founders, s.RanAs(n) != "", s.Founded(), s.Etcd)
}

// Founded says that some member is known to have run.
func (s *Snapshot) Founded() bool {
	return slices.ContainsFunc(s.EtcdMachines(), func(n Node) bool { return s.RanAs(n) != "" })
}

// AwaitsMember says that a master must not begin before its member is added to etcd, or not before that is known.
func (s *Snapshot) AwaitsMember(n Node) bool {
	if n.Role != key.RoleMaster || s.Restore.Halted() {
		return false
	}
	beginning, _ := s.beginning(n)
	return beginning == etcd.Later
}

// making tells the members of this cluster from those of one that was made under the same name and with the same key before: numbers of founders
// are made of their addresses and of this, and a founder that finds no data must not get the number of one that has run.
func (s *Snapshot) making() string {
	if s.Config.UID == "" {
		return "" // it is rendered and not made
	}
	sum := sha256.Sum256([]byte(s.Config.UID))
	return hex.EncodeToString(sum[:4])
}

// beginEtcd says in the boot data how the master's member begins. A master that must not begin yet gets the data of one that
// has run, with which it would not begin either.
func (s *Snapshot) beginEtcd(n Node, p *cloudconfig.Params) {
	p.EtcdState, p.EtcdFrom = cloudconfig.EtcdExisting, cmp.Or(s.FoundingTicket(), s.making())
	beginning, members := s.beginning(n)
	switch beginning {
	case etcd.Found:
		p.EtcdState, p.EtcdTicket = cloudconfig.EtcdNew, cmp.Or(s.FoundingTicket(), cloudconfig.FoundingTicket(p.EncryptionKey))
	case etcd.Join:
		p.EtcdTicket = strconv.FormatUint(s.EtcdMember(n.ID).ID, 16)
	case etcd.Return, etcd.Later:
		members = []etcd.Master{s.EtcdMaster(n.ID)}
	}
	for _, m := range members {
		p.EtcdMembers = append(p.EtcdMembers, cloudconfig.Member{Name: m.Name, PeerURL: m.PeerURL})
	}
}
