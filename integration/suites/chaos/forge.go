package chaos

import (
	"context"
	"maps"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/ownership"
)

// forgers is the namespace of clients that forge owners. It sorts before the namespaces of KVMConfigs.
const forgers = "a-foreign"

// heldByForgers is a finalizer that is not removed.
const heldByForgers = "example.org/held"

// forge makes other clients claim that their objects belong to the cluster: with its UID in other namespaces, and with
// another owner in its namespace. The content is invalid, so a cluster that uses it does not settle.
func (c *life) forge(ctx context.Context) error {
	config, err := c.config(ctx, c.world.lab.Client)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	c.say("other clients forge owners")
	for _, object := range elsewhere(config) {
		if err := c.world.foreign.put(ctx, foreignObject{client: c.world.lab.Client, object: object}); err != nil {
			return err
		}
	}
	namespace := &corev1.Namespace{}
	err = c.world.lab.Client.Get(ctx, client.ObjectKey{Name: key.Namespace(c.id)}, namespace)
	if err != nil || namespace.DeletionTimestamp != nil {
		return client.IgnoreNotFound(err)
	}
	for _, object := range inside(config) {
		err := c.world.foreign.put(ctx, foreignObject{client: c.world.lab.Client, object: object, within: namespace})
		if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
			return nil // the namespace is being deleted
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// elsewhere returns forged objects of a cluster in places where none of its own objects can be. Objects in namespaces
// have finalizers.
func elsewhere(config *v1alpha1.KVMConfig) []client.Object {
	id := config.Spec.Cluster.ID
	held := func(namespace, name, handler string) metav1.ObjectMeta {
		meta := forged(config, name, key.OwnerKVMConfig(config, handler))
		meta.Namespace, meta.Finalizers = namespace, []string{heldByForgers}
		return meta
	}
	pair, random := held(forgers, key.SecretName(id, pki.EtcdCA), "certificates"), held(forgers, key.SecretName(id, state.KeyEncryption), "randomkey")
	pair.Labels[key.LabelCertificate], random.Labels[key.LabelRandomKey] = pki.EtcdCA, state.KeyEncryption
	boot := key.BootDataName(key.RoleMaster, id, "m0aaa")
	return []client.Object{
		&corev1.Secret{ObjectMeta: pair, Data: map[string][]byte{state.SecretKeyCertificate: []byte("forged")}},
		&corev1.Secret{ObjectMeta: random, Data: map[string][]byte{state.KeyEncryption: []byte("forged")}},
		&corev1.Secret{ObjectMeta: held(forgers, boot, "configmap")},
		&corev1.ConfigMap{ObjectMeta: held(forgers, boot, "configmap")},
		// In the namespace of a KVMConfig, only Secrets can belong to a cluster.
		&corev1.ConfigMap{ObjectMeta: held(config.Namespace, "forged-"+id, "configmap")},
		&corev1.Service{ObjectMeta: held(forgers, "forged-"+id, "service"), Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.org"}},
		&corev1.Namespace{ObjectMeta: forged(config, "forged-"+id, key.OwnerKVMConfig(config, "namespace"))},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: forged(config, "forged-"+id, key.OwnerKVMConfig(config, "clusterrolebinding")),
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "forged"},
		},
	}
}

// inside returns objects in a cluster's namespace that name other owners: of another kind, another name and another
// namespace.
func inside(config *v1alpha1.KVMConfig) []client.Object {
	kind, name, place := key.OwnerKVMConfig(config, "configmap"), key.OwnerKVMConfig(config, "configmap"), key.OwnerKVMConfig(config, "configmap")
	kind.Kind, name.Name, place.Namespace = "VirtualMachine.kvm.example.org", "another", forgers
	var objects []client.Object
	for as, owner := range map[string]ownership.Owner{"forged-kind": kind, "forged-name": name, "forged-place": place} {
		meta := forged(config, as, owner)
		meta.Namespace = key.Namespace(config.Spec.Cluster.ID)
		objects = append(objects, &corev1.ConfigMap{ObjectMeta: meta}, &corev1.Secret{ObjectMeta: *meta.DeepCopy()})
	}
	return objects
}

// forged returns metadata with the labels by which operators select an object, and with an owner.
func forged(config *v1alpha1.KVMConfig, name string, owner ownership.Owner) metav1.ObjectMeta {
	id := config.Spec.Cluster.ID
	return metav1.ObjectMeta{
		Name: name, Annotations: owner.Annotations(),
		Labels: map[string]string{key.LabelManagedBy: key.Operator, key.LabelGSCluster: id, key.LabelCluster: id},
	}
}

// put creates a foreign object, or updates the owner of one that exists. The update fails if another client has
// written the object.
func (all *foreignObjects) put(ctx context.Context, s foreignObject) error {
	all.mu.Lock()
	defer all.mu.Unlock()
	for i, known := range all.known {
		if !known.is(s) {
			continue
		}
		if maps.Equal(known.object.GetAnnotations(), s.object.GetAnnotations()) {
			return nil
		}
		now := known.object.DeepCopyObject().(client.Object)
		now.SetAnnotations(s.object.GetAnnotations())
		if err := s.client.Update(ctx, now); err != nil {
			return err
		}
		all.known[i].object = now
		return nil
	}
	if err := s.client.Create(ctx, s.object); err != nil {
		return err
	}
	all.known = append(all.known, s)
	return nil
}
