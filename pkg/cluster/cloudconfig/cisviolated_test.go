package cloudconfig

import (
	"github.com/coreos/ignition/v2/config/v3_3/types"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// violate changes a node so that it violates every check of the benchmark.
func violate(n *bootedNode) *bootedNode {
	core := "core"
	for path, node := range n.nodes {
		node.User = types.NodeUser{Name: &core}
		n.nodes[path], n.modes[path] = node, 0o777
		n.texts[path] = ""
	}
	n.nodes[kubeconfigDirectory+"/admin.yaml"] = types.Node{}
	n.texts[auditPolicyFile] = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: RequestResponse}]\n"
	n.flags = map[string]map[string]string{
		"etcd": {"client-cert-auth": "false", "auto-tls": "true", "peer-auto-tls": "true"},
		"kube-apiserver": {
			"anonymous-auth": "true", "token-auth-file": "/tokens", "authorization-mode": "AlwaysAllow", "enable-admission-plugins": "AlwaysAdmit",
			"disable-admission-plugins": "ServiceAccount,NamespaceLifecycle,PodSecurity", "profiling": "true", "request-timeout": "0s", "service-account-lookup": "false",
		},
		"kube-controller-manager": {"profiling": "true", "feature-gates": "RotateKubeletServerCertificate=false", "bind-address": "0.0.0.0"},
		"kube-scheduler":          {"bind-address": "0.0.0.0"},
		"kubelet":                 {"hostname-override": "other", "kubeconfig": "/tmp/kubeconfig"},
	}
	n.kubelet = map[string]any{
		"authentication": map[string]any{"anonymous": map[string]any{"enabled": true}}, "authorization": map[string]any{"mode": "AlwaysAllow"},
		"readOnlyPort": 10255, "streamingConnectionIdleTimeout": "0", "makeIPTablesUtilChains": false, "eventRecordQPS": 0,
		"featureGates": map[string]any{"RotateKubeletServerCertificate": false},
	}
	violateInAddons(n)
	return n
}

func violateInAddons(n *bootedNode) {
	meta := metav1.ObjectMeta{Namespace: "default", Name: "violating"}
	user := int64(1000)
	everything := rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}
	for _, object := range n.addons {
		switch o := object.(type) {
		case *corev1.ConfigMap:
			o.Data = nil
		case *appsv1.DaemonSet:
			pod := &o.Spec.Template.Spec
			pod.ServiceAccountName = ""
			pod.SecurityContext = &corev1.PodSecurityContext{RunAsUser: &user, FSGroup: &user}
			secret := corev1.SecretKeySelector{Key: "key"}
			pod.Containers[0].Env = append(pod.Containers[0].Env, corev1.EnvVar{Name: "SECRET", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &secret}})
			for i := range pod.Volumes {
				if pod.Volumes[i].ConfigMap != nil {
					pod.Volumes[i].ConfigMap.DefaultMode = nil
				}
			}
		}
	}
	n.addons = append(n.addons, &appsv1.DaemonSet{ObjectMeta: meta}, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{everything}}, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{Name: "cluster-admin"}, Subjects: []rbacv1.Subject{{Kind: rbacv1.GroupKind, Name: "all-users"}},
	})
}
