package chaos

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// end deletes the cluster and waits until everything of it is gone.
func (c *life) end(ctx context.Context) {
	if err := c.delete(ctx); err != nil {
		c.failed("deleting the cluster: %s", err)
	}
	c.bound(ctx, c.gone)
	if c.line != nil {
		c.line.Close()
	}
}

func (c *life) delete(ctx context.Context) error {
	c.setLedger(nil)
	config, err := c.config(ctx, c.world.lab.Client)
	if err == nil {
		err = c.world.lab.Client.Delete(ctx, config)
	}
	return client.IgnoreNotFound(err)
}

// gone returns an error that names what is left.
func (c *life) gone(ctx context.Context) error {
	config, err := c.config(ctx, c.world.seen)
	if err == nil {
		return fmt.Errorf("the KVMConfig is there, with the conditions %+v", config.Status.Conditions)
	}
	if !apierrors.IsNotFound(err) {
		return err
	}
	namespace := &corev1.Namespace{}
	if err := c.world.seen.Get(ctx, client.ObjectKey{Name: key.Namespace(c.id)}, namespace); !apierrors.IsNotFound(err) {
		return fmt.Errorf("the namespace is there: %+v, %w", namespace.Status, err)
	}
	var secrets corev1.SecretList
	if err := c.world.lab.Client.List(ctx, &secrets, client.MatchingLabels{key.LabelGSCluster: c.id}); err != nil {
		return err
	}
	for _, s := range secrets.Items {
		if s.Namespace == forgers {
			continue
		}
		if s.Namespace != metav1.NamespaceDefault || s.Labels[key.LabelManagedBy] == key.Operator {
			return fmt.Errorf("the Secret %s/%s is left", s.Namespace, s.Name)
		}
	}
	return c.deleteLeftovers(ctx)
}

// deleteLeftovers cleans up what users created and the operator does not delete, and the cluster's part of the shared
// workload cluster, which otherwise would end with its machines.
func (c *life) deleteLeftovers(ctx context.Context) error {
	err := c.world.lab.Client.DeleteAllOf(ctx, &corev1.Secret{}, client.InNamespace(metav1.NamespaceDefault), client.MatchingLabels{key.LabelGSCluster: c.id})
	if err != nil {
		return err
	}
	var nodes corev1.NodeList
	if err := c.world.server.Client.List(ctx, &nodes, client.MatchingLabels{key.LabelGSCluster: c.id}); err != nil {
		return err
	}
	for i := range nodes.Items {
		if err := c.world.server.Client.Delete(ctx, &nodes.Items[i]); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return c.world.server.Client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(metav1.NamespaceDefault),
		client.MatchingLabels{labelTenant: key.Namespace(c.id)}, client.GracePeriodSeconds(0))
}
