package addons

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// FlannelVersion and FlannelPluginVersion are the versions that clusters get.
const (
	FlannelVersion       = "0.28.4"
	FlannelPluginVersion = "1.9.1-flannel1"
)

const (
	flannel          = "flannel"
	flannelNamespace = "kube-flannel"
	flannelConfig    = "kube-flannel-cfg"
	flannelRegistry  = "ghcr.io"
	flannelDirectory = "/etc/kube-flannel/"
	cniConfig        = "/etc/cni/net.d"
	cniBinaries      = "/opt/cni/bin"
	// encapsulation is the size in bytes of what VXLAN adds to a packet.
	encapsulation = 50
)

// Flannel is the pod network, based on the project's manifest: https://github.com/flannel-io/flannel, kube-flannel.yml.
// It differs in two ways: the API server is reached by its address, so that the network does not wait for kube-proxy,
// and every taint is tolerated.
func Flannel(p Params) ([]client.Object, error) {
	config, err := flannelFiles(p)
	if err != nil {
		return nil, err
	}
	daemons, err := flannelDaemonSet(p, config)
	if err != nil {
		return nil, err
	}
	labels := map[string]string{labelApp: flannel}
	namespace := &corev1.Namespace{ObjectMeta: p.meta("", flannelNamespace, labels)}
	for _, label := range []string{key.LabelPodSecurityEnforce, key.LabelPodSecurityAudit, key.LabelPodSecurityWarn} {
		namespace.Labels[label] = key.PodSecurityPrivileged
	}
	objects := append([]client.Object{namespace}, p.account(flannelNamespace, flannel, flannel, flannel, labels)...)
	return append(objects, &rbacv1.ClusterRole{ObjectMeta: p.meta("", flannel, labels), Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}},
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"nodes/status"}, Verbs: []string{"patch"}},
	}}, config, daemons), nil
}

// cniList is the configuration with which the container runtime calls plugins.
const cniList = `{
  "name": "cbr0",
  "cniVersion": "0.3.1",
  "plugins": [
    {
      "type": "flannel",
      "delegate": {
        "hairpinMode": true,
        "isDefaultGateway": true
      }
    },
    {
      "type": "portmap",
      "capabilities": {
        "portMappings": true
      }
    }
  ]
}
`

// flannelFiles are the configurations of flannel and of the container runtime.
func flannelFiles(p Params) (*corev1.ConfigMap, error) {
	network, err := p.podNetwork()
	if err != nil {
		return nil, err
	}
	mtu := ""
	if p.CNI.MTU != 0 {
		// flannel expects the outer MTU and subtracts its overhead.
		mtu = fmt.Sprintf(",\n    \"MTU\": %d", p.CNI.MTU+encapsulation)
	}
	return &corev1.ConfigMap{
		ObjectMeta: p.meta(flannelNamespace, flannelConfig, map[string]string{"app": flannel, labelApp: flannel, "tier": "node"}),
		Data: map[string]string{
			"cni-conf.json": cniList,
			// Flannel's nftables support is experimental; its image has iptables of both kinds.
			"net-conf.json": fmt.Sprintf(`{
  "Network": "%s",
  "EnableNFTables": false,
  "Backend": {
    "Type": "vxlan"%s
  }
}
`, network, mtu),
		},
	}, nil
}

func flannelDaemonSet(p Params, config *corev1.ConfigMap) (*appsv1.DaemonSet, error) {
	daemon, err := flannelContainer(p)
	if err != nil {
		return nil, err
	}
	selected := map[string]string{"app": flannel}
	return &appsv1.DaemonSet{
		ObjectMeta: p.meta(flannelNamespace, "kube-flannel-ds", map[string]string{"app": flannel, labelApp: flannel, "tier": "node"}),
		Spec: appsv1.DaemonSetSpec{
			Selector: selector(selected), UpdateStrategy: gradually(),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": flannel, "tier": "node"}, Annotations: configured(config)},
				Spec: corev1.PodSpec{
					Containers: paced(p, daemon),
					// The node's resolver knows the name of the API server; the cluster's depends on this pod.
					DNSPolicy: corev1.DNSDefault, HostNetwork: true,
					InitContainers:     flannelInstallers(p),
					NodeSelector:       map[string]string{labelOS: "linux"},
					PriorityClassName:  "system-node-critical",
					ServiceAccountName: flannel, Tolerations: everywhere(),
					Volumes: []corev1.Volume{
						hostPath("run", "/run/flannel", ""), hostPath("cni-plugin", cniBinaries, ""), hostPath("cni", cniConfig, ""),
						forRoot(configMap("flannel-cfg", flannelConfig)), xtablesVolume(),
					},
				},
			},
		},
	}, nil
}

func (p Params) flannelImage() string {
	return p.image(p.CNI.Image, flannelRegistry, "flannel-io/flannel", "v"+FlannelVersion)
}

// flannelInstallers copy the plugin and the configuration to where the container runtime looks for them.
func flannelInstallers(p Params) []corev1.Container {
	return []corev1.Container{
		{
			Name: "install-cni-plugin", ImagePullPolicy: corev1.PullIfNotPresent, Resources: requests("100m", "50Mi"),
			Image:   p.image(p.CNI.PluginImage, flannelRegistry, "flannel-io/flannel-cni-plugin", "v"+FlannelPluginVersion),
			Command: []string{"cp"}, Args: []string{"-f", "/flannel", cniBinaries + "/flannel"},
			VolumeMounts: []corev1.VolumeMount{{Name: "cni-plugin", MountPath: cniBinaries}},
		},
		{
			Name: "install-cni", ImagePullPolicy: corev1.PullIfNotPresent, Resources: requests("100m", "50Mi"),
			Image:   p.flannelImage(),
			Command: []string{"cp"}, Args: []string{"-f", flannelDirectory + "cni-conf.json", cniConfig + "/10-flannel.conflist"},
			VolumeMounts: []corev1.VolumeMount{{Name: "cni", MountPath: cniConfig}, {Name: "flannel-cfg", MountPath: flannelDirectory}},
		},
	}
}

func flannelContainer(p Params) (corev1.Container, error) {
	api, err := p.apiServer()
	if err != nil {
		return corev1.Container{}, err
	}
	port := api.Port()
	if port == "" {
		port = "443"
	}
	return corev1.Container{
		Name: "kube-flannel", Image: p.flannelImage(), ImagePullPolicy: corev1.PullIfNotPresent,
		Command: []string{"/opt/bin/flanneld"},
		// Removed rules are restored after a minute. Every five seconds, the default, costs an emulated node a tenth of
		// its processor.
		Args: []string{"--ip-masq", "--kube-subnet-mgr", "--iptables-resync=60"},
		Env: []corev1.EnvVar{
			fromPod("POD_NAME", "metadata.name"), fromPod("POD_NAMESPACE", "metadata.namespace"),
			{Name: "EVENT_QUEUE_DEPTH", Value: "5000"}, {Name: "CONT_WHEN_CACHE_NOT_READY", Value: "false"},
			// They take precedence over those of the Service, which only works once kube-proxy does.
			{Name: "KUBERNETES_SERVICE_HOST", Value: api.Hostname()}, {Name: "KUBERNETES_SERVICE_PORT", Value: port},
		},
		Resources: requests("100m", "50Mi"),
		SecurityContext: &corev1.SecurityContext{
			Privileged: ptr.To(false), Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN", "NET_RAW"}},
		},
		VolumeMounts: []corev1.VolumeMount{
			{Name: "run", MountPath: "/run/flannel"}, {Name: "flannel-cfg", MountPath: flannelDirectory}, xtablesMount(),
		},
	}, nil
}
