package cloudconfig

import (
	"cmp"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

const (
	controllerManagerKubeconfig = kubeconfigDirectory + "/controller-manager.yaml"
	portControllerManager       = 10257
	// defaultNodeTerm is the validity of the certificates of kubelets.
	defaultNodeTerm = 7 * 24 * time.Hour
)

// controllerManager runs the controllers of Kubernetes, including the one that signs the kubelets' certificates.
func controllerManager(p Params) parts {
	if !p.master() {
		return parts{}
	}
	pod := component{
		name:    "kube-controller-manager",
		image:   image(p.Settings, "kube-controller-manager", "v"+p.Versions.Kubernetes),
		command: controllerManagerCommand(p),
		mounts:  []mount{directory("pki", pkiDirectory), single("kubeconfig", controllerManagerKubeconfig)},
		cpu:     "100m", memory: "200Mi",
		waits: true,
		// This is the only one of the four without /livez.
		live: probe{path: "/healthz", port: portControllerManager, scheme: corev1.URISchemeHTTPS},
	}
	return parts{files: []file{
		componentKubeconfig(p, controllerManagerKubeconfig, "system:kube-controller-manager", pki.ControllerManager),
		pod.file(p),
	}}
}

func controllerManagerCommand(p Params) []string {
	return []string{
		"kube-controller-manager",
		"--kubeconfig=" + controllerManagerKubeconfig,
		"--authentication-kubeconfig=" + controllerManagerKubeconfig,
		"--authorization-kubeconfig=" + controllerManagerKubeconfig,
		// The kubelet's probes come from the machine itself, and so do all permitted clients.
		"--bind-address=" + localhost,
		cipherSuites("tls-cipher-suites"),
		"--client-ca-file=" + caFile,
		"--requestheader-client-ca-file=" + frontProxyCAFile,
		"--requestheader-allowed-names=front-proxy-client",
		"--leader-elect=true",
		"--leader-elect-lease-duration=" + p.slowed(leaseDuration),
		"--leader-elect-renew-deadline=" + p.slowed(renewDeadline),
		"--leader-elect-retry-period=" + p.slowed(retryPeriod),
		// These are the defaults, which follow from how often kubelets report.
		"--node-monitor-period=" + p.slowed(5*time.Second),
		"--node-monitor-grace-period=" + p.slowed(50*time.Second),
		"--use-service-account-credentials=true",
		// This also removes expired bootstrap tokens; that controller is off by default.
		"--controllers=*,token-cleaner-controller",

		"--cluster-name=" + p.Cluster.ID,
		"--allocate-node-cidrs=true",
		"--cluster-cidr=" + key.PodNetwork(p.Cluster),
		fmt.Sprintf("--node-cidr-mask-size=%d", nodeMask(p.Cluster.Calico)),
		"--service-cluster-ip-range=" + p.Cluster.Kubernetes.API.ClusterIPRange,

		"--cluster-signing-cert-file=" + signerFile,
		"--cluster-signing-key-file=" + signerKeyFile,
		// The certificate of a removed node becomes invalid soon; running kubelets renew theirs.
		"--cluster-signing-duration=" + cmp.Or(p.Settings.NodeTerm, defaultNodeTerm).String(),
		"--root-ca-file=" + caFile,
		"--service-account-private-key-file=" + serviceAccountKeyFile,

		// This limits ended pods that their owner does not remove; the default of 12500 is more than a small etcd and
		// its API server should carry.
		"--terminated-pod-gc-threshold=1000",

		// The default of 20 per second delays the first service accounts, and with them everything else, by seconds.
		"--kube-api-qps=100",
		"--kube-api-burst=150",
		"--profiling=false",
	}
}
