package behaviour_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/service"
)

func TestPausedClusterIsNotWritten(t *testing.T) {
	t.Parallel()
	for name, annotation := range map[string]string{"pausa": key.AnnotationPaused, "pausb": key.AnnotationClusterAPIPaused} {
		t.Run(annotation, func(t *testing.T) {
			t.Parallel()
			operator := theLab.Run(t, ofShard(name))
			witness := fixture.MakeCluster(name+"w").Label(shard, name).Obj()
			id := name + "p"
			config := fixture.MakeCluster(id).Label(shard, name).Obj()
			config.Annotations = map[string]string{annotation: "true"}
			pause := func(c *v1alpha1.KVMConfig) { c.Annotations = map[string]string{annotation: "true"} }
			goOn := func(c *v1alpha1.KVMConfig) { c.Annotations = nil }
			silence := func(when string) {
				t.Helper()
				// The operator acts on this change after the paused cluster's events, so it has then skipped those.
				change(t, witness, addScaling)
				theLab.AwaitReady(t, witness)
				if writes := operator.Requests.Of(id); len(writes) != 0 {
					t.Errorf("%s: the operator asked for %v", when, writes)
				}
			}

			create(t, config)
			createReady(t, witness)
			silence("created paused")

			change(t, config, goOn)
			theLab.AwaitReady(t, config)
			change(t, config, pause)
			change(t, witness, addScaling)
			theLab.AwaitReady(t, witness)
			operator.Requests.Reset()
			change(t, config, addSSHKey)
			theLab.Delete(t, &corev1.Service{ObjectMeta: in(config, "worker")})
			silence("changed during the pause")

			theLab.Delete(t, config)
			silence("deleted during the pause")
			if !theLab.Exists(t, config) || !theLab.Exists(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: id}}) {
				t.Error("the deletion did not wait for the end of the pause")
			}
			change(t, config, goOn)
			theLab.AwaitGone(t, config)
			awaitNothingLeft(t, config)
		})
	}
}

func TestClusterOfAForeignVersionIsIgnored(t *testing.T) {
	t.Parallel()
	operator := theLab.Run(t, func(c *service.Config) {
		c.Selector = labels.SelectorFromSet(labels.Set{key.LabelVersion: "35.0.0"})
	})
	foreign := fixture.MakeCluster("shardf").Label(key.LabelVersion, "36.0.0").Obj()
	foreign.Finalizers = []string{key.FinalizerCluster, "example.org/foreign"}
	create(t, foreign)
	theLab.Delete(t, foreign)
	before := versionsOf(t, foreign)
	createReady(t, fixture.MakeCluster("shardo").Label(key.LabelVersion, "35.0.0").Obj())
	if after := versionsOf(t, foreign); after != before {
		t.Errorf("the foreign KVMConfig was written: %+v", foreign)
	}
	if requests := operator.Requests.Of("shardf"); len(requests) != 0 {
		t.Errorf("the operator asked for %v", requests)
	}

	// Once its label hands it over, the operator reconciles it.
	change(t, foreign, func(c *v1alpha1.KVMConfig) {
		c.Labels[key.LabelVersion] = "35.0.0"
		c.Finalizers = []string{key.FinalizerCluster}
	})
	theLab.AwaitGone(t, foreign)
}
