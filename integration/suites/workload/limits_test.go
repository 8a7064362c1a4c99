package workload_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/workload"
)

// TestServerThatSendsWithoutEnd: the server does not fill the memory, and other clusters are connected at the same
// time.
func TestServerThatSendsWithoutEnd(t *testing.T) {
	server := newStranger(t, serverName, time.Now(), http.StatusOK).floods()
	w := newWorld(t)
	before, most := heap(), int64(0)
	c := w.Ensure(named("flood"), server.access())
	w.connect("other", accessTo(steady))
	for began := time.Now(); time.Since(began) < soon; time.Sleep(100 * time.Millisecond) {
		most = max(most, heap()-before)
	}
	awaitState(t, c, soon, unreachable(workload.ResponseTooLarge))
	t.Logf("the heap grew by %d MiB at most", most>>20)
	if most > 64<<20 {
		t.Errorf("the heap grew by %d MiB", most>>20)
	}
}

// TestWhatIsNotCachedIsNotCounted: a drain of many nodes lists many pods repeatedly.
func TestWhatIsNotCachedIsNotCounted(t *testing.T) {
	w := newWorld(t)
	c := w.connect("asked", accessTo(steady))
	reader, _ := c.Live()
	text := strings.Repeat("x", 1000<<10)
	for i := range 10 {
		create(t, direct(t, steady), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("uncached-%d", i), Labels: map[string]string{"uncached": "true"}},
			Data:       map[string]string{"a": text},
		})
	}
	for range 10 {
		var list corev1.ConfigMapList
		must(t, reader.List(t.Context(), &list, client.InNamespace("default"), client.MatchingLabels{"uncached": "true"}))
		if len(list.Items) != 10 {
			t.Fatalf("%d ConfigMaps were read, not all", len(list.Items))
		}
	}
	awaitState(t, c, 0, workload.State{Phase: workload.Connected})
	if watched := c.Watched(); watched == 0 {
		t.Error("the cluster was reconnected")
	}
}

// TestClusterThatHasTooMuch: the cluster is not connected while it has too many objects, and the reason is reported.
func TestClusterThatHasTooMuch(t *testing.T) {
	w := newWorld(t)
	c := w.connect("full", accessTo(steady))
	other := direct(t, steady)
	text := strings.Repeat("x", 1000<<10)
	for i := range 36 {
		create(t, other, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: fmt.Sprintf("large-%d", i), Labels: map[string]string{key.LabelManagedBy: key.Operator, "large": "true"},
			},
			Data: map[string]string{"a": text},
		})
	}
	awaitState(t, c, soon, unreachable(workload.ResponseTooLarge))
	must(t, other.DeleteAllOf(t.Context(), &corev1.ConfigMap{}, client.InNamespace("default"), client.MatchingLabels{"large": "true"}))
	awaitState(t, c, 4*soon, workload.State{Phase: workload.Connected})
}
