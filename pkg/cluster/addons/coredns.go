package addons

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// CoreDNSVersion is the version that clusters get.
const CoreDNSVersion = "1.15.0"

const (
	coreDNS = "coredns"
	// dnsService is a name that others look up, older than CoreDNS.
	dnsService  = "kube-dns"
	coreDNSRole = "system:coredns"
	portDNS     = 53
	portMetrics = 9153
	portHealth  = 8080
	portReady   = 8181
)

// CoreDNS is the cluster's DNS service.
func CoreDNS(p Params) []client.Object {
	labels := map[string]string{labelApp: dnsService}
	one := intstr.FromInt32(1)
	objects := p.account(metav1.NamespaceSystem, coreDNS, coreDNSRole, coreDNSRole, labels)
	return append(objects,
		&rbacv1.ClusterRole{ObjectMeta: p.meta("", coreDNSRole, labels), Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"endpoints", "services", "pods", "namespaces"}, Verbs: []string{"list", "watch"}},
			{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"list", "watch"}},
		}},
		&corev1.ConfigMap{ObjectMeta: p.meta(metav1.NamespaceSystem, coreDNS, labels), Data: map[string]string{"Corefile": corefile(p)}},
		dnsDeployment(p, labels),
		&policyv1.PodDisruptionBudget{
			ObjectMeta: p.meta(metav1.NamespaceSystem, coreDNS, labels),
			Spec:       policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &one, Selector: selector(labels)},
		},
		dnsServiceObject(p, labels),
	)
}

// corefile is the upstream one of Kubernetes. CoreDNS reloads it when it changes.
func corefile(p Params) string {
	return lines(
		".:53 {",
		"    errors",
		"    health {",
		"        lameduck 5s",
		"    }",
		"    ready",
		"    kubernetes "+p.Cluster.Kubernetes.Domain+" in-addr.arpa ip6.arpa {",
		"        pods insecure",
		"        fallthrough in-addr.arpa ip6.arpa",
		"        ttl 30",
		"    }",
		"    prometheus :9153",
		"    forward . /etc/resolv.conf {",
		"        max_concurrent 1000",
		"    }",
		"    cache 30",
		"    loop",
		"    reload",
		"    loadbalance",
		"}",
	)
}

func dnsDeployment(p Params, labels map[string]string) *appsv1.Deployment {
	one := intstr.FromInt32(1)
	return &appsv1.Deployment{
		ObjectMeta: p.meta(metav1.NamespaceSystem, coreDNS, labels),
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](2), Selector: selector(labels),
			Strategy: appsv1.DeploymentStrategy{
				Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: &one},
			},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					Affinity:   apart(labels),
					Containers: paced(p, dnsContainer(p)),
					// The cluster's resolver would be CoreDNS itself.
					DNSPolicy:          corev1.DNSDefault,
					NodeSelector:       map[string]string{labelOS: "linux"},
					PriorityClassName:  "system-cluster-critical",
					SecurityContext:    &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
					ServiceAccountName: coreDNS,
					Tolerations: []corev1.Toleration{
						{Key: "CriticalAddonsOnly", Operator: corev1.TolerationOpExists},
						{Key: "node-role.kubernetes.io/control-plane", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
					},
					Volumes: []corev1.Volume{configMap("config", coreDNS)},
				},
			},
		},
	}
}

// apart puts pods on different nodes if there are several.
func apart(labels map[string]string) *corev1.Affinity {
	return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
			Weight: 100, PodAffinityTerm: corev1.PodAffinityTerm{LabelSelector: selector(labels), TopologyKey: key.LabelHostname},
		}},
	}}
}

func dnsContainer(p Params) corev1.Container {
	resources := requests("100m", "70Mi")
	resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("170Mi")}
	live := httpProbe("/health", portHealth, 10, 5, 5)
	live.InitialDelaySeconds = 60
	return corev1.Container{
		Name: coreDNS, Image: p.image(p.CoreDNS.Image, defaultRegistry, "coredns/coredns", "v"+CoreDNSVersion), ImagePullPolicy: corev1.PullIfNotPresent,
		Args:      []string{"-conf", "/etc/coredns/Corefile"},
		Resources: resources,
		Ports: []corev1.ContainerPort{
			{Name: "dns", ContainerPort: portDNS, Protocol: corev1.ProtocolUDP},
			{Name: "dns-tcp", ContainerPort: portDNS, Protocol: corev1.ProtocolTCP},
			{Name: "metrics", ContainerPort: portMetrics, Protocol: corev1.ProtocolTCP},
		},
		LivenessProbe: live, ReadinessProbe: httpProbe("/ready", portReady, 10, 5, 3),
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
			Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_BIND_SERVICE"}, Drop: []corev1.Capability{"ALL"}},
		},
		VolumeMounts: []corev1.VolumeMount{{Name: "config", MountPath: "/etc/coredns", ReadOnly: true}},
	}
}

func dnsServiceObject(p Params, labels map[string]string) *corev1.Service {
	port := func(name string, number int32, protocol corev1.Protocol) corev1.ServicePort {
		return corev1.ServicePort{Name: name, Port: number, TargetPort: intstr.FromInt32(number), Protocol: protocol}
	}
	service := &corev1.Service{
		ObjectMeta: p.meta(metav1.NamespaceSystem, dnsService, labels),
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: key.DNSServiceIP(p.Cluster), Selector: labels,
			Ports: []corev1.ServicePort{
				port("dns", portDNS, corev1.ProtocolUDP), port("dns-tcp", portDNS, corev1.ProtocolTCP), port("metrics", portMetrics, corev1.ProtocolTCP),
			},
		},
	}
	service.Labels["kubernetes.io/cluster-service"], service.Labels["kubernetes.io/name"] = "true", "CoreDNS"
	service.Annotations = map[string]string{key.AnnotationPromPort: "9153", key.AnnotationPromScrape: "true"}
	return service
}
