package cluster

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodepod"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// TestNoClusterGetsTheDataOfAnother: a master's directory on its host has a mark from the key that encrypts its
// cluster's Secrets, which another cluster with the same ID does not have. A master that has data already keeps its
// directory.
func TestNoClusterGetsTheDataOfAnother(t *testing.T) {
	const (
		before  = "/home/core/volumes/ab1cd/k8s-master-m0aaa"
		foreign = "0123456789abcdef"
	)
	written := func(n v1alpha1.NodeStatus) func(*scenario, *world) {
		n.ID, n.Role, n.Phase = "m0aaa", key.RoleMaster, phaseReady
		return func(s *scenario, _ *world) { s.config.Status.Nodes = []v1alpha1.NodeStatus{n} }
	}
	// made points the Deployment, and its pod if there is one, to a directory.
	made := func(directory string, pods int) func(*scenario, *world) {
		return func(s *scenario, w *world) {
			*w = s.running(t)
			d := w.Deployments["master-m0aaa"]
			for i := range d.Spec.Template.Spec.Volumes {
				if source := d.Spec.Template.Spec.Volumes[i].HostPath; source != nil && nodepod.EtcdDirectory(&d.Spec.Template.Spec) == source.Path {
					source.Path = directory
				}
			}
			w.Pods = w.Pods[:pods]
			for i := range w.Pods {
				w.Pods[i].Spec = d.Spec.Template.Spec
			}
		}
	}
	withoutDeployment := func(change func(*scenario, *world)) func(*scenario, *world) {
		return func(s *scenario, w *world) {
			change(s, w)
			delete(w.Deployments, "master-m0aaa")
		}
	}
	own := key.EtcdMark(mustKey(t))
	for name, test := range map[string]struct {
		change func(*scenario, *world)
		want   string
	}{
		"it begins":    {func(*scenario, *world) {}, key.EtcdHostPath("ab1cd", own, "m0aaa")},
		"it has begun": {written(v1alpha1.NodeStatus{EtcdHost: "host-1", EtcdMark: own}), key.EtcdHostPath("ab1cd", own, "m0aaa")},
		"it has begun, and its key is another one now":      {written(v1alpha1.NodeStatus{EtcdHost: "host-1", EtcdMark: foreign}), key.EtcdHostPath("ab1cd", foreign, "m0aaa")},
		"it has begun with an earlier version":              {written(v1alpha1.NodeStatus{EtcdHost: "host-1"}), before},
		"its host is not known yet":                         {written(v1alpha1.NodeStatus{}), key.EtcdHostPath("ab1cd", own, "m0aaa")},
		"an earlier version has made its Deployment":        {made(before, 0), before},
		"only the pod that an earlier version made is left": {withoutDeployment(made(before, 1)), before},
		"its Deployment tells, and the status is lost":      {made(key.EtcdHostPath("ab1cd", foreign, "m0aaa"), 1), key.EtcdHostPath("ab1cd", foreign, "m0aaa")},
		"the Deployment is the original's":                  {made("/home/core/volumes/ab1cd/k8s-master-vm0", 0), before},
	} {
		t.Run(name, func(t *testing.T) {
			s, w := simple(), world{}
			test.change(&s, &w)
			completed := s.snapshot(t, w)
			if got := directoryOf(completed); got != test.want {
				t.Errorf("the data is in %s, want %s", got, test.want)
			}
			n := &completed.Nodes[0]
			known := n.EtcdHost
			n.EtcdHost = "host-1" // as the handler placement records it
			if got := nodeStatus(completed, *n, phaseReady, "").EtcdMark; key.EtcdHostPath("ab1cd", got, "m0aaa") != test.want {
				t.Errorf("once the host is known (%q before) the status says mark %q, want that of %s", known, got, test.want)
			}
		})
	}
}

func mustKey(t *testing.T) string {
	t.Helper()
	return simple().snapshot(t, world{}).Keys[state.KeyEncryption]
}

func directoryOf(s *state.Cluster) string {
	source := nodepod.EtcdSource(s, s.Nodes[0])
	return nodepod.EtcdDirectory(&corev1.PodSpec{Volumes: []corev1.Volume{{Name: "etcd-data", VolumeSource: source}}})
}
