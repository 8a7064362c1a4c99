package v1alpha1_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/crd"
	"github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
)

// TestTheExamplesAreStoredAsTheyAre: testdata has the examples of smolvm-operator's own objects, status included.
func TestTheExamplesAreStoredAsTheyAre(t *testing.T) {
	for _, name := range []string{machine, node} {
		t.Run(name, func(t *testing.T) {
			want := crd.Load(t, name)
			stored := server.StoreWithStatus(t, want)
			for _, part := range []string{"spec", "status"} {
				if diff := cmp.Diff(want.Object[part], stored.Object[part]); diff != "" {
					t.Errorf("%s is stored otherwise (-want +got):\n%s", part, diff)
				}
			}
		})
	}
}

// TestObjectsComeThroughGo: what Go reads and writes again is the same object.
func TestObjectsComeThroughGo(t *testing.T) {
	for name, object := range map[string]client.Object{machine: &v1alpha1.SmolVM{}, node: &v1alpha1.SmolVMNode{}} {
		t.Run(name, func(t *testing.T) {
			stored := server.StoreWithStatus(t, crd.Load(t, name))
			if err := server.Get(t.Context(), client.ObjectKeyFromObject(stored), object); err != nil {
				t.Fatal(err)
			}
			for what, write := range map[string]func() error{
				"the object": func() error { return server.Update(t.Context(), object) },
				"the status": func() error { return server.Status().Update(t.Context(), object) },
			} {
				if err := write(); err != nil {
					t.Fatal(err)
				}
				if object.GetResourceVersion() != stored.GetResourceVersion() {
					t.Errorf("writing %s again changed it", what)
				}
			}
		})
	}
}

// TestAMachineRunsUnlessItIsSaidNotTo: Go clients must be able to say false, which is the zero value.
func TestAMachineRunsUnlessItIsSaidNotTo(t *testing.T) {
	stored := server.Store(t, crd.Load(t, machine, "spec: {running: <remove>}"))
	var object v1alpha1.SmolVM
	if err := server.Get(t.Context(), client.ObjectKeyFromObject(stored), &object); err != nil {
		t.Fatal(err)
	}
	if !object.Spec.Running {
		t.Error("running is not true by default")
	}
	object.Spec.Running = false
	if err := server.Update(t.Context(), &object); err != nil {
		t.Fatal(err)
	}
	if object.Spec.Running {
		t.Error("a Go client cannot stop a machine")
	}
}

func TestValuesAtTheLimitsAreAccepted(t *testing.T) {
	for name, change := range map[string]string{
		"the least":             "spec: {resources: {cpus: 1, memoryMiB: 64}, storage: {storageGiB: 1, overlayGiB: 1}, network: {ports: [{hostPort: 1, guestPort: 1}]}}",
		"the most":              "spec: {resources: {cpus: 255, memoryMiB: 2147483647}, storage: {storageGiB: 16384, overlayGiB: 16384}, network: {ports: [{hostPort: 65535, guestPort: 65535}]}}",
		"nothing but an image":  "spec: {running: <remove>, nodeSelector: <remove>, resources: <remove>, storage: <remove>, network: <remove>}",
		"empty objects":         "spec: {nodeSelector: null, resources: null, storage: null, network: null}",
		"a file":                "spec: {image: <remove>, from: /var/lib/smolvm/artifacts/a.smolmachine}",
		"an IPv6 network":       "spec: {network: {allowedCIDRs: ['2001:db8::/32', 0.0.0.0/0]}}",
		"bits of a host":        "spec: {network: {allowedCIDRs: [192.0.2.7/24]}}",
		"one guest port twice":  "spec: {network: {ports: [{hostPort: 1, guestPort: 80}, {hostPort: 2, guestPort: 80}]}}",
		"a program":             "spec: {command: [/bin/sh, -c], args: [sleep 1d], env: [{name: _A1, value: b}, {name: B}], workingDir: /srv}",
		"all taints":            "spec: {tolerations: [{operator: Exists}]}",
		"taints of all kinds":   "spec: {tolerations: [{key: a}, {key: a, value: b, effect: NoSchedule}, {key: a, operator: Exists, effect: NoExecute, tolerationSeconds: 1}]}",
		"Secrets of a registry": "spec: {imagePullSecrets: [{name: a}, {name: b.c}]}",
	} {
		t.Run(name, func(t *testing.T) {
			if err := server.Create(t.Context(), crd.Load(t, machine, change), client.DryRunAll); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestTheLargestMachineIsAffordable creates and updates an object with as many entries as the schema allows. The API
// server gives up on an object whose rules cost too much.
func TestTheLargestMachineIsAffordable(t *testing.T) {
	var tolerations, env, ports, cidrs, secrets []any
	for i := range 256 {
		env = append(env, crd.Parse(t, fmt.Sprintf("{name: VARIABLE_%d, value: a}", i)))
		cidrs = append(cidrs, fmt.Sprintf("192.0.%d.0/24", i))
	}
	for i := range 128 {
		ports = append(ports, crd.Parse(t, fmt.Sprintf("{hostPort: %d, guestPort: 1}", i+1)))
	}
	for i := range 64 {
		tolerations = append(tolerations, crd.Parse(t, fmt.Sprintf("{key: example.org/%d, operator: Equal, value: a, effect: NoSchedule}", i)))
	}
	for i := range 16 {
		secrets = append(secrets, crd.Parse(t, fmt.Sprintf("{name: secret-%d}", i)))
	}
	largest := crd.Load(t, machine)
	crd.Merge(largest.Object, map[string]any{"spec": map[string]any{
		"tolerations": tolerations, "env": env, "imagePullSecrets": secrets, "network": map[string]any{"ports": ports, "allowedCIDRs": cidrs},
	}})
	created := server.Store(t, largest)
	crd.Merge(created.Object, crd.Parse(t, "spec: {running: false}"))
	if err := server.Update(t.Context(), created, client.DryRunAll); err != nil {
		t.Error(err)
	}
}
