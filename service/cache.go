package service

import (
	"net/http"

	"github.com/giantswarm/microerror"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	kubernetes "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	providerv1alpha1 "github.com/kvm-operator/kvm-operator/pkg/apis/provider/v1alpha1"
	releasev1alpha1 "github.com/kvm-operator/kvm-operator/pkg/apis/release/v1alpha1"
	smolvmv1alpha1 "github.com/kvm-operator/kvm-operator/pkg/apis/smolvm/v1alpha1"
	vmoperatorv1 "github.com/kvm-operator/kvm-operator/pkg/apis/vmoperator/v1"
	"github.com/kvm-operator/kvm-operator/pkg/cluster/key"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/apply"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/intern"
	"github.com/kvm-operator/kvm-operator/pkg/operatorkit/undecodable"
	"github.com/kvm-operator/kvm-operator/service/controller/cluster"
	"github.com/kvm-operator/kvm-operator/service/controller/drainer"
)

// NewScheme returns a scheme with every kind of Kubernetes, and those that the operator defines.
func NewScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		kubernetes.AddToScheme, apiextensionsv1.AddToScheme,
		providerv1alpha1.AddToScheme, releasev1alpha1.AddToScheme, vmoperatorv1.AddToScheme, smolvmv1alpha1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, microerror.Mask(err)
		}
	}
	return scheme, nil
}

// clusterScoped are the cluster-scoped kinds among those that the operator uses.
var clusterScoped = []schema.GroupVersionKind{
	apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"),
	certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"),
	corev1.SchemeGroupVersion.WithKind("Namespace"),
	corev1.SchemeGroupVersion.WithKind("Node"),
	corev1.SchemeGroupVersion.WithKind("PersistentVolume"),
	rbacv1.SchemeGroupVersion.WithKind("ClusterRole"),
	rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"),
	releasev1alpha1.GroupVersion.WithKind("Release"),
	smolvmv1alpha1.GroupVersion.WithKind("SmolVMNode"),
}

// plurals are the names of resources that do not follow from their kind.
var plurals = map[string]struct{ singular, plural string }{"VirtualMachine": {"vm", "vms"}}

// NewMapper returns a mapper with a fixed list of the resources in use, so that the operator never needs discovery: it
// does not depend on the health of other API groups and starts without a request.
func NewMapper(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapperOf(usedKinds()) }

func mapperOf(kinds []client.Object) (meta.RESTMapper, error) {
	scheme, err := NewScheme()
	if err != nil {
		return nil, err
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range kinds {
		gvks, _, err := scheme.ObjectKinds(kind)
		if err != nil {
			return nil, microerror.Mask(err)
		}
		scope := meta.RESTScopeNamespace
		for _, gvk := range clusterScoped {
			if gvk == gvks[0] {
				scope = meta.RESTScopeRoot
			}
		}
		if plural, ok := plurals[gvks[0].Kind]; ok {
			resource := gvks[0].GroupVersion()
			mapper.AddSpecific(gvks[0], resource.WithResource(plural.plural), resource.WithResource(plural.singular), scope)
			continue
		}
		mapper.Add(gvks[0], scope)
	}
	return mapper, nil
}

// CreatedKinds are the kinds of object that the operator creates on the management cluster.
func CreatedKinds() []client.Object { return append(cluster.Kinds(), drainer.Kinds()...) }

// usedKinds are the kinds that the operator reads or writes.
func usedKinds() []client.Object {
	return append(CreatedKinds(),
		&corev1.Node{}, &corev1.Pod{}, &corev1.PersistentVolume{}, &providerv1alpha1.KVMConfig{}, &releasev1alpha1.Release{})
}

// CacheOptions keep in memory only the objects that concern the operator.
func CacheOptions(selector labels.Selector) cache.Options {
	managed := cache.ByObject{Label: labels.SelectorFromSet(labels.Set{key.LabelManagedBy: key.Operator})}
	options := cache.Options{DefaultTransform: trim, ByObject: map[client.Object]cache.ByObject{}}
	for _, kind := range CreatedKinds() {
		options.ByObject[kind] = managed
	}
	// Secrets that another party created may be adopted; they have the label of the cluster.
	for kind := range options.ByObject {
		if _, ok := kind.(*corev1.Secret); ok {
			options.ByObject[kind] = cache.ByObject{Label: exists(key.LabelGSCluster)}
		}
	}
	options.ByObject[&corev1.Pod{}] = cache.ByObject{Label: labels.SelectorFromSet(labels.Set{key.LabelPodWatcher: key.Operator})}
	options.ByObject[&corev1.PersistentVolume{}] = cache.ByObject{Label: exists(key.LabelMountTag)}
	options.ByObject[&providerv1alpha1.KVMConfig{}] = cache.ByObject{Label: selector}
	return options
}

// NewCache creates a cache that decodes KVMConfigs and Releases one by one, because the schema of a custom resource may
// accept what Go cannot decode, and one user's object must not stop the others.
func NewCache(selector labels.Selector) cache.NewCacheFunc {
	return func(config *rest.Config, options cache.Options) (cache.Cache, error) {
		informers, err := undecodable.Informers(config, options.HTTPClient, options.Scheme,
			undecodable.Kind{
				Object: &providerv1alpha1.KVMConfig{}, List: &providerv1alpha1.KVMConfigList{}, Selector: selector,
				Resource: providerv1alpha1.GroupVersion.WithResource("kvmconfigs"),
			},
			undecodable.Kind{
				Object: &releasev1alpha1.Release{}, List: &releasev1alpha1.ReleaseList{},
				Resource: releasev1alpha1.GroupVersion.WithResource("releases"),
			})
		if err != nil {
			return nil, err
		}
		options.NewInformer = informers
		c, err := cache.New(config, options)
		return c, microerror.Mask(err)
	}
}

func exists(label string) labels.Selector {
	requirement, err := labels.NewRequirement(label, selection.Exists, nil)
	if err != nil {
		panic(err) // the label is a constant
	}
	return labels.NewSelector().Add(*requirement)
}

// trim removes what the operator does not read.
func trim(object any) (any, error) {
	accessor, ok := object.(metav1.Object)
	if !ok {
		return object, nil // a tombstone: the object was deleted
	}
	apply.TrimManagedFields(accessor)
	intern.Metadata(accessor)
	switch o := object.(type) {
	case *corev1.Pod:
		trimPod(o)
	case *corev1.Node:
		trimHost(o)
	}
	return object, nil
}

// trimHost keeps of a host only its name and whether it is Ready.
func trimHost(host *corev1.Node) {
	host.ObjectMeta = metav1.ObjectMeta{Name: host.Name, UID: host.UID, ResourceVersion: host.ResourceVersion}
	host.Spec = corev1.NodeSpec{}
	var conditions []corev1.NodeCondition
	for _, c := range host.Status.Conditions {
		if c.Type == corev1.NodeReady {
			conditions = append(conditions, corev1.NodeCondition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message})
		}
	}
	host.Status = corev1.NodeStatus{Conditions: conditions}
}

// trimPod keeps of a node pod what placement, readiness and endpoints need.
func trimPod(pod *corev1.Pod) {
	pod.Spec = corev1.PodSpec{NodeName: pod.Spec.NodeName, SchedulingGates: pod.Spec.SchedulingGates, ReadinessGates: pod.Spec.ReadinessGates}
	trimContainers(pod.Status.InitContainerStatuses)
	trimContainers(pod.Status.ContainerStatuses)
}

func trimContainers(statuses []corev1.ContainerStatus) {
	for i := range statuses {
		status := &statuses[i]
		last := status.LastTerminationState
		*status = corev1.ContainerStatus{Name: status.Name, Ready: status.Ready, State: status.State}
		// Of the previous run, keep only why it ended, because that explains why a node does not start.
		if ended := last.Terminated; ended != nil {
			status.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
				ExitCode: ended.ExitCode, Reason: ended.Reason, Message: ended.Message,
			}
		}
	}
}
