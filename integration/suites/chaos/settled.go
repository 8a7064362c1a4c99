package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pki"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/state"
)

// settledSteps are done, by their conditions, when the cluster is as it should be. Add-ons are not among them: the
// clusters share an API server, in which they belong to one of them.
var settledSteps = map[string][]string{
	"NamespaceReady":      {"namespace"},
	"InfrastructureReady": {"nodeindexstatus", "serviceaccount", "clusterrolebinding", "service", "pvc"},
	"CertificatesReady":   {"certificates", "randomkey"},
	"NodesReady":          {"configmap", "deployment", "placement"},
	"NodesJoined":         {"nodelabel"},
	"Available":           nil,
}

// told is an error that the conditions report themselves.
type told struct{ error }

// settled returns an error that names what is missing.
func (c *life) settled(ctx context.Context, from client.Reader) error {
	config, err := c.config(ctx, from)
	if err != nil {
		return err
	}
	if config.Status.ObservedGeneration != config.Generation {
		return told{fmt.Errorf("generation %d is not observed", config.Generation)}
	}
	for kind, steps := range settledSteps {
		have := meta.FindStatusCondition(config.Status.Conditions, kind)
		open := func(step string) bool { return strings.Contains(have.Message, step+": ") }
		if have == nil || have.Status != metav1.ConditionTrue && (steps == nil || slices.ContainsFunc(steps, open)) {
			return told{fmt.Errorf("the condition %s is %+v", kind, have)}
		}
	}
	if err := isRestored(config); err != nil {
		return err
	}
	if err := c.areRotated(ctx, config); err != nil {
		return err
	}
	if hasEtcd(c.id) { // otherwise the operator does not know members
		if err := areKept(config); err != nil {
			return err
		}
	}
	pods, err := c.pods(ctx, from)
	if err != nil {
		return err
	}
	return errors.Join(ofNodes(config, pods), c.joined(ctx, pods), c.behind(ctx, from, key.RoleMaster, pods), c.behind(ctx, from, key.RoleWorker, pods),
		c.kept(ctx, config))
}

// isRestored returns an error unless the cluster has the data of its snapshot and no restore is in progress.
func isRestored(config *v1alpha1.KVMConfig) error {
	have := meta.FindStatusCondition(config.Status.Conditions, "EtcdReady")
	wanted := config.Spec.Etcd != nil && config.Spec.Etcd.Restore != nil
	restored := config.Status.Etcd != nil && config.Status.Etcd.Restored != ""
	if wanted && !restored || have != nil && strings.Contains(have.Message, "etcdrestore: ") {
		return told{fmt.Errorf("the condition EtcdReady is %+v", have)}
	}
	return nil
}

// areKept returns an error unless the data that masters have left on hosts was renamed.
func areKept(config *v1alpha1.KVMConfig) error {
	for _, d := range config.Status.Retired {
		if d.Phase != state.RetiredKept {
			return told{fmt.Errorf("the data that a master left is not renamed: %+v", d)}
		}
	}
	return nil
}

// areRotated returns an error unless the operator's CAs are the ones requested last and the only trusted ones.
func (c *life) areRotated(ctx context.Context, config *v1alpha1.KVMConfig) error {
	if config.Spec.Certificates == nil {
		return nil
	}
	if have := meta.FindStatusCondition(config.Status.Conditions, "CertificatesReady"); have == nil || have.Reason == "RotatingCAs" {
		return told{fmt.Errorf("the condition CertificatesReady is %+v", have)}
	}
	return c.world.lab.Rotated(ctx, config, pki.EtcdCA, pki.FrontProxyCA)
}

// ofNodes returns an error unless there is one pod for each node.
func ofNodes(config *v1alpha1.KVMConfig, pods []corev1.Pod) error {
	var want []string
	for _, n := range slices.Concat(config.Spec.Cluster.Masters, config.Spec.Cluster.Workers) {
		want = append(want, n.ID)
	}
	return same("the pods are those of nodes", want, each(pods, func(p corev1.Pod) string { return p.Labels[key.LabelNode] }))
}

// joined returns an error unless the Nodes of the workload cluster are those of the pods.
func (c *life) joined(ctx context.Context, pods []corev1.Pod) error {
	var nodes corev1.NodeList
	if err := c.world.server.Client.List(ctx, &nodes, client.MatchingLabels{key.LabelGSCluster: c.id}); err != nil {
		return err
	}
	return same("the Nodes of the workload cluster are",
		each(pods, func(p corev1.Pod) string { return p.Name }), each(nodes.Items, func(n corev1.Node) string { return n.Name }))
}

// behind returns an error unless the addresses of the pods of a role are behind its Service.
func (c *life) behind(ctx context.Context, from client.Reader, role string, pods []corev1.Pod) error {
	slice := &discoveryv1.EndpointSlice{}
	if err := from.Get(ctx, client.ObjectKey{Namespace: key.Namespace(c.id), Name: role}, slice); err != nil {
		return err
	}
	of := slices.DeleteFunc(slices.Clone(pods), func(p corev1.Pod) bool { return p.Labels[key.LabelApp] != role })
	return same("the addresses of "+role+"s are",
		each(of, func(p corev1.Pod) string { return p.Status.PodIP }),
		each(slice.Endpoints, func(e discoveryv1.Endpoint) string { return strings.Join(e.Addresses, ",") }))
}

func each[T any](list []T, text func(T) string) []string {
	all := []string{}
	for _, item := range list {
		all = append(all, text(item))
	}
	return all
}

func same(what string, want, have []string) error {
	slices.Sort(want)
	slices.Sort(have)
	if diff := cmp.Diff(want, have); diff != "" {
		return fmt.Errorf("%s (-want +have):\n%s", what, diff)
	}
	return nil
}
