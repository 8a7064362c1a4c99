package v1alpha1_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/integration/harness/crd"
)

// TestDefaults: whatever part of the object is left out, the same spec is stored.
func TestDefaults(t *testing.T) {
	for name, change := range map[string]string{
		"everything left out":              "spec: {}",
		"empty objects":                    "spec: {cluster: {calico: {}, docker: {daemon: {}}, etcd: {}, kubernetes: {kubelet: {}}}, kvm: {k8sKVM: {}}, rollout: {}}",
		"one field of every object":        "spec: {cluster: {calico: {cidr: 16}, etcd: {port: 443}, kubernetes: {api: {securePort: 443}}}, kvm: {k8sKVM: {acceleration: auto}}}",
		"null instead of objects":          "spec: {cluster: {calico: null, docker: null, etcd: null, kubernetes: {kubelet: null}}, kvm: {k8sKVM: null}, rollout: null}",
		"null instead of texts and number": "spec: {cluster: {calico: {cidr: null, subnet: null}, kubernetes: {domain: null, api: {clusterIPRange: null}}}}",
	} {
		t.Run(name, func(t *testing.T) {
			created := server.Store(t, crd.Load(t, "minimal", change))
			if diff := cmp.Diff(crd.Load(t, "minimal-defaulted").Object["spec"], created.Object["spec"]); diff != "" {
				t.Errorf("other defaults (-want +got):\n%s", diff)
			}
		})
	}
}
