package managementcluster

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// kwokAnnotation marks the nodes whose kubelet kwok plays.
const kwokAnnotation = "kwok.x-k8s.io/node"

// nodeResources are larger than any test needs, so scheduling only depends on labels and affinity.
var nodeResources = corev1.ResourceList{
	corev1.ResourceCPU:              resource.MustParse("64"),
	corev1.ResourceMemory:           resource.MustParse("512Gi"),
	corev1.ResourceEphemeralStorage: resource.MustParse("100Ti"),
	corev1.ResourcePods:             resource.MustParse("110"),
}

// AddNodes adds n simulated nodes with the given labels and kubernetes.io/hostname. It returns their names when they
// are Ready and, with a controller manager, schedulable. It needs Options.Kwok.
//
// A pod on such a node becomes Ready with all its readiness gates True and its own IP address. When it is deleted it
// disappears at once, but a pod with a finalizer stays, Running, until the finalizer is removed.
func (c *Cluster) AddNodes(ctx context.Context, n int, labels map[string]string) ([]string, error) {
	return c.AddNodesWith(ctx, n, labels, nil)
}

// AddNodesWith is AddNodes with some resources of each node. They replace the defaults, which are larger than any test
// needs, or are added to them.
func (c *Cluster) AddNodesWith(
	ctx context.Context, n int, labels map[string]string, resources corev1.ResourceList,
) ([]string, error) {
	if !c.options.Kwok {
		return nil, errors.New("adding nodes: without kwok they never become Ready: start the management cluster with Options.Kwok")
	}
	client, err := corev1client.NewForConfig(c.RESTConfig())
	if err != nil {
		return nil, fmt.Errorf("adding nodes: %w", err)
	}
	var names []string
	for number := 1; len(names) < n; number++ {
		node := newNode(number, labels, resources)
		_, err := client.Nodes().Create(ctx, node, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			continue
		}
		if err != nil {
			return names, fmt.Errorf("adding node %s: %w", node.Name, err)
		}
		names = append(names, node.Name)
	}
	for _, name := range names {
		if err := repeat(ctx, func(ctx context.Context) error { return c.usable(ctx, client, name) }); err != nil {
			return names, err
		}
	}
	return names, nil
}

func newNode(number int, labels map[string]string, resources corev1.ResourceList) *corev1.Node {
	name := fmt.Sprintf("node-%d", number)
	all := maps.Clone(nodeResources)
	maps.Copy(all, resources)
	labels = maps.Clone(labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[corev1.LabelHostname] = name
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: labels, Annotations: map[string]string{kwokAnnotation: "fake"},
		},
		Status: corev1.NodeStatus{
			Allocatable: all,
			Capacity:    all,
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.20.%d.%d", number/250, number%250+1)},
				{Type: corev1.NodeHostName, Address: name},
			},
		},
	}
}

// usable returns why a node cannot run pods yet. A pod that comes before the node's pod network would get an address of
// a network that all such nodes share. A pod that comes before the taints are removed waits for the scheduler's next
// round.
func (c *Cluster) usable(ctx context.Context, client corev1client.NodesGetter, name string) error {
	node, err := client.Nodes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case err != nil:
		return fmt.Errorf("waiting for node %s: %w", name, err)
	case !ready(node):
		return fmt.Errorf("node %s is not Ready: see %s", name, c.path(string(Kwok)+".log"))
	case c.options.ControllerManager && (node.Spec.PodCIDR == "" || len(node.Spec.Taints) > 0):
		return fmt.Errorf("node %s has pod network %q and taints %v: see %s",
			name, node.Spec.PodCIDR, node.Spec.Taints, c.path(string(ControllerManager)+".log"))
	}
	return nil
}

func ready(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}
