// Package addons builds what a workload cluster needs besides its nodes and control plane: the RBAC for joining nodes,
// kube-proxy, CoreDNS and the pod network.
//
// Builders are pure: the same Params give the same objects. They leave out what the API server fills in, so that an
// applied object compares equal to the wanted one.
package addons

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/pace"
)

// Values of CNI.Type.
const (
	// CNIFlannel is flannel with VXLAN. It is also the meaning of an empty type.
	CNIFlannel = "flannel"
	// CNICustom installs CNI.Manifests.
	CNICustom = "custom"
	// CNINone installs no pod network.
	CNINone = "none"
)

// defaultRegistry has the images of Kubernetes itself.
const defaultRegistry = "registry.k8s.io"

// Params is everything that the add-ons of a cluster depend on.
type Params struct {
	// Cluster is spec.cluster with defaults filled in.
	Cluster v1alpha1.Cluster
	// Versions are those in force; that of kubernetes is also kube-proxy's.
	Versions v1alpha1.Versions
	// Registry is the registry of the images, with an optional path. If it is empty, or registry.k8s.io, each image
	// comes from its upstream registry.
	Registry string
	// APIServerURL is how pods on a node's network reach the API server, without kube-proxy.
	APIServerURL string
	// Administrators is the group that is bound to the rights of an administrator; empty means the constant
	// Administrators.
	Administrators string
	// Emulated says that software emulates the processors of the cluster's machines.
	Emulated bool
	// KubeProxy and CoreDNS can be left out, or use another image.
	KubeProxy, CoreDNS Addon
	// CNI is the pod network.
	CNI CNI
}

// Addon says whether an add-on is installed and what it runs.
type Addon struct {
	// Disabled leaves the add-on out.
	Disabled bool
	// Image replaces the add-on's own.
	Image string
}

// CNI is the pod network.
type CNI struct {
	// Type is CNIFlannel, CNICustom, CNINone or empty.
	Type string
	// Image replaces flannel's own, PluginImage that of its CNI plugin.
	Image, PluginImage string
	// Manifests are the YAML documents of a network of type CNICustom.
	Manifests string
	// MTU is that of pod interfaces in bytes. 0: that of the node's interface, minus the encapsulation.
	MTU int32
}

// NetworkObjects returns the pod network of a cluster; none if the type is CNINone.
func NetworkObjects(p Params) ([]client.Object, error) {
	switch p.CNI.Type {
	case CNIFlannel, "":
		return Flannel(p)
	case CNICustom:
		return Custom(p)
	case CNINone:
		return nil, nil
	}
	return nil, fmt.Errorf("the pod network of cluster %s: there is no type %q; choose %s, %s or %s", p.Cluster.ID, p.CNI.Type, CNIFlannel, CNICustom, CNINone)
}

// Kinds are all kinds of objects of add-ons, including those of user manifests.
func Kinds() []client.Object {
	return []client.Object{
		&apiextensionsv1.CustomResourceDefinition{}, &appsv1.DaemonSet{}, &appsv1.Deployment{}, &corev1.ConfigMap{}, &corev1.Namespace{},
		&corev1.Secret{}, &corev1.Service{}, &corev1.ServiceAccount{}, &policyv1.PodDisruptionBudget{},
		&rbacv1.ClusterRole{}, &rbacv1.ClusterRoleBinding{}, &rbacv1.Role{}, &rbacv1.RoleBinding{},
	}
}

// meta returns the metadata of an object of the cluster, with additional labels.
func (p Params) meta(namespace, name string, more map[string]string) metav1.ObjectMeta {
	labels := map[string]string{key.LabelGSCluster: p.Cluster.ID, key.LabelManagedBy: key.Operator}
	maps.Copy(labels, more)
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}
}

// image returns where an image comes from: the user's own, otherwise its upstream registry, or the same path in the
// configured registry.
func (p Params) image(own, home, path, tag string) string {
	switch {
	case own != "":
		return own
	case p.Registry != "" && p.Registry != defaultRegistry:
		home = p.Registry
	}
	return home + "/" + path + ":" + tag
}

// podNetwork is the network of the cluster's pods.
func (p Params) podNetwork() (netip.Prefix, error) {
	cidr := key.PodNetwork(p.Cluster)
	network, err := netip.ParsePrefix(cidr)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("spec.cluster.calico of cluster %s: %q is not a network; correct subnet and cidr", p.Cluster.ID, cidr)
	}
	return network.Masked(), nil
}

// account returns a ServiceAccount and a ClusterRoleBinding of it.
func (p Params) account(namespace, name, binding, role string, labels map[string]string) []client.Object {
	return []client.Object{
		&corev1.ServiceAccount{ObjectMeta: p.meta(namespace, name, labels)},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: p.meta("", binding, labels), RoleRef: clusterRole(role),
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
		},
	}
}

// configured returns an annotation for pods whose program reads its configuration only at its start, so that pods are
// replaced when the configuration changes.
func configured(config *corev1.ConfigMap) map[string]string {
	// A map of strings can always be encoded.
	data, _ := json.Marshal(config.Data)
	sum := sha256.Sum256(data)
	return map[string]string{"checksum/config": hex.EncodeToString(sum[:12])}
}

// lines joins the lines of a file.
func lines(text ...string) string { return strings.Join(text, "\n") + "\n" }

// paced adds the environment variables for programs on emulated machines to containers.
func paced(p Params, containers ...corev1.Container) []corev1.Container {
	if !p.Emulated {
		return containers
	}
	for i := range containers {
		c := &containers[i]
		for _, variable := range pace.Emulated() {
			c.Env = append(c.Env, corev1.EnvVar{Name: variable.Name, Value: variable.Value})
		}
	}
	return containers
}
