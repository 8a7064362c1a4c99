package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// step is a change or a fault of a cluster.
type step struct {
	name string
	do   func(*life, context.Context) error
}

// steps are the changes and faults of clusters.
var steps = []step{
	{"a worker is added", (*life).grow},
	{"a worker is removed", (*life).shrink},
	{"a worker is resized", (*life).resize},
	{"Kubernetes is upgraded", (*life).upgrade},
	{"masters are added or removed", (*life).resizeControlPlane},
	{"a master is replaced", (*life).replaceMaster},
	{"etcd members hang", (*life).freeze},
	{"etcd is full", (*life).fill},
	{"the rollout is paused", (*life).pauseRollout},
	{"the cluster is paused", (*life).pauseAll},
	{"a node pod is deleted", (*life).evict},
	{"a machine crashes", (*life).crash},
	{"a kubelet hangs", (*life).hang},
	{"unhealthy nodes are to be replaced", (*life).remediate},
	{"the workload cluster is cut off", (*life).partition},
	{"pods must not be evicted for some time", (*life).block},
	{"another client deletes an object of the cluster", (*life).drift},
	{"a snapshot is restored", (*life).restore},
	{"the CAs are rotated", (*life).rotate},
	{"other clients forge owners", (*life).forge},
	{"the cluster is recreated", (*life).recreate},
}

func (c *life) grow(ctx context.Context) error {
	return c.change(ctx, func(config *v1alpha1.KVMConfig) {
		if len(config.Spec.Cluster.Workers) >= mostWorkers {
			return
		}
		id := fmt.Sprintf("w%daaa", c.born)
		c.born++
		c.say("worker %s is added", id)
		config.Spec.Cluster.Workers = append(config.Spec.Cluster.Workers, v1alpha1.Node{ID: id})
		config.Spec.KVM.Workers = append(config.Spec.KVM.Workers, v1alpha1.Machine{CPUs: 2, Memory: "4G"})
	})
}

func (c *life) shrink(ctx context.Context) error {
	return c.change(ctx, func(config *v1alpha1.KVMConfig) {
		workers := config.Spec.Cluster.Workers
		if len(workers) < 2 {
			return
		}
		i := c.random.IntN(len(workers))
		c.say("worker %s is removed", workers[i].ID)
		config.Spec.Cluster.Workers = slices.Delete(workers, i, i+1)
		config.Spec.KVM.Workers = slices.Delete(config.Spec.KVM.Workers, i, i+1)
	})
}

func (c *life) resize(ctx context.Context) error {
	memory := fmt.Sprintf("%dG", 4+c.random.IntN(4))
	return c.change(ctx, func(config *v1alpha1.KVMConfig) {
		i := c.random.IntN(len(config.Spec.KVM.Workers))
		c.say("worker %s gets %s", config.Spec.Cluster.Workers[i].ID, memory)
		config.Spec.KVM.Workers[i].Memory = memory
	})
}

func (c *life) upgrade(ctx context.Context) error {
	version := fmt.Sprintf("1.35.%d", 1+c.random.IntN(3))
	c.say("Kubernetes %s", version)
	return c.change(ctx, func(config *v1alpha1.KVMConfig) { config.Spec.Versions = &v1alpha1.Versions{Kubernetes: version} })
}

// forAWhile makes a change and reverts it a moment later.
func (c *life) forAWhile(ctx context.Context, do, undo func(*v1alpha1.KVMConfig)) error {
	if err := c.change(ctx, do); err != nil {
		return err
	}
	pause(ctx, c.some(3*time.Second))
	return c.change(ctx, undo)
}

// some returns a random time of up to d.
func (c *life) some(d time.Duration) time.Duration { return time.Duration(c.random.Int64N(int64(d))) }

func (c *life) pauseRollout(ctx context.Context) error {
	c.say("the rollout is paused for some time")
	return c.forAWhile(ctx,
		func(config *v1alpha1.KVMConfig) {
			config.Spec.Rollout = &v1alpha1.Rollout{MaxUnavailable: 2, Paused: true}
		},
		func(config *v1alpha1.KVMConfig) { config.Spec.Rollout.Paused = false })
}

func (c *life) pauseAll(ctx context.Context) error {
	c.say("the cluster is paused for some time")
	return c.forAWhile(ctx,
		func(config *v1alpha1.KVMConfig) {
			metav1.SetMetaDataAnnotation(&config.ObjectMeta, key.AnnotationPaused, "true")
		},
		func(config *v1alpha1.KVMConfig) { delete(config.Annotations, key.AnnotationPaused) })
}

// somePod returns a node pod whose machine runs, or nil when there is none.
func (c *life) somePod(ctx context.Context, role string) (*corev1.Pod, error) {
	pods, err := c.pods(ctx, c.world.lab.Client)
	if err != nil {
		return nil, err
	}
	pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool { return !runs(&p) || role != "" && p.Labels[key.LabelApp] != role })
	if len(pods) == 0 {
		return nil, nil
	}
	return &pods[c.random.IntN(len(pods))], nil
}

// evict deletes a pod, or evicts it as kubectl drain of its host does. A budget may reject the eviction.
func (c *life) evict(ctx context.Context) error {
	if c.random.IntN(2) > 0 {
		return c.evictOne(ctx, "")
	}
	pod, err := c.somePod(ctx, "")
	if pod == nil {
		return err
	}
	err = c.world.lab.Client.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{})
	c.say("pod %s is evicted: %v", pod.Name, err)
	if apierrors.IsTooManyRequests(err) {
		return nil
	}
	return client.IgnoreNotFound(err)
}

// evictOne deletes the pod of a node of a role, or of any role if none is named.
func (c *life) evictOne(ctx context.Context, role string) error {
	pod, err := c.somePod(ctx, role)
	if pod == nil {
		return err
	}
	c.say("pod %s is deleted", pod.Name)
	return client.IgnoreNotFound(c.world.lab.Client.Delete(ctx, pod))
}

func (c *life) crash(ctx context.Context) error {
	pod, err := c.somePod(ctx, "")
	if pod == nil {
		return err
	}
	c.say("the machine of pod %s crashes", pod.Name)
	return c.world.simulator.crash(ctx, pod, c.some(2*time.Second))
}

func (c *life) hang(ctx context.Context) error {
	return c.hangOne(ctx, "", func(*corev1.Pod) { pause(ctx, c.some(12*time.Second)) })
}

// hangOne makes the kubelet of a node silent until wait returns. The node has the role, or any role if none is named.
func (c *life) hangOne(ctx context.Context, role string, wait func(*corev1.Pod)) error {
	pod, err := c.somePod(ctx, role)
	if pod == nil {
		return err
	}
	c.say("the kubelet of pod %s hangs for some time", pod.Name)
	c.world.simulator.hang(pod)
	wait(pod)
	c.world.simulator.wake(pod)
	return nil
}

// makeUnhealthy makes a worker unhealthy until it has to be replaced.
func (c *life) makeUnhealthy(ctx context.Context) error {
	if err := c.remediate(ctx); err != nil {
		return err
	}
	return c.hangOne(ctx, key.RoleWorker, func(pod *corev1.Pod) {
		c.await(ctx, func(ctx context.Context) error {
			if err := c.world.lab.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil || pod.DeletionTimestamp != nil {
				return client.IgnoreNotFound(err)
			}
			return errors.New("it is not replaced yet")
		})
	})
}

func (c *life) remediate(ctx context.Context) error {
	after := 4*time.Second + c.some(4*time.Second)
	c.say("nodes that are unhealthy for %s are to be replaced", after)
	c.mu.Lock()
	if c.minUnhealthy == 0 || after < c.minUnhealthy {
		c.minUnhealthy = after
	}
	c.mu.Unlock()
	return c.change(ctx, func(config *v1alpha1.KVMConfig) {
		config.Spec.Remediation = &v1alpha1.Remediation{Enabled: true, UnhealthyAfter: &metav1.Duration{Duration: after.Round(time.Millisecond)}}
	})
}

func (c *life) partition(ctx context.Context) error {
	c.say("the workload cluster is cut off for some time")
	c.cutAt(time.Now())
	c.line.Cut()
	pause(ctx, c.some(7*time.Second))
	c.cutAt(time.Time{})
	if ledger := c.currentLedger(); ledger == nil || ledger.Begun() { // otherwise serve repairs it
		c.line.Restore()
	}
	return nil
}

func (c *life) block(ctx context.Context) error {
	c.say("pods must not be evicted for some time")
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: c.id},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{labelTenant: key.Namespace(c.id)}},
		},
	}
	if err := c.world.server.Client.Create(ctx, budget); err != nil {
		return err
	}
	pause(ctx, c.some(5*time.Second))
	return c.world.server.Client.Delete(ctx, budget)
}

func (c *life) drift(ctx context.Context) error {
	name := metav1.ObjectMeta{Namespace: key.Namespace(c.id), Name: key.RoleMaster}
	// This does not include the service account. While it is missing, the ReplicaSet controller doubles its back-off
	// with each attempt, and it is not notified when the account is back.
	objects := []client.Object{
		&corev1.Service{ObjectMeta: name}, &discoveryv1.EndpointSlice{ObjectMeta: name},
		&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace(c.id), Name: c.id}},
	}
	object := objects[c.random.IntN(len(objects))]
	c.say("%T %s is removed", object, object.GetName())
	return client.IgnoreNotFound(c.world.lab.Client.Delete(ctx, object))
}

// restore restores the cluster from a snapshot. Sometimes that is canceled again, in time or too late.
func (c *life) restore(ctx context.Context) error {
	if hasEtcd(c.id) {
		return nil // the pods that place data do not run here
	}
	c.say("a snapshot is restored")
	do := func(config *v1alpha1.KVMConfig) {
		c.restores++
		config.Spec.Etcd = &v1alpha1.EtcdData{
			Snapshots: &v1alpha1.EtcdSnapshots{Keep: 1, Volume: v1alpha1.SnapshotVolume{HostPath: "/var/snapshots"}},
			Restore:   &v1alpha1.EtcdRestore{Snapshot: c.id + "-20261122T060000Z.db", Generation: c.restores},
		}
	}
	if c.random.IntN(3) > 0 {
		return c.change(ctx, do)
	}
	c.say("the restore is cancelled")
	return c.forAWhile(ctx, do, func(config *v1alpha1.KVMConfig) { config.Spec.Etcd.Restore = nil })
}

// rotate rotates the operator's own CAs. The other CAs are those of the API servers.
func (c *life) rotate(ctx context.Context) error {
	c.say("the CAs are to be rotated")
	return c.change(ctx, func(config *v1alpha1.KVMConfig) {
		if config.Spec.Certificates == nil {
			config.Spec.Certificates = &v1alpha1.Certificates{}
		}
		config.Spec.Certificates.AuthorityGeneration++
	})
}

// recreate deletes the cluster. Another one takes its name, once it is gone or when the chaos run settles.
func (c *life) recreate(ctx context.Context) error {
	if c.random.IntN(2) == 0 {
		return nil // this is the most expensive step
	}
	c.say("the cluster is deleted and recreated")
	if err := c.delete(ctx); err != nil {
		return err
	}
	if c.await(ctx, c.gone); c.gone(ctx) != nil {
		return errGoing
	}
	c.made = false
	return c.declare(ctx)
}
