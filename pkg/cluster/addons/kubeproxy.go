package addons

import (
	"fmt"
	"net/url"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

const (
	kubeProxy          = "kube-proxy"
	kubeProxyDirectory = "/var/lib/kube-proxy"
	kubeProxyConfig    = "config.conf"
	kubeProxyAccess    = "kubeconfig.conf"
	portProxyHealth    = 10256
	portProxyMetrics   = 10249
	accountDirectory   = "/var/run/secrets/kubernetes.io/serviceaccount"
)

// KubeProxy makes Services work on every node. It reaches the API server by its address, because the Service of the API
// server only works once kube-proxy does.
func KubeProxy(p Params) ([]client.Object, error) {
	network, err := p.podNetwork()
	if err != nil {
		return nil, err
	}
	if _, err := p.apiServer(); err != nil {
		return nil, err
	}
	files, err := proxyFiles(p, network.String())
	if err != nil {
		return nil, err
	}
	labels := map[string]string{labelApp: kubeProxy}
	config := &corev1.ConfigMap{ObjectMeta: p.meta(metav1.NamespaceSystem, kubeProxy, labels), Data: files}
	objects := p.account(metav1.NamespaceSystem, kubeProxy, "kvm-operator:kube-proxy", "system:node-proxier", labels)
	return append(objects, config, proxyDaemonSet(p, labels, config)), nil
}

// apiServer returns the parsed URL of the API server.
func (p Params) apiServer() (*url.URL, error) {
	u, err := url.Parse(p.APIServerURL)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" {
		return nil, fmt.Errorf("the address of the API server of cluster %s is %q; it has to be a URL that begins with https://", p.Cluster.ID, p.APIServerURL)
	}
	return u, nil
}

// proxyConfiguration is the part of kubeproxy.config.k8s.io/v1alpha1 KubeProxyConfiguration that is set here.
type proxyConfiguration struct {
	APIVersion         string         `json:"apiVersion"`
	Kind               string         `json:"kind"`
	BindAddress        string         `json:"bindAddress"`
	HealthzBindAddress string         `json:"healthzBindAddress"`
	MetricsBindAddress string         `json:"metricsBindAddress"`
	ClientConnection   proxyClient    `json:"clientConnection"`
	ClusterCIDR        string         `json:"clusterCIDR"`
	Mode               string         `json:"mode"`
	Conntrack          proxyConntrack `json:"conntrack"`
}

type proxyClient struct {
	Kubeconfig string `json:"kubeconfig"`
}

type proxyConntrack struct {
	MaxPerCore int32 `json:"maxPerCore"`
}

// proxyFiles are the configuration and the kubeconfig.
func proxyFiles(p Params, podNetwork string) (map[string]string, error) {
	config := proxyConfiguration{
		APIVersion: "kubeproxy.config.k8s.io/v1alpha1", Kind: "KubeProxyConfiguration",
		BindAddress:        "0.0.0.0",
		HealthzBindAddress: fmt.Sprintf("0.0.0.0:%d", portProxyHealth),
		// They reveal all Services to any client.
		MetricsBindAddress: fmt.Sprintf("127.0.0.1:%d", portProxyMetrics),
		ClientConnection:   proxyClient{Kubeconfig: kubeProxyDirectory + "/" + kubeProxyAccess},
		ClusterCIDR:        podNetwork,
		// This needs Linux 5.13, which is older than the guests; rules change quickly, regardless of the number of
		// Services.
		Mode: "nftables",
		// 0 keeps the kernel's value.
		Conntrack: proxyConntrack{MaxPerCore: p.Cluster.Kubernetes.NetworkSetup.KubeProxy.ConntrackMaxPerCore},
	}
	files := map[string]string{}
	for name, content := range map[string]any{kubeProxyConfig: config, kubeProxyAccess: proxyKubeconfig(p.APIServerURL)} {
		text, err := yaml.Marshal(content)
		if err != nil {
			return nil, fmt.Errorf("encoding %s of kube-proxy: %w", name, err)
		}
		files[name] = string(text)
	}
	return files, nil
}

// proxyKubeconfig is a kubeconfig with the token and the CA of the pod's service account.
func proxyKubeconfig(server string) map[string]any {
	const name = "default"
	return map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": name,
		"clusters": []any{map[string]any{"name": name, "cluster": map[string]any{
			"certificate-authority": accountDirectory + "/ca.crt", "server": server,
		}}},
		"contexts": []any{map[string]any{"name": name, "context": map[string]any{"cluster": name, "user": name}}},
		"users":    []any{map[string]any{"name": name, "user": map[string]any{"tokenFile": accountDirectory + "/token"}}},
	}
}

func proxyDaemonSet(p Params, labels map[string]string, config *corev1.ConfigMap) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{
		ObjectMeta: p.meta(metav1.NamespaceSystem, kubeProxy, labels),
		Spec: appsv1.DaemonSetSpec{
			Selector: selector(labels), UpdateStrategy: gradually(),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: configured(config)},
				Spec: corev1.PodSpec{
					Containers: paced(p, proxyContainer(p)),
					// The node's resolver knows the name of the API server; the cluster's depends on this pod.
					DNSPolicy: corev1.DNSDefault, HostNetwork: true,
					NodeSelector:       map[string]string{labelOS: "linux"},
					PriorityClassName:  "system-node-critical",
					ServiceAccountName: kubeProxy, Tolerations: everywhere(),
					Volumes: []corev1.Volume{
						forRoot(configMap("config", config.Name)), xtablesVolume(),
						hostPath("lib-modules", "/lib/modules", ""),
					},
				},
			},
		},
	}
}

func proxyContainer(p Params) corev1.Container {
	// It is unhealthy until the first rules have been written, which takes until the API server responds.
	started := httpProbe("/livez", portProxyHealth, 5, 5, 180)
	return corev1.Container{
		Name: kubeProxy, Image: p.image(p.KubeProxy.Image, defaultRegistry, kubeProxy, "v"+p.Versions.Kubernetes), ImagePullPolicy: corev1.PullIfNotPresent,
		// The command has no path, because not every image has it at the same place.
		Command: []string{
			kubeProxy, "--config=" + kubeProxyDirectory + "/" + kubeProxyConfig, "--hostname-override=$(NODE_NAME)",
		},
		Env:             []corev1.EnvVar{fromPod("NODE_NAME", "spec.nodeName")},
		Resources:       requests("75m", "80Mi"),
		SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(true)},
		StartupProbe:    started, LivenessProbe: httpProbe("/livez", portProxyHealth, 10, 15, 8), ReadinessProbe: httpProbe("/livez", portProxyHealth, 10, 15, 3),
		VolumeMounts: []corev1.VolumeMount{
			{Name: "config", MountPath: kubeProxyDirectory}, xtablesMount(),
			{Name: "lib-modules", MountPath: "/lib/modules", ReadOnly: true},
		},
	}
}
