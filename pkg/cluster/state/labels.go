package state

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
)

// Labels returns the labels of every object of the cluster, with more labels that take precedence.
func (s *Cluster) Labels(more ...map[string]string) map[string]string {
	labels := map[string]string{
		key.LabelCluster:   s.ID(),
		key.LabelGSCluster: s.ID(),
		key.LabelManagedBy: key.Operator,
	}
	if customer := s.Cluster().Customer.ID; customer != "" {
		labels[key.LabelCustomer] = customer
		labels[key.LabelOrganization] = customer
	}
	for _, m := range more {
		maps.Copy(labels, m)
	}
	return labels
}

// Meta returns the metadata of an object in the cluster's namespace.
func (s *Cluster) Meta(name string, more ...map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: s.Namespace(), Labels: s.Labels(more...)}
}

// App returns the label app with the given value.
func App(value string) map[string]string { return map[string]string{key.LabelApp: value} }

// VersionBundle returns the label with the operator version, if there is one.
func (s *Cluster) VersionBundle() map[string]string {
	if s.Version() == "" {
		return nil
	}
	return map[string]string{key.LabelVersionBundle: s.Version()}
}
