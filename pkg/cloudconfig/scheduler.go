package cloudconfig

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/pki"
)

const (
	schedulerKubeconfig = kubeconfigDirectory + "/scheduler.yaml"
	schedulerConfig     = "/etc/kubernetes/config/scheduler.yaml"
	portScheduler       = 10259
)

// schedulerConfiguration is the part of kubescheduler.config.k8s.io/v1 KubeSchedulerConfiguration that is set here.
type schedulerConfiguration struct {
	APIVersion       string            `json:"apiVersion"`
	Kind             string            `json:"kind"`
	ClientConnection map[string]string `json:"clientConnection"`
	EnableProfiling  bool              `json:"enableProfiling"`
	LeaderElection   map[string]bool   `json:"leaderElection"`
}

// scheduler finds nodes for pods.
func scheduler(p Params) parts {
	if !p.master() {
		return parts{}
	}
	pod := component{
		name:  "kube-scheduler",
		image: image(p.Settings, "kube-scheduler", "v"+p.Versions.Kubernetes),
		command: []string{
			"kube-scheduler",
			"--config=" + schedulerConfig,
			"--authentication-kubeconfig=" + schedulerKubeconfig,
			"--authorization-kubeconfig=" + schedulerKubeconfig,
			"--client-ca-file=" + caFile,
			"--requestheader-client-ca-file=" + frontProxyCAFile,
			"--requestheader-allowed-names=front-proxy-client",
		},
		mounts: []mount{
			// A directory would show the key that signs certificates.
			single("ca", caFile), single("front-proxy-ca", frontProxyCAFile),
			single("config", schedulerConfig), single("kubeconfig", schedulerKubeconfig),
		},
		cpu: "100m", memory: "100Mi",
		live:  probe{path: "/livez", port: portScheduler, scheme: corev1.URISchemeHTTPS},
		ready: probe{path: "/readyz", port: portScheduler, scheme: corev1.URISchemeHTTPS},
	}
	return parts{files: []file{
		componentKubeconfig(p, schedulerKubeconfig, "system:kube-scheduler", pki.Scheduler),
		{path: schedulerConfig, mode: modePublic, object: schedulerConfiguration{
			APIVersion: "kubescheduler.config.k8s.io/v1", Kind: "KubeSchedulerConfiguration",
			ClientConnection: map[string]string{"kubeconfig": schedulerKubeconfig},
			LeaderElection:   map[string]bool{"leaderElect": true},
		}},
		pod.file(),
	}}
}
