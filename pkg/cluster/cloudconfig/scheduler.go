package cloudconfig

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
)

const (
	schedulerKubeconfig = kubeconfigDirectory + "/scheduler.yaml"
	schedulerConfig     = "/etc/kubernetes/config/scheduler.yaml"
	portScheduler       = 10259
)

// Leader election of controller manager and scheduler uses two and a half times the defaults. A leader that cannot
// renew its lease in time ends and restarts, which makes it worse for an API server that is slow because it is
// starting.
const (
	leaseDuration = 40 * time.Second
	renewDeadline = 30 * time.Second
	retryPeriod   = 5 * time.Second
)

// schedulerConfiguration is the part of kubescheduler.config.k8s.io/v1 KubeSchedulerConfiguration that is set here.
type schedulerConfiguration struct {
	APIVersion       string            `json:"apiVersion"`
	Kind             string            `json:"kind"`
	ClientConnection map[string]string `json:"clientConnection"`
	EnableProfiling  bool              `json:"enableProfiling"`
	LeaderElection   leaderElection    `json:"leaderElection"`
}

type leaderElection struct {
	LeaderElect   bool   `json:"leaderElect"`
	LeaseDuration string `json:"leaseDuration"`
	RenewDeadline string `json:"renewDeadline"`
	RetryPeriod   string `json:"retryPeriod"`
}

// scheduler assigns pods to nodes.
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
			"--bind-address=" + localhost,
			cipherSuites("tls-cipher-suites"),
			"--client-ca-file=" + caFile,
			"--requestheader-client-ca-file=" + frontProxyCAFile,
			"--requestheader-allowed-names=front-proxy-client",
		},
		mounts: []mount{
			// Mounting the directory would expose the key that signs certificates.
			single("ca", caFile), single("front-proxy-ca", frontProxyCAFile),
			single("config", schedulerConfig), single("kubeconfig", schedulerKubeconfig),
		},
		cpu: "50m", memory: "100Mi",
		waits: true,
		live:  probe{path: "/livez", port: portScheduler, scheme: corev1.URISchemeHTTPS},
		ready: probe{path: "/readyz", port: portScheduler, scheme: corev1.URISchemeHTTPS},
	}
	return parts{files: []file{
		componentKubeconfig(p, schedulerKubeconfig, "system:kube-scheduler", pki.Scheduler),
		{path: schedulerConfig, mode: modeSecret, object: schedulerConfiguration{
			APIVersion: "kubescheduler.config.k8s.io/v1", Kind: "KubeSchedulerConfiguration",
			ClientConnection: map[string]string{"kubeconfig": schedulerKubeconfig},
			LeaderElection: leaderElection{
				LeaderElect: true, LeaseDuration: p.slowed(leaseDuration), RenewDeadline: p.slowed(renewDeadline), RetryPeriod: p.slowed(retryPeriod),
			},
		}},
		pod.file(p),
	}}
}
