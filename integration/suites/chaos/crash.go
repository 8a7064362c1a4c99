package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// Operations are the operations that CrashEverywhere can do to a cluster.
var Operations = map[string]struct {
	masters, workers int
	do               func(*life, context.Context) error
}{
	"a worker is drained":              {1, 2, func(c *life, ctx context.Context) error { return c.evictOne(ctx, key.RoleWorker) }},
	"a worker is unhealthy":            {1, 3, (*life).makeUnhealthy},
	"a worker is removed":              {1, 3, func(c *life, ctx context.Context) error { return errors.Join(c.shrink(ctx), c.grow(ctx)) }},
	"one of three masters is drained":  {3, 1, func(c *life, ctx context.Context) error { return c.evictOne(ctx, key.RoleMaster) }},
	"one of three masters is replaced": {3, 1, (*life).replaceMaster},
	"masters are added and removed":    {1, 1, (*life).resizeControlPlane},
}

// CrashEverywhere does an operation to clusters repeatedly. Each time, the operator crashes one write later, before the
// write or after it, and another operator takes over. It ends when the operator has no more writes before the crash.
// CrashEverywhere takes every n-th of these crash points, where n is every and 1 takes all. It returns the number of
// writes, the violations and the suspects. The clusters have to be new to the world.
func (w *World) CrashEverywhere(ctx context.Context, operation string, every int, clusters []string) (writes int, violations, suspects []string) {
	o := Operations[operation]
	lives := w.newcomers(clusters)
	most := make([]int, len(lives))
	all(lives, func(l *life) {
		at := slices.Index(lives, l)
		if err := l.make(ctx, o.masters, o.workers); err != nil {
			l.failed("declaring the cluster: %s", err)
			return
		}
		operators := newOperators(w, rand.New(rand.NewPCG(0, 0)))
		operators.only = l.id
		operator := operators.begin(nil)
		l.settle(ctx)
		for point := every * at; len(l.complaints()) == 0 && operator.crashAt(ctx, l, point/2+1, point%2 == 0, o.do); point += every * len(lives) {
			most[at] = point/2 + 1
			operator.kill()
			operator = operators.begin(nil)
			l.settle(ctx)
		}
		operator.close(w.judge)
	})
	violations, suspects = w.verdict(lives)
	return slices.Max(most), violations, suspects
}

// newcomers returns clusters that are new to the world and not yet created.
func (w *World) newcomers(clusters []string) []*life {
	for i, id := range clusters {
		l := &life{world: w, id: id}
		l.begin(uint64(i))
		w.lives = append(w.lives, l)
	}
	return w.lives[len(w.lives)-len(clusters):]
}

// crashAt does something to a cluster that has settled, while an operator crashes before or after its k-th write from
// then on. It reports whether that write happened. If not, the cluster has settled without it.
func (o *operator) crashAt(ctx context.Context, l *life, k int, after bool, do func(*life, context.Context) error) (crashed bool) {
	l.say("the operator crashes at write %d, which is carried out: %t", k, after)
	o.connection.crashAt(k, after)
	if err := do(l, ctx); err != nil {
		l.failed("%s", err)
	}
	settled, quiet := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		// The operator may not have seen the change yet, and may still write after the cluster has settled.
		pause(settled, known)
		l.settle(settled)
		pause(settled, known)
	}()
	defer quiet()
	select {
	case <-o.connection.crashed:
		quiet()
		<-ended
		return true
	case <-ended:
		return false
	}
}

// CrashWhileFounding creates clusters with three masters. Two of them are removed from the spec when the operator
// crashes, at every n-th crash point as in CrashEverywhere. The cluster still has to become one with one master.
func (w *World) CrashWhileFounding(ctx context.Context, every int, clusters []string) (writes int, violations, suspects []string) {
	lives := w.newcomers(clusters)
	most := make([]int, len(lives))
	all(lives, func(l *life) {
		at := slices.Index(lives, l)
		for point := every * at; len(l.complaints()) == 0 && l.crashFounding(ctx, point/2+1, point%2 == 0); point += every * len(lives) {
			most[at] = point/2 + 1
		}
	})
	violations, suspects = w.verdict(lives)
	return slices.Max(most), violations, suspects
}

// LosesNamespace brings a cluster to a single master that did not found its etcd. Then its namespace is deleted, and
// the cluster has to come back with its data. The cluster has to be new to the world. LosesNamespace returns the
// violations and the suspects.
func (w *World) LosesNamespace(ctx context.Context, id string) (violations, suspects []string) {
	l := w.newcomers([]string{id})[0]
	operators := newOperators(w, rand.New(rand.NewPCG(0, 0)))
	operator := operators.begin(nil)
	if err := l.make(ctx, 1, 1); err != nil {
		l.failed("declaring the cluster: %s", err)
	}
	l.settle(ctx)
	for _, change := range []func(*v1alpha1.KVMConfig){
		func(c *v1alpha1.KVMConfig) { l.addMaster(c); l.addMaster(c) },
		func(c *v1alpha1.KVMConfig) {
			for range 2 {
				l.say("master %s is removed", c.Spec.Cluster.Masters[0].ID)
				c.Spec.Cluster.Masters, c.Spec.KVM.Masters = c.Spec.Cluster.Masters[1:], c.Spec.KVM.Masters[1:]
			}
		},
	} {
		if err := l.change(ctx, change); err != nil {
			l.failed("%s", err)
		}
		l.settle(ctx)
	}
	l.say("the namespace is deleted")
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: key.Namespace(id)}}
	if err := w.lab.Client.Get(ctx, client.ObjectKeyFromObject(namespace), namespace); err != nil {
		l.failed("%s", err)
	}
	before := namespace.UID
	if err := w.lab.Client.Delete(ctx, namespace); err != nil {
		l.failed("%s", err)
	}
	l.bound(ctx, func(ctx context.Context) error {
		if err := w.lab.Client.Get(ctx, client.ObjectKeyFromObject(namespace), namespace); err != nil || namespace.UID == before {
			return fmt.Errorf("the namespace of before is there, or none is: %w", err)
		}
		return nil
	})
	l.settle(ctx)
	l.end(ctx)
	operator.close(w.judge)
	return w.verdict([]*life{l})
}

// crashFounding reports whether the write happened, as crashAt does. It deletes the cluster at the end.
func (c *life) crashFounding(ctx context.Context, k int, after bool) (crashed bool) {
	operators := newOperators(c.world, rand.New(rand.NewPCG(0, 0)))
	operators.only = c.id
	operator := operators.begin(nil)
	crashed = operator.crashAt(ctx, c, k, after, func(c *life, ctx context.Context) error { return c.make(ctx, 3, 1) })
	operator.kill()
	if crashed {
		if err := c.change(ctx, func(config *v1alpha1.KVMConfig) {
			c.removeMaster(config)
			c.removeMaster(config)
		}); err != nil {
			c.failed("%s", err)
		}
	}
	operator = operators.begin(nil)
	c.settle(ctx)
	c.end(ctx)
	c.made, c.line = false, nil
	operator.close(c.world.judge)
	return crashed
}
