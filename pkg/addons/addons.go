// Package addons builds what a workload cluster needs besides its nodes and control plane: the rights of those who join,
// kube-proxy, CoreDNS and the pod network.
//
// Builders are pure: the same Params give the same objects. What they leave out is what the API server fills in, so that
// an object that was applied is found to be as wanted.
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
	"github.com/kvm-operator/kvm-operator/pkg/key"
	"github.com/kvm-operator/kvm-operator/pkg/pace"
)

// Values of CNI.Type.
const (
	// CNIFlannel is flannel with VXLAN. It is also what an empty type means.
	CNIFlannel = "flannel"
	// CNICustom is what CNI.Manifests say.
	CNICustom = "custom"
	// CNINone leaves the pod network to somebody else.
	CNINone = "none"
)

// defaultRegistry holds the images of Kubernetes itself.
const defaultRegistry = "registry.k8s.io"

// Params is everything that the add-ons of a cluster depend on.
type Params struct {
	// Cluster is spec.cluster with defaults filled in.
	Cluster v1alpha1.Cluster
	// Versions are those in force; that of kubernetes is kube-proxy's, too.
	Versions v1alpha1.Versions
	// Registry is the registry of the images, with an optional path. Empty, or registry.k8s.io: each image comes from
	// where its makers put it.
	Registry string
	// APIServerURL is how pods on a node's network reach the API server, without kube-proxy.
	APIServerURL string
	// Administrators is the group that is bound to the rights of an administrator; empty for that of this name.
	Administrators string
	// Emulated says that software emulates the processors of the cluster's machines.
	Emulated bool
	// KubeProxy and CoreDNS can be left to somebody else, or come from another image.
	KubeProxy, CoreDNS Addon
	// CNI is the pod network.
	CNI CNI
}

// Addon is whether an add-on is installed and what it runs.
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
	// MTU is that of pod interfaces in bytes. 0: what the node's interface has, less the encapsulation.
	MTU int32
}

// Objects are all add-ons of a cluster, in the order in which they are applied. An add-on that is switched off is not
// among them.
func Objects(p Params) ([]client.Object, error) {
	network, err := NetworkObjects(p)
	if err != nil {
		return nil, err
	}
	all := append(RBAC(p), network...)
	if !p.KubeProxy.Disabled {
		objects, err := KubeProxy(p)
		if err != nil {
			return nil, err
		}
		all = append(all, objects...)
	}
	if !p.CoreDNS.Disabled {
		all = append(all, CoreDNS(p)...)
	}
	return all, nil
}

// NetworkObjects are the pod network of a cluster; none where it is left to somebody else.
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

// Kinds are all kinds that add-ons consist of, manifests of users included.
func Kinds() []client.Object {
	return []client.Object{
		&apiextensionsv1.CustomResourceDefinition{}, &appsv1.DaemonSet{}, &appsv1.Deployment{}, &corev1.ConfigMap{}, &corev1.Namespace{},
		&corev1.Secret{}, &corev1.Service{}, &corev1.ServiceAccount{}, &policyv1.PodDisruptionBudget{},
		&rbacv1.ClusterRole{}, &rbacv1.ClusterRoleBinding{}, &rbacv1.Role{}, &rbacv1.RoleBinding{},
	}
}

// meta is the metadata of an object of the cluster, with more labels.
func (p Params) meta(namespace, name string, more map[string]string) metav1.ObjectMeta {
	labels := map[string]string{key.LabelGSCluster: p.Cluster.ID, key.LabelManagedBy: key.Operator}
	maps.Copy(labels, more)
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}
}

// image is where an image comes from: the user's own, else its home, or the same path in the configured registry.
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

// account is a ServiceAccount with a role of the whole cluster that is bound to it.
func (p Params) account(namespace, name, binding, role string, labels map[string]string) []client.Object {
	return []client.Object{
		&corev1.ServiceAccount{ObjectMeta: p.meta(namespace, name, labels)},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: p.meta("", binding, labels), RoleRef: clusterRole(role),
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
		},
	}
}

// configured is an annotation of pods whose program reads its configuration only when it starts: pods are replaced when
// the configuration changes.
func configured(config *corev1.ConfigMap) map[string]string {
	// A map of strings is always text.
	data, _ := json.Marshal(config.Data)
	sum := sha256.Sum256(data)
	return map[string]string{"checksum/config": hex.EncodeToString(sum[:12])}
}

// lines joins the lines of a file.
func lines(text ...string) string { return strings.Join(text, "\n") + "\n" }

// paced are containers with what programs on emulated machines are told.
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
