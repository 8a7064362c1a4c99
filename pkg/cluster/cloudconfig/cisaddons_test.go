package cloudconfig

import (
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/apis/audit"
	"sigs.k8s.io/yaml"
)

// noRoleMay checks that no role of an add-on has this right.
func noRoleMay(resource string, verbs ...string) inspection {
	return func(n *bootedNode) error {
		for _, object := range n.addons {
			role, ok := object.(*rbacv1.ClusterRole)
			if !ok {
				continue
			}
			for _, rule := range role.Rules {
				if names(rule.Resources, resource) && names(rule.Verbs, verbs...) {
					return fmt.Errorf("role %s: %v of %v", role.Name, rule.Verbs, rule.Resources)
				}
			}
		}
		return nil
	}
}

// names reports whether a list contains one of the wanted, or "*".
func names(list []string, wanted ...string) bool {
	return slices.Contains(list, "*") || slices.ContainsFunc(wanted, func(w string) bool { return slices.Contains(list, w) })
}

// noWildcards checks that no role of an add-on has a right to all of something.
func noWildcards(n *bootedNode) error {
	for _, object := range n.addons {
		if role, ok := object.(*rbacv1.ClusterRole); ok {
			for _, rule := range role.Rules {
				if slices.Contains(slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs), "*") {
					return fmt.Errorf("role %s has wildcards: %v", role.Name, rule)
				}
			}
		}
	}
	return nil
}

// administrators checks that only one group is bound to the role cluster-admin.
func administrators(n *bootedNode) error {
	var found []rbacv1.Subject
	for _, object := range n.addons {
		if binding, ok := object.(*rbacv1.ClusterRoleBinding); ok && binding.RoleRef.Name == "cluster-admin" {
			found = append(found, binding.Subjects...)
		}
	}
	if len(found) != 1 || found[0].Kind != rbacv1.GroupKind {
		return fmt.Errorf("cluster-admin is bound to %v", found)
	}
	return nil
}

// podsOf returns the pods of the add-ons by the names of their objects.
func podsOf(n *bootedNode) map[string]corev1.PodSpec {
	pods := map[string]corev1.PodSpec{}
	for _, object := range n.addons {
		switch o := object.(type) {
		case *appsv1.DaemonSet:
			pods[o.Namespace+"/"+o.Name] = o.Spec.Template.Spec
		case *appsv1.Deployment:
			pods[o.Namespace+"/"+o.Name] = o.Spec.Template.Spec
		}
	}
	return pods
}

// eachAddon is a check of the pods of all add-ons, of which there are three.
func eachAddon(c func(name string, pod corev1.PodSpec) error) inspection {
	return func(n *bootedNode) error {
		pods := podsOf(n)
		if len(pods) < 3 {
			return fmt.Errorf("there are the add-ons %v alone", pods)
		}
		for name, pod := range pods {
			if err := c(name, pod); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	}
}

func ownAccount(_ string, pod corev1.PodSpec) error {
	if pod.ServiceAccountName == "" || pod.ServiceAccountName == "default" {
		return fmt.Errorf("the service account is %q", pod.ServiceAccountName)
	}
	return nil
}

func noSecretsInVariables(_ string, pod corev1.PodSpec) error {
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		for _, v := range c.Env {
			if v.ValueFrom != nil && v.ValueFrom.SecretKeyRef != nil {
				return fmt.Errorf("variable %s is a Secret's", v.Name)
			}
		}
	}
	return nil
}

// namespaceOfItsOwn checks that add-ons are not in the namespace default.
func namespaceOfItsOwn(n *bootedNode) error {
	for _, object := range n.addons {
		if object.GetNamespace() == "default" {
			return fmt.Errorf("%T %s is in the namespace default", object, object.GetName())
		}
	}
	return nil
}

// noRoleUses checks that no role of an add-on has one of these verbs.
func noRoleUses(verbs ...string) inspection {
	return func(n *bootedNode) error {
		for _, object := range n.addons {
			if role, ok := object.(*rbacv1.ClusterRole); ok {
				for _, rule := range role.Rules {
					if names(rule.Verbs, verbs...) {
						return fmt.Errorf("role %s: %v", role.Name, rule.Verbs)
					}
				}
			}
		}
		return nil
	}
}

// addonsThatAsk checks that the add-ons are exactly these, which are known to send requests to the API server.
func addonsThatAsk(wanted ...string) inspection {
	return func(n *bootedNode) error {
		if found := slices.Sorted(maps.Keys(podsOf(n))); !slices.Equal(found, wanted) {
			return fmt.Errorf("the add-ons are %v, want %v", found, wanted)
		}
		return nil
	}
}

// isRoot checks that the pod of the add-on runs as root, so that files in its volumes belong to root.
func isRoot(name string) inspection {
	return func(n *bootedNode) error {
		pod, ok := podsOf(n)[name]
		if context := pod.SecurityContext; !ok || context != nil && (context.RunAsUser != nil || context.FSGroup != nil) {
			return fmt.Errorf("%s, there %t, runs as %v", name, ok, context)
		}
		return nil
	}
}

// volumeMode checks that only root may read the files of the volume of this ConfigMap.
func volumeMode(configMap string) inspection {
	return func(n *bootedNode) error {
		for _, pod := range podsOf(n) {
			for _, v := range pod.Volumes {
				if v.ConfigMap == nil || v.ConfigMap.Name != configMap {
					continue
				}
				if mode := v.ConfigMap.DefaultMode; mode == nil || *mode&^0o600 != 0 {
					return fmt.Errorf("the files of %s have the mode %v", configMap, mode)
				}
				return nil
			}
		}
		return fmt.Errorf("no pod has the ConfigMap %s", configMap)
	}
}

// proxyMetrics checks that kube-proxy serves its metrics only to its machine.
func proxyMetrics(n *bootedNode) error {
	for _, object := range n.addons {
		config, ok := object.(*corev1.ConfigMap)
		if !ok || config.Name != "kube-proxy" {
			continue
		}
		var settings struct{ MetricsBindAddress string }
		if err := yaml.Unmarshal([]byte(config.Data["config.conf"]), &settings); err != nil {
			return err
		}
		if settings.MetricsBindAddress != "127.0.0.1:10249" {
			return fmt.Errorf("metrics are at %q", settings.MetricsBindAddress)
		}
		return nil
	}
	return fmt.Errorf("there is no configuration of kube-proxy")
}

// audits checks that the audit log contains at least the given level of the request, and no bodies that are secret.
func audits(does string, want audit.Level) inspection {
	return func(n *bootedNode) error {
		got, err := auditLevel(n.texts[auditPolicyFile], request{user: "ada", does: does})
		if err == nil && got != want {
			err = fmt.Errorf("of %s the audit log has %s, want %s", does, got, want)
		}
		return err
	}
}

// podSecurityDefaults checks that the Pod Security admission plugin reports violations, and is not disabled.
func podSecurityDefaults(n *bootedNode) error {
	var config struct {
		Plugins []struct {
			Name          string
			Configuration struct{ Defaults map[string]string }
		}
	}
	if err := yaml.Unmarshal([]byte(n.texts[admissionFile]), &config); err != nil {
		return err
	}
	for _, plugin := range config.Plugins {
		if d := plugin.Configuration.Defaults; plugin.Name == "PodSecurity" && d["warn"] == "baseline" && d["audit"] == "baseline" {
			return nil
		}
	}
	return fmt.Errorf("PodSecurity has no defaults: %+v", config.Plugins)
}
