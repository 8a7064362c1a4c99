package plan

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/cloudconfig"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// Planner makes plans. Its fields are pure functions: the renderer only remembers what it has rendered.
type Planner struct {
	Renderer *cloudconfig.Renderer
	// Readiness returns whether a node is ready for the rollout, by its pods.
	Readiness state.Readiness
	// Addresses returns the addresses of the API server of a workload cluster; serviceIP is that of its Service.
	Addresses func(s *state.Cluster, serviceIP string) []string
}

// NewPlanner returns a Planner for clusters whose nodes are node pods.
func NewPlanner() Planner {
	return Planner{Renderer: cloudconfig.NewRenderer(), Readiness: state.PodReadiness, Addresses: (*state.Cluster).APIAddresses}
}

// Plan decides what to do. Each step uses the results of those before it.
func (p Planner) Plan(o Observed, now time.Time) *state.Cluster {
	s := Machines(o, now)
	o = o.trusted()
	deleting := s.Config.DeletionTimestamp != nil
	resolveVersions(s, o)
	snapshots(s, o.Snapshots)
	s.LookAtRetired(s.Gone, o.Retirements)
	s.Volumes, s.Ingresses = o.Volumes, o.Ingresses
	s.MasterService, s.WorkerService, s.PublishedService = existing(&o.Services.Master), existing(&o.Services.Worker), existing(&o.Services.API)
	if o.Connects && !deleting {
		s.Addresses = p.Addresses(s, o.Services.Master.Spec.ClusterIP)
		s.Workload = reached(s, o.Workload)
	}
	for i, n := range s.Nodes {
		s.Nodes[i].Late = past(n.LateAt(), now)
	}
	s.LookAtFounding(&o.Namespace, s.Gone, o.AwaitingFounding)
	s.Indexes = indexes(s)
	s.LookAtHosts()
	s.BootDataErr = p.rollOut(s, o.Connects, o.BootData)
	if err := keep(s, o.BootData); err != nil {
		s.BootDataErr = err
	}
	return s
}

// Machines returns the part of the state that is about machines and the members of etcd.
func Machines(o Observed, now time.Time) *state.Cluster {
	s := &state.Cluster{Config: state.WithDefaults(o.Config), Settings: o.Settings, Nodes: state.NewNodes(o.Config.Spec), Now: now}
	s.LookAtNamespace(&o.Namespace, o.Hold)
	o = o.trusted()
	deleting := o.Config.DeletionTimestamp != nil
	if !deleting && !o.OnlyMachines {
		secrets(s, o)
	}
	s.Gone = attach(s, o.Objects, o.Restores)
	s.LookAtRestore(&o.Namespace, o.Restores, o.Pods)
	s.Founders = state.FoundersOf(&o.Namespace, s.Config.Status.Etcd, s.Nodes, s.Gone, s.Restore)
	if o.Connects && !deleting {
		s.Etcd = members(s, o)
	}
	s.LookAtRetiring(s.Gone)
	return s
}

// members returns what is known of the members of etcd. Nothing is known of them without the certificate by which they
// are queried: what was observed may be of an earlier cluster with the same name. Members that are stopped on purpose
// for a restore are not queried, and new ones will replace them.
func members(s *state.Cluster, o Observed) etcd.State {
	_, stored := s.Certificates[pki.EtcdClient]
	switch {
	case s.NamespaceTaken, !stored && !o.OnlyMachines:
		return etcd.State{}
	case s.Restore.Halted():
		return etcd.State{Step: etcd.Step{Action: etcd.Wait, Reason: etcd.ReasonUnreachable, Message: "a snapshot is restored"}}
	}
	return o.Etcd
}

// reached returns what is known of the workload cluster: seen, unless the operator cannot or must not connect to it.
func reached(s *state.Cluster, seen state.Workload) state.Workload {
	if _, refusal := s.Connection(); refusal != nil {
		return *refusal
	}
	return seen
}

// existing returns nil for a Service that was not found.
func existing(service *corev1.Service) *corev1.Service {
	if service.UID == "" {
		return nil
	}
	return service
}

// indexes returns the indexes of the nodes. A node keeps the one that it has.
func indexes(s *state.Cluster) map[string]int32 {
	var stored map[string]int32
	if kvm := s.Config.Status.KVM; kvm != nil {
		stored = kvm.NodeIndexes
	}
	if s.Config.DeletionTimestamp != nil {
		return stored
	}
	var ids []string
	for _, n := range slices.Concat(s.Nodes, s.Retiring) {
		ids = append(ids, n.ID)
	}
	return key.AssignIndexes(stored, ids)
}
