package living_test

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/service"
)

// errNotStored is what the API server of TestEachControllerWorksAlone answers.
var errNotStored = errors.New("the status is not stored")

// cannotStore is a client whose updates of a status fail. Conditions that a controller applies are not updates.
type cannotStore struct{ client.Client }

func (c cannotStore) Status() client.SubResourceWriter { return failingUpdates{c.Client.Status()} }

type failingUpdates struct{ client.SubResourceWriter }

func (failingUpdates) Update(context.Context, client.Object, ...client.SubResourceUpdateOption) error {
	return errNotStored
}

// TestEachControllerWorksAlone: the status of a KVMConfig cannot be stored, and the cluster controller waits for that, because
// a new worker needs an index. The unhealthy node of the cluster is replaced nevertheless, and its stale Node is deleted.
func TestEachControllerWorksAlone(t *testing.T) {
	t.Parallel()
	operator := theLab.Run(t, ofShard("shard=alone"))
	l := create(t, crowd, "alone", fixture.MakeCluster("alone").Workers(2))
	l.await(t, isTrue("Available"))
	l.joinAll(t)
	l.await(t, isTrue("NodesReady"))
	l.change(t, func(c *v1alpha1.KVMConfig) {
		c.Spec.Remediation = &v1alpha1.Remediation{Enabled: true, UnhealthyAfter: &metav1.Duration{Duration: 2 * time.Second}}
	})
	l.await(t, isTrue("NodesReady"))
	operator.Stop()
	theLab.Run(t, ofShard("shard=alone"), func(c *service.Config) {
		c.WrapClient = func(inner client.Client) client.Client { return cannotStore{inner} }
	})
	l.change(t, func(c *v1alpha1.KVMConfig) {
		c.Spec.Cluster.Workers = append(c.Spec.Cluster.Workers, v1alpha1.Node{ID: "w2aaa"})
		c.Spec.KVM.Workers = append(c.Spec.KVM.Workers, c.Spec.KVM.Workers[0])
	})
	ill := l.pod(t, "w0aaa")
	l.report(t, ill, unwell())
	lab.Eventually(t, patience, func() error {
		if now := l.pod(t, "w0aaa"); now.Name == ill.Name {
			return errNotYet
		}
		return nil
	})
	l.awaitGone(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: ill.Name}})
	if config := l.config(t); config.Status.ObservedGeneration == config.Generation {
		t.Error("the status was stored, so that the test proves nothing")
	}
}
