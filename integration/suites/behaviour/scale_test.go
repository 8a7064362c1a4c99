package behaviour_test

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

func TestScaleUpAddsOnlyTheNewWorker(t *testing.T) {
	t.Parallel()
	config := createReady(t, makeCluster("scup1").Workers(1).Obj())
	before := podUIDs(t, config, "m0aaa", "w0aaa")
	change(t, config, func(c *v1alpha1.KVMConfig) {
		c.Spec.Cluster.Workers = append(c.Spec.Cluster.Workers, v1alpha1.Node{ID: "w1aaa"})
		c.Spec.KVM.Workers = append(c.Spec.KVM.Workers, v1alpha1.Machine{CPUs: 4, Memory: "8G"})
	})
	theLab.AwaitReady(t, config)
	if cpus := podOf(t, config, "w1aaa").Spec.Containers[0].Resources.Requests.Cpu().Value(); cpus != 4 {
		t.Errorf("the new worker has %d CPUs, want 4", cpus)
	}
	if after := podUIDs(t, config, "m0aaa", "w0aaa"); !slices.Equal(before, after) {
		t.Errorf("pods %v became %v, want them untouched", before, after)
	}
	awaitEndpoints(t, config, key.RoleWorker)
}

func TestScaleDownRemovesOnlyTheMiddleWorker(t *testing.T) {
	t.Parallel()
	config := createReady(t, makeCluster("scdn1").Workers(3).Obj())
	others := []string{"m0aaa", "w0aaa", "w2aaa"}
	uids, data := podUIDs(t, config, others...), bootData(t, config, key.RoleWorker, "w2aaa")
	indexes := theLab.Current(t, config).Status.KVM.NodeIndexes
	change(t, config, func(c *v1alpha1.KVMConfig) {
		c.Spec.Cluster.Workers = slices.Delete(c.Spec.Cluster.Workers, 1, 2)
		c.Spec.KVM.Workers = slices.Delete(c.Spec.KVM.Workers, 1, 2)
	})
	theLab.AwaitReady(t, config)
	theLab.AwaitGone(t, &appsv1.Deployment{ObjectMeta: in(config, "worker-w1aaa")})
	theLab.AwaitGone(t, &corev1.ConfigMap{ObjectMeta: in(config, "worker-scdn1-w1aaa")})
	theLab.AwaitGone(t, &corev1.Secret{ObjectMeta: in(config, "worker-scdn1-w1aaa")})
	if after := podUIDs(t, config, others...); !slices.Equal(uids, after) {
		t.Errorf("pods %v became %v, want them untouched", uids, after)
	}
	if after := bootData(t, config, key.RoleWorker, "w2aaa"); after != data {
		t.Error("the boot data of the worker that moved up in the list was written")
	}
	for node, index := range theLab.Current(t, config).Status.KVM.NodeIndexes {
		if index != indexes[node] {
			t.Errorf("node %s had index %d and has %d", node, indexes[node], index)
		}
	}
	awaitEndpoints(t, config, key.RoleWorker)
}

func podUIDs(t *testing.T, config *v1alpha1.KVMConfig, nodes ...string) []types.UID {
	t.Helper()
	var uids []types.UID
	for _, node := range nodes {
		uids = append(uids, podOf(t, config, node).UID)
	}
	return uids
}
