package addons_test

import (
	"encoding/json"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/addons"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/cloudconfig"
)

// implied are the plugins that a plugin calls although its configuration does not name them: flannel delegates to
// bridge, and bridge gets its addresses from host-local (https://www.cni.dev/plugins/current/meta/flannel/).
var implied = map[string][]string{"flannel": {"bridge", "host-local"}}

// TestEveryPluginOfThePodNetworkIsDelivered walks the configuration that the container runtime gets and names what
// provides each plugin: an init container of the pod network, or boot data, which downloads what the guest image lacks.
// The image itself does not count, because Flatcar has no plugins.
func TestEveryPluginOfThePodNetworkIsDelivered(t *testing.T) {
	objects, err := addons.Flannel(params())
	if err != nil {
		t.Fatal(err)
	}
	var called, installed []string
	for _, object := range objects {
		switch o := object.(type) {
		case *corev1.ConfigMap:
			called = append(called, pluginsOf(t, o.Data["cni-conf.json"])...)
		case *appsv1.DaemonSet:
			for _, c := range o.Spec.Template.Spec.InitContainers {
				if len(c.Args) == 3 && c.Args[2] == "/opt/cni/bin/flannel" {
					installed = append(installed, "flannel")
				}
			}
		}
	}
	// The container runtime configures the loopback device of each pod with a plugin.
	called = append(called, "loopback")
	if len(called) < 5 {
		t.Fatalf("only %v are called: the configuration was not read", called)
	}
	for _, plugin := range called {
		switch {
		case slices.Contains(installed, plugin):
			t.Logf("%s is delivered by an init container of kube-flannel-ds", plugin)
		case slices.Contains(cloudconfig.CNIPlugins, plugin):
			t.Logf("%s is delivered by boot data: k8s-download@cni-plugins.service", plugin)
		default:
			t.Errorf("nothing delivers plugin %s", plugin)
		}
	}
}

// pluginsOf returns the plugins that a list of plugins leads to.
func pluginsOf(t *testing.T, list string) []string {
	t.Helper()
	var config struct {
		Plugins []struct {
			Type string `json:"type"`
		} `json:"plugins"`
	}
	if err := json.Unmarshal([]byte(list), &config); err != nil {
		t.Fatalf("%q: %v", list, err)
	}
	var names []string
	for _, plugin := range config.Plugins {
		names = append(append(names, plugin.Type), implied[plugin.Type]...)
	}
	return names
}
