package living_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/service"
	"github.com/kvm-operator/kvm-operator/service/controller/cluster"
)

// errTrouble is what the API server of TestEachControllerWorksAlone answers.
var errTrouble = errors.New("the API server does not take it")

// cannotStore is a client of which the cluster controller cannot store a status. It applies the status as an object
// with a Go type; the conditions of the other controllers have none.
type cannotStore struct{ client.Client }

func (c cannotStore) Status() client.SubResourceWriter { return failingStatus{c.Client.Status()} }

type failingStatus struct{ client.SubResourceWriter }

func (failingStatus) Update(context.Context, client.Object, ...client.SubResourceUpdateOption) error {
	return errTrouble
}

func (f failingStatus) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
	if _, whole := object.(*v1alpha1.KVMConfig); whole {
		return errTrouble
	}
	return f.SubResourceWriter.Patch(ctx, object, patch, options...)
}

// cannotWrite is a client whose writes of the objects of the cluster controller end as fail says.
type cannotWrite struct {
	client.Client

	fail func(context.Context) error
	// failed is how many writes have failed.
	failed *atomic.Int32
}

func (c cannotWrite) refuse(ctx context.Context, object client.Object) error {
	for _, kind := range cluster.Kinds() {
		if reflect.TypeOf(kind) == reflect.TypeOf(object) {
			c.failed.Add(1)
			return c.fail(ctx)
		}
	}
	return nil
}

func (c cannotWrite) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	if err := c.refuse(ctx, object); err != nil {
		return err
	}
	return c.Client.Create(ctx, object, options...)
}

func (c cannotWrite) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	if err := c.refuse(ctx, object); err != nil {
		return err
	}
	return c.Client.Patch(ctx, object, patch, options...)
}

// TestEachControllerWorksAlone: a new worker cannot be created, because the status that has its index cannot be stored,
// because its objects are refused, or because the API server does not answer. The unhealthy node of the cluster is
// replaced nevertheless, its stale Node is deleted, and it is removed from the endpoints.
func TestEachControllerWorksAlone(t *testing.T) {
	t.Parallel()
	var refused, hanging atomic.Int32
	for id, test := range map[string]struct {
		wrap func(client.Client) client.Client
		// shown returns whether the trouble showed.
		shown func(*v1alpha1.KVMConfig) bool
	}{
		"alone": {
			func(c client.Client) client.Client { return cannotStore{c} },
			func(c *v1alpha1.KVMConfig) bool { return c.Status.ObservedGeneration != c.Generation },
		},
		"refus": {
			func(c client.Client) client.Client {
				return cannotWrite{c, func(context.Context) error { return errTrouble }, &refused}
			},
			func(*v1alpha1.KVMConfig) bool { return refused.Load() > 0 },
		},
		"hangs": {
			func(c client.Client) client.Client {
				return cannotWrite{c, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, &hanging}
			},
			func(*v1alpha1.KVMConfig) bool { return hanging.Load() > 0 },
		},
	} {
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			l := worksAlone(t, id, test.wrap)
			lab.Eventually(t, patience, func() error { // otherwise the test proves nothing
				if !test.shown(l.config(t)) {
					return errNotYet
				}
				return nil
			})
		})
	}
}

func worksAlone(t *testing.T, id string, trouble func(client.Client) client.Client) *living {
	t.Helper()
	own := ofShard(shard + "=" + id)
	operator := theLab.Run(t, own)
	l := create(t, crowd, id, fixture.MakeCluster(id).Workers(2))
	l.await(t, isTrue("Available"))
	l.joinAll(t)
	l.await(t, isTrue("NodesReady"))
	l.change(t, func(c *v1alpha1.KVMConfig) {
		c.Spec.Remediation = &v1alpha1.Remediation{Enabled: true, UnhealthyAfter: &metav1.Duration{Duration: 2 * time.Second}}
	})
	l.await(t, isTrue("NodesReady"))
	ill := l.pod(t, "w0aaa")
	l.awaitBehindWorker(t, ill, true)
	operator.Stop()
	theLab.Run(t, own, func(c *service.Config) { c.WrapClient = trouble })
	l.change(t, func(c *v1alpha1.KVMConfig) {
		c.Spec.Cluster.Workers = append(c.Spec.Cluster.Workers, v1alpha1.Node{ID: "w2aaa"})
		c.Spec.KVM.Workers = append(c.Spec.KVM.Workers, c.Spec.KVM.Workers[0])
	})
	l.report(t, ill, unwell())
	lab.Eventually(t, patience, func() error {
		if now := l.pod(t, "w0aaa"); now.Name == ill.Name {
			return errNotYet
		}
		return nil
	})
	l.awaitBehindWorker(t, ill, false)
	l.awaitGone(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: ill.Name}})
	return l
}

// awaitBehindWorker waits until the Service "worker" has the address of a pod, or has it no longer.
func (l *living) awaitBehindWorker(t *testing.T, pod *corev1.Pod, wanted bool) {
	t.Helper()
	lab.Eventually(t, patience, func() error {
		addresses, err := l.behind(key.RoleWorker)
		if err == nil && slices.Contains(addresses, pod.Status.PodIP) != wanted {
			err = errNotYet
		}
		return err
	})
}
