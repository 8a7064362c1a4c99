package behaviour_test

import (
	"fmt"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

func TestVersionChangeReplacesMastersOneByOneThenWorkers(t *testing.T) {
	t.Parallel()
	config := createReady(t, makeCluster("roll3").Masters(3).Workers(2).Label(key.LabelVersion, "4.0.0").Obj())
	legacy := followLegacyStatus(t, config)
	fleet := follow(t, config)
	change(t, config, func(c *v1alpha1.KVMConfig) {
		c.Labels[key.LabelVersion] = "4.1.0"
		c.Spec.Versions = &v1alpha1.Versions{Kubernetes: "1.35.2"}
	})
	theLab.AwaitReady(t, config)
	lab.Eventually(t, lab.Timeout, func() error { return fleet.is("4.1.0") })
	fleet.verdict(t)
	lab.Eventually(t, lab.Timeout, func() error { return legacy.is("Created", "Updating", "Updated") })
}

func TestRolloutSaysWhichNodeItWaitsFor(t *testing.T) {
	t.Parallel()
	config := createReady(t, makeCluster("rollw").Masters(3).Workers(1).Obj())
	held := refusePods(t, config, key.LabelNode, "m1aaa")
	change(t, config, addSSHKey)
	theLab.AwaitCondition(t, config,
		rollingOut("outdated nodes m2aaa, w0aaa wait until updated node m1aaa is Ready"),
		lab.Condition{Type: "Ready", Status: metav1.ConditionFalse, Reason: "RollingOut"})
	held.lift(t)
	theLab.AwaitReady(t, config)
}

// TestNodesWithoutTheLabelOfTheCachesWaitForTheirTurn covers a user who removes the label by which the operator sees a
// Deployment.
func TestNodesWithoutTheLabelOfTheCachesWaitForTheirTurn(t *testing.T) {
	t.Parallel()
	config := createReady(t, makeCluster("rolll").Workers(2).Obj())
	change(t, config, func(c *v1alpha1.KVMConfig) { c.Spec.Rollout = &v1alpha1.Rollout{Paused: true} })
	change(t, config, addSSHKey)
	paused := lab.Condition{Type: "NodesReady", Status: metav1.ConditionFalse, Reason: "RollingOut"}
	theLab.AwaitCondition(t, config, paused)
	deployment := &appsv1.Deployment{ObjectMeta: in(config, "worker-w0aaa")}
	theLab.Get(t, deployment)
	before := deployment.Spec.Template.Annotations[key.AnnotationNodeHash]
	change(t, deployment, func(d *appsv1.Deployment) { delete(d.Labels, key.LabelManagedBy) })
	change(t, config, addScaling)
	theLab.AwaitCondition(t, config, paused)
	theLab.Get(t, deployment)
	if after := deployment.Spec.Template.Annotations[key.AnnotationNodeHash]; after != before || before == "" {
		t.Errorf("the node was replaced while the rollout is paused: its hash was %q and is %q", before, after)
	}
}

// TestReadyIsTakenBackBeforeAReplacementBegins: a client that waits for Ready of the new generation must not see the
// Ready of the last node's old pod.
func TestReadyIsTakenBackBeforeAReplacementBegins(t *testing.T) {
	t.Parallel()
	config := createReady(t, makeCluster("rollr").Obj())
	held := refusePods(t, config, key.LabelNode, "m0aaa")
	before := theLab.Current(t, config).Generation
	early := make(chan string, 1)
	lab.Watch(t, theLab, &v1alpha1.KVMConfigList{}, func(_ watch.EventType, c *v1alpha1.KVMConfig) {
		if c.Name == "rollr" && c.Status.ObservedGeneration > before && meta.IsStatusConditionTrue(c.Status.Conditions, "Ready") {
			select {
			case early <- fmt.Sprintf("Ready in generation %d with the nodes %+v", c.Status.ObservedGeneration, c.Status.Nodes):
			default:
			}
		}
	}, client.InNamespace(config.Namespace))
	change(t, config, addSSHKey)
	theLab.AwaitCondition(t, config, lab.Condition{
		Type: "NodesReady", Status: metav1.ConditionFalse, Reason: "NodesNotReady", Message: "master m0aaa: no node pod yet",
	})
	select {
	case what := <-early:
		t.Error(what)
	default:
	}
	held.lift(t)
	theLab.AwaitReady(t, config)
}

func TestSSHKeyIsRolledOutAndNotAppliedByARestart(t *testing.T) {
	t.Parallel()
	config := createReady(t, makeCluster("rollk").Workers(2).Obj())
	old := podOf(t, config, "w1aaa")
	before := map[string][2]string{}
	for _, node := range []string{"w0aaa", "w1aaa"} {
		before[node] = bootData(t, config, key.RoleWorker, node)
	}
	held := refusePods(t, config, key.LabelNode, "m0aaa")
	change(t, config, addSSHKey)
	theLab.AwaitCondition(t, config, rollingOut("outdated nodes w0aaa, w1aaa wait until updated node m0aaa is Ready"))

	theLab.Delete(t, old)
	theLab.AwaitGone(t, old)
	restarted := podOf(t, config, "w1aaa")
	if restarted.Annotations[key.AnnotationNodeHash] != old.Annotations[key.AnnotationNodeHash] {
		t.Error("a chance restart has brought a node forward")
	}
	for node, data := range before {
		if bootData(t, config, key.RoleWorker, node) != data {
			t.Errorf("the boot data of node %s changed before its turn", node)
		}
	}
	held.lift(t)
	theLab.AwaitReady(t, config)
	for node, data := range before {
		if now := bootData(t, config, key.RoleWorker, node); now[0] == data[0] {
			t.Errorf("node %s was not rolled", node)
		}
		if podOf(t, config, node).Annotations[key.AnnotationNodeHash] != nodeHash(t, config, key.RoleWorker, node) {
			t.Errorf("the pod of node %s is outdated", node)
		}
	}
}

func TestRolloutPausedHoldsEveryReplacement(t *testing.T) {
	t.Parallel()
	config := createReady(t, makeCluster("rollp").Workers(1).Obj())
	uids := podUIDs(t, config, "m0aaa", "w0aaa")
	data := bootData(t, config, key.RoleMaster, "m0aaa")
	change(t, config, func(c *v1alpha1.KVMConfig) {
		addSSHKey(c)
		c.Spec.Rollout = &v1alpha1.Rollout{MaxUnavailable: 1, Paused: true}
	})
	theLab.AwaitCondition(t, config, rollingOut("outdated nodes m0aaa, w0aaa wait until spec.rollout.paused is unset"))
	if bootData(t, config, key.RoleMaster, "m0aaa") != data || podUIDs(t, config, "m0aaa", "w0aaa")[0] != uids[0] {
		t.Error("a node was changed during the pause")
	}
	// Everything else continues.
	theLab.Delete(t, &corev1.Service{ObjectMeta: in(config, "worker")})
	lab.Eventually(t, lab.Timeout, func() error {
		return theLab.Client.Get(t.Context(), client.ObjectKey{Namespace: "rollp", Name: "worker"}, &corev1.Service{})
	})
	change(t, config, func(c *v1alpha1.KVMConfig) { c.Spec.Rollout.Paused = false })
	theLab.AwaitReady(t, config)
	for i, uid := range podUIDs(t, config, "m0aaa", "w0aaa") {
		if uid == uids[i] {
			t.Errorf("pod %s was not replaced after the pause", uid)
		}
	}
}

func TestRolloutTakesAsManyWorkersAsMayBeAway(t *testing.T) {
	t.Parallel()
	config := createReady(t, makeCluster("rollm").Workers(4).Obj())
	workers := []string{"w0aaa", "w1aaa", "w2aaa", "w3aaa"}
	before := map[string]string{}
	for _, node := range workers {
		before[node] = nodeHash(t, config, key.RoleWorker, node)
	}
	held := refusePods(t, config, key.LabelApp, key.RoleWorker)
	change(t, config, func(c *v1alpha1.KVMConfig) {
		addSSHKey(c)
		c.Spec.Rollout = &v1alpha1.Rollout{MaxUnavailable: 2}
	})
	theLab.AwaitCondition(t, config, rollingOut("outdated nodes w2aaa, w3aaa wait until updated node w0aaa is Ready"))
	for i, node := range workers {
		if rolled := nodeHash(t, config, key.RoleWorker, node) != before[node]; rolled != (i < 2) {
			t.Errorf("node %s rolled: %t", node, rolled)
		}
	}
	held.lift(t)
	theLab.AwaitReady(t, config)
}

func rollingOut(message string) lab.Condition {
	return lab.Condition{Type: "NodesReady", Status: metav1.ConditionFalse, Reason: "RollingOut", Message: message}
}

// fleet follows the node pods of a cluster and records violations of its rules.
type fleet struct {
	size int

	mu    sync.Mutex
	pods  map[string]corev1.Pod
	wrong []string
}

func follow(t *testing.T, config *v1alpha1.KVMConfig) *fleet {
	t.Helper()
	pods, err := listPods(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{size: len(config.Spec.Cluster.Masters) + len(config.Spec.Cluster.Workers), pods: map[string]corev1.Pod{}}
	for _, pod := range pods {
		f.pods[pod.Name] = pod
	}
	lab.Watch(t, theLab, &corev1.PodList{}, f.see, client.InNamespace(key.Namespace(config.Spec.Cluster.ID)))
	return f
}

func (f *fleet) see(event watch.EventType, pod *corev1.Pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if event == watch.Deleted {
		delete(f.pods, pod.Name)
	} else {
		f.pods[pod.Name] = *pod
	}
	ready := map[string]int{}
	masterVersions := map[string]bool{}
	for _, p := range f.pods {
		if state.PodReady(&p) && p.DeletionTimestamp == nil {
			ready[p.Labels[key.LabelApp]]++
		}
		if p.Labels[key.LabelApp] == key.RoleMaster {
			masterVersions[p.Labels[key.LabelVersion]] = true
		}
	}
	if ready[key.RoleMaster] < 2 {
		f.wrong = append(f.wrong, fmt.Sprintf("%s %s: only %d masters Ready", event, pod.Name, ready[key.RoleMaster]))
	}
	if ready[key.RoleWorker] < 1 {
		f.wrong = append(f.wrong, fmt.Sprintf("%s %s: no worker Ready", event, pod.Name))
	}
	if event == watch.Deleted && pod.Labels[key.LabelApp] == key.RoleWorker && (len(masterVersions) > 1 || ready[key.RoleMaster] < 3) {
		f.wrong = append(f.wrong, fmt.Sprintf("worker %s went before the masters were done", pod.Name))
	}
}

// is returns an error unless every node runs the version.
func (f *fleet) is(version string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.pods) != f.size {
		return fmt.Errorf("%d pods for %d nodes", len(f.pods), f.size)
	}
	for name, pod := range f.pods {
		if pod.Labels[key.LabelVersion] != version {
			return fmt.Errorf("pod %s has version %s", name, pod.Labels[key.LabelVersion])
		}
	}
	return nil
}

func (f *fleet) verdict(t *testing.T) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.wrong {
		t.Error(w)
	}
}
