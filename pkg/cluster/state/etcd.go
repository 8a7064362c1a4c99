package state

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/cloudconfig"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
)

// MemberHost returns the host name of the etcd member on a master.
func (s *Cluster) MemberHost(nodeID string) string {
	return key.ServiceHost(key.DeploymentName(key.RoleMaster, nodeID), s.ID(), s.Settings.ClusterDomain)
}

// EtcdMaster returns a master as package etcd knows it.
func (s *Cluster) EtcdMaster(nodeID string) etcd.Master {
	return etcd.Master{Name: pki.EtcdMember(nodeID), PeerURL: fmt.Sprintf("https://%s:%d", s.MemberHost(nodeID), key.PortEtcdPeer)}
}

// EtcdMasters returns the masters of the spec; each of them needs a member.
func (s *Cluster) EtcdMasters() []etcd.Master {
	var all []etcd.Master
	for _, n := range s.Masters() {
		all = append(all, s.EtcdMaster(n.ID))
	}
	return all
}

// EtcdMachines returns all masters whose machines may run a member: those of the spec and the retiring ones.
func (s *Cluster) EtcdMachines() []Node { return append(s.Masters(), s.Retiring...) }

// EtcdMember returns the member on a master; nil if none is known.
func (s *Cluster) EtcdMember(nodeID string) *etcd.Member {
	at := slices.IndexFunc(s.Etcd.Members, s.EtcdMaster(nodeID).Has)
	if at < 0 {
		return nil
	}
	return &s.Etcd.Members[at]
}

// Retires returns whether the machine of a master that is no longer in the spec has to stay: as long as its member is
// in the list, or as it is not known whether it is. A master from before a restore never has to stay.
func (s *Cluster) Retires(n Node) bool {
	return s.Restore.Committed == "" && !s.PredatesRestore(n) && (!s.Etcd.Known() || s.EtcdMember(n.ID) != nil)
}

// LookAtRetiring records which of the masters that are no longer in the spec have to stay.
func (s *Cluster) LookAtRetiring(retired []Node) {
	s.Retiring = slices.DeleteFunc(slices.Clone(retired), func(n Node) bool { return !s.Retires(n) })
}

// PredatesRestore returns whether a machine that is no longer in the spec ran a member before the restore from which
// the cluster started: it may be part of a majority of an etcd that is no longer the cluster's. A master in the current
// member list is not former, nor is a founder of the current etcd, regardless of whether its member has been seen.
func (s *Cluster) PredatesRestore(n Node) bool {
	return s.FoundingToken() != "" && s.CurrentMember(n) == "" && s.EtcdMember(n.ID) == nil && !slices.Contains(s.Founders, n.ID)
}

// MemberRecord returns how the member of a master is recorded in its Deployment: with the token of the restore,
// because a restored snapshot has none of the earlier members.
func (s *Cluster) MemberRecord(id uint64) string {
	mark := strconv.FormatUint(id, 16)
	if token := s.FoundingToken(); token != "" {
		mark += "@" + token
	}
	return mark
}

// RecordedMember returns the record of the member that a master has run: from its Deployment or, because that may have
// been deleted, from the status.
func (n Node) RecordedMember() string {
	if n.Deployment != nil && n.Deployment.Annotations[key.AnnotationEtcdMember] != "" {
		return n.Deployment.Annotations[key.AnnotationEtcdMember]
	}
	return n.EtcdMember
}

// MemberToRecord returns the record of a master's member that is to be stored from now on.
func (s *Cluster) MemberToRecord(n Node) string {
	m := s.EtcdMember(n.ID)
	switch {
	case n.Role != key.RoleMaster || s.LostMember(n):
		return ""
	case m != nil && m.Started:
		return s.MemberRecord(m.ID)
	}
	return n.RecordedMember()
}

// CurrentMember returns the member that a master is known to have run, as it is recorded; empty if there was none.
func (s *Cluster) CurrentMember(n Node) string {
	mark := n.RecordedMember()
	if _, token, _ := strings.Cut(mark, "@"); token != s.FoundingToken() {
		return ""
	}
	return mark
}

// LostMember returns whether the member whose data a master's machine has was removed from the list: the machine has to
// be replaced.
func (s *Cluster) LostMember(n Node) bool {
	if n.Role != key.RoleMaster || !s.Etcd.Known() || s.CurrentMember(n) == "" {
		return false
	}
	m := s.EtcdMember(n.ID)
	return m == nil || s.MemberRecord(m.ID) != s.CurrentMember(n)
}

func (s *Cluster) beginning(n Node) (etcd.Beginning, []etcd.Master) {
	var founders []etcd.Master
	for _, id := range s.Founders {
		founders = append(founders, s.EtcdMaster(id))
	}
	return etcd.Begin(s.EtcdMaster(n.ID), founders, s.CurrentMember(n) != "", s.Founded(), s.Etcd)
}

// Founded returns whether any member is known to have run.
func (s *Cluster) Founded() bool {
	return slices.ContainsFunc(s.EtcdMachines(), func(n Node) bool { return s.CurrentMember(n) != "" })
}

// AwaitsMember returns whether a master must not start before its member is added to etcd, or before it is known that
// it was added.
func (s *Cluster) AwaitsMember(n Node) bool {
	if n.Role != key.RoleMaster || s.Restore.Halted() {
		return false
	}
	beginning, _ := s.beginning(n)
	return beginning == etcd.Later
}

// making distinguishes the members of this cluster from those of an earlier one with the same name and the same key:
// the IDs of founders are computed from their addresses and from this value, and a founder without data must not get
// the ID of a member that has run.
func (s *Cluster) making() string {
	if s.Config.UID == "" {
		return "" // the cluster is only rendered
	}
	sum := sha256.Sum256([]byte(s.Config.UID))
	return hex.EncodeToString(sum[:4])
}

// beginEtcd sets in the boot data how the master's member starts. A master that must not start yet gets the parameters
// of one that has run, with which it would not start either.
func (s *Cluster) beginEtcd(n Node, p *cloudconfig.Params) {
	p.EtcdState, p.EtcdFrom = cloudconfig.EtcdExisting, cmp.Or(s.FoundingToken(), s.making())
	beginning, members := s.beginning(n)
	switch beginning {
	case etcd.Found:
		p.EtcdState, p.EtcdFoundingToken = cloudconfig.EtcdNew, cmp.Or(s.FoundingToken(), cloudconfig.FoundingToken(p.EncryptionKey))
	case etcd.Join:
		p.EtcdFoundingToken = strconv.FormatUint(s.EtcdMember(n.ID).ID, 16)
	case etcd.Return, etcd.Later:
		members = []etcd.Master{s.EtcdMaster(n.ID)}
	}
	for _, m := range members {
		p.EtcdMembers = append(p.EtcdMembers, cloudconfig.Member{Name: m.Name, PeerURL: m.PeerURL})
	}
}

// LookAtHosts sets on which hosts the data of masters was found: where a snapshot was restored to, or else on the host
// of the pod that was bound first.
func (s *Cluster) LookAtHosts() {
	if !s.OwnsNamespace {
		return
	}
	for _, nodes := range [][]Node{s.Nodes, s.Retiring} {
		for i := range nodes {
			if n := &nodes[i]; s.EtcdOnHost(*n) && n.EtcdHost == "" {
				n.FoundHost = foundHost(*n)
			}
		}
	}
}

func foundHost(n Node) string {
	if n.RestoredOn != "" {
		return n.RestoredOn
	}
	for _, pod := range slices.Backward(n.Pods) { // newest first
		if pod.Spec.NodeName != "" {
			return pod.Spec.NodeName
		}
	}
	return ""
}
