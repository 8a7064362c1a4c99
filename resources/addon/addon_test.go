package addon_test

import (
	"errors"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster"
	"github.com/kvm-operator/kvm-operator/resources/addon"
)

// TestKubeProxyWithoutAVersionStaysAsItIs covers a cluster whose Release has been deleted.
func TestKubeProxyWithoutAVersionStaysAsItIs(t *testing.T) {
	gone := errors.New("Release v20.0.0 does not exist")
	for name, test := range map[string]struct {
		addon v1alpha1.AddOn
		err   error
		want  string
	}{
		"its version is known":     {want: "image: registry.k8s.io/kube-proxy:v1.35.4"},
		"nobody knows its version": {err: gone},
		"it has an image":          {addon: v1alpha1.AddOn{Image: "example.com/proxy:1"}, err: gone, want: "image: example.com/proxy:1"},
	} {
		t.Run(name, func(t *testing.T) {
			config := &v1alpha1.KVMConfig{}
			config.Spec.AddOns = &v1alpha1.AddOns{KubeProxy: test.addon}
			config.Spec.Cluster.ID, config.Spec.Cluster.Calico.Subnet, config.Spec.Cluster.Calico.CIDR = "abc12", "10.1.0.0", 16
			config = cluster.WithDefaults(config)
			s := &cluster.Snapshot{Config: config, VersionsErr: test.err}
			if test.err == nil {
				s.Versions.Kubernetes = "1.35.4"
			}
			desired, err := addon.KubeProxy().Build(s)
			text, _ := yaml.Marshal(desired.Objects)
			if test.want == "" {
				if !errors.Is(err, gone) || len(desired.Objects) > 0 {
					t.Errorf("err = %v, and these are wanted:\n%s", err, text)
				}
				return
			}
			if err != nil || !strings.Contains(string(text), test.want) {
				t.Errorf("err = %v, want %s in\n%s", err, test.want, text)
			}
		})
	}
}
