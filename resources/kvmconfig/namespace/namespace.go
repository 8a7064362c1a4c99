// Package namespace is the handler of the namespace that holds a cluster.
package namespace

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodepod"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
)

// New returns the handler.
func New() apply.Resource[*state.Cluster] {
	return apply.Resource[*state.Cluster]{Handler: "namespace", Kinds: []client.Object{&corev1.Namespace{}}, Build: build}
}

func build(s *state.Cluster) (apply.Desired, error) {
	if s.Config.Namespace == s.Namespace() {
		return apply.Desired{}, problem.Newf("InvalidNamespace", "KVMConfig %s/%s is in the namespace of its own cluster, which is deleted with the cluster; "+
			"create it in another namespace", s.Config.Namespace, s.Config.Name)
	}
	for _, n := range s.Nodes {
		// The original operator also works on this cluster.
		if n.Deployment != nil && state.IsLegacyMachine(n.Deployment) {
			return apply.Desired{}, state.LegacyMachines(n.Deployment)
		}
	}
	labels := s.Labels(map[string]string{key.LabelPodSecurityEnforce: podSecurity(s)})
	return apply.Desired{Objects: []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: s.Namespace(), Labels: labels,
			Annotations: annotations(s),
		}},
	}}, nil
}

// podSecurity returns the level of Pod Security that the namespace enforces. It is baseline if the setting says so and
// all existing and future pods meet it. A node that waits for its replacement may have to start again unchanged.
func podSecurity(s *state.Cluster) string {
	snapshots := s.EtcdSnapshots()
	if !s.Settings.Machine.Baseline() || !s.EtcdOnVolume() || len(s.Config.Status.Retired) > 0 || snapshots != nil && snapshots.Volume.HostPath != "" {
		return key.PodSecurityPrivileged
	}
	for _, n := range slices.Concat(s.Nodes, s.Retiring) {
		if n.Deployment != nil && !nodepod.MeetsBaseline(n.Deployment.Spec.Template.Spec) {
			return key.PodSecurityPrivileged
		}
	}
	return key.PodSecurityBaseline
}

// annotations record how etcd was founded, and with which members. They are written before any machine exists, because
// a master that is added later must never found its own etcd. The two irreversible steps of a restore are one write
// each.
func annotations(s *state.Cluster) map[string]string {
	a := map[string]string{key.AnnotationEtcdFounders: strings.Join(s.Founders, ",")}
	if s.Founding {
		a[key.AnnotationEtcdFounding] = "true"
	}
	begun, done, token := s.Restore.Committed, s.Restore.LastRestoreRecord(), s.FoundingToken()
	switch s.Restore.Phase() {
	case etcd.Committing:
		begun = s.Restore.Target()
	case etcd.Founding:
		begun, done, token = "", s.Restore.RestoreRecord(), s.RestoreToken()
	case etcd.NotRestoring, etcd.Checking, etcd.Stopping, etcd.Placing:
	}
	for name, value := range map[string]string{
		key.AnnotationEtcdRestoring: begun, key.AnnotationEtcdRestored: done, key.AnnotationFoundingToken: token,
	} {
		if value != "" {
			a[name] = value
		}
	}
	return a
}
