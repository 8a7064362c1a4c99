package living_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/integration/harness/fixture"
	"github.com/kvm-operator/kvm-operator/integration/harness/lab"
	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// patience is how long a test waits for an expected result. It is generous because machines that run tests are busy.
const patience = 3 * time.Minute

// living is a workload cluster with an API server.
type living struct {
	*server
	id string
}

// create creates a cluster of a shard and certificates for the API server.
func create(t testing.TB, s *server, inShard string, c *fixture.Cluster) *living {
	t.Helper()
	config := c.Label(shard, inShard).Obj()
	l := &living{server: s, id: config.Spec.Cluster.ID}
	where.Put(l.id, s.Address())
	must(t, s.Declare(context.Background(), theLab.Client, config))
	return l
}

// createJoined creates a cluster in a shard of its own name and makes its nodes join.
func createJoined(t testing.TB, s *server, c *fixture.Cluster) *living {
	t.Helper()
	id := c.Obj().Spec.Cluster.ID
	theLab.Run(t, ofShard(shard+"="+id))
	l := create(t, s, id, c)
	l.await(t, isTrue("Available"))
	l.joinAll(t)
	l.await(t, isTrue("NodesReady"))
	return l
}

// must fails the test on an error in preparations.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (l *living) named() *v1alpha1.KVMConfig {
	return &v1alpha1.KVMConfig{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: l.id}}
}

// config returns the KVMConfig from the API server.
func (l *living) config(t testing.TB) *v1alpha1.KVMConfig {
	t.Helper()
	config := l.named()
	must(t, theLab.Client.Get(context.Background(), client.ObjectKeyFromObject(config), config))
	return config
}

// change changes the KVMConfig.
func (l *living) change(t testing.TB, by func(*v1alpha1.KVMConfig)) {
	t.Helper()
	lab.Eventually(t, patience, func() error {
		config := l.named()
		if err := theLab.Client.Get(context.Background(), client.ObjectKeyFromObject(config), config); err != nil {
			return err
		}
		by(config)
		return theLab.Client.Update(context.Background(), config)
	})
}

// touch triggers reconciles of the cluster without a reason.
func (l *living) touch(t testing.TB) {
	t.Helper()
	before := where.Passes(l.id)
	l.change(t, func(c *v1alpha1.KVMConfig) {
		if c.Annotations == nil {
			c.Annotations = map[string]string{}
		}
		c.Annotations["example.com/touched"] = time.Now().String()
	})
	lab.Eventually(t, patience, func() error {
		if where.Passes(l.id) == before {
			return fmt.Errorf("cluster %s: %w", l.id, errNotYet)
		}
		return nil
	})
}

// wanted is a condition that a test expects. The message has all the parts.
type wanted struct {
	kind   string
	status metav1.ConditionStatus
	reason string
	parts  []string
	// without are what the message must not have: "handler: " stands for a step that is not done.
	without []string
}

func (w wanted) met(config *v1alpha1.KVMConfig) error {
	have := meta.FindStatusCondition(config.Status.Conditions, w.kind)
	if w.status == "" && have == nil {
		return nil
	}
	if have == nil || have.Status != w.status || w.reason != "" && have.Reason != w.reason {
		return fmt.Errorf("KVMConfig %s has the condition %+v, want %+v", config.Name, have, w)
	}
	for _, part := range w.parts {
		if !strings.Contains(have.Message, part) {
			return fmt.Errorf("KVMConfig %s has the condition %+v, want %q in its message", config.Name, have, part)
		}
	}
	for _, part := range w.without {
		if strings.Contains(have.Message, part) {
			return fmt.Errorf("KVMConfig %s has the condition %+v, want nothing of %q in its message", config.Name, have, part)
		}
	}
	return nil
}

// absent expects no such condition because the user did not request its feature.
func absent(kind string) wanted { return wanted{kind: kind} }

func isTrue(kind string) wanted { return wanted{kind: kind, status: metav1.ConditionTrue} }

// await waits until the current generation of the KVMConfig has the conditions.
func (l *living) await(t testing.TB, conditions ...wanted) {
	t.Helper()
	lab.Eventually(t, patience, func() error { return l.has(conditions...) })
}

func (l *living) has(conditions ...wanted) error {
	config := l.named()
	if err := theLab.Client.Get(context.Background(), client.ObjectKeyFromObject(config), config); err != nil {
		return err
	}
	if config.Status.ObservedGeneration != config.Generation {
		return fmt.Errorf("generation %d of KVMConfig %s is not observed yet", config.Generation, l.id)
	}
	for _, c := range conditions {
		if err := c.met(config); err != nil {
			return err
		}
	}
	return nil
}

// awaitMessage waits until a node's message in the status has all the parts.
func (l *living) awaitMessage(t testing.TB, node string, parts ...string) {
	t.Helper()
	lab.Eventually(t, patience, func() error {
		for _, n := range l.config(t).Status.Nodes {
			if n.ID == node && containsAll(n.Message+n.Console, parts) {
				return nil
			}
		}
		return fmt.Errorf("the nodes are %+v, want %q in the message of %s", l.config(t).Status.Nodes, parts, node)
	})
}

func containsAll(text string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

// pod waits for the running pod of a node and returns it.
func (l *living) pod(t testing.TB, node string) *corev1.Pod {
	t.Helper()
	var found *corev1.Pod
	lab.Eventually(t, patience, func() error {
		var list corev1.PodList
		err := theLab.Client.List(context.Background(), &list, client.InNamespace(key.Namespace(l.id)), client.MatchingLabels{key.LabelNode: node})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if p := &list.Items[i]; p.DeletionTimestamp == nil && p.Status.PodIP != "" && p.Status.Phase == corev1.PodRunning {
				found = p
				return nil
			}
		}
		return fmt.Errorf("no pod of node %s of cluster %s runs: %v; the conditions are %+v", node, l.id, list.Items, l.config(t).Status.Conditions)
	})
	return found
}

// behind returns the Ready addresses behind a Service.
func (l *living) behind(service string) ([]string, error) {
	slice := &discoveryv1.EndpointSlice{}
	err := theLab.Client.Get(context.Background(), client.ObjectKey{Namespace: key.Namespace(l.id), Name: service}, slice)
	return addressesOf(slice), client.IgnoreNotFound(err)
}

func addressesOf(slice *discoveryv1.EndpointSlice) []string {
	addresses := []string{}
	for _, endpoint := range slice.Endpoints {
		if ready := endpoint.Conditions.Ready; ready == nil || *ready {
			addresses = append(addresses, endpoint.Addresses...)
		}
	}
	return addresses
}

// firstOf returns the first object of a list, which must not be empty.
func firstOf(t testing.TB, list client.ObjectList) client.Object {
	t.Helper()
	items, err := meta.ExtractList(list)
	must(t, err)
	if len(items) == 0 {
		t.Fatalf("%T: there is none", list)
	}
	return items[0].(client.Object)
}
