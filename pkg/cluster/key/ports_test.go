package key

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
)

// TestPortsOfServices covers the ports of the original's Services. The original's ports on hosts (23000, 47000 and
// 21000 plus VNI) are not used anywhere: a guest has its pod's address, so two clusters cannot collide.
func TestPortsOfServices(t *testing.T) {
	var c v1alpha1.Cluster
	c.Kubernetes.API.SecurePort = 6443
	for name, test := range map[string]struct{ got, want []Port }{
		"master":                  {MasterPorts(c), []Port{{Name: "etcd", Port: 2379}, {Name: "api", Port: 6443}}},
		"etcd member":             {MemberPorts(), []Port{{Name: "etcd", Port: 2379}, {Name: "etcd-peer", Port: 2380}}},
		"worker without mappings": {WorkerPorts(v1alpha1.KVM{}), []Port{{Name: "http", Port: 30010}, {Name: "https", Port: 30011}}},
		"worker with mappings": {
			WorkerPorts(v1alpha1.KVM{PortMappings: []v1alpha1.PortMapping{
				{Name: "https", NodePort: 30101, TargetPort: 30011}, {Name: "any", TargetPort: 8080},
			}}),
			[]Port{{Name: "https", Port: 30011, NodePort: 30101}, {Name: "any", Port: 8080}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, test.got); diff != "" {
				t.Errorf("other ports (-want +got):\n%s", diff)
			}
		})
	}
}
