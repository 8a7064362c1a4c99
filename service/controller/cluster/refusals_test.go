package cluster

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/problem"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/namespace"
	"github.com/kvm-operator/kvm-operator/resources/kvmconfig/pvc"
)

// TestMachinesOfTheOriginalInANamespaceOfOurs: both operators work on the cluster. No handler creates anything in the
// namespace, because every handler needs "namespace".
func TestMachinesOfTheOriginalInANamespaceOfOurs(t *testing.T) {
	s := simple()
	w := s.running(t)
	delete(w.Deployments["master-m0aaa"].Annotations, ownership.Annotation)
	desired, err := namespace.New().Build(s.snapshot(t, w))
	if p, ok := problem.As(err); !ok || p.Reason != "LegacyMachines" || !strings.Contains(p.Message, "Deployment ab1cd/master-m0aaa") || len(desired.Objects) > 0 {
		t.Errorf("objects %v, error %v, want none and LegacyMachines", desired.Objects, err)
	}
}

// TestOneHostVolumeForTwoWorkers: the volume goes to the first worker.
func TestOneHostVolumeForTwoWorkers(t *testing.T) {
	s := simple()
	s.config = fixture.MakeCluster("ab1cd").Workers(2).HostVolume(0, "data", "/data").HostVolume(1, "data", "/data").Obj()
	s.inputs.Volumes = []corev1.PersistentVolume{*fixture.MakeVolume("pv1", "data")}
	desired, err := pvc.Resource().Build(s.snapshot(t, world{}))
	want := `workers w0aaa and w1aaa both want the host volume with the mount tag "data"; one may have it`
	if err == nil || err.Error() != want || len(desired.Objects) != 1 {
		t.Errorf("%d claims, error %v, want one and %q", len(desired.Objects), err, want)
	}
}
