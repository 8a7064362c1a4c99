package addons

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// Labels of Kubernetes that select nodes and name what a pod is.
const (
	labelOS  = "kubernetes.io/os"
	labelApp = "k8s-app"
)

// requests returns resource requests; there is no limit.
func requests(cpu, memory string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
	}}
}

// everywhere lets a pod run on nodes with any taint.
func everywhere() []corev1.Toleration {
	return []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
}

// gradually replaces the pods of a DaemonSet on a tenth of the nodes at a time, but at least one.
func gradually() appsv1.DaemonSetUpdateStrategy {
	tenth := intstr.FromString("10%")
	return appsv1.DaemonSetUpdateStrategy{
		Type: appsv1.RollingUpdateDaemonSetStrategyType, RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: &tenth},
	}
}

// selector selects pods by their labels.
func selector(labels map[string]string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: labels}
}

// fromPod is a variable with a field of the pod.
func fromPod(name, field string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: field},
	}}
}

// hostPath is a path of the node; an empty kind does not check what is there.
func hostPath(name, path string, kind corev1.HostPathType) corev1.Volume {
	source := &corev1.HostPathVolumeSource{Path: path}
	if kind != "" {
		source.Type = &kind
	}
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: source}}
}

// configMap is a volume with the files of a ConfigMap.
func configMap(name, from string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: from},
	}}}
}

// forRoot returns a volume of a ConfigMap whose files, and copies of them, only root can read.
func forRoot(volume corev1.Volume) corev1.Volume {
	volume.ConfigMap.DefaultMode = ptr.To[int32](0o600)
	return volume
}

// httpProbe probes a port of the pod; period and timeout are in seconds.
func httpProbe(path string, port, period, timeout, failures int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Path: path, Port: intstr.FromInt32(port), Scheme: corev1.URISchemeHTTP,
		}},
		PeriodSeconds: period, TimeoutSeconds: timeout, FailureThreshold: failures,
	}
}

// xtables is the lock for exclusive access of a node's programs to its packet filter.
const xtables = "xtables-lock"

func xtablesVolume() corev1.Volume {
	return hostPath(xtables, "/run/xtables.lock", corev1.HostPathFileOrCreate)
}

func xtablesMount() corev1.VolumeMount {
	return corev1.VolumeMount{Name: xtables, MountPath: "/run/xtables.lock"}
}
