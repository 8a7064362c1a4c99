package machine

import (
	"context"
	"sync"

	"github.com/giantswarm/microerror"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/vitistack/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/vitistack"
)

// values are what Machines refer to in Secrets and ConfigMaps. Caches have only the metadata of these, because the operator
// is not to know what is in others; a value is read once for each version of its object, and kept as long as the Machine
// needs it.
type values struct {
	metadata, live client.Reader

	mu    sync.Mutex
	known map[types.NamespacedName]map[vitistack.Source]reading
}

// reading is what an object had at a version.
type reading struct {
	uid     types.UID
	version string
	data    []byte
	found   bool
}

// of returns the values that a Machine refers to. Missing ones are not among them.
func (v *values) of(ctx context.Context, m *v1alpha1.Machine) (map[vitistack.Source][]byte, error) {
	machine := client.ObjectKeyFromObject(m)
	v.mu.Lock()
	before := v.known[machine]
	v.mu.Unlock()
	found, now := map[vitistack.Source][]byte{}, map[vitistack.Source]reading{}
	for _, source := range vitistack.SourcesOf(m) {
		read, there, err := v.read(ctx, m.Namespace, source, before[source])
		if err != nil {
			return nil, err
		}
		if there {
			now[source] = read
		}
		if there && read.found {
			found[source] = read.data
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.known, machine)
	if len(now) > 0 {
		v.known[machine] = now
	}
	return found, nil
}

func (v *values) forget(machine types.NamespacedName) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.known, machine)
}

// read returns a value: the known one, if the object has not changed since.
func (v *values) read(ctx context.Context, namespace string, source vitistack.Source, known reading) (read reading, there bool, err error) {
	name := client.ObjectKey{Namespace: namespace, Name: source.Name}
	seen := metadataOf(source.ConfigMap)
	if err := v.metadata.Get(ctx, name, seen); err != nil {
		return reading{}, false, microerror.Mask(client.IgnoreNotFound(err))
	}
	if known.uid == seen.UID && known.version == seen.ResourceVersion {
		return known, true, nil
	}
	object, err := v.get(ctx, name, source.ConfigMap)
	if apierrors.IsNotFound(err) {
		return reading{}, false, nil
	}
	if err != nil {
		return reading{}, false, microerror.Mask(err)
	}
	read = reading{uid: object.GetUID(), version: object.GetResourceVersion()}
	read.data, read.found = valueOf(object, source.Key)
	return read, true, nil
}

func (v *values) get(ctx context.Context, name client.ObjectKey, configMap bool) (client.Object, error) {
	var object client.Object = &corev1.Secret{}
	if configMap {
		object = &corev1.ConfigMap{}
	}
	return object, v.live.Get(ctx, name, object)
}

// valueOf returns a value of a Secret or ConfigMap.
func valueOf(object client.Object, key string) (data []byte, found bool) {
	switch o := object.(type) {
	case *corev1.Secret:
		data, found = o.Data[key]
	case *corev1.ConfigMap:
		if text, ok := o.Data[key]; ok {
			return []byte(text), true
		}
		data, found = o.BinaryData[key]
	}
	return data, found
}

// metadataOf returns an object to read the metadata of a Secret or ConfigMap into.
func metadataOf(configMap bool) *metav1.PartialObjectMetadata {
	kind := "Secret"
	if configMap {
		kind = "ConfigMap"
	}
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
	return object
}

// References are the kinds that References of a Reconciler reads.
func References() []client.Object { return []client.Object{metadataOf(false), metadataOf(true)} }
