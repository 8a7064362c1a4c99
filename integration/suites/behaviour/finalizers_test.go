package behaviour_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// TestFinalizersOfAKVMConfig: a new KVMConfig has the finalizers of the three controllers before anything of its cluster
// exists. On deletion the two that only follow the workload cluster go first, and the cluster controller's last, when the
// machines are gone.
func TestFinalizersOfAKVMConfig(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var seen [][]string
	lab.Watch(t, theLab, &v1alpha1.KVMConfigList{}, func(_ watch.EventType, c *v1alpha1.KVMConfig) {
		mu.Lock()
		defer mu.Unlock()
		if c.Name == "fin1" && (len(seen) == 0 || !slices.Equal(seen[len(seen)-1], c.Finalizers)) {
			seen = append(seen, c.Finalizers)
		}
	}, client.InNamespace(metav1.NamespaceDefault))
	operator := theLab.Run(t, ofShard("fin1"))
	config := createReady(t, fixture.MakeCluster("fin1").Label(shard, "fin1").Obj())
	writes := slices.DeleteFunc(operator.Requests.Of("fin1"), func(r lab.Request) bool { return !r.Write() })
	if first := writes[0]; !strings.HasSuffix(first.Path, "/kvmconfigs/fin1") || first.Method == http.MethodPost {
		t.Errorf("the first write is %s, want one of the finalizers", first)
	}

	pod := podOf(t, config, "m0aaa")
	change(t, pod, func(p *corev1.Pod) { p.Finalizers = append(p.Finalizers, "example.org/held") })
	theLab.Delete(t, config)
	lab.Eventually(t, lab.Timeout, func() error {
		if left := theLab.Current(t, config).Finalizers; !slices.Equal(left, []string{key.FinalizerCluster}) {
			return fmt.Errorf("the finalizers are %v while a machine is there", left)
		}
		return nil
	})
	change(t, pod, func(p *corev1.Pod) {
		p.Finalizers = slices.DeleteFunc(p.Finalizers, func(f string) bool { return f == "example.org/held" })
	})
	theLab.AwaitGone(t, config)

	mu.Lock()
	defer mu.Unlock()
	all := []string{key.FinalizerCluster, key.FinalizerDeleter, key.FinalizerTerminator}
	for i, finalizers := range seen {
		grows, shrinks := i == 1 && slices.Equal(finalizers, all), i > 1 && len(finalizers) == len(seen[i-1])-1
		if i > 0 && !grows && !shrinks || i == 0 && len(finalizers) > 0 {
			t.Errorf("the finalizers were %v, one after the other", seen)
		}
	}
	if len(seen) < 4 {
		t.Errorf("the finalizers were %v", seen)
	}
}

// TestEndpointsHaveOneWriter: of all that writes to a management cluster only the operator
// writes what is behind the Services of a cluster, and none of the controllers of Kubernetes that copy endpoints.
func TestEndpointsHaveOneWriter(t *testing.T) {
	t.Parallel()
	config := createReady(t, makeCluster("oner").Workers(1).Obj())
	change(t, config, addScaling)
	theLab.AwaitReady(t, config)
	for _, list := range []client.ObjectList{&discoveryv1.EndpointSliceList{}, &corev1.EndpointsList{}} {
		objects := listed(t, list, key.Namespace(config.Spec.Cluster.ID))
		if len(objects) == 0 {
			t.Errorf("%T: there is none", list)
		}
		for _, object := range objects {
			var writers []string
			for _, entry := range object.GetManagedFields() {
				if !slices.Contains(writers, entry.Manager) {
					writers = append(writers, entry.Manager)
				}
			}
			if !slices.Equal(writers, []string{key.Operator}) {
				t.Errorf("%T %s was written by %v", object, object.GetName(), writers)
			}
		}
	}
}
