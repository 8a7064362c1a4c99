package cloudconfig

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// ipLabel is the value of label ip; the unit reads it from the node's environment.
const ipLabel = "${NODE_IP_LABEL}"

// nodeLabels returns the value of --node-labels. It is sorted, because the order in the spec has no meaning and must
// not roll nodes.
func nodeLabels(n Node) string {
	labels := parseLabels(n.Labels)
	maps.Copy(labels, ownLabels(n.Role))
	var pairs []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, k+"="+labels[k])
	}
	return strings.Join(pairs, ",")
}

// ownLabels are what other software expects of every node, regardless of the spec.
func ownLabels(role string) map[string]string {
	return map[string]string{"role": role, "ip": ipLabel, "node.kubernetes.io/" + role: ""}
}

// parseLabels parses "key=value" pairs separated by commas. A key without "=" has an empty value, as in old manifests.
func parseLabels(text string) map[string]string {
	labels := map[string]string{}
	for _, pair := range strings.Split(text, ",") {
		k, v, _ := strings.Cut(strings.TrimSpace(pair), "=")
		if k != "" {
			labels[k] = v
		}
	}
	return labels
}

// labelProblem returns why the kubelet would refuse to start with a label, or why a Node with it would be rejected;
// empty if the label is valid.
func labelProblem(name, value string) string {
	if errs := validation.IsQualifiedName(name); len(errs) > 0 {
		return fmt.Sprintf("label %q: %s", name, strings.Join(errs, ", "))
	}
	if errs := validation.IsValidLabelValue(value); len(errs) > 0 {
		return fmt.Sprintf("value %q of label %s: %s", value, name, strings.Join(errs, ", "))
	}
	prefix, _, prefixed := strings.Cut(name, "/")
	if prefixed && within(prefix, "kubernetes.io", "k8s.io") &&
		!within(prefix, "kubelet.kubernetes.io", "node.kubernetes.io") && !slices.Contains(kubeletLabels, name) {
		return fmt.Sprintf("label %s is not one that a kubelet may give its own Node", name)
	}
	return ""
}

// kubeletLabels are the labels of the reserved domains that a kubelet may set (k8s.io/kubelet/pkg/apis).
var kubeletLabels = []string{
	"kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch",
	"topology.kubernetes.io/zone", "topology.kubernetes.io/region",
	"failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region",
	"beta.kubernetes.io/instance-type", "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
}

// within reports whether a domain is one of the others or below it.
func within(domain string, others ...string) bool {
	return slices.ContainsFunc(others, func(other string) bool {
		return domain == other || strings.HasSuffix(domain, "."+other)
	})
}
