package workload_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/managementcluster"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/workload"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
)

var errNoChange = errors.New("nothing was reported")

// told does something, waits until a change is reported, and returns how long both took.
func (w *world) told(name string, do func()) time.Duration {
	w.t.Helper()
	before, began := w.of(name), time.Now()
	do()
	await(w.t, soon, func() error {
		if w.of(name) == before {
			return errNoChange
		}
		return nil
	})
	return time.Since(began)
}

func node(c *workload.Cluster, name string) *corev1.Node {
	nodes, _ := c.Nodes()
	for i := range nodes {
		if nodes[i].Name == name {
			return &nodes[i]
		}
	}
	return nil
}

// The first tests here are not parallel because they would see changes of other tests.

// TestNodesAreFollowed: when a change is reported, the cache already has it.
func TestNodesAreFollowed(t *testing.T) {
	w, other := newWorld(t), direct(t, steady)
	c := w.connect("nodes", accessTo(steady))
	n := makeNode("followed")
	n.Annotations = map[string]string{"kvm-operator.giantswarm.io/x": "kept", "node.alpha.kubernetes.io/ttl": "0"}

	added := w.told("nodes", func() { create(t, other, n) })
	await(t, soon, func() error { return present(c, n.Name, true) })
	if diff := cmp.Diff(map[string]string{"kvm-operator.giantswarm.io/x": "kept"}, node(c, n.Name).Annotations); diff != "" {
		t.Errorf("annotations in the cache (-want +got):\n%s", diff)
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}}
	changed := w.told("nodes", func() { must(t, other.Status().Update(t.Context(), n)) })
	await(t, soon, func() error {
		if len(node(c, n.Name).Status.Conditions) == 0 {
			return fmt.Errorf("Node %s has no conditions", n.Name)
		}
		return nil
	})
	removed := w.told("nodes", func() { must(t, other.Delete(t.Context(), n)) })
	await(t, soon, func() error { return present(c, n.Name, false) })
	t.Logf("reported after %s (added), %s (changed), %s (removed)", added, changed, removed)
	for _, took := range []time.Duration{added, changed, removed} {
		if took > 10*time.Second {
			t.Errorf("a change was reported after %s, want milliseconds", took)
		}
	}
}

func present(c *workload.Cluster, name string, want bool) error {
	if got := node(c, name) != nil; got != want {
		return fmt.Errorf("Node %s in the cache: %t", name, got)
	}
	return nil
}

func TestHeartbeatsAreNoNews(t *testing.T) {
	w, other := newWorld(t), direct(t, steady)
	n := makeNode("beating")
	create(t, other, n)
	c := w.connect("heart", accessTo(steady))
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	w.told("heart", func() { must(t, other.Status().Update(t.Context(), n)) })
	before := w.of("heart")
	for i := range 20 {
		n.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(time.Now().Add(time.Duration(i) * time.Minute))
		must(t, other.Status().Update(t.Context(), n))
	}
	await(t, soon, func() error {
		if node(c, n.Name).ResourceVersion != n.ResourceVersion {
			return errors.New("the cache does not show the last heartbeat")
		}
		return nil
	})
	if n := w.of("heart") - before; n != 0 {
		t.Errorf("%d changes were reported", n)
	}
	n.Spec.Unschedulable = true
	w.told("heart", func() { must(t, other.Update(t.Context(), n)) })
}

func TestRequestsOfKubeletsAreFollowedAndNoOthers(t *testing.T) {
	w, other := newWorld(t), direct(t, steady)
	c := w.connect("requests", accessTo(steady))
	before := w.of("requests")
	create(t, other, makeRequest(t, "foreign", "example.com/signer"))
	kubelet := makeRequest(t, "kubelet", certificatesv1.KubeletServingSignerName)
	w.told("requests", func() { create(t, other, kubelet) })
	// The same watch returns both, in the order of their creation.
	if n := w.of("requests") - before; n != 1 {
		t.Errorf("%d changes were reported, want 1: no handler decides on the other request", n)
	}
	await(t, soon, func() error {
		if !slices.Equal(requestNames(c), []string{"kubelet"}) {
			return fmt.Errorf("requests in the cache: %v", requestNames(c))
		}
		return nil
	})
	all, _ := c.Requests()
	if diff := cmp.Diff(kubelet.Spec.Request, all[0].Spec.Request); diff != "" {
		t.Errorf("the request in the cache (-want +got):\n%s", diff)
	}
	writer, _ := c.Client()
	approved := all[0].DeepCopy()
	approved.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test",
	}}
	w.told("requests", func() { must(t, writer.SubResource("approval").Update(t.Context(), approved)) })
}

func requestNames(c *workload.Cluster) []string {
	all, _ := c.Requests()
	var names []string
	for _, r := range all {
		names = append(names, r.Name)
	}
	return names
}

// addOnsOwner owns what the engine applies.
var addOnsOwner = ownership.Owner{Kind: key.KindKVMConfig, Namespace: "default", Name: "engine", Handler: "addons"}

func TestEngineAppliesThroughTheClusterAndAsksNothingWhenAllIsWell(t *testing.T) {
	w := newWorld(t)
	config := configFor(t, "applier", "system:masters")
	c := w.connect("engine", accessBy(config))
	engine, ok := c.Engine()
	if !ok {
		t.Fatal("there is no engine, although the cluster is connected")
	}
	wanted := func() apply.Set {
		return apply.Set{Owner: addOnsOwner, Places: apply.Places{Everywhere: true}, Kinds: kinds(), Objects: []client.Object{&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "addon", Namespace: "kube-system", Labels: map[string]string{key.LabelManagedBy: key.Operator}},
			Data:       map[string]string{"mode": "vxlan"},
		}}}
	}
	must(t, engine.Apply(t.Context(), wanted()))
	must(t, engine.Apply(t.Context(), wanted()))
	if diff := cmp.Diff([]string{"create"}, verbs(t, steady, "applier")); diff != "" {
		t.Errorf("requests besides watches (-want +got):\n%s", diff)
	}
	other := direct(t, steady)
	w.told("engine", func() { drift(t, other) })
	await(t, soon, func() error {
		must(t, engine.Apply(t.Context(), wanted()))
		now := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "addon", Namespace: "kube-system"}}
		must(t, other.Get(t.Context(), client.ObjectKeyFromObject(now), now))
		if now.Data["mode"] != "vxlan" {
			return fmt.Errorf("mode is %q", now.Data["mode"])
		}
		return nil
	})
	w.told("engine", func() {
		must(t, engine.Apply(t.Context(), apply.Set{Owner: addOnsOwner, Places: apply.Places{Everywhere: true}, Kinds: kinds()}))
	})
}

// drift changes an object that the operator has applied.
func drift(t *testing.T, other client.Client) {
	t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "addon", Namespace: "kube-system"}}
	must(t, other.Patch(t.Context(), object, client.RawPatch("application/merge-patch+json", []byte(`{"data":{"mode":"none"}}`))))
}

// verbs returns the verbs of a user's requests, without watches and readiness checks.
func verbs(t *testing.T, cluster *managementcluster.Cluster, user string) []string {
	t.Helper()
	requests, err := cluster.Requests(func(r managementcluster.Request) bool {
		return r.User == user && r.Verb != "watch" && r.Resource != ""
	})
	must(t, err)
	var all []string
	for _, r := range requests {
		all = append(all, r.Verb)
	}
	return all
}

// TestQuietClusterCostsNoRequest: a connected cluster causes no requests for half a minute.
func TestQuietClusterCostsNoRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.connect("quiet", accessBy(configFor(t, "quiet", "system:masters")))
	requests := func() []managementcluster.Request {
		all, err := steady.Requests(func(r managementcluster.Request) bool { return r.User == "quiet" })
		must(t, err)
		return all
	}
	// A watch is recorded when it starts. The last ones may start a moment later.
	await(t, soon, func() error {
		if n := len(requests()); n < 1+len(kinds())+2 {
			return fmt.Errorf("%d requests are recorded", n)
		}
		return nil
	})
	before := requests()
	for _, r := range before {
		if r.Verb != "watch" && r.Resource != "" {
			t.Errorf("connecting has cost a request that is no watch: %s", r)
		}
	}
	select {
	case <-time.After(32 * time.Second):
	case <-t.Context().Done():
	}
	if diff := cmp.Diff(before, requests()); diff != "" {
		t.Errorf("requests while nothing happened (-before +after):\n%s", diff)
	}
}

func TestEnsureBeforeStartLosesNothing(t *testing.T) {
	t.Parallel()
	w := newStillWorld(t)
	c := w.Ensure(named("early"), accessTo(steady))
	gone := w.Ensure(named("gone"), accessTo(steady))
	w.Forget(named("gone"))
	w.start()
	awaitState(t, c, 3*soon, workload.State{Phase: workload.Connected})
	if got := w.of("early"); got != 1 {
		t.Errorf("%d changes were reported when the cluster was connected, want 1", got)
	}
	if got := gone.State().Phase; got != workload.Connecting || w.of("gone") != 0 {
		t.Errorf("the forgotten cluster is %s and %d changes were reported", got, w.of("gone"))
	}
	w.stop()
	if _, ok := c.Client(); ok {
		t.Error("there is a client after the pool has ended")
	}
	if late := w.Ensure(named("late"), accessTo(steady)); late.State().Phase != workload.Connecting {
		t.Errorf("a cluster of a pool that has ended is %s", late.State().Phase)
	}
}
