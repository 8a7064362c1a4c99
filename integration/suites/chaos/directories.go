package chaos

import (
	"fmt"
	"path"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/nodepod"
)

// checkDirectory: the directory of a running machine is never renamed.
func (j *judge) checkDirectory(pod *corev1.Pod, gone bool) {
	name := pod.Namespace + "/" + pod.Name
	ended := gone || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.uses, name)
	delete(j.renames, name)
	switch {
	case ended || pod.Spec.NodeName == "":
		return
	case pod.Labels[key.LabelApp] == key.RoleMaster && runs(pod) && nodepod.EtcdDirectory(&pod.Spec) != "":
		j.uses[name] = pod.Spec.NodeName + ":" + nodepod.EtcdDirectory(&pod.Spec)
	case strings.HasPrefix(pod.Labels[batchv1.JobNameLabel], "etcd-rename-"):
		j.renames[name] = pod.Spec.NodeName + ":" + renamed(pod)
	}
	for machine, used := range j.uses {
		for job, directory := range j.renames {
			if used == directory && (name == machine || name == job) {
				j.violations = append(j.violations, fmt.Sprintf("%s renames %s, which machine %s uses", job, directory, machine))
			}
		}
	}
}

// renamed returns the directory that a pod is to rename.
func renamed(pod *corev1.Pod) string {
	for _, argument := range pod.Spec.Containers[0].Command {
		if name, found := strings.CutPrefix(argument, "--name="); found {
			return path.Join(pod.Spec.Volumes[0].HostPath.Path, name)
		}
	}
	return ""
}
