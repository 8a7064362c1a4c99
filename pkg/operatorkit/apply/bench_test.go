package apply_test

import (
	"maps"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
)

// bench is a namespace with its own engine.
type bench struct {
	*testing.T
	namespace string
	engine    *apply.Engine
}

// owner is the owner of all objects of a bench.
func (b *bench) owner() ownership.Owner { return b.ownerNamed(b.namespace) }

// ownerNamed is another owner of objects.
func (b *bench) ownerNamed(name string) ownership.Owner {
	return ownership.Owner{Kind: key.KindKVMConfig, Namespace: "default", Name: name, UID: "1", Handler: "test"}
}

// places are the places of all objects of a bench: its namespace, and cluster-scoped objects.
func (b *bench) places() apply.Places { return apply.Places{Namespaces: []string{b.namespace}} }

func newBench(t *testing.T) *bench {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bench-"}}
	do(t, direct.Create(t.Context(), namespace))
	asked.take()
	b := &bench{T: t, namespace: namespace.Name}
	b.restart()
	return b
}

// restart discards everything that the engine knows.
func (b *bench) restart() {
	b.engine = apply.New(cached, live, clock.RealClock{})
	b.engine.Adopts = key.Adopts
}

// apply applies and returns the methods of the requests that it sent.
func (b *bench) apply(set apply.Set) []string {
	b.Helper()
	asked.take()
	do(b.T, b.try(set))
	return verbs(asked.take())
}

// try applies and returns the error.
func (b *bench) try(set apply.Set) error {
	if set.Owner == (ownership.Owner{}) {
		set.Owner = b.owner()
	}
	if set.Places.Namespaces == nil {
		set.Places = b.places()
	}
	return b.engine.Apply(b.Context(), set)
}

// set returns a Set with only these objects.
func set(objects ...client.Object) apply.Set { return apply.Set{Objects: objects} }

// meta returns the metadata of an object of the cluster whose id is the namespace.
func (b *bench) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: b.namespace, Name: name, Labels: map[string]string{
		key.LabelGSCluster: b.namespace, key.LabelManagedBy: ownership.Operator,
	}}
}

func (b *bench) configMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: b.meta(name), Data: maps.Clone(data)}
}

func (b *bench) deployment(name, image string) *appsv1.Deployment {
	selector := map[string]string{key.LabelApp: name}
	return &appsv1.Deployment{ObjectMeta: b.meta(name), Spec: appsv1.DeploymentSpec{
		Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: selector},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: selector},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image, Env: []corev1.EnvVar{{Name: "A", Value: "1"}}}}},
		},
	}}
}

// foreign changes an object as another client and waits until the cache shows it.
func foreign[T client.Object](t *testing.T, object T, change func(T)) {
	t.Helper()
	current := now(t, object)
	change(current)
	do(t, direct.Update(t.Context(), current, client.FieldOwner("another")))
	seen(t, object)
}
