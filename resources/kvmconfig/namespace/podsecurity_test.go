package namespace

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// TestLevelThatTheNamespaceEnforces: a pod that exists, or may have to start again unchanged, is never rejected.
func TestLevelThatTheNamespaceEnforces(t *testing.T) {
	earlier := state.Node{Deployment: &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/images"}}}},
	}}}}}
	current := state.Node{Deployment: &appsv1.Deployment{}}
	for name, test := range map[string]struct {
		change func(*state.Cluster)
		want   string
	}{
		"all pods meet baseline":            {func(*state.Cluster) {}, key.PodSecurityBaseline},
		"a node has no Deployment yet":      {func(s *state.Cluster) { s.Nodes = append(s.Nodes, state.Node{}) }, key.PodSecurityBaseline},
		"the setting asks for nothing":      {func(s *state.Cluster) { s.Settings.Machine.PodSecurity = key.PodSecurityPrivileged }, key.PodSecurityPrivileged},
		"a node waits for its replacement":  {func(s *state.Cluster) { s.Nodes = append(s.Nodes, earlier) }, key.PodSecurityPrivileged},
		"a master that retires keeps its":   {func(s *state.Cluster) { s.Retiring = append(s.Retiring, earlier) }, key.PodSecurityPrivileged},
		"etcd's data is on hosts":           {func(s *state.Cluster) { s.Config.Spec.KVM.K8sKVM.StorageType = "" }, key.PodSecurityPrivileged},
		"masters have left data on hosts":   {func(s *state.Cluster) { s.Config.Status.Retired = make([]v1alpha1.RetiredData, 1) }, key.PodSecurityPrivileged},
		"snapshots go to a host directory":  {func(s *state.Cluster) { s.Config.Spec.Etcd = snapshots("/srv") }, key.PodSecurityPrivileged},
		"snapshots go to a volume of claim": {func(s *state.Cluster) { s.Config.Spec.Etcd = snapshots("") }, key.PodSecurityBaseline},
	} {
		s := &state.Cluster{Config: &v1alpha1.KVMConfig{}, Nodes: []state.Node{current}}
		s.Config.Spec.KVM.K8sKVM.StorageType = v1alpha1.StorageTypePersistentVolume
		s.Settings.Machine.PodSecurity = key.PodSecurityBaseline
		test.change(s)
		if got := podSecurity(s); got != test.want {
			t.Errorf("%s: the namespace enforces %s, want %s", name, got, test.want)
		}
	}
}

func snapshots(hostPath string) *v1alpha1.EtcdData {
	return &v1alpha1.EtcdData{Snapshots: &v1alpha1.EtcdSnapshots{Volume: v1alpha1.SnapshotVolume{HostPath: hostPath}}}
}
