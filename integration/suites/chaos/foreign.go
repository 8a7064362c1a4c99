package chaos

import (
	"context"
	"fmt"
	"reflect"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// foreignObjects are objects of other clients that the operator might take for its own: they have the names of its
// objects, or claim to belong to a cluster.
type foreignObjects struct {
	mu    sync.Mutex
	known []foreignObject
}

type foreignObject struct {
	client client.Client
	object client.Object
	// within is the cluster's namespace that contains the object, which is deleted with the namespace. It is nil where
	// the object stays.
	within *corev1.Namespace
}

// is reports whether two are the same object, in the same namespace by UID.
func (s foreignObject) is(other foreignObject) bool {
	if s.within != nil && (other.within == nil || s.within.UID != other.within.UID) {
		return false
	}
	return s.client == other.client && reflect.TypeOf(s.object) == reflect.TypeOf(other.object) &&
		client.ObjectKeyFromObject(s.object) == client.ObjectKeyFromObject(other.object)
}

// createForeignObjects creates them in the management cluster and in the workload clusters.
func (w *World) createForeignObjects(ctx context.Context) error {
	theirs := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "foreign", Name: name} }
	pod := &corev1.Pod{ObjectMeta: theirs("worker-w0aaa-1"), Spec: corev1.PodSpec{
		// It never gets a host, so nothing has a reason to change it.
		SchedulingGates: []corev1.PodSchedulingGate{{Name: "example.org/never"}},
		Containers:      []corev1.Container{{Name: "foreign", Image: "example.org/foreign"}},
	}}
	pod.Labels = map[string]string{key.LabelApp: key.RoleWorker}
	for _, s := range []foreignObject{
		{client: w.lab.Client, object: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "foreign"}}},
		{client: w.lab.Client, object: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: forgers}}},
		{client: w.lab.Client, object: &corev1.ConfigMap{ObjectMeta: theirs(key.RoleMaster)}},
		{client: w.lab.Client, object: &corev1.Secret{ObjectMeta: theirs("x00-api")}},
		{client: w.lab.Client, object: &corev1.Service{
			ObjectMeta: theirs(key.RoleMaster), Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.org"},
		}},
		{client: w.lab.Client, object: pod},
		// The machine and what runs there belong to another client.
		{client: w.server.Client, object: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-w0aaa-1"}}},
		{client: w.server.Client, object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "foreign"}}},
	} {
		if err := w.foreign.put(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// changed returns which of them were changed or removed. Kubernetes itself only removes those in a namespace that is
// deleted.
func (all *foreignObjects) changed(ctx context.Context) (violations []string) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, s := range all.known {
		now := s.object.DeepCopyObject().(client.Object)
		what := fmt.Sprintf("foreign %T %s", s.object, client.ObjectKeyFromObject(s.object))
		err := s.client.Get(ctx, client.ObjectKeyFromObject(s.object), now)
		gone := apierrors.IsNotFound(err) || err == nil && now.GetUID() != s.object.GetUID()
		if gone && s.hasGoneWith(ctx) {
			continue
		}
		switch {
		case err != nil:
			violations = append(violations, fmt.Sprintf("%s: %s", what, err))
		case gone || now.GetResourceVersion() != s.object.GetResourceVersion():
			violations = append(violations, what+" was changed")
		}
	}
	return violations
}

// hasGoneWith reports that the namespace of the object is gone or is being deleted.
func (s foreignObject) hasGoneWith(ctx context.Context) bool {
	if s.within == nil {
		return false
	}
	now := &corev1.Namespace{}
	err := s.client.Get(ctx, client.ObjectKeyFromObject(s.within), now)
	return apierrors.IsNotFound(err) || err == nil && (now.UID != s.within.UID || now.DeletionTimestamp != nil)
}
