// Package namespace is the handler of the namespace that holds a cluster.
package namespace

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apply"
	"github.com/kvm-operator/kvm-operator/pkg/cluster"
	"github.com/kvm-operator/kvm-operator/pkg/etcd"
	"github.com/kvm-operator/kvm-operator/pkg/key"
	"github.com/kvm-operator/kvm-operator/pkg/nodepod"
	"github.com/kvm-operator/kvm-operator/pkg/problem"
)

// New makes the handler.
func New() apply.Resource[*cluster.Snapshot] {
	return apply.Resource[*cluster.Snapshot]{Handler: "namespace", Kinds: []client.Object{&corev1.Namespace{}}, Build: build}
}

func build(s *cluster.Snapshot) (apply.Desired, error) {
	if s.Config.Namespace == s.Namespace() {
		return apply.Desired{}, problem.Newf("NamespaceIsOwn", "KVMConfig %s/%s lives in the namespace that its cluster would get and that goes with the cluster; "+
			"put it into another namespace", s.Config.Namespace, s.Config.Name)
	}
	for _, n := range s.Nodes {
		// Both operators work on this cluster.
		if n.Deployment != nil && cluster.IsLegacyMachine(n.Deployment) {
			return apply.Desired{}, cluster.LegacyMachines(n.Deployment)
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

// podSecurity is the level of Pod Security that the namespace enforces: baseline where the setting asks for it and all pods that there are, or
// are to be, meet it. A node that waits for its replacement may have to start again as it is.
func podSecurity(s *cluster.Snapshot) string {
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

// annotations tell how etcd began, and with what. They are written before there is any machine: a master that comes later must never
// found an etcd of its own. The two steps of a restore that cannot be taken back are one write each.
func annotations(s *cluster.Snapshot) map[string]string {
	a := map[string]string{key.AnnotationEtcdFounders: strings.Join(s.Founders, ",")}
	if s.Founding {
		a[key.AnnotationEtcdFounding] = "true"
	}
	begun, done := s.Restore.Committed, s.Restore.DoneMark()
	switch s.Restore.Phase() {
	case etcd.Committing:
		begun = s.Restore.Target()
	case etcd.Founding:
		begun, done = "", s.Restore.RestoredMark()
	case etcd.NotRestoring, etcd.Checking, etcd.Stopping, etcd.Placing:
	}
	for name, value := range map[string]string{key.AnnotationEtcdRestoring: begun, key.AnnotationEtcdRestored: done} {
		if value != "" {
			a[name] = value
		}
	}
	return a
}
