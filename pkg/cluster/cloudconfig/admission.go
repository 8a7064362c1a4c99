package cloudconfig

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// admissionConfiguration is apiserver.config.k8s.io/v1 AdmissionConfiguration.
type admissionConfiguration struct {
	metav1.TypeMeta `json:",inline"`
	Plugins         []admissionPlugin `json:"plugins"`
}

type admissionPlugin struct {
	Name          string `json:"name"`
	Configuration any    `json:"configuration"`
}

// eventLimits is eventratelimit.admission.k8s.io/v1alpha1 Configuration.
type eventLimits struct {
	metav1.TypeMeta `json:",inline"`
	Limits          []eventLimit `json:"limits"`
}

// eventLimit is how many events per second are accepted, and how many at once after a time with fewer.
type eventLimit struct {
	Type  string `json:"type"`
	QPS   int32  `json:"qps"`
	Burst int32  `json:"burst"`
}

// podSecurity is pod-security.admission.config.k8s.io/v1 PodSecurityConfiguration.
type podSecurity struct {
	metav1.TypeMeta `json:",inline"`
	Defaults        map[string]string     `json:"defaults"`
	Exemptions      podSecurityExemptions `json:"exemptions"`
}

type podSecurityExemptions struct {
	Namespaces []string `json:"namespaces"`
}

// admission limits events, and reports violations of the Pod Security Standard baseline, as warnings to the client and
// in the audit log. No pod is rejected unless its namespace's labels request it, because what runs in a cluster is up
// to its users. kube-system, whose pods have rights on their nodes, is exempt.
func admission() admissionConfiguration {
	limits := eventLimits{
		TypeMeta: metav1.TypeMeta{APIVersion: "eventratelimit.admission.k8s.io/v1alpha1", Kind: "Configuration"},
		// A client that writes endlessly, a kubelet or a controller, loses events before the others do. Each of them
		// limits itself to at most 50 per second by default.
		Limits: []eventLimit{{Type: "User", QPS: 100, Burst: 1000}, {Type: "Server", QPS: 500, Burst: 5000}},
	}
	security := podSecurity{
		TypeMeta: metav1.TypeMeta{APIVersion: "pod-security.admission.config.k8s.io/v1", Kind: "PodSecurityConfiguration"},
		Defaults: map[string]string{
			"enforce": key.PodSecurityPrivileged, "enforce-version": "latest",
			"audit": "baseline", "audit-version": "latest", "warn": "baseline", "warn-version": "latest",
		},
		Exemptions: podSecurityExemptions{Namespaces: []string{metav1.NamespaceSystem}},
	}
	return admissionConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: "apiserver.config.k8s.io/v1", Kind: "AdmissionConfiguration"},
		Plugins:  []admissionPlugin{{Name: "EventRateLimit", Configuration: limits}, {Name: "PodSecurity", Configuration: security}},
	}
}
