package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var kvmConfigKind = schema.GroupVersionKind{Group: "provider.giantswarm.io", Version: "v1alpha1", Kind: "KVMConfig"}

// observation is what the demo shows: the KVMConfig and its node pods, as they are at one moment.
type observation struct {
	config *unstructured.Unstructured // nil when it has been deleted
	pods   []corev1.Pod
}

// observe reads the followed KVMConfig and its node pods.
func (d *demo) observe(ctx context.Context) (observation, error) {
	config := &unstructured.Unstructured{}
	config.SetGroupVersionKind(kvmConfigKind)
	err := d.client.Get(ctx, d.config, config)
	if apierrors.IsNotFound(err) {
		return observation{}, nil
	}
	if err != nil {
		return observation{}, fmt.Errorf("reading KVMConfig %s: %w", d.config, err)
	}
	var pods corev1.PodList
	err = d.client.List(ctx, &pods, client.InNamespace(clusterID(config)), client.HasLabels{"app", "node"})
	if err != nil {
		return observation{}, fmt.Errorf("listing the node pods of KVMConfig %s: %w", d.config, err)
	}
	slices.SortFunc(pods.Items, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return observation{config: config, pods: pods.Items}, nil
}

// allReady tells whether every node of the KVMConfig has a Ready pod.
func allReady(o observation) bool {
	if o.config == nil {
		return false
	}
	wanted := len(nodes(o.config, "masters")) + len(nodes(o.config, "workers"))
	ready := 0
	for i := range o.pods {
		if o.pods[i].DeletionTimestamp == nil && podReady(&o.pods[i]) {
			ready++
		}
	}
	return wanted > 0 && ready == wanted
}

func never(observation) bool { return false }

func podReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

func clusterID(config *unstructured.Unstructured) string {
	id, _, _ := unstructured.NestedString(config.Object, "spec", "cluster", "id")
	return id
}

func nodes(config *unstructured.Unstructured, role string) []any {
	list, _, _ := unstructured.NestedSlice(config.Object, "spec", "cluster", role)
	return list
}

// condition is one entry of an object's status.conditions.
type condition struct{ kind, status, reason, message string }

func conditions(object *unstructured.Unstructured) []condition {
	list, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	var all []condition
	for _, entry := range list {
		fields, _ := entry.(map[string]any)
		text := func(name string) string {
			value, _ := fields[name].(string)
			return value
		}
		all = append(all, condition{text("type"), text("status"), text("reason"), text("message")})
	}
	return all
}

func conditionStatus(object *unstructured.Unstructured, kind string) string {
	for _, c := range conditions(object) {
		if c.kind == kind {
			return c.status
		}
	}
	return ""
}
