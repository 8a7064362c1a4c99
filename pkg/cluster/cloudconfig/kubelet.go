package cloudconfig

import (
	"cmp"
	"fmt"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/coreos/ignition/v2/config/v3_3/types"
	corev1 "k8s.io/api/core/v1"
)

const (
	kubeletConfigFile   = "/etc/kubernetes/config/kubelet.yaml"
	kubeletConfigDir    = "/etc/kubernetes/kubelet.conf.d"
	bootstrapKubeconfig = kubeconfigDirectory + "/bootstrap-kubelet.yaml"
	kubeletDirectory    = "/var/lib/kubelet"
	containerdDirectory = "/var/lib/containerd"
	podLogDirectory     = "/var/log/pods"
	kubeletService      = "k8s-kubelet.service"
	kubeletUnitFile     = "/etc/systemd/system/" + kubeletService
)

// kubelet is the node agent. It generates a key, requests a certificate with the bootstrap token and keeps both on its
// disk, so that a rebooted guest is the same node as before.
func kubelet(p Params) parts {
	bootstrap := newKubeconfig(p, "kubelet-bootstrap", kubeconfigID{Token: p.BootstrapToken})
	return parts{
		directories: []string{path.Dir(kubeletConfigFile), kubeletConfigDir, kubeconfigDirectory},
		files: []file{
			{path: kubeletConfigFile, mode: modeSecret, object: kubeletConfig(p)},
			{path: bootstrapKubeconfig, mode: modeSecret, private: true, object: bootstrap},
			// Ignition creates its own units world-readable.
			{path: kubeletUnitFile, mode: modeSecret, text: kubeletUnit(p)},
			{path: scriptDirectory + "/joining", mode: modeExecutable, text: asset("joining.sh")},
		},
		units: []types.Unit{
			{Name: kubeletService, Enabled: new(true)},
			service("k8s-joining.service", fmt.Sprintf(joiningUnit, kubeletDirectory, p.slowed(10*time.Second))),
			// An image's own kubelet, configured for something else, must not run beside ours.
			{Name: "kubelet.service", Mask: new(true)},
		},
	}
}

// kubeletUnit starts the kubelet. It has flags only where the configuration has no field for them.
func kubeletUnit(p Params) string {
	mounts := []string{containerdDirectory, kubeletDirectory, podLogDirectory}
	wants := []string{"network-online.target", "containerd.service", "k8s-node-environment.service", "k8s-download@kubelet.service"}
	after := strings.Join(wants, " ")
	if p.master() {
		// Without the share etcd would found a new, empty cluster on the root disk.
		mounts = append(mounts, etcdDirectory, auditLogDirectory)
		wants = append(wants, "k8s-download@kubectl.service")
	}
	// The kubelet does not wait for plugins, because pods on the host's network, such as those of the pod network
	// itself, need none.
	wants = append(wants, cniPluginsUnit)
	// env finds the kubelet, because systemd accepts only an absolute path or searches a path that is fixed at its own
	// build.
	return fmt.Sprintf(`[Unit]
Description=Kubernetes node agent
Documentation=https://kubernetes.io/docs/reference/command-line-tools-reference/kubelet/
Wants=%s
After=%s
RequiresMountsFor=%s
StartLimitIntervalSec=0

[Service]
Environment=HOME=/root "PATH=%s"
EnvironmentFile=-/etc/kvm-operator/proxy.env
EnvironmentFile=%s/node.env
%sExecStart=/usr/bin/env kubelet \
  --config=%s \
  --config-dir=%s \
  --bootstrap-kubeconfig=%s \
  --kubeconfig=%s/kubeconfig \
  --node-ip=${NODE_IP} \
  --housekeeping-interval=%s \
  --node-labels=%s
Restart=always
RestartSec=5

[Install]
WantedBy=multi-user.target
`, strings.Join(wants, " "), after, strings.Join(mounts, " "), searchPath, runDirectory, awaitAPI(p),
		kubeletConfigFile, kubeletConfigDir, bootstrapKubeconfig, kubeletDirectory, p.slowed(10*time.Second), nodeLabels(p.Node))
}

const joiningUnit = `[Unit]
Description=Words on the console while the kubelet has not joined
After=k8s-kubelet.service

[Service]
Environment=KUBECONFIG=%s/kubeconfig EVERY=%s
ExecStart=/opt/kvm-operator/joining
StandardOutput=journal+console

[Install]
WantedBy=multi-user.target
`

// awaitAPI delays the kubelet of a worker without a certificate until there is an API server to request one from:
// otherwise it would restart every minute, which costs an emulated machine a quarter of a processor. In any case the
// kubelet starts after five minutes and reports itself what is missing.
func awaitAPI(p Params) string {
	if p.master() {
		return ""
	}
	api, err := url.Parse(p.APIServerURL)
	if err != nil {
		return ""
	}
	return fmt.Sprintf(`TimeoutStartSec=6min
ExecStartPre=-/usr/bin/env timeout 300 bash -c '[ -e %s/kubeconfig ] || until : 2>/dev/null </dev/tcp/%s/%s; do sleep 5; done'
`, kubeletDirectory, api.Hostname(), cmp.Or(api.Port(), "443"))
}

// kubeletConfiguration is the part of kubelet.config.k8s.io/v1beta1 KubeletConfiguration that is set here.
type kubeletConfiguration struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	Authentication       kubeletAuthentication `json:"authentication"`
	Authorization        kubeletAuthorization  `json:"authorization"`
	RotateCertificates   bool                  `json:"rotateCertificates"`
	ServerTLSBootstrap   bool                  `json:"serverTLSBootstrap"`
	ReadOnlyPort         int32                 `json:"readOnlyPort"`
	HealthzBindAddress   string                `json:"healthzBindAddress"`
	HealthzPort          int32                 `json:"healthzPort"`
	StreamingIdleTimeout string                `json:"streamingConnectionIdleTimeout"`
	TLSCipherSuites      []string              `json:"tlsCipherSuites"`

	ProtectKernelDefaults bool  `json:"protectKernelDefaults"`
	SeccompDefault        bool  `json:"seccompDefault"`
	PodPidsLimit          int64 `json:"podPidsLimit"`

	ClusterDNS         []string       `json:"clusterDNS"`
	ClusterDomain      string         `json:"clusterDomain"`
	ResolverConfig     string         `json:"resolvConf"`
	StaticPodPath      string         `json:"staticPodPath,omitempty"`
	VolumePluginDir    string         `json:"volumePluginDir"`
	RegisterWithTaints []corev1.Taint `json:"registerWithTaints,omitempty"`

	CgroupDriver             string `json:"cgroupDriver"`
	ContainerRuntimeEndpoint string `json:"containerRuntimeEndpoint"`
	FailCgroupV1             bool   `json:"failCgroupV1"`

	NodeStatusUpdateFrequency string `json:"nodeStatusUpdateFrequency"`
	NodeLeaseDurationSeconds  int32  `json:"nodeLeaseDurationSeconds"`
	RuntimeRequestTimeout     string `json:"runtimeRequestTimeout"`

	MaxPods                         int32             `json:"maxPods"`
	KubeReserved                    map[string]string `json:"kubeReserved"`
	SystemReserved                  map[string]string `json:"systemReserved"`
	EvictionHard                    map[string]string `json:"evictionHard"`
	EvictionSoft                    map[string]string `json:"evictionSoft"`
	EvictionSoftGracePeriod         map[string]string `json:"evictionSoftGracePeriod"`
	EvictionMaxPodGracePeriod       int32             `json:"evictionMaxPodGracePeriod"`
	ContainerLogMaxSize             string            `json:"containerLogMaxSize"`
	ContainerLogMaxFiles            int32             `json:"containerLogMaxFiles"`
	SerializeImagePulls             bool              `json:"serializeImagePulls"`
	MaxParallelImagePulls           int32             `json:"maxParallelImagePulls"`
	ShutdownGracePeriod             string            `json:"shutdownGracePeriod"`
	ShutdownGracePeriodCriticalPods string            `json:"shutdownGracePeriodCriticalPods"`
}

type kubeletAuthentication struct {
	Anonymous kubeletSwitch      `json:"anonymous"`
	Webhook   kubeletSwitch      `json:"webhook"`
	X509      kubeletClientTrust `json:"x509"`
}

type kubeletSwitch struct {
	Enabled bool `json:"enabled"`
}

type kubeletClientTrust struct {
	ClientCAFile string `json:"clientCAFile"`
}

type kubeletAuthorization struct {
	Mode string `json:"mode"`
}

// The maximum reservations, as in the original; it reserved more on masters, for an etcd that was not a pod.
const (
	kubeReservedMiB   = 768
	systemReservedMiB = 384
)

// reservedMillicores is the maximum CPU reservation for Kubernetes, and for the system; the original reserved this on
// all nodes.
const reservedMillicores = 250

// reserved returns how much of a node's memory is reserved: a share of it, so that a small node has room for pods, and
// at most mostMiB. A node whose memory is unknown reserves the maximum.
func reserved(p Params, mostMiB, share int64) string {
	mib := mostMiB
	if p.Node.MemoryMiB > 0 {
		mib = min(mib, p.Node.MemoryMiB/share)
	}
	return fmt.Sprintf("%dMi", mib)
}

// reservedCPU returns how much of a node's processors is reserved: a sixteenth, so that the control plane, the pod
// network and the proxy of Services fit on a master with one processor. A node whose processors are unknown reserves
// the maximum.
func reservedCPU(p Params) string {
	millicores := int64(reservedMillicores)
	if p.Node.CPUs > 0 {
		millicores = min(millicores, p.Node.CPUs*1000/16)
	}
	return fmt.Sprintf("%dm", millicores)
}

func kubeletConfig(p Params) kubeletConfiguration {
	config := kubeletConfiguration{
		APIVersion: "kubelet.config.k8s.io/v1beta1", Kind: "KubeletConfiguration",

		Authentication:     kubeletAuthentication{Webhook: kubeletSwitch{Enabled: true}, X509: kubeletClientTrust{ClientCAFile: caFile}},
		Authorization:      kubeletAuthorization{Mode: "Webhook"},
		RotateCertificates: true,
		ServerTLSBootstrap: true,
		// The runner queries the kubelet's health from outside the guest; the response reveals nothing else.
		HealthzBindAddress:   "0.0.0.0",
		HealthzPort:          10248,
		StreamingIdleTimeout: "1h",
		TLSCipherSuites:      strongCiphers,

		// systemd sets them before anything starts.
		ProtectKernelDefaults: true,
		SeccompDefault:        true,
		// A pod that creates processes endlessly exhausts its own limit, not the node's.
		PodPidsLimit: 4096,

		ClusterDNS:     []string{p.Cluster.Kubernetes.DNS.IP},
		ClusterDomain:  p.Cluster.Kubernetes.Domain,
		ResolverConfig: runDirectory + "/resolv.conf",
		// The default is below /usr, which is read-only on many images.
		VolumePluginDir: kubeletDirectory + "/volumeplugins",

		CgroupDriver:             "systemd",
		ContainerRuntimeEndpoint: runtimeSocket,

		// These are the defaults for machines that are not emulated.
		NodeStatusUpdateFrequency: p.slowed(10 * time.Second),
		NodeLeaseDurationSeconds:  40 * p.slowness(),
		RuntimeRequestTimeout:     p.slowed(2 * time.Minute),

		MaxPods:        maxPods(p.Cluster.Calico),
		KubeReserved:   map[string]string{"cpu": reservedCPU(p), "memory": reserved(p, kubeReservedMiB, 6), "ephemeral-storage": "1Gi"},
		SystemReserved: map[string]string{"cpu": reservedCPU(p), "memory": reserved(p, systemReservedMiB, 12)},
		// A custom list replaces the defaults, so all of them are listed. On a small node the thresholds are shares of
		// its memory, or it would be under pressure from the start.
		EvictionHard: map[string]string{
			"memory.available": reserved(p, 200, 5), "imagefs.available": "15%", "nodefs.available": "10%", "nodefs.inodesFree": "5%",
		},
		EvictionSoft:              map[string]string{"memory.available": reserved(p, 500, 3)},
		EvictionSoftGracePeriod:   map[string]string{"memory.available": "5s"},
		EvictionMaxPodGracePeriod: 60,
		ContainerLogMaxSize:       "25Mi",
		ContainerLogMaxFiles:      2,
		MaxParallelImagePulls:     5,
		// A guest is powered down by ACPI; what was not drained gets a minute.
		ShutdownGracePeriod:             "60s",
		ShutdownGracePeriodCriticalPods: "20s",
	}
	if p.master() {
		config.StaticPodPath = manifestDirectory
		config.RegisterWithTaints = []corev1.Taint{{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule}}
	}
	return config
}
