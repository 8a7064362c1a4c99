package v1alpha1_test

import (
	"context"
	"fmt"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/crd"
)

// TestTheLargestClusterIsAffordable creates and updates an object that is as large as the schema allows, its machines in
// the order that is the most work to match. The API server gives up on an object whose rules cost too much.
func TestTheLargestClusterIsAffordable(t *testing.T) {
	const workers, volumes = 500, 16
	largest := crd.Load(t, "minimal")
	var nodes, machines []any
	for i := range workers {
		nodes = append(nodes, map[string]any{"id": fmt.Sprintf("worker-with-a-name-of-some-length-%05d", i)})
		var shares []any
		for j := range volumes {
			shares = append(shares, map[string]any{"mountTag": fmt.Sprintf("data-%d", j), "hostPath": fmt.Sprintf("/data/volumes/of/some/depth/%d", j)})
		}
		machines = append(machines, map[string]any{
			"id": fmt.Sprintf("worker-with-a-name-of-some-length-%05d", workers-1-i), "cpus": int64(2), "memory": "4G", "hostVolumes": shares,
		})
	}
	crd.Merge(largest.Object, map[string]any{"spec": map[string]any{
		"cluster": map[string]any{"workers": nodes, "calico": map[string]any{"subnet": "10.0.0.0", "cidr": int64(8)}}, "kvm": map[string]any{"workers": machines},
	}})
	created := server.Store(t, largest)
	crd.Merge(created.Object, crd.Parse(t, "spec: {cluster: {customer: {id: other}}}"))
	if err := server.Update(context.Background(), created, client.DryRunAll); err != nil {
		t.Error(err)
	}
}
